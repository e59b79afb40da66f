"""The definitions of operators in JAX's own operators."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from gradewise._definitions import Definitions


class Library:
    """JAX's primitives."""

    def constant(self, values: Sequence[float], like: Array) -> Array:
        return jnp.asarray(values, dtype=like.dtype)

    def take(self, x: Array, index: Sequence[int]) -> Array:
        return x[jnp.asarray(index)]

    def join(self, parts: Sequence[Array]) -> Array:
        return jnp.concatenate(parts)

    def sum(self, x: Array, axis: int) -> Array:
        return x.sum(axis, keepdims=True)

    def last_two_swapped(self, x: Array) -> Array:
        return jnp.swapaxes(x, -2, -1)

    def maximum(self, x: Array, y: float) -> Array:
        return jnp.maximum(x, y)

    sqrt = staticmethod(jnp.sqrt)
    erf = staticmethod(jax.scipy.special.erf)
    sigmoid = staticmethod(jax.nn.sigmoid)
    absolute = staticmethod(jnp.abs)
    where = staticmethod(jnp.where)


def in_wide(definitions: Definitions, operation: str, attributes: str, inputs: Sequence[Array]) -> Array:
    """An operation by definitions. 16-bit numbers are computed in float32 and rounded, as kernels do; matrix products are exact on GPUs,
    too."""
    dtype = inputs[0].dtype
    wide = jnp.float32 if dtype.itemsize == 2 else dtype
    with jax.default_matmul_precision("highest"):
        return definitions(operation, attributes, [x.astype(wide) for x in inputs]).astype(dtype)


_definitions = Definitions(Library())


def define(operation: str, attributes: str, inputs: Sequence[Array]) -> Array:
    """An operation in JAX's own operators, in both modes and to any order."""
    return in_wide(_definitions, operation, attributes, inputs)


def clamped_norm(q: Array, least: float) -> Array:
    """(max(q, least)² + 1e-16)^¼: the norm of quadratic forms q that steerable networks divide by."""
    return _definitions._norm(q, least)
