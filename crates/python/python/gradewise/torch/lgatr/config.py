"""The options of models and layers, under their published names."""

from gradewise._transformers.lgatr import CrossAttentionConfig, MLPConfig, PrimitivesConfig, SelfAttentionConfig

__all__ = ["CrossAttentionConfig", "MLPConfig", "PrimitivesConfig", "SelfAttentionConfig"]
