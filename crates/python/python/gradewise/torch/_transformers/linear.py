"""Equivariant linear maps of multivectors and scalars: two matrix products.

The scalar and the blade joined to it form a pair, and beside them stand the scalars: one matrix for both. The other seven pairs of planes
have a matrix each, of ``[2·out, 2·in]``, built from the coefficients of the maps.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ShapeError
from gradewise.torch._composite import is_plain
from gradewise.torch._transformers.features import Features, Layer, Pair, is_without_hooks
from gradewise.torch._transformers.precision import is_island, island


class _PairMap(torch.autograd.Function):
    """:func:`_by_parts` in eager code, whose products write where their results belong."""

    @staticmethod
    def forward(ctx, first, others, bias, s, mv, scalars):
        below = _below(s, mv)
        ctx.save_for_backward(first, others, s, mv)
        ctx.has_bias, ctx.scalars = bias is not None, scalars
        top = first @ below if bias is None else torch.addmm(bias[:, None], first, below)
        return top[:scalars], _filled(others, mv, top[scalars:])

    @staticmethod
    def backward(ctx, of_s, of_mv):
        first, others, s, mv = ctx.saved_tensors
        top = torch.cat((of_s, of_mv[:2].flatten(0, 1)))
        pairs = _pairs(of_mv)
        needs = ctx.needs_input_grad
        of_first = of_others = of_bias = down_s = down_mv = None
        if needs[0]:
            of_first = top @ _below(s, mv).t()
        if needs[1]:
            of_others = pairs @ _pairs(mv).transpose(1, 2)
        if needs[2]:
            of_bias = top.sum(1)
        if needs[3] or needs[4]:
            down = first.t() @ top
            down_s = down[: s.shape[0]]
            rest = down[s.shape[0] :]
            if torch.is_grad_enabled() or not is_plain((of_mv, others)):
                down_mv = _joined(rest, others.transpose(1, 2) @ pairs)
            else:
                down_mv = _filled(others.transpose(1, 2), of_mv, rest)
        return of_first, of_others, of_bias, down_s, down_mv, None


def _below(s: Tensor, mv: Tensor) -> Tensor:
    """What the first matrix is applied to."""
    return torch.cat((s, mv[:2].flatten(0, 1)))


def _pairs(mv: Tensor) -> Tensor:
    """The planes beside the first pair: ``[7, 2 · channels, rows]``."""
    return mv[2:].reshape((mv.shape[0] - 2) // 2, 2 * mv.shape[1], mv.shape[2])


def _joined(first: Tensor, others: Tensor) -> Tensor:
    channels, rows = first.shape[0] // 2, first.shape[1]
    return torch.cat((first.view(2, channels, rows), others.reshape(2 * others.shape[0], channels, rows)))


def _filled(others: Tensor, mv: Tensor, first: Tensor) -> Tensor:
    """:func:`_joined` of ``first`` and the products of ``others``, without a copy of the latter."""
    channels = others.shape[1] // 2
    made = mv.new_empty(mv.shape[0], channels, mv.shape[2])
    torch.bmm(others, _pairs(mv), out=_pairs(made))
    made[:2] = first.view(2, channels, mv.shape[2])
    return made


def _by_parts(
    first: Tensor, others: Tensor, bias: Optional[Tensor], s: Tensor, mv: Tensor, scalars: int
) -> tuple[Tensor, Tensor]:
    """Scalars and planes, mapped.

    Args:
        first: ``[scalars + 2 · out, in scalars + 2 · in]``.
        others: ``[7, 2 · out, 2 · in]``.
        bias: ``[scalars + 2 · out]``.
        s: ``[in scalars, rows]``.
        mv: ``[16, in, rows]``.
        scalars: of the output.
    """
    below = _below(s, mv)
    top = first @ below if bias is None else torch.addmm(bias[:, None], first, below)
    return top[:scalars], _joined(top[scalars:], others @ _pairs(mv))


class LinearLayer(Layer):
    """An equivariant linear map under the published names of its parameters.

    Parameters: ``weight`` ``[out, in, maps]``, ``bias`` ``[out, 1]`` on the scalars of the multivectors, and the linear maps ``s2mvs`` of
    scalars to multivectors' scalars, ``mvs2s`` back, and ``s2s`` of scalars, as far as they are there.
    """

    weight: Tensor
    bias: Optional[Tensor]
    s2mvs: Optional[nn.Module]
    mvs2s: Optional[nn.Module]
    s2s: Optional[nn.Module]
    _mixes = False
    """Whether scalars are mapped to and from pseudoscalars too."""
    _is_wide = True
    """Whether multivectors are mapped in float32 under autocast."""

    def _run(self, x: Features) -> Features:
        self._fits(x)
        linears = [m for m in (self.s2mvs, self.mvs2s, self.s2s) if m is not None]
        if (self._is_wide and is_island()) or not all(
            type(m).forward is nn.Linear.forward and "forward" not in m.__dict__ and is_without_hooks(m)
            for m in linears
        ):
            return self._apart(x)
        s = x.s if x.s is not None else x.mv.new_empty(0, x.mv.shape[2])
        scalars = 0 if self.mvs2s is None else self.mvs2s.weight.shape[0]
        first, others, bias = self._matrices(None if x.s is None else s.shape[0])
        plain = [t for t in (first, others, bias, s, x.mv) if t is not None]
        is_fast = (
            is_plain(plain) and len({t.dtype for t in plain}) == 1 and not torch.is_autocast_enabled(s.device.type)
        )
        map_ = _PairMap.apply if is_fast else _by_parts
        s, mv = map_(first, others, bias, s, x.mv, scalars)
        return x.with_(mv, None if self.mvs2s is None else s)

    def _fits(self, x: Features) -> None:
        if x.mv.shape[1] != self.weight.shape[1]:
            raise ShapeError(
                f"{type(self).__name__}: multivectors of {x.mv.shape[1]} channels, shape {[*x.shape, x.mv.shape[1], 16]}, expected "
                f"{self.weight.shape[1]} channels"
            )
        there = None if self.s2mvs is None else getattr(self.s2mvs, "in_features", None)
        if there is not None and x.s is not None and x.s.shape[0] != there:
            raise ShapeError(
                f"{type(self).__name__}: scalars of {x.s.shape[0]} channels, shape {[*x.shape, x.s.shape[0]]}, expected {there} channels"
            )

    def _matrices(self, s_channels: Optional[int]) -> tuple[Tensor, Tensor, Optional[Tensor]]:
        """The matrix of scalars and the first pair, those of the other pairs, and the bias."""
        blocks = self._blocks(self.weight)
        out, in_ = self.weight.shape[:2]
        first = blocks[0]
        bias: list[Optional[Tensor]] = [None, None]
        if s_channels:
            upper = first.new_zeros(2 * out, s_channels)
            if self.s2mvs is not None:
                upper = self._to_pairs(self.s2mvs.weight)
            first = torch.cat((upper, first), 1)
        if self.s2mvs is not None and s_channels is not None and self.s2mvs.bias is not None:
            bias[1] = self._to_pairs(self.s2mvs.bias[:, None])[:, 0]
        elif self.bias is not None:
            bias[1] = F.pad(self.bias[:, 0], (0, out))
        if self.mvs2s is not None:
            lower = self._of_pairs(self.mvs2s.weight)
            if s_channels:
                ours = lower.new_zeros(lower.shape[0], s_channels) if self.s2s is None else self.s2s.weight
                lower = torch.cat((ours, lower), 1)
            first = torch.cat((lower, first), 0)
            bias[0] = self.mvs2s.bias
        if bias[0] is None and bias[1] is None:
            return first, blocks[1:], None
        rows = (first.shape[0] - 2 * out, 2 * out)
        return first, blocks[1:], torch.cat([first.new_zeros(n) if b is None else b for b, n in zip(bias, rows)])

    def _blocks(self, weight: Tensor) -> Tensor:
        """For each pair of planes a matrix ``[2 · out, 2 · in]``: ``[8, 2 · out, 2 · in]``."""
        out, in_, maps = weight.shape
        pairs = self._blades.size // 2
        spread = self._blades.table_of(weight, maps).t() @ weight.reshape(out * in_, maps).t()
        return spread.view(pairs, 2, 2, out, in_).transpose(2, 3).reshape(pairs, 2 * out, 2 * in_)

    def _to_pairs(self, rows: Tensor) -> Tensor:
        """A matrix whose rows are the scalars of channels, and where they mix the pseudoscalars by turns, with rows as planes have them."""
        if self._mixes:
            return rows.view(-1, 2, rows.shape[1]).transpose(0, 1).reshape(rows.shape)
        return F.pad(rows, (0, 0, 0, rows.shape[0]))

    def _of_pairs(self, columns: Tensor) -> Tensor:
        if self._mixes:
            return columns.view(columns.shape[0], -1, 2).transpose(1, 2).reshape(columns.shape)
        return F.pad(columns, (0, columns.shape[1]))

    def _apart(self, x: Features) -> Features:
        """The same with its linear maps of scalars as modules: for hooks, and under autocast, which has scalars mapped in its dtype."""
        with island() if self._is_wide else nullcontext(lambda x: x) as wide:
            mv = wide(x.mv)
            blocks = self._blocks(wide(self.weight))
            top = (blocks[0] @ mv[:2].flatten(0, 1)).view(2, self.weight.shape[0], mv.shape[2])
            if self.bias is not None:
                top = torch.cat((top[:1] + self.bias, top[1:]))
            others = blocks[1:] @ _pairs(mv)
        rows = mv.shape[2]
        s = None if x.s is None else x.s.t()
        if self.s2mvs is not None and s is not None:
            delta = self.s2mvs(s)
            if self._mixes:
                top = top + delta.view(rows, self.weight.shape[0], 2).permute(2, 1, 0)
            else:
                top = torch.cat((top[:1] + delta.t(), top[1:]))
        made = None
        if self.mvs2s is not None:
            of = x.mv[:2].permute(2, 1, 0).flatten(1) if self._mixes else x.mv[0].t()
            made = self.mvs2s(of)
            if self.s2s is not None and s is not None:
                made = made + self.s2s(s)
        mv = _joined(top.flatten(0, 1), others.to(top.dtype))
        return x.with_(mv, None if made is None else made.t())

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., out, 16]`` of ``[..., in, 16]``, and scalars ``[..., out]`` of ``[..., in]``, None if there are none."""
        return self._run(self._enter(multivectors, scalars)).leave()
