"""The options of models and layers, under their published names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

from gradewise._errors import ArgumentError
from gradewise._transformers.options import cast, positive


@dataclass
class PrimitivesConfig:
    """Which group a model is equivariant under, and which products it has.

    Args:
        subgroup: whether only under the Lorentz transformations that keep orientation and the direction of time. Linear maps then join each
            grade to its dual as well: ten coefficients rather than five.
        bivector: whether products of multivectors keep their bivectors.
        geometric_product: whether there are products of multivectors; otherwise gates and linear maps take their place.
        sparse_gp: has no effect: the product is one operator.
        sparse_linear: has no effect: maps are products of the matrices that are not zero.
    """

    subgroup: bool = True
    bivector: bool = True
    geometric_product: bool = True
    sparse_gp: bool = True
    sparse_linear: bool = False

    @property
    def num_pin_linear_basis_elements(self) -> int:
        """The coefficients of an equivariant map of one multivector."""
        return 10 if self.subgroup else 5

    @classmethod
    def cast(cls, config: Any) -> PrimitivesConfig:
        """A configuration, from one or from a dict."""
        return cast(cls, config)


def _head_channels(channels: Optional[int], ratio: int, heads: int, least: int, name: str) -> int:
    positive(name, num_heads=heads, attn_ratio=ratio)
    if channels is None:
        raise ArgumentError(f"{name}: the channels are not set; the block that the attention is for sets them")
    return max(ratio * channels // heads, least)


@dataclass
class SelfAttentionConfig:
    """Self-attention. Channels are set by the block that it is for.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.
        additional_qk_mv_channels: multivectors beside the input that queries and keys are made of.
        additional_qk_s_channels: scalars beside the input that queries and keys are made of.
        output_init: the initialization of the output's map.
        dropout_prob: the probability of dropout, None for none.
        num_heads: heads.
        multi_query: whether all heads share keys and values.
        attn_ratio: channels of all heads together over those of the input.
        head_scale: whether each head's result is multiplied by a parameter.
    """

    in_mv_channels: Optional[int] = None
    out_mv_channels: Optional[int] = None
    in_s_channels: int = 0
    out_s_channels: int = 0
    additional_qk_mv_channels: int = 0
    additional_qk_s_channels: int = 0
    output_init: str = "default"
    dropout_prob: Optional[float] = None
    num_heads: int = 8
    multi_query: bool = False
    attn_ratio: int = 1
    head_scale: bool = False

    @property
    def hidden_mv_channels(self) -> int:
        """Multivectors of a head."""
        return _head_channels(self.in_mv_channels, self.attn_ratio, self.num_heads, 1, "SelfAttentionConfig")

    @property
    def hidden_s_channels(self) -> int:
        """Scalars of a head."""
        if self.in_s_channels == 0:
            return 0
        return _head_channels(self.in_s_channels, self.attn_ratio, self.num_heads, 4, "SelfAttentionConfig")

    @classmethod
    def cast(cls, config: Any) -> SelfAttentionConfig:
        """A configuration, from one or from a dict."""
        return cast(cls, config)


@dataclass
class CrossAttentionConfig:
    """Cross-attention. Channels are set by the block that it is for.

    Args:
        q_mv_channels: multivectors that queries are made of.
        kv_mv_channels: multivectors that keys and values are made of.
        out_mv_channels: multivectors of the output.
        out_s_channels: scalars of the output.
        q_s_channels: scalars that queries are made of.
        kv_s_channels: scalars that keys and values are made of.
        output_init: the initialization of the output's map.
        dropout_prob: the probability of dropout, None for none.
        num_heads: heads.
        multi_query: whether all heads share keys and values.
        attn_ratio: channels of all heads together over those of the queries' input.
        head_scale: whether each head's result is multiplied by a parameter.
    """

    q_mv_channels: Optional[int] = None
    kv_mv_channels: Optional[int] = None
    out_mv_channels: Optional[int] = None
    out_s_channels: int = 0
    q_s_channels: int = 0
    kv_s_channels: int = 0
    output_init: str = "default"
    dropout_prob: Optional[float] = None
    num_heads: int = 8
    multi_query: bool = False
    attn_ratio: int = 1
    head_scale: bool = False

    @property
    def hidden_mv_channels(self) -> int:
        """Multivectors of a head."""
        return _head_channels(self.q_mv_channels, self.attn_ratio, self.num_heads, 1, "CrossAttentionConfig")

    @property
    def hidden_s_channels(self) -> int:
        """Scalars of a head."""
        if self.q_s_channels == 0:
            if self.kv_s_channels:
                raise ArgumentError(
                    f"CrossAttentionConfig: kv_s_channels {self.kv_s_channels} and q_s_channels 0: the queries would have no scalars to "
                    "weigh them with; give both some, or neither"
                )
            return 0
        return _head_channels(self.q_s_channels, self.attn_ratio, self.num_heads, 4, "CrossAttentionConfig")

    @classmethod
    def cast(cls, config: Any) -> CrossAttentionConfig:
        """A configuration, from one or from a dict."""
        return cast(cls, config)


@dataclass
class MLPConfig:
    """The layers behind attention.

    Args:
        mv_channels: multivectors of input and output, set by the block that they are for.
        s_channels: scalars of input and output, set by the block.
        dropout_prob: the probability of dropout, None for none.
        nonlinearity: "relu", "sigmoid", "tanh", "gelu" or "silu".
        mlp_ratio: inner channels over those of the input.
        num_layers_mlp: layers.
    """

    mv_channels: Optional[int] = None
    s_channels: int = 0
    dropout_prob: Optional[float] = None
    nonlinearity: str = "gelu"
    mlp_ratio: int = 4
    num_layers_mlp: int = 2

    @classmethod
    def cast(cls, config: Any) -> MLPConfig:
        """A configuration, from one or from a dict."""
        return cast(cls, config)


def attention_of_block(
    config: Any, mv_channels: int, s_channels: int, dropout_prob: Optional[float]
) -> SelfAttentionConfig:
    """The attention of a block of so many channels."""
    return replace(
        SelfAttentionConfig.cast(config),
        in_mv_channels=mv_channels,
        out_mv_channels=mv_channels,
        in_s_channels=s_channels,
        out_s_channels=s_channels,
        output_init="small",
        dropout_prob=dropout_prob,
    )


def cross_attention_of_block(
    config: Any, channels: tuple[int, int], condition: tuple[int, int], dropout_prob: Optional[float]
) -> CrossAttentionConfig:
    """The attention of a block to a condition, of so many multivectors and scalars each."""
    (mv, s), (mv_cond, s_cond) = channels, condition
    return replace(
        CrossAttentionConfig.cast(config),
        q_mv_channels=mv,
        q_s_channels=s,
        kv_mv_channels=mv_cond,
        kv_s_channels=s_cond,
        out_mv_channels=mv,
        out_s_channels=s,
        output_init="small",
        dropout_prob=dropout_prob,
    )


def mlp_of_block(config: Any, mv_channels: int, s_channels: int, dropout_prob: Optional[float]) -> MLPConfig:
    """The perceptron of a block of so many channels."""
    return replace(MLPConfig.cast(config), mv_channels=mv_channels, s_channels=s_channels, dropout_prob=dropout_prob)
