"""Clifford operators for JAX.

Features are arrays ``[blades, rows, features]`` of float64 (with ``jax_enable_x64``), float32, bfloat16 or float16, all of one dtype.
Operators work on the CPU and on CUDA devices, with first and second derivatives in reverse mode, under ``jit`` and ``vmap``. A batch is one
call: ``vmap`` folds its axis into the rows, or into the features where parameters differ from example to example; operators that mix
features then run by their parts, with linear maps as JAX's products of batches of matrices. Rows on several devices stay where they are.
The transformers of geometric algebra are in :mod:`gradewise.jax.lgatr` and :mod:`gradewise.jax.gatr`.

Wrong shapes raise :class:`gradewise.ShapeError` when a function is traced, other dtypes :class:`gradewise.DTypeError`.
"""

from gradewise import _front
from gradewise.jax._functional import *  # noqa: F403

__all__: list[str] = []
__all__ += _front.__all__
