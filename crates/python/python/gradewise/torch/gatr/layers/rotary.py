"""Rotary positions of items (Su et al. 2021, arXiv:2104.09864)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError


class ApplyRotaryPositionalEncoding(nn.Module):
    """Pairs of scalars rotated by an angle that grows with the number of their item.

    Args:
        num_channels: scalars, an even number.
        item_dim: the axis of the items.
        base: the frequencies fall from 1 to about its inverse.

    Buffers: ``inv_freq`` ``[num_channels / 2]``.
    """

    inv_freq: Tensor

    def __init__(self, num_channels: int, item_dim: int, base: float = 4096) -> None:
        super().__init__()
        if num_channels % 2:
            raise ArgumentError(
                f"ApplyRotaryPositionalEncoding: {num_channels} channels, expected an even number: they turn in pairs"
            )
        exponents = torch.arange(0, num_channels, 2, dtype=torch.float32) / num_channels
        self.register_buffer("inv_freq", 1.0 / base**exponents)
        self.item_dim, self.num_channels = item_dim, num_channels

    def forward(self, scalars: Tensor) -> Tensor:
        """Scalars ``[..., channels]``, rotated."""
        if scalars.shape[-1] != self.num_channels:
            raise ShapeError(
                f"ApplyRotaryPositionalEncoding: shape {list(scalars.shape)}, expected [..., {self.num_channels}]"
            )
        axis = self.item_dim % scalars.dim()
        frequencies = self.inv_freq.float() if self.inv_freq.dtype.itemsize == 2 else self.inv_freq
        items = torch.arange(scalars.shape[axis], device=scalars.device, dtype=frequencies.dtype)
        angles = (items[:, None] * frequencies).reshape(-1, *[1] * (scalars.dim() - axis - 2), frequencies.shape[0])
        cos, sin = angles.cos().to(scalars.dtype), angles.sin().to(scalars.dtype)
        first, second = scalars.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def extra_repr(self) -> str:
        return f"{self.num_channels}, item_dim={self.item_dim}"
