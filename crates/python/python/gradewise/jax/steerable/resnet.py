"""The Clifford-steerable ResNet."""

from __future__ import annotations

from typing import Any

from flax import linen as nn
from jax import Array

from gradewise._errors import ArgumentError
from gradewise.jax.steerable.convolution import CliffordSteerableConv
from gradewise.jax.steerable.layers import MVGELU, MVLayerNorm


class CSBasicBlock(nn.Module):
    """Two steerable convolutions and a residual, which is a convolution where channels differ.

    Parameters: those of ``CliffordSteerableConv_0`` and ``CliffordSteerableConv_1``, with a third for the residual.

    Args:
        algebra: one generator for each axis of space.
        in_channels: channels of the input.
        channels: channels of the output.
        product_paths_sum: the algebra's ``geometric_product_paths_sum``.
        norm: whether each convolution is followed by :class:`MVLayerNorm`.
        num_layers: layers of each kernel network.
        hidden_dim: features of each kernel network.
        kernel_size: taps along each axis.
        bias_dims: blades with a bias.
        stride: 1. The published block applies another twice on one of its paths and once on the other, which cannot be added.
        expansion: 1, likewise.
        padding_mode: as in :class:`CliffordSteerableConv`.
    """

    algebra: Any
    in_channels: int
    channels: int
    product_paths_sum: int
    norm: bool
    num_layers: int
    hidden_dim: int
    kernel_size: int
    bias_dims: tuple[int, ...]
    stride: int = 1
    expansion: int = 1
    padding_mode: str = "SAME"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if self.stride != 1 or self.expansion != 1:
            raise ArgumentError(f"CSBasicBlock: stride {self.stride} and expansion {self.expansion}, expected 1 and 1")

        def convolved(x: Array, inputs: int) -> Array:
            conv = CliffordSteerableConv(
                self.algebra,
                inputs,
                self.channels,
                self.kernel_size,
                self.bias_dims,
                self.product_paths_sum,
                self.num_layers,
                self.hidden_dim,
                padding_mode=self.padding_mode,
            )
            y = conv(x)
            return MVLayerNorm(self.algebra)(y) if self.norm else y

        y = convolved(MVGELU()(convolved(x, self.in_channels)), self.channels)
        residual = x if self.in_channels == self.channels else convolved(x, self.in_channels)
        return MVGELU()(y + residual)


class CSResNet(nn.Module):
    """Steerable blocks between pairs of 1×1 convolutions: fields ``[batch, time_history, *space, blades]`` to ``[batch, time_future, …]``.

    Parameters: those of ``CliffordSteerableConv_0`` to ``_3`` (two before and two behind the blocks) and ``CSBasicBlock_0`` and so on.

    Args:
        algebra: one generator for each axis of space.
        time_history: fields of the input.
        time_future: fields of the output.
        hidden_channels: channels of the blocks.
        kernel_num_layers: layers of each kernel network.
        kernel_hidden_dim: features of each kernel network.
        kernel_size: taps along each axis in blocks.
        bias_dims: blades with a bias; biases on others than the scalar break equivariance.
        product_paths_sum: the algebra's ``geometric_product_paths_sum``.
        blocks: blocks of each stage.
        norm: whether blocks normalise.
        make_channels: whether time is an axis of space, so that fields have one channel.
        padding_mode: as in :class:`CliffordSteerableConv`.
    """

    algebra: Any
    time_history: int
    time_future: int
    hidden_channels: int
    kernel_num_layers: int
    kernel_hidden_dim: int
    kernel_size: int
    bias_dims: tuple[int, ...]
    product_paths_sum: int
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    norm: bool = True
    make_channels: bool = False
    padding_mode: str = "SAME"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        hidden = self.hidden_channels
        inputs, outputs = (1, 1) if self.make_channels else (self.time_history, self.time_future)

        def pointwise(x: Array, before: int, after: int) -> Array:
            conv = CliffordSteerableConv(
                self.algebra,
                before,
                after,
                1,
                self.bias_dims,
                self.product_paths_sum,
                self.kernel_num_layers,
                self.kernel_hidden_dim,
                padding_mode=self.padding_mode,
            )
            return conv(x)

        x = MVGELU()(pointwise(x, inputs, hidden))
        x = MVGELU()(pointwise(x, hidden, hidden))
        for _ in range(sum(self.blocks)):
            block = CSBasicBlock(
                self.algebra,
                hidden,
                hidden,
                self.product_paths_sum,
                self.norm,
                self.kernel_num_layers,
                self.kernel_hidden_dim,
                self.kernel_size,
                self.bias_dims,
                padding_mode=self.padding_mode,
            )
            x = block(x)
        x = MVGELU()(pointwise(x, hidden, hidden))
        return pointwise(x, hidden, outputs)
