"""Clifford (geometric) algebra operators and layers for PyTorch, JAX and NumPy.

``gradewise.torch``, ``gradewise.jax`` and ``gradewise.numpy`` hold the operators for each library, and import it;
``import gradewise`` alone imports none of them.
"""

from gradewise._array import asarray, run
from gradewise._core import Array, __version__, operations, targets
from gradewise._errors import (
    ArgumentError,
    CheckpointError,
    DeviceError,
    DTypeError,
    GradewiseError,
    NotDifferentiableError,
    OutOfMemoryError,
    RunError,
    ShapeError,
)

__all__ = [
    "ArgumentError",
    "Array",
    "CheckpointError",
    "DTypeError",
    "DeviceError",
    "GradewiseError",
    "NotDifferentiableError",
    "OutOfMemoryError",
    "RunError",
    "ShapeError",
    "__version__",
    "asarray",
    "operations",
    "run",
    "targets",
]
