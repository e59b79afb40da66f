"""The layers of L-GATr and L-GATr-slim."""

from gradewise.torch.lgatr.config import CrossAttentionConfig, MLPConfig, SelfAttentionConfig
from gradewise.torch.lgatr.layers.attention import CrossAttention, MultiQueryQKVModule, QKVModule, SelfAttention
from gradewise.torch.lgatr.layers.block import ConditionalLGATrBlock, LGATrBlock
from gradewise.torch.lgatr.layers.linear import EquiLinear
from gradewise.torch.lgatr.layers.mlp import GeometricBilinear, GeoMLP
from gradewise.torch.lgatr.layers.norm import EquiLayerNorm, GradeDropout, ScalarGatedNonlinearity
from gradewise.torch.lgatr.layers.slim import SlimDropout, SlimGLU, SlimLinear, SlimMLP, SlimRMSNorm
from gradewise.torch.lgatr.layers.slim_attention import (
    ConditionalSlimBlock,
    SlimBlock,
    SlimCrossAttention,
    SlimSelfAttention,
)

__all__ = [
    "ConditionalLGATrBlock",
    "ConditionalSlimBlock",
    "CrossAttention",
    "CrossAttentionConfig",
    "EquiLayerNorm",
    "EquiLinear",
    "GeoMLP",
    "GeometricBilinear",
    "GradeDropout",
    "LGATrBlock",
    "MLPConfig",
    "MultiQueryQKVModule",
    "QKVModule",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
    "SlimBlock",
    "SlimCrossAttention",
    "SlimDropout",
    "SlimGLU",
    "SlimLinear",
    "SlimMLP",
    "SlimRMSNorm",
    "SlimSelfAttention",
]
