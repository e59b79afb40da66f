"""Networks of space (Brandstetter et al. 2023, arXiv:2209.04934)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from gradewise.torch.cliffordlayers.models.basic._nets import FieldNet
from gradewise.torch.cliffordlayers.models.basic.custom_layers import (
    CliffordConv3dMaxwellDecoder,
    CliffordConv3dMaxwellEncoder,
)
from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import CliffordConv3d
from gradewise.torch.cliffordlayers.nn.modules.cliffordfourier import CliffordSpectralConv3d
from gradewise.torch.cliffordlayers.nn.modules.groupnorm import CliffordGroupNorm3d

Activation = Callable[[Tensor], Tensor]


class CliffordFourierBasicBlock3d(nn.Module):
    """A Fourier layer beside a convolution, then a norm and an activation.

    Args:
        g: the squares of the three generators.
        in_channels, out_channels: channels.
        activation: a function of components.
        kernel_size, stride, padding: those of :class:`CliffordConv3d`.
        norm: whether there is a norm.
        num_groups: that of :class:`CliffordGroupNorm3d`.
        modes1, modes2, modes3: those of :class:`CliffordSpectralConv3d`.
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
        norm: bool = False,
        num_groups: int = 1,
        modes1: int = 8,
        modes2: int = 8,
        modes3: int = 8,
    ) -> None:
        super().__init__()
        modes = {"modes1": modes1, "modes2": modes2, "modes3": modes3}
        self.fourier = CliffordSpectralConv3d(g, in_channels, out_channels, **modes)
        sizes = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
        self.conv = CliffordConv3d(g, in_channels, out_channels, **sizes, bias=True)
        self.norm = CliffordGroupNorm3d(g, num_groups, in_channels) if norm else nn.Identity()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, x, y, z, 8]`` to multivectors ``[batch, out, x, y, z, 8]``."""
        return self.activation(self.norm(self.fourier(x) + self.conv(x)))


class CliffordMaxwellNet3d(FieldNet):
    """A network for fields of a vector and a bivector in space, such as electric and magnetic fields.

    Args:
        g: the squares of the three generators.
        block: :class:`CliffordFourierBasicBlock3d`, or another of the same arguments.
        num_blocks: the number of blocks of each layer.
        in_channels: frames of the input.
        out_channels: frames of the prediction.
        hidden_channels: width.
        activation: a function of components.
        norm: whether blocks have norms.
        num_groups: that of :class:`CliffordGroupNorm3d`.

    Shapes: ``[batch, in, x, y, z, 6]`` to ``[batch, out, x, y, z, 6]``. ``padding`` cells of zeros follow each axis; set it to 0 for periodic
    fields.
    """

    padding = 2
    _dimensions = 3

    def __init__(
        self,
        g: Any,
        block: Any,
        num_blocks: Sequence[int],
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        activation: Activation,
        norm: bool = False,
        num_groups: int = 1,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.encoder = CliffordConv3dMaxwellEncoder(g, in_channels, hidden_channels)
        self.decoder = CliffordConv3dMaxwellDecoder(g, hidden_channels, out_channels)
        self._make_layers(
            g, block, hidden_channels, num_blocks, activation=activation, norm=norm, num_groups=num_groups
        )
