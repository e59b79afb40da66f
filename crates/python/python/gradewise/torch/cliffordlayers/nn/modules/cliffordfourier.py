"""Clifford Fourier layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError, at_least_one
from gradewise.torch.cliffordlayers._blades import products
from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import need_blades
from gradewise.torch.cliffordlayers.signature import check_signature, signature_of


class _SpectralConv(nn.Module):
    """What Fourier layers of two and three dimensions share."""

    _dimensions: int

    def _build(self, g: Any, in_channels: int, out_channels: int, modes: Sequence[int], multiply: bool) -> None:
        layer = type(self).__name__
        signature = signature_of(g, self._dimensions, layer)
        named = {f"modes{axis + 1}": count for axis, count in enumerate(modes)}
        at_least_one(layer, in_channels=in_channels, out_channels=out_channels, **named)
        if not multiply and in_channels != out_channels:
            raise ArgumentError(
                f"{layer}: {in_channels} and {out_channels} channels, expected as many: without weights none are mixed"
            )
        # The published layer of three dimensions keeps its signature out of checkpoints.
        self.register_buffer("g", signature.g, persistent=self._dimensions == 2)
        self.dim, self.n_blades = signature.dim, signature.n_blades
        self.in_channels, self.out_channels, self.multiply = in_channels, out_channels, multiply
        for name, count in named.items():
            setattr(self, name, count)
        if multiply:
            kept = (self.n_blades, out_channels, in_channels, *(2 * count for count in modes))
            scale = 1 / (in_channels * out_channels)
            self.weights = nn.Parameter(scale * torch.rand(*kept, dtype=torch.float32))

    def _multiplied(self, x: Tensor) -> Tensor:
        """The kept frequencies ``[batch, *2·modes, in, blades]`` times their weights: ``[batch, blades, out, *2·modes]``."""
        rows = x.movedim(-1, 0).movedim(1, -2).flatten(1, -3)
        made = products(rows, self.weights.to(x.dtype).flatten(3), self.g)
        return made.unflatten(3, self.weights.shape[3:])

    def _placed(self, x: Tensor) -> Tensor:
        """What becomes of the products before they take their places."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, *space, blades]`` to ``[batch, out, *space, blades]``."""
        layer, axes = type(self).__name__, range(2, 2 + self._dimensions)
        modes = [getattr(self, f"modes{axis - 1}") for axis in axes]
        need_blades(x, self.n_blades, layer)
        if x.dim() != self._dimensions + 3 or x.shape[1] != self.in_channels:
            raise ShapeError(
                f"{layer}: the input has shape {list(x.shape)}, expected [batch, {self.in_channels}, *space, {self.n_blades}]"
            )
        space = x.shape[2:-1]
        if any(count > cells for count, cells in zip(modes, space)):
            raise ShapeError(f"{layer}: {list(space)} cells, expected at least the modes {modes} along each axis")
        half = self.n_blades // 2
        # FFTs take 32 bits or more.
        wide = x.float() if x.dtype.itemsize == 2 else x
        # A blade and its dual are a complex number, whose unit is the pseudoscalar.
        dual = torch.fft.fftn(torch.complex(wide[..., :half], wide[..., half:].flip(-1)), dim=tuple(axes))
        for axis, count in zip(axes, modes):
            cells = dual.shape[axis]
            dual = torch.cat([dual.narrow(axis, 0, count), dual.narrow(axis, cells - count, count)], axis)
        parts = torch.cat([dual.real, dual.imag.flip(-1)], dim=-1)
        made = self._multiplied(parts.movedim(1, -2)) if self.multiply else parts.movedim(-1, 1)
        # Autocast multiplies in 16 bits.
        made = self._placed(made.flatten(1, 2).to(wide.dtype))
        for axis, count, cells in zip(axes, modes, space):
            # Where frequencies of both ends overlap, the upper end stands, as published.
            low, high = made.narrow(axis, 0, min(count, cells - count)), made.narrow(axis, count, count)
            gap = list(made.shape)
            gap[axis] = max(cells - 2 * count, 0)
            made = torch.cat([low, made.new_zeros(gap), high], axis)
        made = made.unflatten(1, (self.n_blades, -1)).movedim(1, -1)
        back = torch.fft.ifftn(torch.complex(made[..., :half], made[..., half:].flip(-1)), dim=tuple(axes))
        return torch.cat([back.real, back.imag.flip(-1)], dim=-1).to(x.dtype)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        check_signature(self.g, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        modes = ", ".join(f"modes{axis + 1}={getattr(self, f'modes{axis + 1}')}" for axis in range(self._dimensions))
        return f"{self.in_channels}, {self.out_channels}, {modes}, multiply={self.multiply}"


class CliffordSpectralConv2d(_SpectralConv):
    """A product with weights at the low frequencies of the plane (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the squares of the two generators.
        in_channels: channels of the input.
        out_channels: channels of the output.
        modes1: frequencies kept at either end of the first axis.
        modes2: frequencies kept at either end of the second axis.
        multiply: whether there are weights; without, the layer cuts the high frequencies off.

    Shapes: ``[batch, in, x, y, 4]`` to ``[batch, out, x, y, 4]``. Parameters: ``weights`` ``[4, out, in, 2·modes1, 2·modes2]``. The result has
    the dtype of the input, where the published layer returns float32 whatever it takes.
    """

    _dimensions = 2

    def __init__(
        self, g: Any, in_channels: int, out_channels: int, modes1: int, modes2: int, multiply: bool = True
    ) -> None:
        super().__init__()
        self._build(g, in_channels, out_channels, (modes1, modes2), multiply)


class CliffordSpectralConv3d(_SpectralConv):
    """A product with weights at the low frequencies of space (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the squares of the three generators.
        in_channels: channels of the input.
        out_channels: channels of the output.
        modes1: frequencies kept at either end of the first axis.
        modes2: frequencies kept at either end of the second axis.
        modes3: frequencies kept at either end of the third axis.
        multiply: whether there are weights; without, the layer cuts the high frequencies off.

    Shapes: ``[batch, in, x, y, z, 8]`` to ``[batch, out, x, y, z, 8]``. Parameters: ``weights`` ``[8, out, in, 2·modes1, 2·modes2, 2·modes3]``.

    As published, the frequencies that are high along the first and third axis and low along the second are those that are low along the
    first: weights that were trained so expect it.
    """

    _dimensions = 3

    def __init__(
        self,
        g: Any,
        in_channels: int,
        out_channels: int,
        modes1: int,
        modes2: int,
        modes3: int,
        multiply: bool = True,
    ) -> None:
        super().__init__()
        self._build(g, in_channels, out_channels, (modes1, modes2, modes3), multiply)

    def _placed(self, x: Tensor) -> Tensor:
        low, high = x.chunk(2, dim=2)
        (near, far), last = high.chunk(2, dim=3), low.chunk(2, dim=3)[0].chunk(2, dim=4)[1]
        near = torch.cat([near.chunk(2, dim=4)[0], last], dim=4)
        return torch.cat([low, torch.cat([near, far], dim=3)], dim=2)
