"""Convolutions that encode and decode fields that lack blades (Brandstetter et al. 2023, arXiv:2209.04934)."""

from __future__ import annotations

from typing import Any, Union

import torch.nn.functional as F
from torch import Tensor

from gradewise._errors import ArgumentError
from gradewise.torch.cliffordlayers.models.basic.custom_kernels import (
    SCALAR_VECTOR,
    VECTOR_BIVECTOR,
    get_2d_rotation_scalar_vector_decoding_kernel,
    get_2d_rotation_scalar_vector_encoding_kernel,
    get_2d_scalar_vector_decoding_kernel,
    get_2d_scalar_vector_encoding_kernel,
    get_3d_maxwell_decoding_kernel,
    get_3d_maxwell_encoding_kernel,
)
from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import CliffordConv2d, CliffordConv3d, Sizes, need_blades


def _need_no_bias(layer: Any, bias: bool) -> None:
    if bias:
        raise ArgumentError(
            f"{type(layer).__name__}: bias=True, expected False: a decoder's bias would be on blades that it lacks"
        )


class CliffordConv2dScalarVectorEncoder(CliffordConv2d):
    """:class:`CliffordConv2d` of fields of a scalar and a vector, ``[batch, in, x, y, 3]``; the arguments are those of the convolution."""

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 1,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        rotation: bool = False,
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation, groups)
        super().__init__(g, in_channels, out_channels, *sizes, bias, padding_mode, rotation)
        kernels = get_2d_rotation_scalar_vector_encoding_kernel, get_2d_scalar_vector_encoding_kernel
        self._get_kernel = kernels[0 if rotation else 1]

    def forward(self, x: Tensor) -> Tensor:
        """Scalars and vectors ``[batch, in, x, y, 3]`` to multivectors ``[batch, out, x, y, 4]``."""
        need_blades(x, len(SCALAR_VECTOR), type(self).__name__)
        return super(CliffordConv2d, self).forward(x, F.conv2d)


class CliffordConv2dScalarVectorDecoder(CliffordConv2d):
    """:class:`CliffordConv2d` to fields of a scalar and a vector, ``[batch, out, x, y, 3]``; the arguments are those of the convolution, without
    a bias."""

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 1,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = False,
        padding_mode: str = "zeros",
        rotation: bool = False,
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation, groups)
        _need_no_bias(self, bias)
        super().__init__(g, in_channels, out_channels, *sizes, bias, padding_mode, rotation)
        kernels = get_2d_rotation_scalar_vector_decoding_kernel, get_2d_scalar_vector_decoding_kernel
        self._get_kernel = kernels[0 if rotation else 1]

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, y, 4]`` to scalars and vectors ``[batch, out, x, y, 3]``."""
        return super().forward(x)


class CliffordConv3dMaxwellEncoder(CliffordConv3d):
    """:class:`CliffordConv3d` of fields of a vector and a bivector, ``[batch, in, x, y, z, 6]``; the arguments are those of the convolution."""

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 1,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation, groups)
        super().__init__(g, in_channels, out_channels, *sizes, bias, padding_mode)
        self._get_kernel = get_3d_maxwell_encoding_kernel

    def forward(self, x: Tensor) -> Tensor:
        """Vectors and bivectors ``[batch, in, x, y, z, 6]`` to multivectors ``[batch, out, x, y, z, 8]``."""
        need_blades(x, len(VECTOR_BIVECTOR), type(self).__name__)
        return super(CliffordConv3d, self).forward(x, F.conv3d)


class CliffordConv3dMaxwellDecoder(CliffordConv3d):
    """:class:`CliffordConv3d` to fields of a vector and a bivector, ``[batch, out, x, y, z, 6]``; the arguments are those of the convolution,
    without a bias."""

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes = 1,
        stride: Sizes = 1,
        padding: Union[str, Sizes] = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = False,
        padding_mode: str = "zeros",
    ) -> None:
        sizes = (kernel_size, stride, padding, dilation, groups)
        _need_no_bias(self, bias)
        super().__init__(g, in_channels, out_channels, *sizes, bias, padding_mode)
        self._get_kernel = get_3d_maxwell_decoding_kernel

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, y, z, 8]`` to vectors and bivectors ``[batch, out, x, y, z, 6]``."""
        return super().forward(x)
