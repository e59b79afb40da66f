"""Linear maps, norms, gates, dropout, products and the layers behind attention."""

from __future__ import annotations

from typing import Any, Optional

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._errors import ArgumentError
from gradewise._transformers.algebra import SPACETIME
from gradewise._transformers.initialize import check
from gradewise._transformers.lgatr import MLPConfig, PrimitivesConfig
from gradewise._transformers.options import positive
from gradewise.jax._transformers.definition import Draws, Parameters, exact, keys
from gradewise.jax._transformers.features import Features, Pair, enter, grades_of_planes, product
from gradewise.jax._transformers.layers import (
    Definition,
    LinearMap,
    activation,
    drop,
    layer_norm,
    probability,
    scales,
)

CONSTANTS = float(np.float32(0.01)), 1.0
"""The least norm and the gain of a layer norm. The published package keeps them in single precision."""


class Layer(Definition):
    """A layer of multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``."""

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The layer on planes."""
        raise NotImplementedError

    def _parameters(self, made: Draws) -> Parameters:
        return {}

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        scalars: Optional[Array] = None,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., out, 16]`` and scalars ``[..., out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., in, 16]``.
            scalars: ``[..., in]``.
            key: of what dropout drops; nothing is dropped without one.
        """
        x = enter(SPACETIME, multivectors, scalars, type(self).__name__)
        return self.run(parameters, x, key).leave()


def primitives_of(config: Any) -> PrimitivesConfig:
    """A configuration, the defaults for None."""
    return PrimitivesConfig() if config is None else PrimitivesConfig.cast(config)


class EquiLinear(LinearMap, Layer):
    """The general equivariant linear map of multivectors and scalars (Spinner et al. 2024, arXiv:2405.14806).

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        primitives: the group, a :class:`PrimitivesConfig` or a dict.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.
        bias: whether there are biases, on scalars and on the multivectors' scalars.
        initialization: "default", "small", "unit_scalar" or "almost_unit_scalar".

    Parameters: ``weight`` ``[out, in, maps]``, and those of the linear maps ``s2mvs``, ``mvs2s`` and ``s2s``.
    """

    blades, components = SPACETIME, None

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        primitives: Any = None,
        in_s_channels: int = 0,
        out_s_channels: int = 0,
        bias: bool = True,
        initialization: str = "default",
    ) -> None:
        check(initialization, bias, in_s_channels > 0)
        primitives = primitives_of(primitives)
        self.mixes, self.maps = primitives.subgroup, primitives.num_pin_linear_basis_elements
        self.in_mv, self.out_mv, self.in_s, self.out_s = in_mv_channels, out_mv_channels, in_s_channels, out_s_channels
        self.has_bias, self.initialization = bias, initialization
        self._has_own_bias, self._has_s2s = bias and in_s_channels == 0, bool(in_s_channels and out_s_channels)

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The map on planes."""
        given = 0 if x.s is None else x.s.shape[0]
        if given == 0 and self.in_s:
            raise ArgumentError(f"EquiLinear: no scalars, expected {self.in_s} channels of them: give scalars")
        if given > 0 and not self.in_s:
            raise ArgumentError(
                f"EquiLinear: scalars of {given} channels for a map without any: leave them out, or make it with in_s_channels={given}"
            )
        return super().run(p, x)


class EquiLayerNorm(Layer):
    """Multivectors divided by the root of the mean of their norms over channels, and scalars by layer normalisation.

    Args:
        mv_channels: multivectors, for the gains.
        s_channels: scalars, for the gains.
        epsilon: the least mean norm that is divided by. As the published package keeps it in single precision, it is rounded to that.
        gain: what the result is multiplied by.
        elementwise_affine: whether there is a gain for each grade of each channel.

    Parameters: with ``elementwise_affine`` ``weight_mv`` ``[mv_channels, 5]`` and ``weight_s`` ``[s_channels]``.
    """

    def __init__(
        self,
        mv_channels: int = 0,
        s_channels: int = 0,
        epsilon: float = 0.01,
        gain: float = 1.0,
        elementwise_affine: bool = False,
    ) -> None:
        self._constants = float(np.float32(epsilon)), float(np.float32(gain))
        self._channels = (mv_channels, s_channels) if elementwise_affine else None

    def _parameters(self, made: Draws) -> Parameters:
        if self._channels is None:
            return {}
        mv, s = self._channels
        return {"weight_mv": made.filled((mv, 5), 1.0), "weight_s": made.filled((s,), 1.0)}

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The norm on planes."""
        epsilon, gain = self._constants
        mv = (x.mv * scales(x.mv, x.blades, epsilon, gain=gain)).astype(x.mv.dtype)
        s = None if x.s is None else layer_norm(x.s, 0)
        if self._channels is not None:
            mv = mv * p["weight_mv"].T[grades_of_planes(x.blades)][:, :, None]
            s = None if s is None else s * p["weight_s"][:, None]
        return x.with_(mv, s)


