"""Layers of geometric Clifford algebra networks (Ruhe et al. 2023, arXiv:2302.06594)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError, at_least_one
from gradewise.torch._space import space_of
from gradewise.torch.cgenn.algebra import embed
from gradewise.torch.cliffordlayers._motions import PGA, POINT, sandwiches_like, square
from gradewise.torch.cliffordlayers.nn.functional.cliffordg3conv import clifford_g3convnd
from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import Sizes, axes, geometry, need_blades


def get_clifford_left_kernel(M: Tensor, w: Tensor, flatten: bool = True) -> Tensor:
    """The matrix of the product by ``w`` on the left.

    Args:
        M: the table ``[left, result, right]`` of an algebra.
        w: ``[out, in, blades]``.
        flatten: whether the result is one matrix ``[blades·out, blades·in]``, rather than ``[blades, out, blades, in]``.
    """
    k = torch.einsum("ijk,pqi->jpkq", M, w)
    return k.flatten(2).flatten(0, 1) if flatten else k


def get_clifford_right_kernel(M: Tensor, w: Tensor, flatten: bool = True) -> Tensor:
    """The matrix of the product by ``w`` on the right, as in :func:`get_clifford_left_kernel`."""
    k = torch.einsum("ijk,pqk->jpiq", M, w)
    return k.flatten(2).flatten(0, 1) if flatten else k


class PGAConjugateLinear(nn.Module):
    """A linear map whose weights are motions: the sum over inputs of w·k·x·k̃ in projective algebra.

    Args:
        in_features: features of the input.
        out_features: features of the output.
        algebra: that of the metric (0, 1, 1, 1), ours or the published one.
        input_blades: the blades of inputs and outputs, by number. The blade e123 (14) of the input is replaced by ``embed_e0``.
        action_blades: the blades of the motions; by default all even ones.

    Shapes: ``[batch, in, len(input_blades)]`` to ``[batch, out, len(input_blades)]``. Parameters: ``_action`` ``[out, in, action blades]``;
    ``weight`` ``[out, in]``; ``embed_e0`` ``[in, 1]``.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        algebra: Any,
        input_blades: Sequence[int],
        action_blades: Sequence[int] = (0, 5, 6, 7, 8, 9, 10, 15),
    ) -> None:
        super().__init__()
        layer = type(self).__name__
        at_least_one(layer, in_features=in_features, out_features=out_features)
        metric = space_of(algebra.metric).metric
        if metric != PGA:
            raise ArgumentError(f"{layer}: an algebra of the metric {list(metric)}, expected {list(PGA)}")
        for name, blades in (("input_blades", input_blades), ("action_blades", action_blades)):
            check_blades(layer, name, blades, 16)
        if len(action_blades) != 8:
            raise ArgumentError(f"{layer}: {len(action_blades)} action_blades, expected 8: rotations and translations")
        self.in_features, self.out_features = in_features, out_features
        self.algebra, self.inverse = algebra, algebra.reverse
        self.input_blades, self.action_blades = tuple(input_blades), tuple(action_blades)
        self.n_action_blades = len(action_blades)
        self._action = nn.Parameter(torch.empty(out_features, in_features, self.n_action_blades))
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.embed_e0 = nn.Parameter(torch.zeros(in_features, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random rotations without translations, and weights as PyTorch's linear maps."""
        with torch.no_grad():
            nn.init.uniform_(self._action[..., 0], -1, 1)
            nn.init.uniform_(self._action[..., 4:7], -1, 1)
            self._action[..., 1:4] = 0.0
            self._action[..., 7] = 0.0
            squares = torch.tensor([square(blade) for blade in self.action_blades], dtype=self._action.dtype)
            self._action /= (self._action.square() * squares).sum(-1, keepdim=True).abs().sqrt()
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    @property
    def action(self) -> Tensor:
        """The motions, on all blades: ``[out, in, 16]``."""
        return embed(self._action, self.action_blades, 16)

    def forward(self, input: Tensor) -> Tensor:
        """Components ``[batch, in, input blades]`` to ``[batch, out, input blades]``."""
        layer, blades = type(self).__name__, tuple(self.input_blades)
        count = len(blades)
        need_blades(input, count, layer)
        if input.dim() != 3 or input.shape[1] != self.in_features:
            raise ShapeError(
                f"{layer}: the input has shape {list(input.shape)}, expected [batch, {self.in_features}, {count}]"
            )
        table = sandwiches_like(self._action, tuple(self.action_blades), (*blades, POINT), blades)
        pairs = self._action[..., :, None] * self._action[..., None, :]
        matrices = self.weight[..., None, None] * torch.einsum("oiab,abpr->oipr", pairs, table)
        kept = [place for place, blade in enumerate(blades) if blade != POINT]
        x = torch.cat([input[..., kept], self.embed_e0.to(input.dtype).expand(input.shape[0], -1, -1)], dim=-1)
        return torch.einsum("oipr,bir->bop", matrices[..., [*kept, count]], x)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, input_blades={self.input_blades}"


def check_blades(layer: str, name: str, blades: Sequence[int], count: int) -> None:
    """Refuses what is no list of different blades."""
    numbers = list(blades)
    if not numbers or len(set(numbers)) != len(numbers) or not all(0 <= int(b) < count for b in numbers):
        raise ArgumentError(f"{layer}: {name} is {numbers}, expected different numbers from 0 to {count - 1}")


class MultiVectorAct(nn.Module):
    """Multivectors times a sigmoid of some of their components.

    Args:
        channels: channels.
        algebra: an algebra, ours or the published one.
        input_blades: the blades of the input, by number.
        kernel_blades: the blades that the gate sees; those of the input if None. One that the input lacks counts as 0.
        agg: "linear" for a weighted sum and a bias by channel, "sum" or "mean".

    Shapes: ``[batch, channels, ..., len(input_blades)]`` to the same; "linear" has no axes between. Parameters of "linear": ``conv.weight``
    ``[channels, 1, kernel blades]`` and ``conv.bias`` ``[channels]``.
    """

    def __init__(
        self,
        channels: int,
        algebra: Any,
        input_blades: Sequence[int],
        kernel_blades: Optional[Sequence[int]] = None,
        agg: str = "linear",
    ) -> None:
        super().__init__()
        layer = type(self).__name__
        at_least_one(layer, channels=channels)
        if agg not in ("linear", "sum", "mean"):
            raise ArgumentError(f"{layer}: agg {agg!r}, expected 'linear', 'sum' or 'mean'")
        self.channels, self.algebra, self.agg = channels, algebra, agg
        self.input_blades = tuple(input_blades)
        self.kernel_blades = self.input_blades if kernel_blades is None else tuple(kernel_blades)
        for name in ("input_blades", "kernel_blades"):
            check_blades(layer, name, getattr(self, name), algebra.n_blades)
        if agg == "linear":
            self.conv = nn.Conv1d(channels, channels, kernel_size=len(self.kernel_blades), groups=channels)

    def forward(self, input: Tensor) -> Tensor:
        """The input times its gates."""
        blades, layer = list(self.input_blades), type(self).__name__
        need_blades(input, len(blades), layer)
        there = [b for b in self.kernel_blades if b in blades]
        seen = input if there == blades else input[..., [blades.index(b) for b in there]]
        if self.agg != "linear":
            total = seen.sum(dim=-1, keepdim=True)
            return input * torch.sigmoid(total if self.agg == "sum" else total / len(self.kernel_blades))
        channels, weight = self.conv.in_channels, self.conv.weight[:, 0]
        if input.dim() != 3 or input.shape[1] != channels:
            raise ShapeError(
                f"{layer}: the input has shape {list(input.shape)}, expected [batch, {channels}, {len(blades)}]"
            )
        if len(there) != len(self.kernel_blades):
            weight = weight[:, [place for place, b in enumerate(self.kernel_blades) if b in blades]]
        return input * torch.sigmoid((seen * weight).sum(dim=-1, keepdim=True) + self.conv.bias[:, None])

    def extra_repr(self) -> str:
        return (
            f"{self.channels}, input_blades={self.input_blades}, kernel_blades={self.kernel_blades}, agg={self.agg!r}"
        )


class _CliffordG3ConvNd(nn.Module):
    """What convolutions of vectors and transposed ones share."""

    _dimensions: int
    _is_transposed: bool

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 1,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        layer, count = type(self).__name__, self._dimensions
        at_least_one(layer, in_channels=in_channels, out_channels=out_channels, groups=groups)
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ArgumentError(f"{layer}: {name} is {channels}, expected a multiple of groups={groups}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = axes(kernel_size, count, layer, "kernel_size")
        self.stride, self.padding = axes(stride, count, layer, "stride"), axes(padding, count, layer, "padding")
        self.dilation = axes(dilation, count, layer, "dilation")
        sides = (in_channels, out_channels // groups) if self._is_transposed else (out_channels, in_channels // groups)
        shape = (*sides, *self.kernel_size)
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(shape)) for _ in range(4))
        if bias:
            self.bias = nn.ParameterList(nn.Parameter(torch.empty(out_channels)) for _ in range(3))
        else:
            self.register_parameter("bias", None)
        self.scale_param = nn.Parameter(torch.empty(shape))
        self.zero_kernel = nn.Parameter(torch.zeros(shape), requires_grad=False)
        self.weights.extend([self.scale_param, self.zero_kernel])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Quaternions, scales and biases as PyTorch's convolutions have them."""
        for weight in list(self.weights)[:5]:
            nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.scale_param[0].numel())
            for bias in self.bias:
                nn.init.uniform_(bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """Vectors ``[batch, in, *space, 3]`` to ``[batch, out, *space, 3]``."""
        need_blades(input, 3, type(self).__name__)
        if input.dim() != self._dimensions + 3 or input.shape[1] != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(input.shape)}, expected [batch, {self.in_channels}, *space, 3]"
            )
        sizes = (self.stride, self.padding, self.dilation, self.groups, self._is_transposed)
        y = clifford_g3convnd(input.movedim(-1, 1).flatten(1, 2), self.weights, self.bias, *sizes)
        return y.unflatten(1, (3, -1)).movedim(1, -1)

    def extra_repr(self) -> str:
        return geometry(self)


