"""Products of multivectors, and the layers behind attention."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise._transformers.options import positive
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.features import Features, Layer, Pair, run
from gradewise.torch._transformers.precision import island
from gradewise.torch.lgatr.config import MLPConfig, PrimitivesConfig
from gradewise.torch.lgatr.layers.linear import EquiLinear
from gradewise.torch.lgatr.layers.norm import EquiLayerNorm, GradeDropout, ScalarGatedNonlinearity


class GeometricBilinear(Layer):
    """The geometric product of two linear maps of the input, mapped linearly and normalised.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        primitives: the group and the products, a :class:`PrimitivesConfig` or a dict.
        hidden_mv_channels: products; as many as ``out_mv_channels`` if None.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.
    """

    _blades = SPACETIME

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        primitives: Any = None,
        hidden_mv_channels: Optional[int] = None,
        in_s_channels: int = 0,
        out_s_channels: int = 0,
    ) -> None:
        super().__init__()
        self.primitives = primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        hidden = out_mv_channels if hidden_mv_channels is None else hidden_mv_channels
        self.linear_left = EquiLinear(in_mv_channels, hidden, primitives, in_s_channels=in_s_channels)
        # A product of two small factors would be too small; and without scalars there is no bias to draw around 1.
        self.linear_right = EquiLinear(
            in_mv_channels,
            hidden,
            primitives,
            in_s_channels=in_s_channels,
            initialization="almost_unit_scalar",
        )
        self.linear_out = EquiLinear(
            hidden, out_mv_channels, primitives, in_s_channels=in_s_channels, out_s_channels=out_s_channels
        )
        self.norm = EquiLayerNorm()

    def _run(self, x: Features) -> Features:
        left = run(self.linear_left, EquiLinear, x).mv
        right = run(self.linear_right, EquiLinear, x).mv
        with island() as wide:
            product = x.blades.product(wide(left), wide(right))
        if not self.primitives.bivector:
            product = product * (x.blades.grade_of_planes(product) != 2)[:, None, None]
        made = run(self.linear_out, EquiLinear, x.with_(product, x.s))
        return run(self.norm, EquiLayerNorm, made)

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., out, 16]`` and scalars ``[..., out]``, None if there are none."""
        return self._run(self._enter(multivectors, scalars)).leave()


class GeoMLP(Layer):
    """A product of multivectors, then gates and linear maps.

    Args:
        config: channels, ratio, layers, activation, dropout: an :class:`MLPConfig` or a dict.
        primitives: the group and the products, a :class:`PrimitivesConfig` or a dict.
    """

    _blades = SPACETIME

    def __init__(self, config: Any, primitives: Any = None) -> None:
        super().__init__()
        config = MLPConfig.cast(config)
        primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        if config.mv_channels is None:
            raise ArgumentError("GeoMLP: mv_channels is not set: give the channels of its input and output")
        positive("GeoMLP", num_layers_mlp=config.num_layers_mlp)
        inner = config.num_layers_mlp - 1
        mv = [config.mv_channels, *[config.mlp_ratio * config.mv_channels] * inner, config.mv_channels]
        s = [config.s_channels, *[config.mlp_ratio * config.s_channels] * inner, config.s_channels]
        layers: list[nn.Module] = []
        for number, (in_mv, out_mv, in_s, out_s) in enumerate(zip(mv, mv[1:], s, s[1:])):
            if number == 0 and primitives.geometric_product:
                layers.append(GeometricBilinear(in_mv, out_mv, primitives, in_s_channels=in_s, out_s_channels=out_s))
            else:
                layers.append(ScalarGatedNonlinearity(config.nonlinearity))
                layers.append(EquiLinear(in_mv, out_mv, primitives, in_s_channels=in_s, out_s_channels=out_s))
            if config.dropout_prob is not None:
                layers.append(GradeDropout(config.dropout_prob))
        self.layers = nn.ModuleList(layers)
        self._kinds = [type(layer) for layer in layers]

    def _run(self, x: Features) -> Features:
        for number, layer in enumerate(self.layers):
            x = run(layer, self._kinds[number] if number < len(self._kinds) else Layer, x)
        return x

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``, None if there are none."""
        return self._run(self._enter(multivectors, scalars)).leave()
