"""Clifford operators on NumPy arrays.

Features are arrays ``[blades, rows, features]`` of float64, float32 or float16, all of one dtype; lists are taken as arrays of that dtype.
Arrays are read where they are, whatever their strides; those with negative strides or with the other byte order are copied first.
Results are new arrays that may be written to. Wrong shapes raise :class:`gradewise.ShapeError`, other dtypes
:class:`gradewise.DTypeError`.
"""

from gradewise import _front
from gradewise.numpy._functional import *  # noqa: F403

__all__: list[str] = []
__all__ += _front.__all__
