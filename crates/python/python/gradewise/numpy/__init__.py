"""Clifford operators on NumPy arrays.

Features are arrays ``[blades, rows, features]`` of float64, float32 or float16, all of one dtype; lists are taken as arrays of that dtype.
Arrays are read where they are, whatever their strides; those with negative strides or with the other byte order are copied first.
Results are new arrays that may be written to. Wrong shapes raise :class:`gradewise.ShapeError`, other dtypes
:class:`gradewise.DTypeError`.
"""

from gradewise.numpy._functional import (
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
