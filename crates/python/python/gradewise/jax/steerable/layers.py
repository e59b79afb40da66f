"""The layers of kernel networks, on features ``[rows, features, …, blades]``.

Each has a method ``planes`` on sorted ``[blades, rows, features]``, which is what the operators take, so that nothing is permuted between
two layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array
from jax.nn.initializers import normal, zeros

from gradewise._errors import ArgumentError
from gradewise.jax import _functional as ops
from gradewise.jax._definitions import clamped_norm
from gradewise.jax._layers import to_features, to_planes
from gradewise.jax.steerable.algebra import MIN_CLAMP, Metric, metric_of


def on_planes(layer: str, metric: Metric, planes: Callable[[Array], Array], x: Array) -> Array:
    """A map of sorted planes on features ``[rows, features, …, blades]``."""
    given = metric.to_sorted(to_planes(x, metric.signature, layer))
    return to_features(metric.from_sorted(planes(given)), x.shape)


def check_paths(layer: str, metric: Metric, paths: int) -> None:
    """Refuses a number of grade paths that is another than the algebra's."""
    if paths != len(metric.paths):
        raise ArgumentError(
            f"{layer}: product_paths_sum is {paths}, and the metric {metric.squares} has {len(metric.paths)} paths"
        )


class MVLinear(nn.Module):
    """A linear map with a matrix for each grade or one for all, and a bias on the blades ``bias_dims``.

    Parameters: ``weight`` ``[out, in, grades]`` or ``[out, in]``; ``bias`` ``[1, out, len(bias_dims)]``.
    """

    algebra: Any
    in_features: int
    out_features: int
    bias_dims: Optional[tuple[int, ...]]
    subspaces: bool = True

    @nn.compact
    def planes(self, x: Array) -> Array:
        """The map of sorted ``[blades, rows, features]``."""
        metric = metric_of(self.algebra)
        deviation = 1 / jnp.sqrt(self.in_features)
        grades = (metric.dim + 1,) if self.subspaces else ()
        weight = self.param("weight", normal(deviation), (self.out_features, self.in_features, *grades))
        if self.bias_dims is None:
            return ops.mv_linear(x, jnp.transpose(weight), None, metric.signature)
        dims = tuple(self.bias_dims)
        bias = self.param("bias", normal(0.1 * deviation), (1, self.out_features, len(dims)))
        if dims == (0,):
            return ops.mv_linear(x, jnp.transpose(weight), bias.reshape(-1), metric.signature)
        on_blades = metric.to_sorted(jnp.transpose(metric.embed(bias[0], dims)))
        return ops.mv_linear(x, jnp.transpose(weight), None, metric.signature) + on_blades[:, None]

    def __call__(self, input: Array) -> Array:
        """Features ``[rows, in, …, blades]`` to ``[rows, out, …, blades]``."""
        return on_planes("MVLinear", metric_of(self.algebra), self.planes, input)


class GradeNorm(nn.Module):
    """Each grade divided by something between 1 and its norm. Parameter: ``factor`` ``[1, features, grades]``."""

    algebra: Any
    min_clamp: float = MIN_CLAMP

    @nn.compact
    def planes(self, x: Array) -> Array:
        """The map of sorted ``[blades, rows, features]``."""
        metric = metric_of(self.algebra)
        factor = self.param("factor", zeros, (1, x.shape[2], metric.dim + 1))
        return ops.mv_normalization(x, factor[0], metric.signature, min_clamp=self.min_clamp)

    def __call__(self, input: Array) -> Array:
        """Features ``[rows, features, …, blades]``."""
        return on_planes("GradeNorm", metric_of(self.algebra), self.planes, input)


class MVLayerNorm(nn.Module):
    """Fields ``[batch, channels, …, blades]`` divided by the mean over channels of their norms. No parameters."""

    algebra: Any
    min_clamp: float = MIN_CLAMP

    def __call__(self, input: Array) -> Array:
        norms = clamped_norm(metric_of(self.algebra).form(input), self.min_clamp)
        return input / (norms.mean(axis=1, keepdims=True) + 1e-6)


def gelu_gate(scalar: Array) -> Array:
    """½(1 + tanh(√(2/π)(s + 0.044715 s³)))."""
    return jax.nn.sigmoid(math.sqrt(8 / math.pi) * (scalar + 0.044715 * scalar * scalar * scalar))


class MVGELU(nn.Module):
    """Multivectors ``[…, blades]`` times a gate by their scalars. No parameters."""

    def planes(self, x: Array) -> Array:
        """The map of ``[blades, …]``."""
        return x * gelu_gate(x[:1])

    def __call__(self, input: Array) -> Array:
        return input * gelu_gate(input[..., :1])


class WeightedCayley(nn.Module):
    """The table of the geometric product with a weight for each pair of features and each path of grades.

    Parameter: ``weight`` ``[out, in, paths]``.
    """

    algebra: Any
    in_features: int
    out_features: int
    product_paths_sum: int

    def setup(self) -> None:
        metric = metric_of(self.algebra)
        check_paths("WeightedCayley", metric, self.product_paths_sum)
        deviation = 1 / jnp.sqrt(self.in_features * (metric.dim + 1))
        shape = (self.out_features, self.in_features, self.product_paths_sum)
        self.weight = self.param("weight", normal(deviation), shape)

    def by_path(self) -> Array:
        """The weights ``[paths, in, out]``, as the operators take them."""
        return jnp.transpose(self.weight)

    def __call__(self) -> Array:
        """The table ``[out, in, left, result, right]``."""
        table = jnp.asarray(metric_of(self.algebra).by_path, self.weight.dtype)
        return jnp.einsum("oip,pabc->oiabc", self.weight, table, precision=jax.lax.Precision.HIGHEST)


class FullyConnectedSteerableGeometricProductLayer(nn.Module):
    """The weighted product of features with a normalised linear map of them, plus another linear map, over √2.

    Parameters: those of ``WeightedCayley_0``, ``MVLinear_0`` (right factor), ``GradeNorm_0``, and ``MVLinear_1`` (the map that is added).
    """

    algebra: Any
    in_features: int
    out_features: int
    bias_dims: tuple[int, ...]
    product_paths_sum: int
    include_first_order: bool = True
    normalization: bool = True

    @nn.compact
    def planes(self, x: Array) -> Array:
        """The map of sorted ``[blades, rows, features]``."""
        metric, algebra = metric_of(self.algebra), self.algebra
        weight = WeightedCayley(algebra, self.in_features, self.out_features, self.product_paths_sum).by_path()
        right = MVLinear(algebra, self.in_features, self.in_features, None).planes(x)
        if self.normalization:
            right = GradeNorm(algebra).planes(right)
        y = ops.fcgp(x, right, weight, metric.signature)
        if not self.include_first_order:
            return y
        linear = MVLinear(algebra, self.in_features, self.out_features, self.bias_dims).planes(x)
        return (y + linear) * math.sqrt(0.5)

    def __call__(self, input: Array) -> Array:
        """Features ``[rows, in, …, blades]`` to ``[rows, out, …, blades]``."""
        name = "FullyConnectedSteerableGeometricProductLayer"
        return on_planes(name, metric_of(self.algebra), self.planes, input)
