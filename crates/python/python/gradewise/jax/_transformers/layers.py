"""Equivariant linear maps, norms, dropout and gates on planes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.algebra import Tables
from gradewise._transformers.initialize import Map, draws
from gradewise.jax._transformers.definition import Definition, Draws, Parameters, wide
from gradewise.jax._transformers.features import Features, grades_of_planes


class LinearMap(Definition):
    """An equivariant linear map of multivectors and scalars.

    Parameters: ``weight`` ``[out, in, maps]``, ``bias`` ``[out, 1]`` on the scalars of the multivectors, and ``weight`` and ``bias`` of
    ``s2mvs``, of scalars to multivectors' scalars, of ``mvs2s`` back, and of ``s2s``, as far as they are there.
    """

    blades: Tables
    mixes: bool
    """Whether scalars are mapped to and from pseudoscalars too."""
    maps: int
    in_mv: int
    out_mv: int
    in_s: Optional[int]
    out_s: Optional[int]
    has_bias: bool
    components: Optional[tuple[float, ...]]
    initialization: str
    _has_own_bias: bool
    _has_s2s: bool

    def _parameters(self, made: Draws) -> Parameters:
        mixed = 2 if self.mixes else 1
        parameters = {"weight": made.filled((self.out_mv, self.in_mv, self.maps), 0.0)}
        if self._has_own_bias:
            parameters["bias"] = made.filled((self.out_mv, 1), 0.0)
        inner: dict[str, tuple[int, int, bool]] = {}
        if self.in_s:
            inner["s2mvs"] = (mixed * self.out_mv, self.in_s, self.has_bias)
        if self.out_s:
            inner["mvs2s"] = (self.out_s, mixed * self.in_mv, self.has_bias)
        if self._has_s2s:
            inner["s2s"] = (self.out_s or 0, self.in_s or 0, False)
        for name, (rows, columns, has_bias) in inner.items():
            parameters[name] = {"weight": made.filled((rows, columns), 0.0)}
            if has_bias:
                parameters[name]["bias"] = made.filled((rows,), 0.0)
        told = {name: (columns, has_bias) for name, (_, columns, has_bias) in inner.items()}
        columns = told["s2s"][0] if "s2s" in told else None
        shape = Map(self.in_mv, self.maps, self.mixes, told.get("s2mvs"), told.get("mvs2s"), columns)
        for draw in draws(shape, self.initialization, components=self.components):
            *owner, name = draw.name.split(".")
            group = parameters[owner[0]] if owner else parameters
            before = group[name]
            drawn = before.shape if draw.coefficient is None else before.shape[:-1]
            values = made.uniform(drawn, draw.bound, draw.center)
            if draw.is_kept:
                one = draw.coefficient
                group[name] = values if one is None else made.with_coefficient(before, one, values)
        return parameters

    def run(self, p: Parameters, x: Features) -> Features:
        """The map of features with these parameters: two products of matrices."""
        self._fits(x)
        blocks = self._blocks(p["weight"])
        rows = x.mv.shape[2]
        # Scalars and the first pair of planes by one matrix, the other pairs by one each.
        below = x.mv[:2].reshape(-1, rows)
        first = blocks[0]
        bias = p["s2mvs"].get("bias") if "s2mvs" in p and x.s is not None else None
        on_scalars = None if bias is None else self._to_pairs(bias[:, None])
        if on_scalars is None and "bias" in p:
            on_scalars = jnp.concatenate((p["bias"], jnp.zeros_like(p["bias"])))
        if x.s is not None:
            below = jnp.concatenate((x.s, below))
            left = jnp.zeros((first.shape[0], x.s.shape[0]), first.dtype)
            first = jnp.concatenate((self._to_pairs(p["s2mvs"]["weight"]) if "s2mvs" in p else left, first), 1)
        scalars = 0
        if "mvs2s" in p:
            lower = self._of_pairs(p["mvs2s"]["weight"])
            scalars = lower.shape[0]
            if x.s is not None:
                ours = p["s2s"]["weight"] if "s2s" in p else jnp.zeros((scalars, x.s.shape[0]), lower.dtype)
                lower = jnp.concatenate((ours, lower), 1)
            first = jnp.concatenate((lower, first))
        top = first @ below
        s, upper = top[:scalars], top[scalars:]
        if on_scalars is not None:
            upper = upper + on_scalars
        if "mvs2s" in p and "bias" in p["mvs2s"]:
            s = s + p["mvs2s"]["bias"][:, None]
        others = blocks[1:] @ x.mv[2:].reshape(blocks.shape[0] - 1, -1, rows)
        mv = jnp.concatenate((upper[None], others)).reshape(self.blades.size, self.out_mv, rows)
        return x.with_(mv, s if "mvs2s" in p else None)

    def _fits(self, x: Features) -> None:
        name = type(self).__name__
        if x.mv.shape[1] != self.in_mv:
            raise ShapeError(
                f"{name}: multivectors of {x.mv.shape[1]} channels, shape {[*x.shape, x.mv.shape[1], 16]}, expected {self.in_mv} channels"
            )
        there = 0 if x.s is None else x.s.shape[0]
        if there and self.in_s and there != self.in_s:
            raise ShapeError(
                f"{name}: scalars of {there} channels, shape {[*x.shape, there]}, expected {self.in_s} channels"
            )

    def _blocks(self, weight: Array) -> Array:
        """For each pair of planes a matrix ``[2 · out, 2 · in]``: ``[8, 2 · out, 2 · in]``."""
        out, in_, maps = weight.shape
        pairs = self.blades.size // 2
        table = jnp.asarray(self.blades.table[:maps], weight.dtype)
        spread = (table.T @ weight.reshape(out * in_, maps).T).reshape(pairs, 2, 2, out, in_)
        return spread.transpose(0, 1, 3, 2, 4).reshape(pairs, 2 * out, 2 * in_)

    def _to_pairs(self, rows: Array) -> Array:
        """A matrix whose rows are the scalars of channels, and where they mix the pseudoscalars by turns, with rows as planes have them."""
        if self.mixes:
            return rows.reshape(-1, 2, rows.shape[1]).swapaxes(0, 1).reshape(rows.shape)
        return jnp.concatenate((rows, jnp.zeros_like(rows)))

    def _of_pairs(self, columns: Array) -> Array:
        if self.mixes:
            return columns.reshape(columns.shape[0], -1, 2).swapaxes(1, 2).reshape(columns.shape)
        return jnp.concatenate((columns, jnp.zeros_like(columns)), 1)


def grade_norms(mv: Array, blades: Tables) -> Array:
    """The sum over grades of the absolute values of their quadratic forms, for planes ``[16, ...]``: ``[...]``."""
    factors, of_plane = np.asarray(blades.factors), grades_of_planes(blades)
    by_grade = [np.where(of_plane == grade, factors, 0.0) for grade in range(len(blades.metric) + 1)]
    forms = jnp.tensordot(jnp.asarray(np.stack(by_grade), mv.dtype), mv * mv, 1)
    return jnp.abs(forms).sum(0)


def form(mv: Array, blades: Tables) -> Array:
    """The quadratic form of planes ``[16, ...]`` of an algebra where none is negative: ``[...]``."""
    there = mv[np.asarray([p for p, factor in enumerate(blades.factors) if factor])]
    return (there * there).sum(0)


def scales(
    mv: Array,
    blades: Tables,
    epsilon: float,
    norms: Callable[[Array, Tables], Array] = grade_norms,
    gain: float = 1.0,
    axis: int = 1,
) -> Array:
    """What planes ``[16, ...]`` are multiplied by so that the mean of their norms over an axis is 1, with that axis of length 1 and without
    that of the planes."""
    mean = norms(wide(mv), blades).mean(axis - 1, keepdims=True)
    found = jax.lax.rsqrt(jnp.maximum(mean, epsilon))
    return found if gain == 1 else gain * found


def layer_norm(s: Array, axis: int) -> Array:
    """Scalars normalised over an axis."""
    x = wide(s)
    centered = x - x.mean(axis, keepdims=True)
    return (centered * jax.lax.rsqrt((centered * centered).mean(axis, keepdims=True) + 1e-5)).astype(s.dtype)


def drop(x: Features, p: float, key: Array) -> Features:
    """Features with grades of multivectors and with scalars dropped, the others divided by 1 - p."""
    of_mv, of_s = jax.random.split(key)
    grades = len(x.blades.metric) + 1

    def factors(own: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
        if p == 1:
            return jnp.zeros(shape, dtype)
        return jax.random.bernoulli(own, 1 - p, shape).astype(dtype) / (1 - p)

    mv = x.mv * factors(of_mv, (grades, *x.mv.shape[1:]), x.mv.dtype)[grades_of_planes(x.blades)]
    return x.with_(mv, None if x.s is None else x.s * factors(of_s, x.s.shape, x.s.dtype))


def probability(layer: str, p: float) -> float:
    """A probability of dropout."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{layer}: p {p!r}, expected a probability, 0 to 1")
    return p


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "gelu": partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
}


def activation(label: str) -> Callable[[Array], Array]:
    """An activation by its name."""
    if label not in _ACTIVATIONS:
        raise ArgumentError(f"nonlinearity {label!r}, expected one of {', '.join(map(repr, _ACTIVATIONS))}")
    return _ACTIVATIONS[label]
