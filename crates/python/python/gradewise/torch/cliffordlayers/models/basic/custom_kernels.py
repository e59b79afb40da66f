"""Kernels of encoders and decoders of fields that lack blades (Brandstetter et al. 2023, arXiv:2209.04934).

Weights are as in :mod:`gradewise.torch.cliffordlayers.cliffordkernels`; each function returns the number of output blades and the kernel.
"""

from __future__ import annotations

from torch import Tensor

from gradewise.torch.cliffordlayers._blades import Weights, blade_kernel, joined
from gradewise.torch.cliffordlayers.cliffordkernels import rotation_kernel_blocks

SCALAR_VECTOR = (0, 1, 2)
"""The blades of a scalar and a vector in the plane: smoke and velocity."""
VECTOR_BIVECTOR = (1, 2, 3, 4, 5, 6)
"""The blades of a vector and a bivector in space: electric and magnetic field."""


def get_2d_scalar_vector_encoding_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """4 and the kernel ``[4·out, 3·in, ...]`` from a scalar and a vector."""
    return 4, blade_kernel(w, g, 2, "get_2d_scalar_vector_encoding_kernel", columns=SCALAR_VECTOR)


def get_2d_scalar_vector_decoding_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """3 and the kernel ``[3·out, 4·in, ...]`` to a scalar and a vector."""
    return 3, blade_kernel(w, g, 2, "get_2d_scalar_vector_decoding_kernel", rows=SCALAR_VECTOR)


def get_2d_rotation_scalar_vector_encoding_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """4 and the rotational kernel ``[4·out, 3·in, ...]`` from a scalar and a vector."""
    return 4, joined(rotation_kernel_blocks(w, g, "get_2d_rotation_scalar_vector_encoding_kernel")[:, :3])


def get_2d_rotation_scalar_vector_decoding_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """3 and the rotational kernel ``[3·out, 4·in, ...]`` to a scalar and a vector."""
    return 3, joined(rotation_kernel_blocks(w, g, "get_2d_rotation_scalar_vector_decoding_kernel")[:3])


def get_3d_maxwell_encoding_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """8 and the kernel ``[8·out, 6·in, ...]`` from a vector and a bivector."""
    return 8, blade_kernel(w, g, 3, "get_3d_maxwell_encoding_kernel", columns=VECTOR_BIVECTOR)


def get_3d_maxwell_decoding_kernel(w: Weights, g: Tensor) -> tuple[int, Tensor]:
    """6 and the kernel ``[6·out, 8·in, ...]`` to a vector and a bivector."""
    return 6, blade_kernel(w, g, 3, "get_3d_maxwell_decoding_kernel", rows=VECTOR_BIVECTOR)
