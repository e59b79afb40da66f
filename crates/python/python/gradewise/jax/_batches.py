"""Batches of operators as one call: folded into rows, or into features; and operators by their parts, where neither does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Optional

import jax
import jax.numpy as jnp
from jax import Array

from gradewise._definitions import Definitions, Geometry
from gradewise.jax._definitions import Library, in_wide

Flags = tuple[bool, ...]
Run = Callable[[str, str, Sequence[Array]], Array]


def into_rows(x: Array, is_batched: bool, size: int) -> Array:
    """A batch of features ``[blades, rows, features]``, on a first axis, as features with more rows; also of features without a batch,
    which are the same throughout."""
    x = jnp.moveaxis(x, 0, 1) if is_batched else jnp.repeat(x[:, None], size, axis=1)
    return x.reshape(x.shape[0], size * x.shape[2], x.shape[3])


def from_rows(x: Array, size: int) -> Array:
    """The batch that was folded, on a first axis."""
    return jnp.moveaxis(x.reshape(x.shape[0], size, x.shape[1] // size, x.shape[2]), 1, 0)


def into_features(x: Array, is_batched: bool, has_rows: bool, size: int) -> Array:
    """A batch of features, or of parameters with features on their first axis, as one with more features."""
    axis = 2 if has_rows else 0
    x = jnp.moveaxis(x, 0, axis) if is_batched else jnp.repeat(jnp.expand_dims(x, axis), size, axis=axis)
    return x.reshape(*x.shape[:axis], size * x.shape[axis + 1], *x.shape[axis + 2 :])


def from_features(x: Array, has_rows: bool, size: int) -> Array:
    """The batch that was folded, on a first axis."""
    axis = 2 if has_rows else 0
    return jnp.moveaxis(x.reshape(*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :]), axis, 0)


class Parts(Definitions):
    """Operators by their parts: linear maps are matrix products of JAX, which have batches of matrices; what computes by feature, or by
    row without parameters, is an operator."""

    def __init__(self, run: Run) -> None:
        super().__init__(Library())
        self._run = run

    def define(self, operation: str, attributes: str, inputs: Sequence[Array]) -> Array:
        """An operation by its parts."""
        return in_wide(self, operation, attributes, inputs)

    def _silu(self, geometry: Geometry, x: Array, a: Array, b: Array) -> Array:
        return self._run("mv_silu", _of(geometry), [x, a, b])

    def _normalized(self, geometry: Geometry, x: Array, a: Array, least: Optional[float] = None) -> Array:
        if least is not None:
            return super()._normalized(geometry, x, a, least)
        return self._run("mv_normalization", _of(geometry), [x, a])

    def _layer_norm(self, geometry: Geometry, x: Array, gain: Array, least: Optional[float] = None) -> Array:
        if least is not None:
            return super()._layer_norm(geometry, x, gain, least)
        return self._run("mv_layer_norm", _of(geometry), [x, jnp.ones_like(gain)]) * gain

    def _bilinear(self, geometry: Geometry, x: Any, y: Any, weight: Any, gate: bool, normalize: bool) -> Array:
        if len(weight.shape) == 3:
            return super()._bilinear(geometry, x, y, weight, gate, normalize)
        attributes = json.dumps({"algebra": geometry.signature, "normalize": False})
        product = self._run("gelu_sgp_norm" if gate else "sgp", attributes, [x, y, weight])
        return self._root_mean_square_norm(geometry, product) if normalize else product


def _of(geometry: Geometry) -> str:
    return json.dumps({"algebra": geometry.signature})


def chosen(values: Sequence[Any], flags: Flags) -> tuple[Any, ...]:
    """The values whose flag is set."""
    return tuple(value for value, flag in zip(values, flags) if flag)


def spread(like: Sequence[Array], flags: Flags, some: Sequence[Any]) -> tuple[Any, ...]:
    """Values for the places where a flag is set, and zeros elsewhere."""
    arriving = iter(some)
    return tuple(next(arriving) if flag else jnp.zeros_like(x) for x, flag in zip(like, flags))


def pulled(function: Callable[..., Array], inputs: Sequence[Array], wanted: Flags, grad: Array) -> tuple[Array, ...]:
    """The gradients of the inputs that are wanted."""

    def of_some(*some: Array) -> Array:
        arriving = iter(some)
        return function(*(next(arriving) if flag else x for x, flag in zip(inputs, wanted)))

    return jax.vjp(of_some, *chosen(inputs, wanted))[1](grad)


def pushed(function: Callable[..., Array], inputs: Sequence[Array], moves: Flags, tangents: Sequence[Array]) -> Array:
    """The derivative along tangents of the inputs that move."""
    return jax.jvp(function, tuple(inputs), spread(inputs, moves, tangents))[1]
