"""Kernels of Clifford convolutions and linear maps as functions of their weights.

Weights are one tensor ``[blades, out, in, ...]`` or a list of ``[out, in, ...]``, and multiply from the right. Kernels are ``[blades·out,
blades·in, ...]``, with the blade as the slower index. Formulas: Brandstetter et al. 2023, arXiv:2209.04934.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradewise._errors import ArgumentError
from gradewise.torch.cliffordlayers._blades import Weights, blade_kernel, joined, rotation_blocks, stacked

__all__ = [
    "get_1d_clifford_kernel",
    "get_2d_clifford_kernel",
    "get_2d_clifford_rotation_kernel",
    "get_3d_clifford_kernel",
    "get_complex_kernel",
    "get_octonion_kernel",
    "get_quaternion_kernel",
    "get_quaternion_rotation_kernel",
]


def get_1d_clifford_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """The number of output blades, 2, and the kernel of an algebra of one generator; ``g = [-1]`` has complex numbers."""
    return 2, blade_kernel(w, g, 1, "get_1d_clifford_kernel")


def get_2d_clifford_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """The number of output blades, 4, and the kernel of an algebra of two generators; ``g = [-1, -1]`` has quaternions."""
    return 4, blade_kernel(w, g, 2, "get_2d_clifford_kernel")


def get_3d_clifford_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """The number of output blades, 8, and the kernel of an algebra of three generators."""
    return 8, blade_kernel(w, g, 3, "get_3d_clifford_kernel")


def get_2d_clifford_rotation_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """The number of output blades, 4, and the rotational kernel for quaternions: the scalar's row is that of the product, the others
    rotate by the normalised quaternion and scale.

    Args:
        w: the four blades' weights, the scale, and the kernel that maps the scalar to the other blades, which is zero.
        g: the signature, (−1, −1).
    """
    return 4, joined(rotation_kernel_blocks(w, g, "get_2d_clifford_rotation_kernel"))


def rotation_kernel_blocks(w: Weights, g: Tensor, operation: str) -> Tensor:
    """The rotational kernel as blocks ``[4, 4, out, in, ...]``."""
    is_pair = isinstance(g, Tensor) and g.numel() == 2
    # Layers have looked at their signatures; on a GPU, looking would wait for the device.
    is_seen = is_pair and g.device.type == "cpu" and not torch.compiler.is_compiling()
    if not is_pair or (is_seen and g.tolist() != [-1.0, -1.0]):
        found = g.tolist() if isinstance(g, Tensor) else g
        raise ArgumentError(f"{operation}: the signature is {found}, expected [-1, -1]: rotations are of quaternions")
    weights = stacked(w, 6, operation)
    first, others = weights[:4].split([1, 3])
    return torch.cat([torch.cat([first, -others])[None], rotation_blocks(weights, operation)])


def get_complex_kernel(w: Weights) -> Tensor:
    """The kernel of complex numbers, from their two parts."""
    return blade_kernel(w, torch.tensor([-1.0]), 1, "get_complex_kernel")


def get_quaternion_kernel(w: Weights) -> Tensor:
    """The kernel of quaternions, from their four components."""
    return blade_kernel(w, torch.tensor([-1.0, -1.0]), 2, "get_quaternion_kernel")


def get_quaternion_rotation_kernel(w: Weights) -> Tensor:
    """The kernel ``[3·out, 4·in, ...]`` that rotates by normalised quaternions and scales, from four components, the scale, and the kernel of
    zeros that the scalar has."""
    return joined(rotation_blocks(w, "get_quaternion_rotation_kernel"))


def get_octonion_kernel(w: Weights) -> Tensor:
    """The kernel of the algebra of three generators that square to −1, from its eight components. The published name: its product is
    associative, as that of octonions is not."""
    return blade_kernel(w, torch.tensor([-1.0, -1.0, -1.0]), 3, "get_octonion_kernel")
