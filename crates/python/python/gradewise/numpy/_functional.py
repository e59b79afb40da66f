"""The operators as functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gradewise import _core, _front
from gradewise._array import from_numpy


def apply(operation: str, attributes: str, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """An operation of the registry on arrays of one dtype, or lists."""
    dtype = next((x.dtype for x in inputs if isinstance(x, np.ndarray)), np.dtype(np.float64))
    arrays = [from_numpy(x if isinstance(x, np.ndarray) else np.asarray(x, dtype)) for x in inputs]
    return np.asarray(_core.run(operation, attributes, arrays))


if TYPE_CHECKING:
    from gradewise._front import *  # noqa: F403
else:
    _front.install(globals(), apply)
