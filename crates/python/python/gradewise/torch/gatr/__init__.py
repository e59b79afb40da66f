"""GATr, the geometric algebra transformer, under the names of the package gatr (version 1.4).

Constructors, options, the names and shapes of parameters, the order of blades and what is computed are those of the published package
(Brehmer et al. 2023, arXiv:2305.18415): its checkpoints load with ``load_state_dict``, checkpoints of these models load there, and its
models need no change but an import.

Multivectors of the projective algebra are ``[..., items, channels, 16]``, scalars ``[..., items, channels]``.
"""

from gradewise.torch.gatr import interface
from gradewise.torch.gatr.config import MLPConfig, SelfAttentionConfig
from gradewise.torch.gatr.layers import (
    ApplyRotaryPositionalEncoding,
    CrossAttention,
    EquiLayerNorm,
    EquiLinear,
    GATrBlock,
    GeometricAttention,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    ScalarGatedNonlinearity,
    SelfAttention,
)
from gradewise.torch.gatr.nets import AxialGATr, GATr

__all__ = [
    "ApplyRotaryPositionalEncoding",
    "AxialGATr",
    "CrossAttention",
    "EquiLayerNorm",
    "EquiLinear",
    "GATr",
    "GATrBlock",
    "GeoMLP",
    "GeometricAttention",
    "GeometricBilinear",
    "GradeDropout",
    "MLPConfig",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
    "interface",
]
