"""Linear maps, norms, gates, products and joins, and multilayer perceptrons."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Optional, Union

import jax
import jax.numpy as jnp
from jax import Array

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.algebra import JOIN_SIGNS, POINT_WEIGHT, PROJECTIVE
from gradewise._transformers.gatr import MLPConfig
from gradewise._transformers.initialize import COMPONENTS, check
from gradewise.jax._transformers.definition import Definition, Draws, Parameters, exact, keys
from gradewise.jax._transformers.features import Features, Pair, enter, grades_of_planes, product
from gradewise.jax._transformers.layers import LinearMap, activation, drop, form, layer_norm, probability, scales


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
        x = enter(PROJECTIVE, multivectors, scalars, type(self).__name__)
        return self.run(parameters, x, key).leave()


class EquiLinear(LinearMap, Layer):
    """The general linear map of multivectors of the projective algebra that is equivariant under rotations, reflections and translations
    (Brehmer et al. 2023, arXiv:2305.18415), and of scalars.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        in_s_channels: scalars of the input, None for none.
        out_s_channels: scalars of the output, None for none.
        bias: whether there are biases, on scalars and on the multivectors' scalars.
        initialization: "default", "small", "unit_scalar" or "almost_unit_scalar".

    Parameters: ``weight`` ``[out, in, 9]``, and those of the linear maps ``s2mvs``, ``mvs2s`` and ``s2s``.
    """

    blades, components, mixes, maps = PROJECTIVE, COMPONENTS, False, len(PROJECTIVE.maps)

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        in_s_channels: Optional[int] = None,
        out_s_channels: Optional[int] = None,
        bias: bool = True,
        initialization: str = "default",
    ) -> None:
        check(initialization, bias, in_s_channels is not None)
        self.in_mv, self.out_mv, self.in_s, self.out_s = in_mv_channels, out_mv_channels, in_s_channels, out_s_channels
        self.has_bias, self.initialization = bias, initialization
        self._has_own_bias = bias and in_s_channels is None
        self._has_s2s = in_s_channels is not None and out_s_channels is not None

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The map on planes."""
        return super().run(p, x)


