"""The functions that layers are made of, on multivectors ``[..., 16]`` of the projective algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Optional, Union

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._transformers.algebra import DUAL_SIGNS, JOIN_SIGNS, POINT_WEIGHT, PROJECTIVE
from gradewise.jax._transformers.definition import exact
from gradewise.jax._transformers.features import planes_of
from gradewise.jax._transformers.public import by_grade, check, equi_linear_of, position_by_position
from gradewise.jax.gatr.attention import Heads, weighed

_FACTORS = tuple(factor for _, factor in sorted(zip(PROJECTIVE.order, PROJECTIVE.factors)))
_INVOLUTION = (1, -1, 1, -1, 1)


@exact
def equi_linear(x: Array, coeffs: Array) -> Array:
    """The equivariant map of ``[..., in, 16]`` with coefficients ``[out, in, 9]``: ``[..., out, 16]``."""
    return equi_linear_of(x, coeffs, PROJECTIVE)


def reverse(x: Array) -> Array:
    """The reversal of ``[..., 16]``: the order of the generators in each blade turned round."""
    return by_grade(x, PROJECTIVE, (1, 1, -1, -1, 1), "reverse")


def grade_involute(x: Array) -> Array:
    """``[..., 16]`` with the sign of odd grades changed."""
    return by_grade(x, PROJECTIVE, _INVOLUTION, "grade_involute")


def geometric_product(x: Array, y: Array) -> Array:
    """The geometric product of ``[..., 16]`` and ``[..., 16]``, which broadcast."""
    return position_by_position("geometric", PROJECTIVE, x, y)


def dual(x: Array) -> Array:
    """Each blade exchanged for the one that it lacks to the pseudoscalar: ``[..., 16]``."""
    check(x, 16, "dual")
    return x[..., ::-1] * jnp.asarray(DUAL_SIGNS, x.dtype)


def outer_product(x: Array, y: Array) -> Array:
    """The outer product of ``[..., 16]`` and ``[..., 16]``, which broadcast: the parts of the geometric product whose grades add up."""
    # The join is that of duals, and taking the dual twice changes the sign of odd grades alone.
    x, y = (by_grade(dual(z), PROJECTIVE, _INVOLUTION, "outer_product") for z in (x, y))
    return by_grade(dual(_join(x, y)), PROJECTIVE, _INVOLUTION, "outer_product")


def _join(x: Array, y: Array) -> Array:
    return by_grade(position_by_position("regressive", PROJECTIVE, x, y), PROJECTIVE, JOIN_SIGNS, "join")


def equivariant_join(x: Array, y: Array, reference: Array) -> Array:
    """The join dual(dual(x) ∧ dual(y)) of ``[..., 16]`` and ``[..., 16]``, times the trivector e123 of a reference, which turns with
    reflections as the join does not."""
    check(reference, 16, "equivariant_join")
    return reference[..., POINT_WEIGHT : POINT_WEIGHT + 1] * _join(x, y)


def inner_product(x: Array, y: Array) -> Array:
    """The scalar part of reverse(x)·y: ``[..., 1]``."""
    check(x, 16, "inner_product")
    check(y, 16, "inner_product")
    return (x * jnp.asarray(_FACTORS, x.dtype) * y).sum(-1, keepdims=True)


@exact
def geometric_attention(
    q_mv: Array,
    k_mv: Array,
    v_mv: Array,
    q_s: Array,
    k_s: Array,
    v_s: Array,
    normalizer: Callable[[Array], Union[Array, float]],
    weights: Optional[Array] = None,
    attn_mask: Optional[Array] = None,
) -> tuple[Array, Array]:
    """Attention by inner products, minus squared distances of points, and products of scalars.

    Args:
        q_mv: queries ``[..., heads, items, channels, 16]``.
        k_mv: keys ``[..., heads or 1, other items, channels, 16]``.
        v_mv: values as keys.
        q_s: ``[..., heads, items, channels]``.
        k_s: ``[..., heads or 1, other items, channels]``.
        v_s: as keys.
        normalizer: of points' weights ``[...]``, what points are multiplied by.
        weights: of distances, ``[heads, 1, channels]``.
        attn_mask: true where an item attends to another, or what is added to the logits, which broadcasts to ``[..., heads, items, other
            items]``.
    """

    def heads(mv: Array, s: Array) -> Heads:
        before, (count, items, channels, _) = mv.shape[:-4], mv.shape[-4:]
        rows = jnp.moveaxis(mv, -4, 0).reshape(-1, channels, 16)
        planes = planes_of(rows, PROJECTIVE).reshape(16, channels, count, math.prod(before) * items)
        return planes, jnp.moveaxis(s, -3, 0).reshape(count, -1, s.shape[-1])

    shapes = [(*mv.shape[:-4], mv.shape[-3]) for mv in (q_mv, k_mv)]
    far = None if weights is None else weights[:, 0].T[:, :, None]
    h = weighed(heads(q_mv, q_s), heads(k_mv, k_s), heads(v_mv, v_s), shapes, normalizer, far, attn_mask)
    channels = v_mv.shape[-2]
    h = h.reshape(*q_mv.shape[:-2], h.shape[-1])
    # Features are blade by blade, in the order of planes.
    mv = h[..., : 16 * channels].reshape(*h.shape[:-1], 16, channels)
    mv = mv * jnp.asarray(PROJECTIVE.signs, h.dtype)[:, None]
    return mv[..., np.argsort(PROJECTIVE.order), :].swapaxes(-1, -2), h[..., 16 * channels :]
