"""What is computed in which precision under autocast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_is_naive = False


class naive_amp:
    """Lets autocast's dtype hold for multivectors too.

    Under ``torch.autocast`` products of multivectors, their norms and attention are computed in float32, and products of scalars in
    autocast's dtype. Within this context everything is computed in autocast's dtype. May be nested.

    Args:
        enabled: whether it does anything.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self._before: list[bool] = []

    def __enter__(self) -> naive_amp:
        global _is_naive
        self._before.append(_is_naive)
        _is_naive = _is_naive or self.enabled
        return self

    def __exit__(self, *_: Any) -> None:
        global _is_naive
        _is_naive = self._before.pop()


def is_autocast() -> bool:
    """Whether autocast is on for the CPU or for CUDA."""
    return torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")


def is_island() -> bool:
    """Whether what is to be exact is computed in float32 at least, against autocast."""
    return not _is_naive and is_autocast()


def _same(x: Tensor) -> Tensor:
    return x


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize == 2 else x


@contextmanager
def island() -> Iterator[Callable[[Tensor], Tensor]]:
    """A context without autocast where :func:`is_island`, with what makes tensors for it: in float32 at least. Otherwise a context that
    changes nothing, with the identity."""
    if is_island():
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            yield _wide
    else:
        yield _same
