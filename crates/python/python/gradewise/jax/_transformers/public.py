"""Functions of published arrays ``[..., 16]``, by the algebra's planes."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._errors import ShapeError
from gradewise._transformers.algebra import Tables
from gradewise.jax._transformers.features import leave, planes_of, product


def check(x: Array, count: int, operation: str) -> None:
    """Refuses a last axis of another length."""
    if x.ndim < 1 or x.shape[-1] != count:
        raise ShapeError(f"{operation}: shape {list(x.shape)}, expected [..., {count}]")


def embed(x: Array, first: int, count: int, operation: str) -> Array:
    """Components ``[..., count]`` on the blades from ``first`` on, zeros on the others: ``[..., 16]``."""
    check(x, count, operation)
    return jnp.pad(x, ((0, 0),) * (x.ndim - 1) + ((first, 16 - first - count),))


def extract(mv: Array, first: int, count: int, operation: str) -> Array:
    """The components of the blades from ``first`` on: ``[..., count]``."""
    check(mv, 16, operation)
    return mv[..., first : first + count]


def position_by_position(name: str, blades: Tables, x: Array, y: Array) -> Array:
    """The "geometric" or the "regressive" product of arrays ``[..., 16]`` that broadcast."""
    operation = f"{name}_product"
    check(x, blades.size, operation)
    check(y, blades.size, operation)
    try:
        x, y = jnp.broadcast_arrays(x, y)
    except ValueError as error:
        raise ShapeError(f"{operation}: shapes {list(x.shape)} and {list(y.shape)} do not broadcast") from error
    planes = [planes_of(z.reshape(-1, 1, blades.size), blades) for z in (x, y)]
    return leave(product(name, blades, *planes), blades).reshape(x.shape)


def by_grade(x: Array, blades: Tables, signs: tuple[int, ...], operation: str) -> Array:
    """Each grade times a sign."""
    check(x, blades.size, operation)
    return x * jnp.asarray([signs[grade] for grade in blades.grades], x.dtype)


def equi_linear_of(x: Array, coeffs: Array, blades: Tables) -> Array:
    """The equivariant map of ``[..., in, 16]`` with coefficients ``[out, in, maps]``: ``[..., out, 16]``."""
    check(x, blades.size, "equi_linear")
    _, in_, maps = coeffs.shape
    if x.ndim < 2 or x.shape[-2] != in_ or maps > len(blades.maps):
        raise ShapeError(
            f"equi_linear: multivectors of shape {list(x.shape)} and coefficients of shape {list(coeffs.shape)}, expected "
            f"[..., {in_}, {blades.size}] and at most {len(blades.maps)} coefficients"
        )
    table = np.zeros((maps, blades.size, blades.size))
    for number, entries in enumerate(blades.maps[:maps]):
        for i, j, value in entries:
            table[number, i, j] = value
    return jnp.einsum("oim,mab,...ib->...oa", coeffs, jnp.asarray(table, coeffs.dtype), x)
