"""Networks of the plane (Brandstetter et al. 2023, arXiv:2209.04934)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from gradewise.torch.cliffordlayers.models.basic._nets import FieldNet
from gradewise.torch.cliffordlayers.models.basic.custom_layers import (
    CliffordConv2dScalarVectorDecoder,
    CliffordConv2dScalarVectorEncoder,
)
from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import CliffordConv2d
from gradewise.torch.cliffordlayers.nn.modules.cliffordfourier import CliffordSpectralConv2d
from gradewise.torch.cliffordlayers.nn.modules.groupnorm import CliffordGroupNorm2d

Activation = Callable[[Tensor], Tensor]


class CliffordBasicBlock2d(nn.Module):
    """Two convolutions, each after a norm and an activation, beside the input.

    Args:
        g: the squares of the two generators.
        in_channels, out_channels: channels.
        activation: a function of components.
        kernel_size, stride, padding, rotation: those of :class:`CliffordConv2d`.
        norm: whether there are norms.
        num_groups: that of :class:`CliffordGroupNorm2d`.
    """

    expansion = 1

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        activation: Activation = F.gelu,
        kernel_size: int = 3,
        stride: int = 1,
        padding: int = 1,
        rotation: bool = False,
        norm: bool = False,
        num_groups: int = 1,
    ) -> None:
        super().__init__()
        options = {"kernel_size": kernel_size, "stride": stride, "padding": padding, "bias": True, "rotation": rotation}
        self.conv1 = CliffordConv2d(g, in_channels, out_channels, **options)
        self.conv2 = CliffordConv2d(g, out_channels, out_channels, **options)
        self.norm1 = CliffordGroupNorm2d(g, num_groups, in_channels) if norm else nn.Identity()
        self.norm2 = CliffordGroupNorm2d(g, num_groups, out_channels) if norm else nn.Identity()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, y, 4]`` to multivectors ``[batch, out, x, y, 4]``."""
        out = self.conv1(self.activation(self.norm1(x)))
        return self.conv2(self.activation(self.norm2(out))) + x


class CliffordFourierBasicBlock2d(nn.Module):
    """A Fourier layer beside a convolution, then a norm and an activation.

    Args:
        g: the squares of the two generators.
        in_channels, out_channels: channels.
        activation: a function of components.
        kernel_size, stride, padding, rotation: those of :class:`CliffordConv2d`.
        norm: whether there is a norm.
        num_groups: that of :class:`CliffordGroupNorm2d`.
        modes1, modes2: those of :class:`CliffordSpectralConv2d`.
    """

    expansion = 1

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        activation: Activation = F.gelu,
        kernel_size: int = 1,
        stride: int = 1,
        padding: int = 0,
        rotation: bool = False,
        norm: bool = False,
        num_groups: int = 1,
        modes1: int = 16,
        modes2: int = 16,
    ) -> None:
        super().__init__()
        self.fourier = CliffordSpectralConv2d(g, in_channels, out_channels, modes1=modes1, modes2=modes2)
        sizes = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
        self.conv = CliffordConv2d(g, in_channels, out_channels, **sizes, bias=True, rotation=rotation)
        self.norm = CliffordGroupNorm2d(g, num_groups, out_channels) if norm else nn.Identity()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, y, 4]`` to multivectors ``[batch, out, x, y, 4]``."""
        return self.activation(self.norm(self.fourier(x) + self.conv(x)))


class CliffordFluidNet2d(FieldNet):
    """A network for fields of a scalar and a vector in the plane, such as smoke and velocity.

    Args:
        g: the squares of the two generators.
        block: :class:`CliffordBasicBlock2d`, :class:`CliffordFourierBasicBlock2d`, or another of the same arguments.
        num_blocks: the number of blocks of each layer.
        in_channels: frames of the input.
        out_channels: frames of the prediction.
        hidden_channels: width.
        activation: a function of components.
        rotation: whether convolutions rotate; for ``g = [-1, -1]``.
        norm: whether blocks have norms.
        num_groups: that of :class:`CliffordGroupNorm2d`.

    Shapes: ``[batch, in, x, y, 3]`` to ``[batch, out, x, y, 3]``. ``padding`` cells of zeros follow each axis; set it to 0 for periodic fields.
    """

    padding = 9
    _dimensions = 2

    def __init__(
        self,
        g: Any,
        block: Any,
        num_blocks: Sequence[int],
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        activation: Activation,
        rotation: bool,
        norm: bool = False,
        num_groups: int = 1,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.encoder = CliffordConv2dScalarVectorEncoder(g, in_channels, hidden_channels, rotation=rotation)
        self.decoder = CliffordConv2dScalarVectorDecoder(g, hidden_channels, out_channels, rotation=rotation)
        options = {"activation": activation, "rotation": rotation, "norm": norm, "num_groups": num_groups}
        self._make_layers(g, block, hidden_channels, num_blocks, **options)
