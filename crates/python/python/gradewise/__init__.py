"""Clifford (geometric) algebra operators and layers for PyTorch, JAX and NumPy.

``gradewise.torch``, ``gradewise.jax`` and ``gradewise.numpy`` hold the operators for each library, and import it;
``import gradewise`` alone imports none of them.
"""

from gradewise._array import asarray, run
from gradewise._core import (
    Algebra,
    Array,
    Multivector,
    Rotor,
    __version__,
    get_num_threads,
    operations,
    set_num_threads,
    targets,
)
from gradewise._errors import (
    ArgumentError,
    CheckpointError,
    DataSetError,
    DeviceError,
    DTypeError,
    GradewiseError,
    MissingPackageError,
    NotDifferentiableError,
    OutOfMemoryError,
    RunError,
    ShapeError,
)
from gradewise._multivectors import Multivectors
from gradewise._runs import Run, evaluate, train

__all__ = [
    "Algebra",
    "ArgumentError",
    "Array",
    "CheckpointError",
    "DTypeError",
    "DataSetError",
    "DeviceError",
    "GradewiseError",
    "MissingPackageError",
    "Multivector",
    "Multivectors",
    "NotDifferentiableError",
    "OutOfMemoryError",
    "Rotor",
    "Run",
    "RunError",
    "ShapeError",
    "__version__",
    "asarray",
    "evaluate",
    "get_num_threads",
    "operations",
    "run",
    "set_num_threads",
    "targets",
    "train",
]
