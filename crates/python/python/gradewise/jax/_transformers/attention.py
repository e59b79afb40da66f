"""Attention: queries, keys and values of heads as one matrix each, and what weighs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional

import jax
import jax.numpy as jnp
from jax import Array

from gradewise._errors import ArgumentError, ShapeError
from gradewise.jax._transformers.definition import wide

_OPTIONS = ("attn_mask", "is_causal", "scale", "implementation")


def rows_of_heads(mv: Array, s: Optional[Array], shape: Sequence[int]) -> Array:
    """Features of heads as matrices ``[groups, rows before the items, heads, items, 16 · channels + scalars]``.

    Args:
        mv: planes ``[16, groups, channels, heads, rows]``.
        s: scalars ``[groups, heads, rows, channels]``.
        shape: ``(..., items)``, of the rows.
    """
    before, items = math.prod(shape[:-1]), shape[-1]
    blades, groups, channels, heads, _ = mv.shape
    split = mv.reshape(blades, groups, channels, heads, before, items).transpose(1, 4, 3, 5, 0, 2)
    made = split.reshape(groups, before, heads, items, blades * channels)
    if s is None:
        return made
    return jnp.concatenate((made, s.reshape(groups, heads, before, items, s.shape[3]).swapaxes(1, 2)), -1)


def planes_of_heads(x: Array, blades: int, channels: int) -> tuple[Array, Array]:
    """``[rows before the items, heads, items, 16 · channels + scalars]`` as planes ``[16, heads · channels, rows]`` and scalars
    ``[heads · scalars, rows]``."""
    before, heads, items, _ = x.shape
    mv = x[..., : blades * channels].reshape(before, heads, items, blades, channels).transpose(3, 1, 4, 0, 2)
    s = x[..., blades * channels :].transpose(1, 3, 0, 2)
    return mv.reshape(blades, heads * channels, before * items), s.reshape(heads * s.shape[1], before * items)


def flat_mask(mask: Optional[Array], shape: Sequence[int]) -> Optional[Array]:
    """A mask that broadcasts to ``[..., heads, items, other items]``, with the axes before the heads as one."""
    if mask is None or jnp.ndim(mask) <= 3:
        return mask
    mask = jnp.asarray(mask)
    try:
        mask = jnp.broadcast_to(mask, (*shape[:-1], *mask.shape[-3:]))
    except ValueError as error:
        raise ShapeError(
            f"attention: mask of shape {list(mask.shape)}, expected one that broadcasts to "
            f"{[*shape[:-1], 'heads', shape[-1], 'other items']}"
        ) from error
    return mask.reshape(-1, *mask.shape[-3:])


def weigh(q: Array, k: Array, v: Array, shape: Sequence[int], options: dict[str, Any]) -> Array:
    """Scaled dot-product attention ``[rows before the items, heads, items, features]``.

    Args:
        q: queries ``[rows before the items, heads, items, features]``.
        k: keys; one head or as many as the queries have.
        v: values; as keys.
        shape: ``(..., items)``, of the queries' rows.
        options: ``attn_mask``, true where an item attends to another or what is added to the logits, which broadcasts to ``[..., heads,
            items, other items]``; ``is_causal``; ``scale``, 1/√features if None; ``implementation`` of
            ``jax.nn.dot_product_attention``, such as "cudnn", None for a softmax in the features' precision.
    """
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        raise ArgumentError(f"attention: no option {unknown[0]!r}, expected some of {', '.join(_OPTIONS)}")
    mask, is_causal = flat_mask(options.get("attn_mask"), shape), bool(options.get("is_causal"))
    scores = (*q.shape[:-1], k.shape[2])
    if mask is not None:
        try:
            mask = jnp.asarray(mask)
            jnp.broadcast_shapes(mask.shape, scores)
        except ValueError as error:
            raise ShapeError(f"attention: mask of shape {list(mask.shape)}, expected one for {list(scores)}") from error
    scale = options.get("scale")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if options.get("implementation") is not None:
        return _by_jax(q, k, v, mask, is_causal, scale, options["implementation"])
    logits = jnp.einsum("bhtf,bgsf->bhts", q, k) if k.shape[1] != q.shape[1] else q @ k.swapaxes(-1, -2)
    logits = wide(logits) * scale
    if mask is not None and mask.dtype != bool:
        logits = logits + mask.astype(logits.dtype)
    elif mask is not None:
        logits = jnp.where(mask, logits, -jnp.inf)
    if is_causal:
        logits = jnp.where(jnp.tri(*scores[-2:], dtype=bool), logits, -jnp.inf)
    # Items that attend to none get zeros.
    greatest = jax.lax.stop_gradient(logits.max(-1, keepdims=True))
    weights = jnp.exp(logits - jnp.where(jnp.isfinite(greatest), greatest, 0.0))
    total = weights.sum(-1, keepdims=True)
    weights = (weights / jnp.where(total == 0, 1.0, total)).astype(v.dtype)
    return jnp.einsum("bhts,bgsf->bhtf", weights, v) if v.shape[1] != q.shape[1] else weights @ v


def _by_jax(
    q: Array, k: Array, v: Array, mask: Optional[Array], is_causal: bool, scale: float, implementation: Any
) -> Array:
    width, values = max(q.shape[-1], v.shape[-1]), v.shape[-1]
    padded = [jnp.pad(x, ((0, 0),) * 3 + ((0, width - x.shape[-1]),)).swapaxes(1, 2) for x in (q, k, v)]
    given = None if mask is None else mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    is_bias = given is not None and given.dtype != bool
    made = jax.nn.dot_product_attention(
        *padded,
        bias=given if is_bias else None,
        mask=None if is_bias else given,
        is_causal=is_causal,
        scale=scale,
        implementation=implementation,
    )
    return made.swapaxes(1, 2)[..., :values]
