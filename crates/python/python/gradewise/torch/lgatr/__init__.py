"""L-GATr, the Lorentz-equivariant transformer, and L-GATr-slim, under the names of the package lgatr (version 2.0).

Constructors, options, the names and shapes of parameters, the order of blades and what is computed are those of the published package
(Spinner et al. 2024, arXiv:2405.14806; Brehmer et al. 2024, arXiv:2411.00446; Petitjean et al. 2025, arXiv:2512.17011): its checkpoints
load with ``load_state_dict``, checkpoints of these models load there, and its models need no change but an import.

Multivectors are ``[..., items, channels, 16]``, scalars ``[..., items, channels]``, vectors ``[..., items, channels, 4]``.
"""

from gradewise.torch._transformers.precision import naive_amp
from gradewise.torch.lgatr.config import CrossAttentionConfig, MLPConfig, PrimitivesConfig, SelfAttentionConfig
from gradewise.torch.lgatr.interface import (
    embed_axialvector,
    embed_bivector,
    embed_pseudoscalar,
    embed_scalar,
    embed_vector,
    extract_axialvector,
    extract_bivector,
    extract_pseudoscalar,
    extract_scalar,
    extract_vector,
    get_num_spurions,
    get_spurions,
)
from gradewise.torch.lgatr.layers import (
    ConditionalLGATrBlock,
    CrossAttention,
    EquiLayerNorm,
    EquiLinear,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    LGATrBlock,
    ScalarGatedNonlinearity,
    SelfAttention,
    SlimLinear,
)
from gradewise.torch.lgatr.nets import ConditionalLGATr, ConditionalLGATrSlim, LGATr, LGATrSlim

__all__ = [
    "ConditionalLGATr",
    "ConditionalLGATrBlock",
    "ConditionalLGATrSlim",
    "CrossAttention",
    "CrossAttentionConfig",
    "EquiLayerNorm",
    "EquiLinear",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "LGATr",
    "LGATrBlock",
    "LGATrSlim",
    "MLPConfig",
    "PrimitivesConfig",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
    "SlimLinear",
    "embed_axialvector",
    "embed_bivector",
    "embed_pseudoscalar",
    "embed_scalar",
    "embed_vector",
    "extract_axialvector",
    "extract_bivector",
    "extract_pseudoscalar",
    "extract_scalar",
    "extract_vector",
    "get_num_spurions",
    "get_spurions",
    "naive_amp",
]
