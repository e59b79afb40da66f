"""The operators as functions of NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradewise import _core
from gradewise._array import from_numpy
from gradewise._front import Operators


def apply(operation: str, attributes: str, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """An operation of the registry on arrays of one dtype, or lists."""
    dtype = next((x.dtype for x in inputs if isinstance(x, np.ndarray)), np.dtype(np.float64))
    arrays = [from_numpy(x if isinstance(x, np.ndarray) else np.asarray(x, dtype)) for x in inputs]
    return np.asarray(_core.run(operation, attributes, arrays))


_operators: Operators[np.ndarray] = Operators(apply)

geometric_product = _operators.geometric_product
regressive_product = _operators.regressive_product
mv_linear = _operators.mv_linear
mv_silu = _operators.mv_silu
mv_normalization = _operators.mv_normalization
mv_layer_norm = _operators.mv_layer_norm
sgp = _operators.sgp
fcgp = _operators.fcgp
clifford_layer = _operators.clifford_layer
steerable_product = _operators.steerable_product
steerable_layer = _operators.steerable_layer
fc_steerable_layer = _operators.fc_steerable_layer
mv_block = _operators.mv_block
traceless_product = _operators.traceless_product
