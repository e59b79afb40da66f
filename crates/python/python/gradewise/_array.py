"""Arrays of any library as :class:`gradewise.Array`, and operations on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from gradewise import _core
from gradewise._core import Array
from gradewise._errors import DTypeError

if TYPE_CHECKING:
    import numpy as np


def from_numpy(x: np.ndarray) -> Array:
    """A NumPy array as an array of ours: without a copy, but for strides and byte orders that operators do not take."""
    dtype = x.dtype
    if dtype.kind != "f" or dtype.itemsize not in (2, 4, 8):
        message = f"the array has dtype {dtype}, expected float64, float32 or float16; convert it with .astype()"
        raise DTypeError(message)
    size = dtype.itemsize
    if not (dtype.isnative and x.flags.aligned) or any(stride < 0 or stride % size for stride in x.strides):
        x = x.astype(dtype.newbyteorder("="), order="C", copy=True)
    try:
        return _core.from_dlpack(x)
    except BufferError:
        # NumPy before 2.1 exports no read-only arrays.
        return _core.from_dlpack(x.copy())


def asarray(x: Any) -> Array:
    """An array of any library as an :class:`Array` over the same memory.

    Args:
        x: an object with ``__dlpack__``, such as an array of NumPy, PyTorch, JAX or CuPy, on the CPU or a CUDA device, of float64,
            float32, bfloat16 or float16; or numbers in lists, which are copied as float64.

    Arrays of NumPy with negative strides, or not in the machine's byte order, are copied.

    Raises:
        DTypeError: another dtype.
        DeviceError: another device, or one that this build has no kernels for.
        ShapeError: negative strides of another library than NumPy.
        ArgumentError: an address that is not a multiple of the element's size.
    """
    if isinstance(x, Array):
        return x
    kind = type(x)
    if kind.__module__ != "numpy" and hasattr(kind, "__dlpack__"):
        return _core.from_dlpack(x)
    import numpy as np

    return from_numpy(x if isinstance(x, np.ndarray) else np.asarray(x, np.float64))


def run(operation: str, attributes: Union[str, Mapping[str, Any], None], inputs: Sequence[Any]) -> Array:
    """Runs an operation of the registry, by its name there.

    Args:
        operation: one of :func:`gradewise.operations`.
        attributes: its attributes, as JSON or as what JSON is made of.
        inputs: what :func:`asarray` takes, all on one device.

    Returns:
        The output, in memory of its own on that device.

    Raises:
        ArgumentError: no such operation, or attributes and inputs that are not its own.
        ShapeError: shapes that do not fit together.
        DTypeError: dtypes that are not one.
    """
    written = attributes if isinstance(attributes, str) else json.dumps(attributes)
    return _core.run(operation, written, [asarray(x) for x in inputs])
