"""What the networks of the plane and of space share: an encoder, blocks on a field with a margin, a decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ShapeError
from gradewise.torch._pretrained import Pretrained


class FieldNet(Pretrained, nn.Module):
    """A network whose blocks see a field with a margin of zeros at the end of each axis of space."""

    padding: int
    """The cells of the margin; 0 for periodic fields."""
    _dimensions: int
    activation: Callable[[Tensor], Tensor]
    encoder: nn.Module
    decoder: nn.Module
    layers: nn.ModuleList

    def _make_layers(self, g: Any, block: Any, channels: int, num_blocks: Sequence[int], **options: Any) -> None:
        made = (nn.Sequential(*(block(g, channels, channels, **options) for _ in range(n))) for n in num_blocks)
        self.layers = nn.ModuleList(made)

    def forward(self, x: Tensor) -> Tensor:
        """Fields ``[batch, in, *space, components]`` to fields ``[batch, out, *space, components]``."""
        if x.dim() != self._dimensions + 3:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(x.shape)}, expected [batch, channels, *space, components] with "
                f"{self._dimensions} axes of space"
            )
        x = self.encoder(self.activation(x))
        space = range(2, 2 + self._dimensions)
        if self.padding > 0:
            # The blades go to the front, where convolutions have them.
            x = F.pad(x.movedim(-1, 1), (0, self.padding) * self._dimensions).movedim(1, -1)
        for layer in self.layers:
            x = layer(x)
        if self.padding > 0:
            for axis in space:
                x = x.narrow(axis, 0, x.shape[axis] - self.padding)
        return self.decoder(x)
