"""Clifford operators for JAX.

Features are arrays ``[blades, rows, features]`` of float64 (with ``jax_enable_x64``), float32, bfloat16 or float16, all of one dtype.
Operators work on the CPU and on CUDA devices, with first and second derivatives in reverse mode, under ``jit`` and ``vmap``. ``vmap``
folds its axis into the rows where only features have it; elsewhere, as for gradients of weights example by example, it runs one example
after another. Wrong shapes raise :class:`gradewise.ShapeError` when a function is traced, other dtypes :class:`gradewise.DTypeError`.
"""

from gradewise.jax._functional import (
    clifford_layer,
    fc_steerable_layer,
    fcgp,
    geometric_product,
    mv_block,
    mv_layer_norm,
    mv_linear,
    mv_normalization,
    mv_silu,
    regressive_product,
    sgp,
    steerable_layer,
    steerable_product,
    traceless_product,
)

__all__ = [
    "clifford_layer",
    "fc_steerable_layer",
    "fcgp",
    "geometric_product",
    "mv_block",
    "mv_layer_norm",
    "mv_linear",
    "mv_normalization",
    "mv_silu",
    "regressive_product",
    "sgp",
    "steerable_layer",
    "steerable_product",
    "traceless_product",
]
