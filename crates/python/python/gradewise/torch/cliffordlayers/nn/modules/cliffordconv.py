"""Clifford convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError, at_least_one
from gradewise.torch.cliffordlayers.cliffordkernels import (
    get_1d_clifford_kernel,
    get_2d_clifford_kernel,
    get_2d_clifford_rotation_kernel,
    get_3d_clifford_kernel,
)
from gradewise.torch.cliffordlayers.nn.functional.utils import clifford_convnd
from gradewise.torch.cliffordlayers.signature import check_signature, signature_of

Sizes = Union[int, Sequence[int]]
KERNELS = {1: get_1d_clifford_kernel, 2: get_2d_clifford_kernel, 3: get_3d_clifford_kernel}
"""The kernel of a product by the number of generators."""


def axes(sizes: Any, count: int, layer: str, name: str) -> Any:
    """A size for each axis of space; a padding by name, such as "same", as it is."""
    if isinstance(sizes, str) and name == "padding":
        return sizes
    made = (sizes,) * count if isinstance(sizes, int) else tuple(sizes)
    if len(made) != count or not all(isinstance(size, int) for size in made):
        raise ArgumentError(f"{layer}: {name} is {sizes!r}, expected a number or {count} of them")
    return made


def geometry(module: nn.Module) -> str:
    """What representations of convolutions say of their sizes."""
    text = f"{module.in_channels}, {module.out_channels}, kernel_size={module.kernel_size}, stride={module.stride}"
    if module.padding != (0,) * len(module.padding):
        text += f", padding={module.padding}"
    if module.dilation != (1,) * len(module.dilation):
        text += f", dilation={module.dilation}"
    if module.groups != 1:
        text += f", groups={module.groups}"
    return text + (", bias=False" if module.bias is None else "")


class _CliffordConvNd(nn.Module):
    """What the convolutions of one, two and three dimensions share."""

    _dimensions: int

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Union[str, Sequence[int]],
        dilation: Sequence[int],
        groups: int,
        bias: bool,
        padding_mode: str,
        rotation: bool = False,
    ) -> None:
        super().__init__()
        layer, count = type(self).__name__, self._dimensions
        signature = signature_of(g, count, layer)
        if rotation and signature.g.tolist() != [-1.0, -1.0]:
            raise ArgumentError(
                f"{layer}: rotation=True with the signature {signature.g.tolist()}, expected (-1, -1): rotations are of quaternions"
            )
        if padding_mode != "zeros":
            raise ArgumentError(
                f"{layer}: padding_mode {padding_mode!r}, expected 'zeros'; pad the input yourself for others"
            )
        at_least_one(layer, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{layer}: {in_channels} and {out_channels} channels, expected multiples of groups={groups}"
            )
        self.register_buffer("g", signature.g)
        self.dim, self.n_blades = signature.dim, signature.n_blades
        self._get_kernel = get_2d_clifford_rotation_kernel if rotation else KERNELS[self.dim]
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = axes(kernel_size, count, layer, "kernel_size")
        self.stride, self.padding = axes(stride, count, layer, "stride"), axes(padding, count, layer, "padding")
        self.dilation = axes(dilation, count, layer, "dilation")
        self.padding_mode, self.rotation = padding_mode, rotation
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = nn.ParameterList(nn.Parameter(torch.empty(shape)) for _ in range(self.n_blades))
        if bias:
            self.bias = nn.Parameter(torch.empty(self.n_blades, out_channels))
        else:
            self.register_parameter("bias", None)
        if rotation:
            self.scale_param = nn.Parameter(torch.empty(shape))
            self.zero_kernel = nn.Parameter(torch.zeros(shape), requires_grad=False)
            self.weight.extend([self.scale_param, self.zero_kernel])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform weights and biases within fan-in^-½, where all blades count as inputs; the scale of rotations as PyTorch's convolutions."""
        fan_in = self.in_channels * self.n_blades // self.groups * math.prod(self.kernel_size)
        bound = 1 / math.sqrt(fan_in)
        for weight in list(self.weight)[: self.n_blades]:
            nn.init.uniform_(weight, -bound, bound)
        if self.rotation:
            nn.init.kaiming_uniform_(self.scale_param, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor, conv_fn: Callable[..., Tensor]) -> Tensor:
        """Multivectors ``[batch, in, *space, blades]`` by an ordinary convolution: ``[batch, out, *space, blades]``."""
        if x.dim() != self._dimensions + 3 or x.shape[1] != self.in_channels:
            space = ", ".join("xyz"[: self._dimensions])
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(x.shape)}, expected [batch, {self.in_channels}, {space}, blades]"
            )
        blades, weight = kernel_of(self)
        bias = None if self.bias is None else self.bias.reshape(-1)
        sizes = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation, "groups": self.groups}
        return clifford_convnd(conv_fn, x, blades, weight, bias, **sizes)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        check_signature(self.g, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return geometry(self)


def kernel_of(module: nn.Module) -> tuple[int, Tensor]:
    """The number of output blades and the kernel of a layer. A published layer that is accelerated has our function beside its own."""
    kernel = module.__dict__.get("_own_kernel", module._get_kernel)
    return kernel(module.weight, module.g)


def need_blades(x: Tensor, blades: int, layer: str) -> None:
    """Refuses fields of another number of blades."""
    if x.dim() == 0 or x.shape[-1] != blades:
        raise ShapeError(f"{layer}: the input has shape {list(x.shape)}, expected {blades} blades on the last axis")


class CliffordConv1d(_CliffordConvNd):
    """A convolution of multivectors of one generator along one axis (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the square of the generator, such as ``[1]``.
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: taps.
        stride: cells from one result to the next.
        padding: cells of zeros on either side, or "valid" or "same".
        dilation: cells from one tap to the next.
        groups: blocks of the ordinary convolution of the components. As in the published code they cut across blades: with more than one
            the layer computes no geometric product.
        bias: whether there is a bias on every blade.
        padding_mode: "zeros".

    Shapes: ``[batch, in, x, 2]`` to ``[batch, out, x, 2]``. Parameters: ``weight.0`` and ``weight.1`` ``[out, in, taps]``; ``bias``
    ``[2, out]``. The buffer ``g`` is in checkpoints; one of another signature is refused.
    """

    _dimensions = 1

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 3,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation)
        super().__init__(g, in_channels, out_channels, *sizes, groups, bias, padding_mode)

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, 2]`` to ``[batch, out, x, 2]``."""
        need_blades(x, self.n_blades, type(self).__name__)
        return super().forward(x, F.conv1d)


class CliffordConv2d(_CliffordConvNd):
    """A convolution of multivectors of two generators in the plane (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the squares of the generators, such as ``[1, 1]``.
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode: as in :class:`CliffordConv1d`.
        rotation: whether the vector and bivector part are rotated by quaternions and scaled; for ``g = [-1, -1]``.

    Shapes: ``[batch, in, x, y, 4]`` to ``[batch, out, x, y, 4]``. Parameters: ``weight.0`` to ``weight.3`` ``[out, in, taps, taps]``; ``bias``
    ``[4, out]``; with rotation ``scale_param`` and ``zero_kernel``, which are ``weight.4`` and ``weight.5`` too.
    """

    _dimensions = 2

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 3,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        rotation: bool = False,
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation)
        super().__init__(g, in_channels, out_channels, *sizes, groups, bias, padding_mode, rotation)

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, y, 4]`` to ``[batch, out, x, y, 4]``."""
        need_blades(x, self.n_blades, type(self).__name__)
        return super().forward(x, F.conv2d)


class CliffordConv3d(_CliffordConvNd):
    """A convolution of multivectors of three generators in space (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the squares of the generators, such as ``[1, 1, 1]``.
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode: as in :class:`CliffordConv1d`.

    Shapes: ``[batch, in, x, y, z, 8]`` to ``[batch, out, x, y, z, 8]``. Parameters: ``weight.0`` to ``weight.7`` ``[out, in, taps, taps,
    taps]``; ``bias`` ``[8, out]``.
    """

    _dimensions = 3

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 3,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation)
        super().__init__(g, in_channels, out_channels, *sizes, groups, bias, padding_mode)

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, y, z, 8]`` to ``[batch, out, x, y, z, 8]``."""
        need_blades(x, self.n_blades, type(self).__name__)
        return super().forward(x, F.conv3d)
