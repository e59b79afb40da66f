"""Clifford operators for JAX.

Features are arrays ``[blades, rows, features]`` of float64 (with ``jax_enable_x64``), float32, bfloat16 or float16, all of one dtype.
Operators work on the CPU and on CUDA devices, with first and second derivatives in reverse mode, under ``jit`` and ``vmap``. ``vmap``
folds its axis into the rows where only features have it; elsewhere, as for gradients of weights example by example, it runs one example
after another. Wrong shapes raise :class:`gradewise.ShapeError` when a function is traced, other dtypes :class:`gradewise.DTypeError`.
"""

from gradewise import _front
from gradewise.jax._functional import *  # noqa: F403

__all__: list[str] = []
__all__ += _front.__all__