class EquiLayerNorm(Layer):
    """Multivectors divided by the root of the mean of their squared norms over channels, and scalars by layer normalisation.

    Args:
        epsilon: the least mean that is divided by.
    """

    def __init__(self, epsilon: float = 0.01) -> None:
        self._epsilon = epsilon

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The norm on planes."""
        mv = (x.mv * scales(x.mv, x.blades, self._epsilon, norms=form)).astype(x.mv.dtype)
        return x.with_(mv, None if x.s is None else layer_norm(x.s, 0))


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


_NONLINEARITIES = ("relu", "gelu", "sigmoid")


class ScalarGatedNonlinearity(Layer):
    """Multivectors times an activation of their scalars, and the activation of scalars.

    Args:
        nonlinearity: "relu", "gelu" (of multivectors by its approximation with tanh, as in the published code) or "sigmoid".
    """

    def __init__(self, nonlinearity: str = "relu") -> None:
        if nonlinearity not in _NONLINEARITIES:
            raise ArgumentError(
                f"ScalarGatedNonlinearity: nonlinearity {nonlinearity!r}, expected one of {', '.join(map(repr, _NONLINEARITIES))}"
            )
        self._gate = activation(nonlinearity)
        self._of_scalars = partial(jax.nn.gelu, approximate=False) if nonlinearity == "gelu" else self._gate

    def run(self, p: Parameters, x: Features, key: Optional[Array] = None) -> Features:
        """The gates on planes."""
        return x.with_(self._gate(x.mv[:1]) * x.mv, None if x.s is None else self._of_scalars(x.s))


def reference_of(reference: Union[Array, str], inputs: Array) -> Array:
    """A reference that broadcasts to multivectors ``[batch, ..., channels, 16]``: for "data" their mean, for "canonical" a multivector of
    the plane at infinity, which breaks the equivariance under reflections, or a multivector ``[..., 16]`` itself."""
    if not isinstance(reference, str):
        return jnp.asarray(reference)
    if reference == "data":
        return inputs.mean(tuple(range(1, inputs.ndim - 1)), keepdims=True)
    if reference == "canonical":
        return jnp.zeros(16, inputs.dtype).at[14:].set(1.0)
    raise ArgumentError(f"join_reference {reference!r}, expected 'data', 'canonical' or a multivector")


def _reference_rows(reference: Optional[Array], x: Features, channels: int) -> Array:
    """What joins are multiplied by, ``[channels or 1, rows]``: a component of the reference multivectors ``[..., 16]``."""
    if reference is None:
        raise ArgumentError(
            "GeometricBilinear: no reference_mv, and the join needs one: give a multivector such as the mean of the data"
        )
    factor = reference[..., POINT_WEIGHT]
    width = channels if factor.ndim and factor.shape[-1] != 1 else 1
    try:
        factor = jnp.broadcast_to(factor, (*x.shape, width))
    except ValueError as error:
        raise ShapeError(
            f"GeometricBilinear: reference_mv of shape {list(reference.shape)} for multivectors of shape {[*x.shape, channels, 16]}, "
            "expected one that broadcasts to them"
        ) from error
    return factor.reshape(math.prod(x.shape), width).T


class GeometricBilinear(Layer):
    """Geometric products of linear maps of the input beside joins of others, mapped linearly.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        hidden_mv_channels: products and joins together, an even number; as many as ``out_mv_channels`` if None.
        in_s_channels: scalars of the input, None for none.
        out_s_channels: scalars of the output, None for none.

    Parameters: those of ``linear_left``, ``linear_right``, ``linear_join_left``, ``linear_join_right`` and ``linear_out``.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: Optional[int] = None,
        in_s_channels: Optional[int] = None,
        out_s_channels: Optional[int] = None,
    ) -> None:
        hidden = out_mv_channels if hidden_mv_channels is None else hidden_mv_channels
        if hidden % 2:
            raise ArgumentError(
                f"GeometricBilinear: {hidden} hidden channels, expected an even number: half of them are joins"
            )
        sizes = (in_mv_channels, hidden // 2, in_s_channels)
        self._maps = {
            "linear_left": EquiLinear(*sizes),
            "linear_right": EquiLinear(*sizes, initialization="almost_unit_scalar"),
            "linear_join_left": EquiLinear(*sizes),
            "linear_join_right": EquiLinear(*sizes),
            "linear_out": EquiLinear(hidden, out_mv_channels, in_s_channels, out_s_channels),
        }

    def _parameters(self, made: Draws) -> Parameters:
        return {name: layer._parameters(made) for name, layer in self._maps.items()}

    def run(
        self, p: Parameters, x: Features, key: Optional[Array] = None, reference: Optional[Array] = None
    ) -> Features:
        """Products and joins on planes."""
        mapped = lambda name: self._maps[name].run(p[name], x).mv  # noqa: E731
        products = product("geometric", x.blades, mapped("linear_left"), mapped("linear_right"))
        joins = product("regressive", x.blades, mapped("linear_join_left"), mapped("linear_join_right"))
        signs = jnp.asarray([JOIN_SIGNS[grade] for grade in grades_of_planes(x.blades)], joins.dtype)
        factor = signs[:, None, None] * _reference_rows(reference, x, joins.shape[1]).astype(joins.dtype)
        both = x.with_(jnp.concatenate((products, joins * factor), 1), x.s)
        return self._maps["linear_out"].run(p["linear_out"], both)

    @exact
    def __call__(  # type: ignore[override]
        self, parameters: Parameters, multivectors: Array, reference_mv: Array, scalars: Optional[Array] = None
    ) -> Pair:
        """Multivectors ``[..., out, 16]`` and scalars ``[..., out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., in, 16]``.
            reference_mv: what joins take their behaviour under reflections from, broadcast to ``[..., out, 16]``.
            scalars: ``[..., in]``.
        """
        x = enter(PROJECTIVE, multivectors, scalars, "GeometricBilinear")
        return self.run(parameters, x, reference=reference_mv).leave()


class GeoMLP(Layer):
    """Products and joins, then gates and linear maps.

    Args:
        config: an :class:`MLPConfig` or a dict.

    Parameters: those of ``layers``, by number.
    """

    def __init__(self, config: Any) -> None:
        config = MLPConfig.cast(config)
        if config.mv_channels is None:
            raise ArgumentError(
                "GeoMLP: mv_channels is not set: give the channels before, between and behind its layers"
            )
        mv = list(config.mv_channels)
        s = [None] * len(mv) if config.s_channels is None else list(config.s_channels)
        if len(s) != len(mv):
            raise ArgumentError(f"GeoMLP: s_channels {s} beside mv_channels {mv}, expected as many")
        layers: list[Layer] = []
        for number, (in_mv, out_mv, in_s, out_s) in enumerate(zip(mv, mv[1:], s, s[1:])):
            if number == 0:
                layers.append(GeometricBilinear(in_mv, out_mv, in_s_channels=in_s, out_s_channels=out_s))
            else:
                layers.append(ScalarGatedNonlinearity(config.activation))
                layers.append(EquiLinear(in_mv, out_mv, in_s, out_s))
            if config.dropout_prob is not None:
                layers.append(GradeDropout(config.dropout_prob))
        self._layers = layers

    def _parameters(self, made: Draws) -> Parameters:
        return {"layers": [layer._parameters(made) for layer in self._layers]}

    def run(
        self, p: Parameters, x: Features, key: Optional[Array] = None, reference: Optional[Array] = None
    ) -> Features:
        """The layers on planes."""
        for layer, own, drawn in zip(self._layers, p["layers"], keys(key, len(self._layers))):
            more = {"reference": reference} if isinstance(layer, GeometricBilinear) else {}
            x = layer.run(own, x, drawn, **more)
        return x

    @exact
    def __call__(  # type: ignore[override]
        self,
        parameters: Parameters,
        multivectors: Array,
        scalars: Optional[Array],
        reference_mv: Array,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``; see :class:`GeometricBilinear`."""
        x = enter(PROJECTIVE, multivectors, scalars, "GeoMLP")
        return self.run(parameters, x, key, reference_mv).leave()
