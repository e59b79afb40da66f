"""The functions that layers are made of, on multivectors ``[..., 16]`` of space-time."""

from __future__ import annotations

import math
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.algebra import SPACETIME
from gradewise.jax._transformers.attention import weigh
from gradewise.jax._transformers.definition import exact, wide
from gradewise.jax._transformers.public import by_grade, check, equi_linear_of, position_by_position

_FACTORS = tuple(factor for _, factor in sorted(zip(SPACETIME.order, SPACETIME.factors)))


@exact
def equi_linear(x: Array, coeffs: Array) -> Array:
    """The equivariant map of ``[..., in, 16]``: ``[..., out, 16]``.

    Args:
        x: ``[..., in, 16]``.
        coeffs: ``[out, in, 10]``: for each grade, and then for each grade times the pseudoscalar; the first five alone for the full group.
    """
    return equi_linear_of(x, coeffs, SPACETIME)


def grade_project(x: Array) -> Array:
    """The grades of ``[..., 16]`` apart from one another: ``[..., 5, 16]``."""
    check(x, 16, "grade_project")
    rows = [[float(grade == g) for g in SPACETIME.grades] for grade in range(5)]
    return x[..., None, :] * jnp.asarray(rows, x.dtype)


def reverse(x: Array) -> Array:
    """The reversal of ``[..., 16]``: the order of the generators in each blade turned round."""
    return by_grade(x, SPACETIME, (1, 1, -1, -1, 1), "reverse")


def grade_involute(x: Array) -> Array:
    """``[..., 16]`` with the sign of odd grades changed."""
    return by_grade(x, SPACETIME, (1, -1, 1, -1, 1), "grade_involute")


def geometric_product(x: Array, y: Array) -> Array:
    """The geometric product of ``[..., 16]`` and ``[..., 16]``, which broadcast."""
    return position_by_position("geometric", SPACETIME, x, y)


def inner_product(x: Array, y: Array) -> Array:
    """The scalar part of reverse(x)·y: ``[..., 1]``."""
    check(x, 16, "inner_product")
    check(y, 16, "inner_product")
    return (x * jnp.asarray(_FACTORS, x.dtype) * y).sum(-1, keepdims=True)


def abs_squared_norm(x: Array) -> Array:
    """The sum over grades of the absolute value of <reverse(x) x>: ``[..., 1]``."""
    check(x, 16, "abs_squared_norm")
    x = wide(x)
    squares = jnp.split(x * x * jnp.asarray(_FACTORS, x.dtype), (1, 5, 11, 15), -1)
    return sum(jnp.abs(grade.sum(-1, keepdims=True)) for grade in squares)


def equi_layer_norm(x: Array, channel_dim: int = -2, gain: float = 1.0, epsilon: float = 0.01) -> Array:
    """Multivectors divided by the root of the mean over channels of :func:`abs_squared_norm`.

    Args:
        x: ``[..., 16]``.
        channel_dim: the axis of the channels.
        gain: what the result is multiplied by.
        epsilon: the least mean that is divided by.
    """
    mean = jnp.maximum(abs_squared_norm(x).mean(channel_dim, keepdims=True), epsilon)
    return (x * (gain * jax.lax.rsqrt(mean))).astype(x.dtype)


@exact
def sdp_attention(
    q_mv: Array,
    k_mv: Array,
    v_mv: Array,
    q_s: Optional[Array] = None,
    k_s: Optional[Array] = None,
    v_s: Optional[Array] = None,
    **attn_kwargs: Any,
) -> tuple[Array, Optional[Array]]:
    """Attention by the inner products of multivectors and those of scalars.

    Args:
        q_mv: queries ``[..., heads, items, channels, 16]``.
        k_mv: keys ``[..., heads or 1, other items, channels, 16]``.
        v_mv: values as keys.
        q_s: ``[..., heads, items, channels]``, all three or none.
        k_s: ``[..., heads or 1, other items, channels]``.
        v_s: as keys.
        attn_kwargs: ``attn_mask``, true where an item attends to another or what is added to the logits, which broadcasts to ``[...,
            heads, items, other items]``; ``is_causal``; ``scale``, 1/√features if None; ``implementation``, of
            ``jax.nn.dot_product_attention``, such as "cudnn" for 16 bits on a GPU, whose softmax is in float32.
    """
    if len({part is None for part in (q_s, k_s, v_s)}) != 1:
        raise ArgumentError("sdp_attention: some of q_s, k_s and v_s are None, expected all of them or none")
    if q_mv.ndim < 4:
        raise ShapeError(
            f"sdp_attention: queries of shape {list(q_mv.shape)}, expected [..., heads, items, channels, 16]"
        )
    channels, before = v_mv.shape[-2], q_mv.shape[:-4]
    queries = q_mv * jnp.asarray(_FACTORS, q_mv.dtype)
    rows = []
    for mv, s in ((queries, q_s), (k_mv, k_s), (v_mv, v_s)):
        flat = mv.reshape(*mv.shape[:-2], -1)
        whole = flat if s is None else jnp.concatenate((flat, s), -1)
        rows.append(whole.reshape(math.prod(before), *whole.shape[-3:]))
    h = weigh(*rows, (*before, q_mv.shape[-3]), attn_kwargs).reshape(*q_mv.shape[:-2], rows[2].shape[-1])
    h_mv = h[..., : 16 * channels].reshape(*h.shape[:-1], channels, 16)
    return h_mv, None if q_s is None else h[..., 16 * channels :]


def grade_dropout(x: Array, p: float, key: Array) -> Array:
    """Dropout of the grades of ``[..., 16]``, each as a whole, the others divided by 1 - p."""
    check(x, 16, "grade_dropout")
    if p == 1:
        return jnp.zeros_like(x)
    kept = jax.random.bernoulli(key, 1 - p, (*x.shape[:-1], 5)).astype(x.dtype) / (1 - p)
    return x * kept[..., np.asarray(SPACETIME.grades)]
