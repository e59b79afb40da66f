"""The operators as functions of JAX's arrays."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Optional

import jax
from jax import Array

from gradewise import _front
from gradewise._errors import ArgumentError
from gradewise.jax._definitions import define
from gradewise.jax._operators import apply

if TYPE_CHECKING:
    from gradewise._front import *  # noqa: F403
else:
    _front.install(globals(), apply)


def mv_normalization(
    x: Array, a: Array, signature: _front.Signature = (3, 0, 0), min_clamp: Optional[float] = None
) -> Array:
    """Grade k divided by σ(a_k)·(‖x⁽ᵏ⁾‖ − 1) + 1 (Ruhe et al. 2023, arXiv:2305.11141).

    Args:
        x: ``[blades, rows, features]``.
        a: ``[features, grades]``.
        signature: (p, q, r) of the algebra.
        min_clamp: the least quadratic form: ‖x⁽ᵏ⁾‖ is that of the greater of it and ⟨x⁽ᵏ⁾, x⁽ᵏ⁾⟩, as in Clifford-steerable networks
            (0.01; Zhdanov et al. 2024, arXiv:2402.14730). XLA compiles the definition then; without it, this is a kernel.
    """
    return _normed("mv_normalization", (x, a), signature, min_clamp)


def mv_layer_norm(
    x: Array, gain: Array, signature: _front.Signature = (3, 0, 0), min_clamp: Optional[float] = None
) -> Array:
    """Features times their gains, divided by the mean of the norms over features (Ruhe et al. 2023, arXiv:2305.11141).

    Args:
        x: ``[blades, rows, features]``.
        gain: ``[features]``.
        signature: (p, q, r) of the algebra.
        min_clamp: the least quadratic form, as in :func:`mv_normalization`.
    """
    return _normed("mv_layer_norm", (x, gain), signature, min_clamp)


def _normed(
    operation: str, inputs: tuple[Array, Array], signature: _front.Signature, min_clamp: Optional[float]
) -> Array:
    attributes = f'{{"algebra":"{_front.written(signature)}"}}'
    if min_clamp is None:
        return apply(operation, attributes, inputs)
    if not 0 <= min_clamp < math.inf:
        raise ArgumentError(
            f"{operation}: min_clamp is {min_clamp}, expected None or a finite number that is not negative"
        )
    # The operator's checks of shapes and dtypes, without its work.
    jax.eval_shape(partial(apply, operation, attributes), inputs)
    return _clamped(operation, f'{attributes[:-1]},"min_clamp":{float(min_clamp)!r}}}', inputs)


@partial(jax.jit, static_argnums=(0, 1))
def _clamped(operation: str, attributes: str, inputs: tuple[Array, Array]) -> Array:
    return define(operation, attributes, inputs)
