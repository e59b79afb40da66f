"""Networks of vectors in the plane (Ruhe et al. 2023, arXiv:2302.06594)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch._pretrained import Pretrained
from gradewise.torch.cliffordlayers.nn.modules.gcan import (
    CliffordG3Conv2d,
    CliffordG3ConvTranspose2d,
    CliffordG3GroupNorm,
    CliffordG3LinearVSiLU,
    CliffordG3MeanVSiLU,
    CliffordG3SumVSiLU,
)


def get_activation(activation: str, channels: int) -> nn.Module:
    """The activation of a name: "vlin", "vsum" or "vmean"."""
    if activation == "vlin":
        return CliffordG3LinearVSiLU(channels)
    if activation not in ("vsum", "vmean"):
        raise ArgumentError(f"get_activation: {activation!r}, expected 'vlin', 'vsum' or 'vmean'")
    return CliffordG3SumVSiLU() if activation == "vsum" else CliffordG3MeanVSiLU()


def _need_fields(x: Tensor, network: str) -> None:
    if x.dim() != 5:
        raise ShapeError(f"{network}: the input has shape {list(x.shape)}, expected [batch, channels, x, y, 3]")


class CliffordG3BasicBlock2d(nn.Module):
    """Two convolutions, each after a norm and an activation, beside the input or a convolution of one tap of it.

    Args:
        in_channels, out_channels: channels.
        kernel_size, stride, padding: those of :class:`CliffordG3Conv2d`.
        activation: "vlin", "vsum" or "vmean".
        norm: whether there are norms.
        num_groups: that of :class:`CliffordG3GroupNorm`.
        prenorm: whether norms come before activations.
    """

    expansion = 1

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        padding: int = 1,
        activation: str = "vlin",
        norm: bool = True,
        num_groups: int = 1,
        prenorm: bool = True,
    ) -> None:
        super().__init__()
        sizes = {"kernel_size": kernel_size, "stride": stride, "padding": padding}
        self.conv1 = CliffordG3Conv2d(in_channels, out_channels, **sizes, bias=True)
        self.conv2 = CliffordG3Conv2d(out_channels, out_channels, **sizes, bias=True)
        self.norm1 = CliffordG3GroupNorm(num_groups, in_channels, 3) if norm else nn.Identity()
        self.norm2 = CliffordG3GroupNorm(num_groups, out_channels, 3) if norm else nn.Identity()
        is_same = in_channels == out_channels
        self.shortcut = nn.Identity() if is_same else CliffordG3Conv2d(in_channels, out_channels, kernel_size=1)
        self.act1, self.act2 = get_activation(activation, in_channels), get_activation(activation, out_channels)
        self.prenorm = prenorm

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, in, x, y, 3]`` to vectors ``[batch, out, x, y, 3]``."""
        if self.prenorm:
            out = self.conv2(self.act2(self.norm2(self.conv1(self.act1(self.norm1(x))))))
        else:
            out = self.conv2(self.norm2(self.act2(self.conv1(self.norm1(self.act1(x))))))
        return out + self.shortcut(x)


