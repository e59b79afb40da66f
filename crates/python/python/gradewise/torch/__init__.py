"""Clifford operators and layers for PyTorch.

Features are tensors ``[blades, rows, features]``. Operators work on the CPU and on CUDA devices, in float64, float32, bfloat16 and
float16, with first and second derivatives, under ``torch.compile``, ``torch.autocast`` and ``torch.cuda.graph``.
"""

from gradewise.torch._accelerate import Left, Replaced, Report, accelerate
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
    "Left",
    "Replaced",
    "Report",
    "accelerate",
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
