"""GATr, the transformer of projective geometric algebra, in JAX, under the names of the package gatr (version 1.4).

Constructors, options, the names and shapes of parameters, the order of blades and what is computed are those of the published package
(Brehmer, de Haan, Behrends and Cohen 2023, arXiv:2305.18415). A model is a function of its parameters: ``parameters = model.init(key)``,
then ``model(parameters, multivectors, scalars)``, and :func:`load` takes published checkpoints. Modules that hold their parameters are in
:mod:`gradewise.jax.nnx` and :mod:`gradewise.jax.equinox`.

Multivectors are ``[..., items, channels, 16]``, scalars ``[..., items, channels]``.
"""

from gradewise._transformers.gatr import MLPConfig, SelfAttentionConfig
from gradewise.jax._transformers.definition import load
from gradewise.jax.gatr import interface
from gradewise.jax.gatr.attention import CrossAttention, SelfAttention
from gradewise.jax.gatr.layers import (
    EquiLayerNorm,
    EquiLinear,
    GeometricBilinear,
    GeoMLP,
    GradeDropout,
    ScalarGatedNonlinearity,
)
from gradewise.jax.gatr.nets import AxialGATr, GATr, GATrBlock
from gradewise.jax.gatr.primitives import (
    dual,
    equi_linear,
    equivariant_join,
    geometric_attention,
    geometric_product,
    grade_involute,
    inner_product,
    outer_product,
    reverse,
)

__all__ = [
    "AxialGATr",
    "CrossAttention",
    "EquiLayerNorm",
    "EquiLinear",
    "GATr",
    "GATrBlock",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "MLPConfig",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
    "dual",
    "equi_linear",
    "equivariant_join",
    "geometric_attention",
    "geometric_product",
    "grade_involute",
    "inner_product",
    "interface",
    "load",
    "outer_product",
    "reverse",
]
