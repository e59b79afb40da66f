"""Steerable kernels and their convolution."""

from __future__ import annotations

import itertools
from typing import Any, Optional

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array
from jax.nn.initializers import ones, uniform, zeros

from gradewise._errors import ArgumentError, ShapeError, at_least_one
from gradewise.jax.steerable.algebra import Metric, metric_of
from gradewise.jax.steerable.layers import (
    MVGELU,
    FullyConnectedSteerableGeometricProductLayer,
    GradeNorm,
    WeightedCayley,
    on_planes,
)

PADDINGS = ("SAME", "wrap", "symmetric", "reflect", "constant", "edge")


def grid(metric: Metric, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The points of a kernel of ``size`` taps along each axis, ``[points, dim]`` in [-1, 1], and their quadratic forms.

    The forms are computed from integers. In floating point the form of a point on the light cone can come out as -1e-9, and the shell
    changes its sign there.
    """
    half = size // 2
    steps = np.array(list(itertools.product(range(-half, size - half), repeat=metric.dim)))
    scale = max(half, 1)
    return steps / scale, (steps**2 @ np.array(metric.squares)) / scale**2


def shell(forms: Array, width: Array) -> Array:
    """sgn(q)·exp(-|q|/2σ²) with sgn(0) = 1."""
    return jnp.where(forms >= 0, 1, -1) * jnp.exp(-jnp.abs(forms) / (2 * width**2))


class ScalarShell(nn.Module):
    """The mask of kernels: for each pair of channels and each grade a shell of its own width.

    Parameter: ``kernel_width`` ``[out, in, grades]``, to which 0.4 is added.
    """

    algebra: Any
    c_in: int
    c_out: int

    @nn.compact
    def of_forms(self, forms: Array) -> Array:
        """For quadratic forms ``[points]``: ``[points, out, in, grades]``."""
        grades = metric_of(self.algebra).dim + 1
        width = self.param("kernel_width", uniform(scale=0.2), (self.c_out, self.c_in, grades)) + 0.4
        return shell(forms[:, None, None, None], width)

    def __call__(self, x: Array) -> Array:
        """For vectors ``[points, 1, dim]``: ``[points, out·in, blades]``."""
        metric = metric_of(self.algebra)
        forms = (x[:, 0] ** 2 * jnp.asarray(metric.squares, x.dtype)).sum(-1)
        return metric.by_blade(self.of_forms(forms)).reshape(x.shape[0], -1, metric.blades)


class KernelNetwork(nn.Module):
    """From a multivector at each point to one for each pair of channels, ``[points, out·in, blades]``; equivariant under O(p,q)."""

    algebra: Any
    c_in: int
    c_out: int
    num_layers: int
    hidden_dim: int
    bias_dims: tuple[int, ...]
    product_paths_sum: int

    @nn.compact
    def planes(self, x: Array) -> Array:
        """The map of sorted ``[blades, points, 1]``."""
        if self.num_layers < 2:
            raise ArgumentError(f"KernelNetwork: num_layers is {self.num_layers}, expected at least 2")
        widths = [1, *[self.hidden_dim] * (self.num_layers - 1), self.c_out * self.c_in]
        for at, (before, after) in enumerate(zip(widths, widths[1:])):
            layer = FullyConnectedSteerableGeometricProductLayer(
                self.algebra, before, after, bias_dims=self.bias_dims, product_paths_sum=self.product_paths_sum
            )
            x = layer.planes(x)
            if at < self.num_layers - 1:
                x = MVGELU().planes(GradeNorm(self.algebra).planes(x))
        return x

    def __call__(self, x: Array) -> Array:
        return on_planes("KernelNetwork", metric_of(self.algebra), self.planes, x)


class CliffordSteerableKernel(nn.Module):
    """A kernel between all blades and channels: K(Tv) = ρ(T) K(v) ρ(T)⁻¹ for every isometry T of the metric.

    Parameters: ``rel_pos_sigma`` ``[1, 1, 1]``, and those of ``ScalarShell_0``, ``WeightedCayley_0`` and ``KernelNetwork_0``.
    """

    algebra: Any
    c_in: int
    c_out: int
    kernel_size: int
    num_layers: int
    hidden_dim: int
    bias_dims: tuple[int, ...]
    product_paths_sum: int

    @nn.compact
    def __call__(self, points: Optional[Array] = None) -> Array:
        """The kernel on its grid, ``[out·blades, in·blades, *taps]``; at other ``points`` ``[n, dim]``, ``[out·blades, in·blades, n]``."""
        sizes = {name: getattr(self, name) for name in ("c_in", "c_out", "kernel_size", "hidden_dim")}
        at_least_one("CliffordSteerableKernel", **sizes)
        metric, algebra = metric_of(self.algebra), self.algebra
        shape = (self.c_out * metric.blades, self.c_in * metric.blades)
        sigma = self.param("rel_pos_sigma", ones, (1, 1, 1))
        if points is None:
            on_grid, on_grid_forms = grid(metric, self.kernel_size)
            points, forms = jnp.asarray(on_grid, sigma.dtype), jnp.asarray(on_grid_forms, sigma.dtype)
            shape += (self.kernel_size,) * metric.dim
        else:
            if points.ndim != 2 or points.shape[1] != metric.dim:
                raise ShapeError(
                    f"CliffordSteerableKernel: points of shape {list(points.shape)}, expected [n, {metric.dim}]"
                )
            points = points.astype(sigma.dtype)
            forms = (points**2 * jnp.asarray(metric.squares, sigma.dtype)).sum(-1)
            shape += (points.shape[0],)
        # The network sees the shell of the form as a scalar, and the point as a vector.
        entries = [shell(forms, sigma[0, 0]), *points.T, *[jnp.zeros_like(forms)] * (metric.blades - 1 - metric.dim)]
        seen = metric.to_sorted(jnp.stack(entries)[:, :, None])
        network = KernelNetwork(
            algebra,
            self.c_in,
            self.c_out,
            self.num_layers,
            self.hidden_dim,
            self.bias_dims,
            self.product_paths_sum,
        )
        made = metric.from_sorted(network.planes(seen)).reshape(metric.blades, -1, self.c_out, self.c_in)
        mask = metric.by_blade(ScalarShell(algebra, self.c_in, self.c_out).of_forms(forms))
        # The published constant, found by trial.
        factor = 20 / self.kernel_size ** (metric.dim - 1)
        table = WeightedCayley(algebra, self.c_in, self.c_out, self.product_paths_sum)()
        kernel = jnp.einsum("anoi,noia,oiabc->obicn", made, mask * factor, table)
        return kernel.reshape(shape)


class CliffordSteerableConv(nn.Module):
    """The convolution of fields ``[batch, in, *space, blades]`` with a steerable kernel.

    Parameters: those of ``CliffordSteerableKernel_0``, and ``bias`` ``[1, out, 1, …, len(bias_dims)]``.

    Args:
        algebra: one generator for each axis of space.
        c_in: channels of the input.
        c_out: channels of the output.
        kernel_size: taps along each axis. Kernels of odd size are equivariant.
        bias_dims: blades with a bias; biases on others than the scalar break equivariance.
        product_paths_sum: the algebra's ``geometric_product_paths_sum``.
        num_layers: layers of the kernel network, at least 2.
        hidden_dim: features of the kernel network.
        padding: whether the field is padded; ``padding_mode="SAME"`` always does.
        stride: along each axis.
        bias: whether a bias is added.
        padding_mode: "SAME" (zeros), or a mode of ``jax.numpy.pad`` such as "wrap" for periodic fields.
    """

    algebra: Any
    c_in: int
    c_out: int
    kernel_size: int
    bias_dims: tuple[int, ...]
    product_paths_sum: int
    num_layers: int
    hidden_dim: int
    padding: bool = True
    stride: int = 1
    bias: bool = True
    padding_mode: str = "SAME"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        metric = metric_of(self.algebra)
        at_least_one("CliffordSteerableConv", stride=self.stride)
        if x.ndim != metric.dim + 3 or x.shape[1] != self.c_in or x.shape[-1] != metric.blades:
            expected = f"[batch, {self.c_in}, {'space, ' * metric.dim}{metric.blades}]"
            raise ShapeError(f"CliffordSteerableConv: the field has shape {list(x.shape)}, expected {expected}")
        kernel = CliffordSteerableKernel(
            algebra=self.algebra,
            c_in=self.c_in,
            c_out=self.c_out,
            kernel_size=self.kernel_size,
            num_layers=self.num_layers,
            hidden_dim=self.hidden_dim,
            bias_dims=self.bias_dims,
            product_paths_sum=self.product_paths_sum,
        )()
        planes = jnp.moveaxis(x, -1, 2).reshape(x.shape[0], self.c_in * metric.blades, *x.shape[2:-1])
        is_same = self.padding_mode.upper() == "SAME"
        if not is_same and self.padding:
            if self.padding_mode not in PADDINGS:
                raise ArgumentError(f"padding_mode {self.padding_mode!r}: expected one of {', '.join(PADDINGS)}")
            around = ((self.kernel_size - 1) // 2,) * 2
            planes = jnp.pad(planes, [(0, 0), (0, 0), *[around] * metric.dim], mode=self.padding_mode)
        strides = (self.stride,) * metric.dim
        y = jax.lax.conv(planes, kernel.astype(x.dtype), strides, "SAME" if is_same else "VALID")
        y = jnp.moveaxis(y.reshape(x.shape[0], self.c_out, metric.blades, *y.shape[2:]), 2, -1)
        if not self.bias:
            return y
        bias = self.param("bias", zeros, (1, self.c_out, *[1] * metric.dim, len(self.bias_dims)))
        return y + metric.embed(bias, self.bias_dims).astype(y.dtype)