class CliffordG3ResNet2d(Pretrained, nn.Module):
    """A residual network for fields of vectors, such as a scalar and a velocity in the plane.

    Args:
        num_blocks: the number of blocks of each layer.
        in_channels: frames of the input.
        out_channels: frames of the prediction.
        hidden_channels: width.
        activation: "vlin", "vsum" or "vmean".
        block: :class:`CliffordG3BasicBlock2d`, or another of the same arguments.
        norm, num_groups, prenorm: those of the blocks.

    Shapes: ``[batch, in, x, y, 3]`` to ``[batch, out, x, y, 3]``.
    """

    padding = 9
    """Not used, as in the published code."""

    def __init__(
        self,
        num_blocks: Sequence[int],
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        activation: str = "vlin",
        block: Any = CliffordG3BasicBlock2d,
        norm: bool = False,
        num_groups: int = 1,
        prenorm: bool = True,
    ) -> None:
        super().__init__()
        self.conv_in1 = CliffordG3Conv2d(in_channels, hidden_channels)
        self.conv_in2 = CliffordG3Conv2d(hidden_channels, hidden_channels)
        self.conv_out1 = CliffordG3Conv2d(hidden_channels, hidden_channels)
        self.conv_out2 = CliffordG3Conv2d(hidden_channels, out_channels)
        options = {"activation": activation, "norm": norm, "prenorm": prenorm, "num_groups": num_groups}
        self.layers = nn.ModuleList(
            nn.Sequential(*(block(hidden_channels, hidden_channels, **options) for _ in range(count)))
            for count in num_blocks
        )
        self.act1, self.act2 = (get_activation(activation, hidden_channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, in, x, y, 3]`` to vectors ``[batch, out, x, y, 3]``."""
        _need_fields(x, type(self).__name__)
        h = self.conv_in2(self.act1(self.conv_in1(x)))
        for layer in self.layers:
            h = layer(h)
        return self.conv_out2(self.act2(self.conv_out1(h)))


class CliffordG3DownBlock(nn.Module):
    """A block on the way down of :class:`CliffordG3UNet2d`; the arguments are those of :class:`CliffordG3BasicBlock2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        activation: str,
        norm: bool = False,
        prenorm: bool = True,
        num_groups: int = 1,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        options = {"activation": activation, "norm": norm, "prenorm": prenorm, "num_groups": num_groups}
        self.block = CliffordG3BasicBlock2d(in_channels, out_channels, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, in, x, y, 3]`` to vectors ``[batch, out, x, y, 3]``."""
        return self.block(x)


class CliffordG3Downsample(nn.Module):
    """A convolution to half as many cells along each axis.

    Args:
        n_channels: channels.
    """

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.n_channels = n_channels
        self.conv = CliffordG3Conv2d(n_channels, n_channels, kernel_size=3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, channels, x, y, 3]`` to vectors ``[batch, channels, x/2, y/2, 3]``."""
        return self.conv(x)


class CliffordG3MiddleBlock(nn.Module):
    """Two blocks at the bottom of :class:`CliffordG3UNet2d`; the arguments are those of :class:`CliffordG3BasicBlock2d`."""

    def __init__(
        self, n_channels: int, activation: str, norm: bool = False, prenorm: bool = True, num_groups: int = 1
    ) -> None:
        super().__init__()
        options = {"activation": activation, "norm": norm, "prenorm": prenorm, "num_groups": num_groups}
        self.res1, self.res2 = (CliffordG3BasicBlock2d(n_channels, n_channels, **options) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, channels, x, y, 3]`` to the same."""
        return self.res2(self.res1(x))


class CliffordG3UpBlock(nn.Module):
    """A block on the way up of :class:`CliffordG3UNet2d`, of features beside those of the way down; the arguments are those of
    :class:`CliffordG3BasicBlock2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        activation: str,
        norm: bool = False,
        prenorm: bool = True,
        num_groups: int = 1,
    ) -> None:
        super().__init__()
        options = {"activation": activation, "norm": norm, "prenorm": prenorm, "num_groups": num_groups}
        self.res = CliffordG3BasicBlock2d(in_channels + out_channels, out_channels, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, in + out, x, y, 3]`` to vectors ``[batch, out, x, y, 3]``."""
        return self.res(x)


class CliffordUpsample(nn.Module):
    """A transposed convolution to twice as many cells along each axis.

    Args:
        n_channels: channels.
    """

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.conv = CliffordG3ConvTranspose2d(n_channels, n_channels, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, channels, x, y, 3]`` to vectors ``[batch, channels, 2·x, 2·y, 3]``."""
        return self.conv(x)


class CliffordG3UNet2d(Pretrained, nn.Module):
    """A U-net for fields of vectors.

    Args:
        in_channels: frames of the input.
        out_channels: frames of the prediction.
        hidden_channels: width at the first resolution.
        activation: "vlin", "vsum" or "vmean".
        norm: whether there are norms.
        ch_mults: by what the width grows at each resolution.
        n_blocks: the number of blocks at each resolution.
        prenorm: whether norms come before activations.
        num_groups: that of :class:`CliffordG3GroupNorm`; 1 in the middle and where channels shrink, as in the published code.

    Shapes: ``[batch, in, x, y, 3]`` to ``[batch, out, x, y, 3]``; the cells are a multiple of 2 to the number of resolutions less one.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        activation: str = "vlin",
        norm: bool = False,
        ch_mults: Sequence[int] = (1, 2, 2, 2),
        n_blocks: int = 2,
        prenorm: bool = True,
        num_groups: int = 1,
    ) -> None:
        super().__init__()
        self.out_channels = out_channels
        options = {"activation": activation, "norm": norm, "prenorm": prenorm}
        self.conv1 = CliffordG3Conv2d(in_channels, hidden_channels, kernel_size=3, padding=1)
        width, down, up = hidden_channels, [], []
        for level, factor in enumerate(ch_mults):
            wider = width * factor
            for _ in range(n_blocks):
                down.append(CliffordG3DownBlock(width, wider, **options, num_groups=num_groups))
                width = wider
            if level < len(ch_mults) - 1:
                down.append(CliffordG3Downsample(width))
        self.down = nn.ModuleList(down)
        self.middle = CliffordG3MiddleBlock(width, **options)
        for level, factor in reversed(list(enumerate(ch_mults))):
            up += [CliffordG3UpBlock(width, width, **options, num_groups=num_groups) for _ in range(n_blocks)]
            up.append(CliffordG3UpBlock(width, width // factor, **options))
            width //= factor
            if level > 0:
                up.append(CliffordUpsample(width))
        self.up = nn.ModuleList(up)
        self.activation = get_activation(activation, width)
        self.norm = CliffordG3GroupNorm(num_groups, width, 3) if norm else nn.Identity()
        self.conv2 = CliffordG3Conv2d(width, out_channels, kernel_size=3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Vectors ``[batch, in, x, y, 3]`` to vectors ``[batch, out, x, y, 3]``."""
        _need_fields(x, type(self).__name__)
        x = self.conv1(x)
        seen = [x]
        for module in self.down:
            x = module(x)
            seen.append(x)
        x = self.middle(x)
        for module in self.up:
            x = module(x) if isinstance(module, CliffordUpsample) else module(torch.cat([x, seen.pop()], dim=1))
        return self.conv2(self.activation(self.norm(x)))
