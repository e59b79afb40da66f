"""The operators as functions of arrays of JAX."""

from jax import Array

from gradewise._front import Operators
from gradewise.jax._operators import apply

_operators: Operators[Array] = Operators(apply)

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