class CliffordG3Conv2d(_CliffordG3ConvNd):
    """A convolution in the plane of vectors in three dimensions, whose taps rotate by normalised quaternions and scale.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size, stride, padding, dilation, groups, bias: those of PyTorch's convolutions.

    Shapes: ``[batch, in, x, y, 3]`` to ``[batch, out, x, y, 3]``. Parameters: ``weights.0`` to ``weights.3``, the quaternions, and
    ``scale_param``, ``weights.4`` too, ``[out, in, taps, taps]``; ``bias.0`` to ``bias.2`` ``[out]``. ``zero_kernel``, ``weights.5`` too, is not
    read.
    """

    _dimensions = 2
    _is_transposed = False


class CliffordG3ConvTranspose2d(_CliffordG3ConvNd):
    """:class:`CliffordG3Conv2d` transposed; its parameters are ``[in, out, taps, taps]``."""

    _dimensions = 2
    _is_transposed = True


class CliffordG3LinearVSiLU(nn.Module):
    """Vectors times a sigmoid of a weighted sum of their components.

    Args:
        channels: channels.

    Shapes: ``[batch, channels, x, y, 3]`` to the same. Parameters: ``conv.weight`` ``[channels, 1, 1, 1, 3]``, ``conv.bias`` ``[channels]``.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        at_least_one(type(self).__name__, channels=channels)
        self.conv = nn.Conv3d(channels, channels, (1, 1, 3), groups=channels)

    def forward(self, input: Tensor) -> Tensor:
        """The input times its gates."""
        need_blades(input, 3, type(self).__name__)
        channels = self.conv.in_channels
        if input.dim() != 5 or input.shape[1] != channels:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(input.shape)}, expected [batch, {channels}, x, y, 3]"
            )
        gates = (input * self.conv.weight[:, 0]).sum(dim=-1, keepdim=True) + self.conv.bias[:, None, None, None]
        return input * torch.sigmoid(gates)


class CliffordG3SumVSiLU(nn.Module):
    """Vectors ``[..., 3]`` times a sigmoid of the sum of their components."""

    def forward(self, input: Tensor) -> Tensor:
        """The input times its gates."""
        return torch.sigmoid(input.sum(-1, keepdim=True)) * input


class CliffordG3MeanVSiLU(nn.Module):
    """Vectors ``[..., 3]`` times a sigmoid of the mean of their components."""

    def forward(self, input: Tensor) -> Tensor:
        """The input times its gates."""
        return torch.sigmoid(input.mean(-1, keepdim=True)) * input


class CliffordG3GroupNorm(nn.Module):
    """Vectors less their mean over space and groups of channels, with a gain and a bias.

    Args:
        num_groups: the number of groups; divides the features.
        num_features: features.
        num_blades: components.
        scale_norm: whether what is left is divided by the mean of its norms.

    Shapes: ``[batch, features, ..., components]`` to the same. Parameters: ``weight`` ``[features]``, ``bias`` ``[features, components]``.
    """

    def __init__(self, num_groups: int, num_features: int, num_blades: int, scale_norm: bool = False) -> None:
        super().__init__()
        layer = type(self).__name__
        at_least_one(layer, num_groups=num_groups, num_features=num_features, num_blades=num_blades)
        if num_features % num_groups:
            raise ArgumentError(
                f"{layer}: {num_features} features and num_groups {num_groups}, expected a divisor of the features"
            )
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features, num_blades))
        self.num_groups, self.num_features, self.num_blades = num_groups, num_features, num_blades
        self.scale_norm = scale_norm

    def forward(self, x: Tensor) -> Tensor:
        """The normalised input, of the same shape."""
        need_blades(x, self.num_blades, type(self).__name__)
        if x.dim() < 3 or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(x.shape)}, expected [batch, {self.num_features}, ..., {self.num_blades}]"
            )
        rows = x.reshape(x.shape[0], self.num_groups, -1, self.num_blades)
        rows = rows - rows.mean(dim=2, keepdim=True)
        if self.scale_norm:
            rows = rows / rows.norm(dim=-1, keepdim=True).mean(dim=2, keepdim=True)
        rows = rows.reshape(x.shape[0], self.num_features, -1, self.num_blades)
        return (rows * self.weight[:, None, None] + self.bias[:, None]).reshape(x.shape)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_features}, {self.num_blades}, scale_norm={self.scale_norm}"
