"""Convolutions of vectors in three dimensions by scaled rotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch.cliffordlayers._blades import Weights, joined, rotations, stacked

__all__ = ["clifford_g3convnd", "get_clifford_g3_kernel"]

_CONVOLUTIONS = {
    3: (F.conv1d, F.conv_transpose1d),
    4: (F.conv2d, F.conv_transpose2d),
    5: (F.conv3d, F.conv_transpose3d),
}


def get_clifford_g3_kernel(weights: Weights) -> Tensor:
    """The kernel ``[3·out, 3·in, ...]`` that rotates vectors by normalised quaternions and scales.

    Args:
        weights: the four components, the scale, and a kernel of zeros that is not read, ``[out, in, ...]`` each.
    """
    listed = list(weights)
    if len(listed) != 6:
        raise ArgumentError(
            f"get_clifford_g3_kernel: {len(listed)} weights, expected 6: a quaternion, a scale and zeros"
        )
    *quaternion, scale = stacked(listed[:5], 5, "get_clifford_g3_kernel")
    return joined(rotations(quaternion, scale))


def clifford_g3convnd(
    input: Tensor,
    weights: Weights,
    bias: Optional[Sequence[Tensor]] = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    transposed: bool = False,
) -> Tensor:
    """A convolution of vectors ``[batch, 3·in, *space]``, with the component as the slower index of channels, or a transposed one.

    Args:
        input: one to three axes of space.
        weights: as in :func:`get_clifford_g3_kernel`; of a transposed convolution ``[in, out, *taps]``.
        bias: ``[out]`` for each component.
        stride, padding, dilation, groups: those of PyTorch's convolutions.
        transposed: whether the convolution is transposed.
    """
    if input.dim() not in _CONVOLUTIONS:
        raise ShapeError(
            f"clifford_g3convnd: the input has shape {list(input.shape)}, expected [batch, 3·channels] and 1 to 3 axes of space"
        )
    convolve = _CONVOLUTIONS[input.dim()][transposed]
    offset = None if bias is None else torch.cat(list(bias))
    sizes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return convolve(input, get_clifford_g3_kernel(weights), offset, **sizes)
