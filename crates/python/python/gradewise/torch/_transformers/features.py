"""Multivectors and scalars of the rows of a transformer, as its layers hand them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch._transformers.algebra import Blades

Pair = tuple[Tensor, Optional[Tensor]]


@dataclass(frozen=True)
class Features:
    """Multivectors as planes, and scalars if there are any, of rows that were ``[..., items]``."""

    mv: Tensor
    """``[16, channels, rows]``"""
    s: Optional[Tensor]
    """``[channels, rows]``"""
    shape: tuple[int, ...]
    """``(..., items)``, whose product is the number of rows."""
    blades: Blades
    kept: Optional[tuple[Tensor, Tensor, Optional[Tensor]]] = None
    """Both parts in one matrix, and the parts of which it is that: see :meth:`whole`."""

    @staticmethod
    def of_whole(whole: Tensor, channels: int, shape: tuple[int, ...], blades: Blades) -> Features:
        """Features of ``channels`` multivectors, in one matrix."""
        count = whole.shape[0] - blades.size * channels
        mv = whole[count:].view(blades.size, channels, whole.shape[1])
        s = whole[:count] if count else None
        return Features(mv, s, shape, blades, (whole, mv, s))

    @property
    def is_whole(self) -> bool:
        """Whether these parts are those of the matrix that is kept."""
        return self.kept is not None and self.kept[1] is self.mv and self.kept[2] is self.s

    def whole(self) -> Tensor:
        """Scalars and planes in one matrix ``[scalars + 16 · channels, rows]``."""
        if self.is_whole:
            return self.kept[0]
        planes = self.mv.reshape(-1, self.mv.shape[2])
        return planes if self.s is None else torch.cat((self.s, planes))

    @property
    def channels(self) -> tuple[int, int]:
        """The channels of multivectors and of scalars."""
        return self.mv.shape[1], 0 if self.s is None else self.s.shape[0]

    def with_(self, mv: Tensor, s: Optional[Tensor]) -> Features:
        """Other features of the same rows."""
        return replace(self, mv=mv, s=s)

    def __add__(self, other: Features) -> Features:
        """A residual sum. Scalars that one of both does not have are those of the other."""
        if self.s is None or other.s is None:
            s = other.s if self.s is None else self.s
        else:
            s = self.s + other.s
        return self.with_(self.mv + other.mv, s)

    def beside(self, other: Optional[Features]) -> Features:
        """These channels, and behind them those of other features of the same rows."""
        if other is None:
            return self
        s = self.s
        if s is not None and other.s is not None:
            s = torch.cat((s, other.s), 0)
        return self.with_(torch.cat((self.mv, other.mv), 1), s)

    def leave(self) -> Pair:
        """As the published packages have them: ``[..., items, channels, 16]`` and ``[..., items, channels]``."""
        mv = self.blades.leave(self.mv)
        s = None if self.s is None else self.s.t().reshape(*self.shape, self.s.shape[0])
        return mv.reshape(*self.shape, *mv.shape[1:]), s


def enter(blades: Blades, mv: Tensor, s: Optional[Tensor], operation: str) -> Features:
    """Features of published arrays ``[..., items, channels, 16]`` and ``[..., items, channels]``."""
    if mv.dim() < 2 or mv.shape[-1] != blades.size:
        raise ShapeError(
            f"{operation}: multivectors of shape {list(mv.shape)}, expected [..., items, channels, {blades.size}]: the last axis "
            "holds the blades; embed vectors and scalars first"
        )
    shape = tuple(mv.shape[:-2])
    rows = 1
    for size in shape:
        rows *= size
    scalars = None
    if s is not None:
        if tuple(s.shape[:-1]) != shape:
            raise ShapeError(
                f"{operation}: scalars of shape {list(s.shape)} beside multivectors of shape {list(mv.shape)}, expected "
                f"{[*shape, 'channels']}: one row of scalars for each item"
            )
        scalars = s.reshape(rows, s.shape[-1]).t()
    return Features(blades.enter(mv.reshape(rows, *mv.shape[-2:])), scalars, shape, blades)


def extra_features(x: Features, mv: Optional[Tensor], s: Optional[Tensor]) -> Optional[Features]:
    """Features beside others, of which either kind may be left out."""
    if mv is None and s is None:
        return None
    if mv is None:
        mv = x.mv.new_empty(*x.shape, 0, x.blades.size)
    return enter(x.blades, mv, s, "additional_qk_features")


def reinserted(
    x: Features, mv_channels: Optional[Sequence[int]], s_channels: Optional[Sequence[int]], operation: str
) -> Optional[Features]:
    """Channels of a model's input, by number, that its blocks' queries and keys are made of too; None if there are none."""
    if mv_channels is None and s_channels is None:
        return None
    for name, channels, count in (("mv", mv_channels, x.channels[0]), ("s", s_channels, x.channels[1])):
        for channel in channels or ():
            if not -count <= channel < count:
                raise ArgumentError(
                    f"{operation}: reinsert_{name}_channels has {channel}, and the input has {count} channels of that kind"
                )
    # Slices rather than an index, whose gradient is a sum in no fixed order on a GPU.
    mv = torch.stack([x.mv[:, channel] for channel in mv_channels], 1) if mv_channels else x.mv[:, :0]
    if s_channels is None or x.s is None:
        return x.with_(mv, None)
    return x.with_(mv, torch.stack([x.s[channel] for channel in s_channels]) if s_channels else x.s[:0])


def acts_as(module: nn.Module) -> type:
    """The class whose ``forward`` a call of a module computes: that of an accelerated module is the one that was found to do the same."""
    own = type(module)
    return vars(own).get("_acts_as", own)


def is_own(module: nn.Module, kind: type) -> bool:
    """Whether calling a module does nothing but its ``_run``: no hooks, no other ``forward``."""
    own = acts_as(module)
    return (
        issubclass(own, kind)
        and own.forward is kind.forward
        and own._run is kind._run
        and "forward" not in module.__dict__
        and is_without_hooks(module)
    )


def is_without_hooks(module: nn.Module) -> bool:
    """Whether nothing is registered that runs when a module is called."""
    return not (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or nn.modules.module._has_any_global_hook()
    )


def run(module: nn.Module, kind: Any, x: Features, *arguments: Any, **options: Any) -> Features:
    """A layer inside another one: on planes if it is what it seems, otherwise by a call as the published packages make it, so that hooks,
    replaced layers and subclasses see what they expect.

    Args:
        module: the layer.
        kind: the class that it had when its owner was made.
        x: the features.
        arguments: further arguments of the class's ``_run`` and ``_call``.
        options: further options of both.
    """
    if is_own(module, kind):
        return module._run(x, *arguments, **options)
    mv, s = kind._call(module, x, *arguments, **options)
    return enter(x.blades, mv, s, type(module).__name__)


def computed_again(function: Callable[..., Features], x: Features, *arguments: Any) -> Features:
    """A function of features whose inner results are computed again by the backward pass."""

    def again(mv: Tensor, s: Optional[Tensor]) -> tuple[Tensor, Optional[Tensor]]:
        y = function(x.with_(mv, s), *arguments)
        return y.mv, y.s

    mv, s = checkpoint(again, x.mv, x.s, use_reentrant=False)
    return x.with_(mv, s)


class Layer(nn.Module):
    """A layer of features: what it computes is in ``_run``, on planes."""

    _blades: Blades

    def _run(self, x: Features, *arguments: Any, **options: Any) -> Features:
        raise NotImplementedError

    @staticmethod
    def _call(module: nn.Module, x: Features, *arguments: Any, **options: Any) -> Pair:
        mv, s = x.leave()
        return module(mv, scalars=s)

    def _alike(self, mv: Tensor, s: Optional[Tensor]) -> Pair:
        """What a layer does that treats multivectors and scalars apart from one another, so that their rows need not be the same."""
        if s is None or s.shape[:-1] == mv.shape[:-2]:
            return self._run(self._enter(mv, s)).leave()
        made, _ = self._run(self._enter(mv, None)).leave()
        zeros = mv.new_zeros(*s.shape[:-1], *mv.shape[-2:])
        return made, self._run(self._enter(zeros, s)).leave()[1]

    def _enter(self, mv: Tensor, s: Optional[Tensor]) -> Features:
        return enter(self._blades, mv, s, type(self).__name__)
