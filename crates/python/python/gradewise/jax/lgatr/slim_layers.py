"""Layers of L-GATr-slim: of vectors and scalars.

Vectors are ``[..., 4, channels]`` within, with the channels last, so that a linear map is one matrix product.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import jax
import jax.numpy as jnp
from jax import Array

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.options import positive
from gradewise.jax._transformers.attention import weigh
from gradewise.jax._transformers.definition import Definition, Draws, Parameters, keys, wide
from gradewise.jax._transformers.layers import activation, probability

Pair = tuple[Array, Array]
_METRIC = (1.0, -1.0, -1.0, -1.0)


def interval(x: Array, y: Array) -> Array:
    """The products t·t' - x·x' - y·y' - z·z' of vectors ``[..., 4, channels]``: ``[..., channels]``."""
    product = x * y
    return product[..., 0, :] - product[..., 1:, :].sum(-2)


def check_pair(operation: str, vectors: Array, scalars: Optional[Array]) -> None:
    """Refuses what are not vectors ``[..., 4, channels]`` beside scalars ``[..., channels]``."""
    if scalars is None or scalars.shape[-1] == 0:
        found = "none" if scalars is None else f"shape {list(scalars.shape)}"
        raise ArgumentError(f"{operation}: scalars: {found}, expected [..., channels] with one channel or more")
    if vectors.ndim < 2 or vectors.shape[-2] != 4:
        shown = [*vectors.shape[:-2], *vectors.shape[:-3:-1]]
        raise ShapeError(f"{operation}: vectors of shape {shown}, expected [..., channels, 4]")
    if vectors.shape[:-2] != scalars.shape[:-1]:
        raise ShapeError(
            f"{operation}: scalars of shape {list(scalars.shape)}, expected {[*vectors.shape[:-2], 'channels']}: one row for each item"
        )


class Parts(Definition):
    """A layer of named or numbered layers."""

    _inner: dict[str, Any]

    def _parameters(self, made: Draws) -> Parameters:
        return {name: layer._parameters(made) for name, layer in self._inner.items()}


class Linear(Parts):
    """A linear map of vectors, without bias, and one of scalars.

    Parameters: ``weight_v`` ``[out, in]``, and those of ``linear_s`` if there are scalars on both sides.
    """

    def __init__(
        self, in_v: int, out_v: int, in_s: int, out_s: int, bias: bool = True, initialization: str = "default"
    ) -> None:
        self._sizes = in_v, out_v, in_s, out_s
        self._bias, self._factor = bias, {"default": 1.0, "small": 0.1}[initialization]

    def _parameters(self, made: Draws) -> Parameters:
        in_v, out_v, in_s, out_s = self._sizes
        parameters: dict[str, Any] = {"weight_v": made.uniform((out_v, in_v), self._factor / math.sqrt(max(in_v, 1)))}
        if in_s and out_s:
            inner = {"weight": made.uniform((out_s, in_s), self._factor / math.sqrt(in_s))}
            if self._bias:
                inner["bias"] = made.filled((out_s,), 0.0)
            parameters["linear_s"] = inner
        return parameters

    def run(self, p: Parameters, v: Array, s: Array) -> Pair:
        """Vectors ``[..., 4, out]`` of ``[..., 4, in]``, and scalars ``[..., out]`` of ``[..., in]``."""
        in_v, _, in_s, out_s = self._sizes
        if v.shape[-1] != in_v or s.shape[-1] != in_s:
            raise ShapeError(
                f"LGATrSlim: {v.shape[-1]} vectors and {s.shape[-1]} scalars for each item, expected {in_v} and {in_s}"
            )
        mapped = v @ p["weight_v"].T
        if "linear_s" not in p:
            return mapped, jnp.zeros((*s.shape[:-1], out_s), s.dtype)
        own = p["linear_s"]
        s = s @ own["weight"].T
        return mapped, s + own["bias"] if "bias" in own else s


class Norm(Definition):
    """Vectors and scalars divided by the root of the mean of their squares, of all channels of both together.

    Parameters: with gains ``weight_v`` ``[v_channels]`` and ``weight_s`` ``[s_channels]``.
    """

    EPSILON = 0.01

    def __init__(self, v_channels: int, s_channels: int, has_gains: bool) -> None:
        self._sizes = (v_channels, s_channels) if has_gains else None

    def _parameters(self, made: Draws) -> Parameters:
        if self._sizes is None:
            return {}
        return {name: made.filled((size,), 1.0) for name, size in zip(("weight_v", "weight_s"), self._sizes)}

    def run(self, p: Parameters, vectors: Array, scalars: Array) -> Pair:
        """Vectors ``[..., 4, channels]`` and scalars ``[..., channels]``, normalised."""
        v, s = wide(vectors), wide(scalars)
        total = jnp.abs(interval(v, v)).sum(-1, keepdims=True) + (s * s).sum(-1, keepdims=True)
        scale = jax.lax.rsqrt(total / (v.shape[-1] + s.shape[-1]) + self.EPSILON)
        v, s = v * scale[..., None], s * scale
        if p:
            v, s = v * p["weight_v"], s * p["weight_s"]
        return v.astype(vectors.dtype), s.astype(scalars.dtype)


class Dropout(Definition):
    """Dropout of whole vectors, and of scalars."""

    def __init__(self, p: Optional[float]) -> None:
        self._p = probability("LGATrSlim", p or 0.0)

    def run(self, v: Array, s: Array, key: Optional[Array]) -> Pair:
        """Some of them 0, the others divided by 1 - p."""
        if key is None or self._p == 0:
            return v, s
        if self._p == 1:
            return jnp.zeros_like(v), jnp.zeros_like(s)
        of_v, of_s = jax.random.split(key)
        kept = jax.random.bernoulli(of_v, 1 - self._p, (*v.shape[:-2], 1, v.shape[-1]))
        also = jax.random.bernoulli(of_s, 1 - self._p, s.shape)
        return v * (kept.astype(v.dtype) / (1 - self._p)), s * (also.astype(s.dtype) / (1 - self._p))


class GLU(Parts):
    """A gated linear unit: vectors times an activation of the product of two others, scalars times that of a scalar."""

    def __init__(
        self, in_v: int, out_v: int, in_s: int, out_s: int, nonlinearity: str, nonlinearity_v: Optional[str]
    ) -> None:
        self._inner = {"linear": Linear(in_v, 3 * out_v, in_s, 2 * out_s)}
        self._activation = activation(nonlinearity)
        self._activation_v = self._activation if nonlinearity_v is None else activation(nonlinearity_v)

    def run(self, p: Parameters, v: Array, s: Array) -> Pair:
        """Vectors ``[..., 4, out]`` and scalars ``[..., out]``."""
        mapped, s = self._inner["linear"].run(p["linear"], v, s)
        v, left, right = jnp.split(mapped, 3, -1)
        s, gates = jnp.split(s, 2, -1)
        products = 0.5 * interval(wide(left), wide(right))[..., None, :]
        return self._activation_v(products.astype(v.dtype)) * v, self._activation(gates) * s


class MLP(Definition):
    """Gated linear units, then a linear map. Parameters: those of ``layers``, by number."""

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        nonlinearity: str,
        nonlinearity_v: Optional[str],
        mlp_ratio: int,
        num_layers: int,
        dropout_prob: Optional[float],
    ) -> None:
        if num_layers < 2:
            raise ArgumentError(f"LGATrSlim: num_layers_mlp {num_layers}, expected 2 or more")
        positive("LGATrSlim", mlp_ratio=mlp_ratio)
        v = [v_channels, *[mlp_ratio * v_channels] * (num_layers - 1), v_channels]
        s = [s_channels, *[mlp_ratio * s_channels] * (num_layers - 1), s_channels]
        self._units = [GLU(*sizes, nonlinearity, nonlinearity_v) for sizes in zip(v[:-2], v[1:-1], s[:-2], s[1:-1])]
        self._last = Linear(v[-2], v[-1], s[-2], s[-1])
        # The published layers of dropout have numbers as well.
        self._stride = 1 if dropout_prob is None else 2
        self._dropout = Dropout(dropout_prob)

    def _parameters(self, made: Draws) -> Parameters:
        layers: list[Any] = []
        for unit in self._units:
            layers += [unit._parameters(made), *[{}] * (self._stride - 1)]
        return {"layers": [*layers, self._last._parameters(made)]}

    def run(self, p: Parameters, v: Array, s: Array, key: Optional[Array] = None) -> Pair:
        """Vectors ``[..., 4, channels]`` and scalars ``[..., channels]``."""
        for number, (unit, drawn) in enumerate(zip(self._units, keys(key, len(self._units)))):
            v, s = unit.run(p["layers"][number * self._stride], v, s)
            v, s = self._dropout.run(v, s, drawn)
        return self._last.run(p["layers"][-1], v, s)


class Attention(Parts):
    """Attention between the items of one set, or of one set to another.

    Args:
        v_channels: vectors.
        s_channels: scalars.
        num_heads: heads.
        attn_ratio: channels of all heads together over those of the input.
        dropout_prob: the probability of dropout, None for none.
        others: vectors and scalars of the items attended to, None for those that attend.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        num_heads: int,
        attn_ratio: int,
        dropout_prob: Optional[float],
        others: Optional[tuple[int, int]] = None,
    ) -> None:
        positive("LGATrSlim", num_heads=num_heads, attn_ratio=attn_ratio)
        self._v = v = max(attn_ratio * v_channels // num_heads, 1)
        self._s = s = max(attn_ratio * s_channels // num_heads, 4)
        self._heads = num_heads

        def into(in_v: int, in_s: int, groups: int) -> Linear:
            sizes = (in_v, groups * v * num_heads, in_s, groups * s * num_heads)
            return Linear(*sizes, bias=False, initialization="small")

        self._is_cross = others is not None
        if others is None:
            self._inner = {"linear_in": into(v_channels, s_channels, 3)}
        else:
            self._inner = {"linear_in_q": into(v_channels, s_channels, 1), "linear_in_kv": into(*others, 2)}
        out = (v * num_heads, v_channels, s * num_heads, s_channels)
        self._inner["linear_out"] = Linear(*out, initialization="small")
        self._dropout = Dropout(dropout_prob)

    def _matrices(self, v: Array, s: Array, groups: int, query: Optional[int]) -> Array:
        """Normalised features of heads, ``[groups, ..., heads, items, 4 · vectors + scalars]``; those of one group are queries."""
        v = v.reshape(*v.shape[:-1], groups, self._v, self._heads)
        s = s.reshape(*s.shape[:-1], groups, self._s, self._heads)
        v, s = jnp.moveaxis(v, (-3, -1), (0, -4)), jnp.moveaxis(s, (-3, -1), (0, -3))
        v, s = Norm(self._v, self._s, has_gains=False).run({}, v, s)
        if query is not None:
            signs = jnp.asarray([_METRIC if g == query else (1.0,) * 4 for g in range(groups)], v.dtype)
            v = v * signs.reshape(groups, *[1] * (v.ndim - 3), 4, 1)
        return jnp.concatenate((v.reshape(*v.shape[:-2], -1), s), -1)

    def run(
        self, p: Parameters, v: Array, s: Array, cond: Optional[Pair], options: dict[str, Any], key: Optional[Array]
    ) -> Pair:
        """Vectors ``[..., items, 4, channels]`` and scalars ``[..., items, channels]``."""
        mapped = lambda name, *x: self._inner[name].run(p[name], *x)  # noqa: E731
        if cond is None:
            parts = list(self._matrices(*mapped("linear_in", v, s), 3, 0))
        else:
            parts = list(self._matrices(*mapped("linear_in_q", v, s), 1, 0))
            parts += list(self._matrices(*mapped("linear_in_kv", *cond), 2, None))
        before, shape = parts[0].shape[:-3], (*v.shape[:-3], v.shape[-3])
        h = weigh(*(x.reshape(math.prod(before), *x.shape[-3:]) for x in parts), shape, options)
        h = jnp.moveaxis(h.reshape(*before, *h.shape[1:]), -3, -2)
        # ``[..., items, heads, 4 · vectors + scalars]``
        h_v = h[..., : 4 * self._v].reshape(*h.shape[:-1], 4, self._v).swapaxes(-3, -2)
        h_v, h_s = h_v.reshape(*h_v.shape[:-2], -1), h[..., 4 * self._v :].reshape(*h.shape[:-2], -1)
        return self._dropout.run(*mapped("linear_out", h_v, h_s), key)
