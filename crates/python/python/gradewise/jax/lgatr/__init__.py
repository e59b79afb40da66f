"""L-GATr, the Lorentz-equivariant transformer, and L-GATr-slim in JAX, under the names of the package lgatr (version 2.0).

Constructors, options, the names and shapes of parameters, the order of blades and what is computed are those of the published package
(Spinner et al. 2024, arXiv:2405.14806; Brehmer et al. 2024, arXiv:2411.00446; Petitjean et al. 2025, arXiv:2512.17011). A model is a
function of its parameters: ``parameters = model.init(key)``, then ``model(parameters, multivectors, scalars)``, and :func:`load` takes
published checkpoints. Modules that hold their parameters are in :mod:`gradewise.jax.nnx` and :mod:`gradewise.jax.equinox`.

Multivectors are ``[..., items, channels, 16]``, scalars ``[..., items, channels]``, vectors ``[..., items, channels, 4]``.
"""

from gradewise._transformers.lgatr import CrossAttentionConfig, MLPConfig, PrimitivesConfig, SelfAttentionConfig
from gradewise.jax._transformers.definition import load
from gradewise.jax.lgatr.attention import CrossAttention, SelfAttention
from gradewise.jax.lgatr.interface import (
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
from gradewise.jax.lgatr.layers import (
    EquiLayerNorm,
    EquiLinear,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    ScalarGatedNonlinearity,
)
from gradewise.jax.lgatr.nets import ConditionalLGATr, ConditionalLGATrBlock, LGATr, LGATrBlock
from gradewise.jax.lgatr.primitives import (
    abs_squared_norm,
    equi_layer_norm,
    equi_linear,
    geometric_product,
    grade_dropout,
    grade_involute,
    grade_project,
    inner_product,
    reverse,
    sdp_attention,
)
from gradewise.jax.lgatr.slim import ConditionalLGATrSlim, LGATrSlim

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
    "abs_squared_norm",
    "embed_axialvector",
    "embed_bivector",
    "embed_pseudoscalar",
    "embed_scalar",
    "embed_vector",
    "equi_layer_norm",
    "equi_linear",
    "extract_axialvector",
    "extract_bivector",
    "extract_pseudoscalar",
    "extract_scalar",
    "extract_vector",
    "geometric_product",
    "get_num_spurions",
    "get_spurions",
    "grade_dropout",
    "grade_involute",
    "grade_project",
    "inner_product",
    "load",
    "reverse",
    "sdp_attention",
]
