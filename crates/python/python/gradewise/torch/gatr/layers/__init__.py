"""The layers of GATr."""

from gradewise.torch.gatr.config import MLPConfig, SelfAttentionConfig
from gradewise.torch.gatr.layers.attention import CrossAttention, MultiQueryQKVModule, QKVModule, SelfAttention
from gradewise.torch.gatr.layers.block import GATrBlock
from gradewise.torch.gatr.layers.geometric import GeometricAttention
from gradewise.torch.gatr.layers.linear import EquiLinear
from gradewise.torch.gatr.layers.mlp import GeometricBilinear, GeoMLP
from gradewise.torch.gatr.layers.norm import EquiLayerNorm, GradeDropout, ScalarGatedNonlinearity
from gradewise.torch.gatr.layers.rotary import ApplyRotaryPositionalEncoding

__all__ = [
    "ApplyRotaryPositionalEncoding",
    "CrossAttention",
    "EquiLayerNorm",
    "EquiLinear",
    "GATrBlock",
    "GeoMLP",
    "GeometricAttention",
    "GeometricBilinear",
    "GradeDropout",
    "MLPConfig",
    "MultiQueryQKVModule",
    "QKVModule",
    "ScalarGatedNonlinearity",
    "SelfAttention",
    "SelfAttentionConfig",
]
