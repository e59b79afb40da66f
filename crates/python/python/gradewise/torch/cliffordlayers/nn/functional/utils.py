"""What convolutions and Fourier layers of multivectors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch import Tensor

from gradewise._errors import ShapeError


def clifford_convnd(
    conv_fn: Callable[..., Tensor],
    x: Tensor,
    output_blades: int,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    **kwargs: Any,
) -> Tensor:
    """A convolution of multivectors by an ordinary one of their components.

    Args:
        conv_fn: such as ``torch.nn.functional.conv2d``.
        x: ``[batch, in, *space, blades]``.
        output_blades: the number of output blades.
        weight: ``[output_blades·out, blades·in, *taps]``.
        bias: ``[output_blades·out]``.
        kwargs: arguments of ``conv_fn``.

    Returns:
        ``[batch, out, *space, output_blades]``. The blades lie in front of the channels in memory, where the next layer has them.
    """
    if x.dim() < 4:
        raise ShapeError(
            f"clifford_convnd: the input has shape {list(x.shape)}, expected [batch, channels, *space, blades]"
        )
    y = conv_fn(x.movedim(-1, 1).flatten(1, 2), weight, bias=bias, **kwargs)
    return y.unflatten(1, (output_blades, -1)).movedim(1, -1)


def batchmul1d(x: Tensor, weights: Tensor) -> Tensor:
    """``[batch, in, x]`` times ``[out, in, x]`` at each place: ``[batch, out, x]``."""
    return torch.einsum("bix,oix->box", x, weights)


def batchmul2d(x: Tensor, weights: Tensor) -> Tensor:
    """``[batch, in, x, y]`` times ``[out, in, x, y]`` at each place: ``[batch, out, x, y]``."""
    return torch.einsum("bixy,oixy->boxy", x, weights)


def batchmul3d(x: Tensor, weights: Tensor) -> Tensor:
    """``[batch, in, x, y, z]`` times ``[out, in, x, y, z]`` at each place: ``[batch, out, x, y, z]``."""
    return torch.einsum("bixyz,oixyz->boxyz", x, weights)
