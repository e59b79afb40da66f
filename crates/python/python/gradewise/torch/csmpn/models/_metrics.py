"""Means of losses over the batches of a run, as the published trainer asks models for."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from gradewise._errors import ArgumentError


class LossMeans:
    """The means of named losses over all samples since the last reset, over all processes of a distributed run.

    Args:
        names: the losses.
    """

    def __init__(self, *names: str) -> None:
        self._losses: dict[str, list[Tensor]] = {name: [] for name in names}

    def keys(self) -> list[str]:
        """The names of the losses."""
        return list(self._losses)

    def empty(self) -> bool:
        """Whether there are none since the last reset."""
        return not any(self._losses.values())

    def update(self, **losses: Tensor) -> None:
        """Adds the losses of a batch, one number for each sample."""
        for name, loss in losses.items():
            if name not in self._losses:
                raise ArgumentError(f"LossMeans.update: {name!r}, expected one of {self.keys()}")
            self._losses[name].append(loss.detach())

    def compute(self) -> dict[str, Tensor]:
        """The means of the losses that there are."""
        found = {}
        for name, losses in self._losses.items():
            if losses:
                joined = torch.cat([loss.reshape(-1) for loss in losses])
                total = torch.stack([joined.sum(), joined.new_tensor(joined.numel())])
                if dist.is_available() and dist.is_initialized():
                    dist.all_reduce(total)
                found[name] = total[0] / total[1]
        return found

    def reset(self) -> None:
        """Forgets the losses."""
        for losses in self._losses.values():
            losses.clear()
