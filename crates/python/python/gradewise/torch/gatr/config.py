"""The options of attention and of multilayer perceptrons, under their published names."""

from gradewise._transformers.gatr import MLPConfig, SelfAttentionConfig

__all__ = ["MLPConfig", "SelfAttentionConfig"]
