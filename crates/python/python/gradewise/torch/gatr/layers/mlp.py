"""Products and joins of multivectors, and multilayer perceptrons."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.algebra import JOIN_SIGNS, POINT_WEIGHT
from gradewise.torch._transformers.algebra import PROJECTIVE, constant
from gradewise.torch._transformers.features import Features, Layer, Pair, run
from gradewise.torch.gatr.config import MLPConfig
from gradewise.torch.gatr.layers.linear import EquiLinear
from gradewise.torch.gatr.layers.norm import GradeDropout, ScalarGatedNonlinearity

_ON_PLANES = tuple(float(JOIN_SIGNS[PROJECTIVE.grades[blade]]) for blade in PROJECTIVE.order)


def reference_rows(reference: Optional[Tensor], x: Features, channels: int) -> Tensor:
    """What joins are multiplied by, ``[channels or 1, rows]``: a component of the reference multivectors ``[..., 16]``."""
    if reference is None:
        raise ArgumentError(
            "GeometricBilinear: no reference_mv, and the join needs one: give a multivector such as the mean of the data"
        )
    factor = reference[..., POINT_WEIGHT]
    wide = channels if factor.dim() and factor.shape[-1] != 1 else 1
    try:
        factor = factor.expand(*x.shape, wide)
    except RuntimeError as error:
        raise ShapeError(
            f"GeometricBilinear: reference_mv of shape {list(reference.shape)} for multivectors of shape {[*x.shape, channels, 16]}, "
            "expected one that broadcasts to them"
        ) from error
    return factor.reshape(-1, wide).t()


class GeometricBilinear(Layer):
    """Geometric products of linear maps of the input beside joins of others, mapped linearly.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        hidden_mv_channels: products and joins together, an even number; as many as ``out_mv_channels`` if None.
        in_s_channels: scalars of the input, None for none.
        out_s_channels: scalars of the output, None for none.
    """

    _blades = PROJECTIVE

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: Optional[int] = None,
        in_s_channels: Optional[int] = None,
        out_s_channels: Optional[int] = None,
    ) -> None:
        super().__init__()
        hidden = out_mv_channels if hidden_mv_channels is None else hidden_mv_channels
        if hidden % 2:
            raise ArgumentError(
                f"GeometricBilinear: {hidden} hidden channels, expected an even number: half of them are joins"
            )
        self.linear_left = EquiLinear(in_mv_channels, hidden // 2, in_s_channels)
        self.linear_right = EquiLinear(in_mv_channels, hidden // 2, in_s_channels, initialization="almost_unit_scalar")
        self.linear_join_left = EquiLinear(in_mv_channels, hidden // 2, in_s_channels)
        self.linear_join_right = EquiLinear(in_mv_channels, hidden // 2, in_s_channels)
        self.linear_out = EquiLinear(hidden, out_mv_channels, in_s_channels, out_s_channels)

    def _run(self, x: Features, reference: Optional[Tensor] = None) -> Features:
        def mapped(name: str) -> Tensor:
            return run(getattr(self, f"linear_{name}"), EquiLinear, x).mv

        products = x.blades.product(mapped("left"), mapped("right"))
        joins = x.blades.regressive(mapped("join_left"), mapped("join_right"))
        factor = constant(_ON_PLANES, joins)[:, None, None] * reference_rows(reference, x, joins.shape[1]).to(
            joins.dtype
        )
        both = x.with_(torch.cat((products, joins * factor), 1), x.s)
        return run(self.linear_out, EquiLinear, both)

    @staticmethod
    def _call(module: nn.Module, x: Features, reference: Optional[Tensor] = None) -> Pair:
        mv, s = x.leave()
        return module(mv, scalars=s, reference_mv=reference)

    def forward(self, multivectors: Tensor, reference_mv: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., out, 16]`` and scalars ``[..., out]``, None if there are none.

        Args:
            multivectors: ``[..., in, 16]``.
            reference_mv: what joins take their behaviour under reflections from, broadcast to ``[..., out, 16]``.
            scalars: ``[..., in]``.
        """
        return self._run(self._enter(multivectors, scalars), reference_mv).leave()


class GeoMLP(Layer):
    """Products and joins, then gates and linear maps.

    Args:
        config: an :class:`MLPConfig` or a dict.
    """

    _blades = PROJECTIVE

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config = MLPConfig.cast(config)
        if config.mv_channels is None:
            raise ArgumentError(
                "GeoMLP: mv_channels is not set: give the channels before, between and behind its layers"
            )
        mv = list(config.mv_channels)
        s = [None] * len(mv) if config.s_channels is None else list(config.s_channels)
        if len(s) != len(mv):
            raise ArgumentError(f"GeoMLP: s_channels {s} beside mv_channels {mv}, expected as many")
        layers: list[nn.Module] = []
        for number, (in_mv, out_mv, in_s, out_s) in enumerate(zip(mv, mv[1:], s, s[1:])):
            if number == 0:
                layers.append(GeometricBilinear(in_mv, out_mv, in_s_channels=in_s, out_s_channels=out_s))
            else:
                layers.append(ScalarGatedNonlinearity(config.activation))
                layers.append(EquiLinear(in_mv, out_mv, in_s, out_s))
            if config.dropout_prob is not None:
                layers.append(GradeDropout(config.dropout_prob))
        self.layers = nn.ModuleList(layers)
        self._kinds = [type(layer) for layer in layers]

    def _run(self, x: Features, reference: Optional[Tensor] = None) -> Features:
        for number, layer in enumerate(self.layers):
            if number == 0:
                x = run(layer, GeometricBilinear, x, reference)
            else:
                x = run(layer, self._kinds[number] if number < len(self._kinds) else Layer, x)
        return x

    _call = staticmethod(GeometricBilinear._call)

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor], reference_mv: Tensor) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``; see :class:`GeometricBilinear`."""
        return self._run(self._enter(multivectors, scalars), reference_mv).leave()
