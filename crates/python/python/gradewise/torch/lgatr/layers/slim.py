"""Layers of vectors and scalars: linear maps, norms, gates, dropout, multilayer perceptrons.

Vectors are ``[..., 4, channels]`` within, with the channels last, so that a linear map is one matrix product.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.options import positive
from gradewise.torch._transformers.initialize import freeze_empty
from gradewise.torch._transformers.options import activation
from gradewise.torch._transformers.precision import island

Pair = tuple[Tensor, Tensor]


def interval(x: Tensor, y: Tensor) -> Tensor:
    """The products t·t' - x·x' - y·y' - z·z' of vectors ``[..., 4, channels]``: ``[..., channels]``."""
    product = x * y
    return product[..., 0, :] - product[..., 1:, :].sum(-2)


def check_pair(operation: str, vectors: Tensor, scalars: Optional[Tensor], v_channels: Optional[int] = None) -> None:
    """Refuses what are not vectors ``[..., 4, channels]`` beside scalars ``[..., channels]``."""
    if scalars is None or scalars.shape[-1] == 0:
        found = "none" if scalars is None else f"shape {list(scalars.shape)}"
        raise ArgumentError(f"{operation}: scalars: {found}, expected [..., channels] with one channel or more")
    if vectors.dim() < 2 or vectors.shape[-2] != 4 or (v_channels is not None and vectors.shape[-1] != v_channels):
        channels = "channels" if v_channels is None else v_channels
        raise ShapeError(f"{operation}: vectors of shape {list(vectors.shape)}, expected [..., 4, {channels}]")
    if vectors.shape[:-2] != scalars.shape[:-1]:
        raise ShapeError(
            f"{operation}: scalars of shape {list(scalars.shape)} beside vectors of shape {list(vectors.shape)}, expected "
            f"{[*vectors.shape[:-2], 'channels']}"
        )


class SlimLinear(nn.Module):
    """A linear map of vectors, without bias, and one of scalars.

    Args:
        in_v_channels: vectors of the input.
        out_v_channels: vectors of the output.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.
        bias: whether scalars have one.
        initialization: "default" or "small".

    Parameters: ``weight_v`` ``[out, in]``, and those of ``linear_s`` if there are scalars on both sides.
    """

    def __init__(
        self,
        in_v_channels: int,
        out_v_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        bias: bool = True,
        initialization: str = "default",
    ) -> None:
        super().__init__()
        self._in_v_channels, self._out_v_channels = in_v_channels, out_v_channels
        self._in_s_channels, self._out_s_channels = in_s_channels, out_s_channels
        self._bias = bias
        self.weight_v = nn.Parameter(torch.empty(out_v_channels, in_v_channels))
        has_scalars = bool(in_s_channels and out_s_channels)
        self.linear_s = nn.Linear(in_s_channels, out_s_channels, bias=bias) if has_scalars else None
        self.reset_parameters(initialization)
        if self.weight_v.numel() == 0:
            self.weight_v.requires_grad_(False)

    def reset_parameters(self, initialization: str, additional_factor: float = 1.0) -> None:
        """Uniform weights that keep the variance, times ``additional_factor``; a tenth of them for "small"."""
        factors = {"default": 1.0, "small": 0.1}
        if initialization not in factors:
            raise ArgumentError(f"SlimLinear: initialization {initialization!r}, expected 'default' or 'small'")
        scale = factors[initialization] * additional_factor
        if self.weight_v.numel():
            bound = scale / math.sqrt(max(self._in_v_channels, 1))
            nn.init.uniform_(self.weight_v, -bound, bound)
        if self.linear_s is not None:
            bound = scale / math.sqrt(max(self._in_s_channels, 1))
            nn.init.uniform_(self.linear_s.weight, -bound, bound)
            if self.linear_s.bias is not None:
                nn.init.zeros_(self.linear_s.bias)

    def forward(self, vectors: Tensor, scalars: Tensor) -> Pair:
        """Vectors ``[..., 4, out]`` of ``[..., 4, in]``, and scalars ``[..., out]`` of ``[..., in]``."""
        if vectors.shape[-1] != self.weight_v.shape[1]:
            raise ShapeError(
                f"SlimLinear: vectors of shape {list(vectors.shape)}, expected [..., 4, {self.weight_v.shape[1]}]: channels last"
            )
        with island() as wide:
            mapped = F.linear(wide(vectors), wide(self.weight_v))
        if self.linear_s is None:
            return mapped, scalars.new_zeros(*scalars.shape[:-1], self._out_s_channels)
        return mapped, self.linear_s(scalars)

    def extra_repr(self) -> str:
        return f"v {self._in_v_channels} to {self._out_v_channels}, s {self._in_s_channels} to {self._out_s_channels}"


class SlimRMSNorm(nn.Module):
    """Vectors and scalars divided by the root of the mean of their squares, of all channels of both together.

    Args:
        v_channels: vectors, for the gains.
        s_channels: scalars, for the gains.
        epsilon: what is added to the mean.
        elementwise_affine: whether each channel has a gain.

    Parameters: with ``elementwise_affine`` ``weight_v`` ``[v_channels]`` and ``weight_s`` ``[s_channels]``.
    """

    def __init__(
        self, v_channels: int, s_channels: int, epsilon: float = 0.01, elementwise_affine: bool = True
    ) -> None:
        super().__init__()
        self.epsilon, self.elementwise_affine = epsilon, elementwise_affine
        self.weight_v = nn.Parameter(torch.ones(v_channels)) if elementwise_affine else None
        self.weight_s = nn.Parameter(torch.ones(s_channels)) if elementwise_affine else None
        freeze_empty(self)

    def forward(self, vectors: Tensor, scalars: Tensor) -> Pair:
        """Vectors ``[..., 4, channels]`` and scalars ``[..., channels]``, normalised."""
        with island() as wide:
            v, s = wide(vectors), wide(scalars)
            count = v.shape[-1] + s.shape[-1]
            total = interval(v, v).abs().sum(-1, keepdim=True) + s.square().sum(-1, keepdim=True)
            scale = torch.rsqrt(total / count + self.epsilon)
            v, s = v * scale[..., None, :], s * scale
            if self.weight_v is not None:
                v, s = v * wide(self.weight_v), s * wide(self.weight_s)
        if v.dtype == vectors.dtype and s.dtype == scalars.dtype:
            return v, s
        highest = torch.promote_types(vectors.dtype, scalars.dtype)
        return v.to(highest), s.to(highest)

    def extra_repr(self) -> str:
        return f"epsilon={self.epsilon}, elementwise_affine={self.elementwise_affine}"


class SlimDropout(nn.Module):
    """Dropout of whole vectors, and of scalars.

    Args:
        dropout_prob: the probability.
    """

    def __init__(self, dropout_prob: float) -> None:
        super().__init__()
        if not 0 <= dropout_prob <= 1:
            raise ArgumentError(f"SlimDropout: dropout_prob {dropout_prob!r}, expected a probability, 0 to 1")
        self._dropout_prob = dropout_prob

    def forward(self, vectors: Tensor, scalars: Tensor) -> Pair:
        """Vectors ``[..., 4, channels]`` and scalars ``[..., channels]``, some of them 0."""
        if not self.training or self._dropout_prob == 0:
            return vectors, scalars
        size = (*vectors.shape[:-2], vectors.shape[-1])
        factors = F.dropout1d(vectors.new_ones(math.prod(size), 1), p=self._dropout_prob, training=True)
        return vectors * factors.view(size)[..., None, :], F.dropout(scalars, p=self._dropout_prob, training=True)


class SlimGLU(nn.Module):
    """A gated linear unit: vectors times an activation of the product of two others, scalars times that of a scalar.

    Args:
        in_v_channels: vectors of the input.
        out_v_channels: vectors of the output.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.
        nonlinearity: the activation of scalars: "relu", "sigmoid", "tanh", "gelu" or "silu".
        nonlinearity_v: that of products of vectors; the same if None.
    """

    def __init__(
        self,
        in_v_channels: int,
        out_v_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: Optional[str] = "sigmoid",
    ) -> None:
        super().__init__()
        self.linear = SlimLinear(in_v_channels, 3 * out_v_channels, in_s_channels, 2 * out_s_channels)
        self.nonlinearity = activation(nonlinearity)
        self.nonlinearity_v = self.nonlinearity if nonlinearity_v is None else activation(nonlinearity_v)

    def forward(self, vectors: Tensor, scalars: Tensor) -> Pair:
        """Vectors ``[..., 4, out]`` and scalars ``[..., out]``."""
        mapped, s = self.linear(vectors, scalars)
        v, left, right = mapped.chunk(3, -1)
        s, gates = s.chunk(2, -1)
        with island() as wide:
            products = 0.5 * interval(wide(left), wide(right))[..., None, :]
        return self.nonlinearity_v(products.to(left.dtype)) * v, self.nonlinearity(gates) * s


class SlimMLP(nn.Module):
    """Gated linear units, then a linear map.

    Args:
        v_channels: vectors of input and output.
        s_channels: scalars of input and output.
        nonlinearity: the activation of scalars.
        nonlinearity_v: that of products of vectors; the same if None.
        mlp_ratio: inner channels over those of the input.
        num_layers: layers, 2 or more.
        dropout_prob: the probability of dropout, None for none.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: Optional[str] = "sigmoid",
        mlp_ratio: int = 2,
        num_layers: int = 2,
        dropout_prob: Optional[float] = None,
    ) -> None:
        super().__init__()
        if num_layers < 2:
            raise ArgumentError(f"SlimMLP: num_layers {num_layers}, expected 2 or more")
        positive("SlimMLP", mlp_ratio=mlp_ratio)
        v = [v_channels, *[mlp_ratio * v_channels] * (num_layers - 1), v_channels]
        s = [s_channels, *[mlp_ratio * s_channels] * (num_layers - 1), s_channels]
        layers: list[nn.Module] = []
        for number in range(num_layers - 1):
            layers.append(SlimGLU(v[number], v[number + 1], s[number], s[number + 1], nonlinearity, nonlinearity_v))
            if dropout_prob is not None:
                layers.append(SlimDropout(dropout_prob))
        layers.append(SlimLinear(v[-2], v[-1], s[-2], s[-1]))
        self.layers = nn.ModuleList(layers)

    def forward(self, vectors: Tensor, scalars: Tensor) -> Pair:
        """Vectors ``[..., 4, channels]`` and scalars ``[..., channels]``."""
        for layer in self.layers:
            vectors, scalars = layer(vectors, scalars=scalars)
        return vectors, scalars


def freeze_unused(norm: Any, mlp: nn.Module, out_v_channels: int, out_s_channels: int) -> None:
    """What only feeds outputs that are not there gets no gradients: distributed training waits for all that want some."""
    unused = []
    if out_v_channels == 0:
        unused += [norm.weight_v, *(p for name, p in mlp.named_parameters() if name.endswith("weight_v"))]
    if out_s_channels == 0:
        unused += [norm.weight_s, *(p for name, p in mlp.named_parameters() if "linear_s" in name)]
    for parameter in unused:
        if parameter is not None:
            parameter.requires_grad_(False)
