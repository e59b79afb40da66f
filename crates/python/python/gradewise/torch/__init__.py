"""Clifford operators and layers for PyTorch.

Features are tensors ``[blades, rows, features]``. Operators work on the CPU and on CUDA devices, in float64, float32, bfloat16 and
float16, with first and second derivatives, under ``torch.compile``, ``torch.autocast`` and ``torch.cuda.graph``.
"""

from gradewise import _front
from gradewise.torch._accelerate import Border, Joined, Left, Replaced, Report, accelerate, borders, restore
from gradewise.torch._composite import forget_edges
from gradewise.torch._functional import *  # noqa: F403
from gradewise.torch._pretrained import from_pretrained

__all__ = [
    "Border",
    "Joined",
    "Left",
    "Replaced",
    "Report",
    "accelerate",
    "borders",
    "forget_edges",
    "from_pretrained",
    "restore",
]
__all__ += _front.__all__
