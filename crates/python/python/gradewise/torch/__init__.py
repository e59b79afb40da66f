"""Clifford operators and layers for PyTorch.

Features are tensors ``[blades, rows, features]``. Operators work on the CPU and on CUDA devices, in float64, float32, bfloat16 and
float16, with first and second derivatives, under ``torch.compile``, ``torch.autocast`` and ``torch.cuda.graph``.
"""

from gradewise.torch._accelerate import Border, Left, Replaced, Report, accelerate, borders, restore
from gradewise.torch._composite import forget_edges
from gradewise.torch._functional import (
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
    "Border",
    "Left",
    "Replaced",
    "Report",
    "accelerate",
    "borders",
    "clifford_layer",
    "fc_steerable_layer",
    "fcgp",
    "forget_edges",
    "geometric_product",
    "mv_block",
    "mv_layer_norm",
    "mv_linear",
    "mv_normalization",
    "mv_silu",
    "regressive_product",
    "restore",
    "sgp",
    "steerable_layer",
    "steerable_product",
    "traceless_product",
]
