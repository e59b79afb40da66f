"""Operations of gradewise on arrays of JAX."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Union

import jax
import jax.numpy as jnp
from jax import Array

from gradewise._errors import ArgumentError, DTypeError
from gradewise._registry import OPERATORS
from gradewise.jax._primitives import run

DTYPES = ("float64", "float32", "bfloat16", "float16")


@partial(jax.jit, static_argnums=(0, 1))
def _compiled(operation: str, attributes: str, inputs: tuple[Array, ...]) -> Array:
    # Outside of jit a call is traced once for its shapes, rather than each time.
    return run(operation, attributes, inputs)


def apply(operation: str, attributes: str, inputs: Sequence[Union[Array, Any]]) -> Array:
    """An operation on features with attributes as JSON, on arrays of one dtype or what ``jnp.asarray`` takes."""
    if operation not in OPERATORS:
        raise ArgumentError(f"{operation} is no operator for JAX; there are {', '.join(sorted(OPERATORS))}")
    arrays = tuple(x if isinstance(x, Array) else jnp.asarray(x) for x in inputs)
    for index, x in enumerate(arrays):
        if x.dtype.name not in DTYPES:
            raise DTypeError(
                f"input {index} has dtype {x.dtype}, expected float64, float32, bfloat16 or float16; convert it with .astype()"
            )
        if x.dtype != arrays[0].dtype:
            raise DTypeError(
                f"input {index} has dtype {x.dtype}, and input 0 has {arrays[0].dtype}; convert one with .astype()"
            )
    return _compiled(operation, attributes, arrays)