class GradeDropout(Layer):
    """Dropout of the grades of multivectors, each as a whole, and of scalars.

    Args:
        p: the probability.
    """

    def __init__(self, p: float = 0.0) -> None:
        self._p = probability("GradeDropout", p)

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """Dropout on planes."""
        return x if key is None or self._p == 0 else drop(x, self._p, key)


class ScalarGatedNonlinearity(Layer):
    """Multivectors times an activation of their scalars, and the activation of scalars.

    Args:
        nonlinearity: "relu", "sigmoid", "tanh", "gelu" (by its approximation with tanh) or "silu".
    """

    def __init__(self, nonlinearity: str = "gelu") -> None:
        self._activation = activation(nonlinearity)

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The gates on planes."""
        return x.with_(self._activation(x.mv[:1]) * x.mv, None if x.s is None else self._activation(x.s))


class GeometricBilinear(Layer):
    """The geometric product of two linear maps of the input, mapped linearly and normalised.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        primitives: the group and the products, a :class:`PrimitivesConfig` or a dict.
        hidden_mv_channels: products; as many as ``out_mv_channels`` if None.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.

    Parameters: those of ``linear_left``, ``linear_right`` and ``linear_out``.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        primitives: Any = None,
        hidden_mv_channels: Optional[int] = None,
        in_s_channels: int = 0,
        out_s_channels: int = 0,
    ) -> None:
        self._primitives = primitives = primitives_of(primitives)
        hidden = out_mv_channels if hidden_mv_channels is None else hidden_mv_channels
        mapped = (in_mv_channels, hidden, primitives, in_s_channels)
        # A product of two small factors would be too small; and without scalars there is no bias to draw around 1.
        self._maps = {
            "linear_left": EquiLinear(*mapped),
            "linear_right": EquiLinear(*mapped, initialization="almost_unit_scalar"),
            "linear_out": EquiLinear(hidden, out_mv_channels, primitives, in_s_channels, out_s_channels),
        }
        self._norm = EquiLayerNorm()

    def _parameters(self, made: Draws) -> Parameters:
        return {name: layer._parameters(made) for name, layer in self._maps.items()}

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The product on planes."""
        left, right = (self._maps[name].run(p[name], x).mv for name in ("linear_left", "linear_right"))
        made = product("geometric", x.blades, left, right)
        if not self._primitives.bivector:
            made = made * jnp.asarray(grades_of_planes(x.blades) != 2, made.dtype)[:, None, None]
        return self._norm.run({}, self._maps["linear_out"].run(p["linear_out"], x.with_(made, x.s)))


class GeoMLP(Layer):
    """A product of multivectors, then gates and linear maps.

    Args:
        config: channels, ratio, layers, activation, dropout: an :class:`MLPConfig` or a dict.
        primitives: the group and the products, a :class:`PrimitivesConfig` or a dict.

    Parameters: those of ``layers``, by number.
    """

    def __init__(self, config: Any, primitives: Any = None) -> None:
        config, primitives = MLPConfig.cast(config), primitives_of(primitives)
        if config.mv_channels is None:
            raise ArgumentError("GeoMLP: mv_channels is not set: give the channels of its input and output")
        positive("GeoMLP", num_layers_mlp=config.num_layers_mlp)
        inner = config.num_layers_mlp - 1
        mv = [config.mv_channels, *[config.mlp_ratio * config.mv_channels] * inner, config.mv_channels]
        s = [config.s_channels, *[config.mlp_ratio * config.s_channels] * inner, config.s_channels]
        layers: list[Layer] = []
        for number, (in_mv, out_mv, in_s, out_s) in enumerate(zip(mv, mv[1:], s, s[1:])):
            if number == 0 and primitives.geometric_product:
                layers.append(GeometricBilinear(in_mv, out_mv, primitives, in_s_channels=in_s, out_s_channels=out_s))
            else:
                layers.append(ScalarGatedNonlinearity(config.nonlinearity))
                layers.append(EquiLinear(in_mv, out_mv, primitives, in_s_channels=in_s, out_s_channels=out_s))
            if config.dropout_prob is not None:
                layers.append(GradeDropout(config.dropout_prob))
        self._layers = layers

    def _parameters(self, made: Draws) -> Parameters:
        return {"layers": [layer._parameters(made) for layer in self._layers]}

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The layers on planes."""
        for layer, own, drawn in zip(self._layers, p["layers"], keys(key, len(self._layers))):
            x = layer.run(own, x, drawn)
        return x
