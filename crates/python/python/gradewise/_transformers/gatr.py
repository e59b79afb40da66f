"""The options of attention and of multilayer perceptrons, under their published names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from gradewise._transformers.options import cast, positive


def _probability(value: Any) -> Optional[float]:
    """A probability, None also by its name, as files of options may have it."""
    return None if isinstance(value, str) and value.lower() in ("null", "none") else value


@dataclass
class SelfAttentionConfig:
    """Attention. Channels are set by the block that it is for.

    Args:
        multi_query: whether all heads share keys and values.
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.
        num_heads: heads.
        additional_qk_mv_channels: multivectors beside the input that queries and keys are made of.
        additional_qk_s_channels: scalars beside the input that queries and keys are made of.
        normalizer_eps: what is added where points are divided by the square of their weight.
        pos_encoding: whether scalars are rotated by the number of their item.
        pos_enc_base: the base of the angles' frequencies.
        output_init: the initialization of the output's map.
        checkpoint: has no effect, as in the published code.
        increase_hidden_channels: channels of all heads together over those of the input.
        dropout_prob: the probability of dropout, None for none.
    """

    multi_query: bool = True
    in_mv_channels: Optional[int] = None
    out_mv_channels: Optional[int] = None
    in_s_channels: Optional[int] = None
    out_s_channels: Optional[int] = None
    num_heads: int = 8
    additional_qk_mv_channels: int = 0
    additional_qk_s_channels: int = 0
    normalizer_eps: Optional[float] = 1e-3
    pos_encoding: bool = False
    pos_enc_base: int = 4096
    output_init: str = "default"
    checkpoint: bool = True
    increase_hidden_channels: int = 2
    dropout_prob: Optional[float] = None

    def __post_init__(self) -> None:
        self.dropout_prob = _probability(self.dropout_prob)

    @property
    def hidden_mv_channels(self) -> Optional[int]:
        """Multivectors of a head."""
        positive("SelfAttentionConfig", num_heads=self.num_heads)
        if self.in_mv_channels is None:
            return None
        return max(self.increase_hidden_channels * self.in_mv_channels // self.num_heads, 1)

    @property
    def hidden_s_channels(self) -> Optional[int]:
        """Scalars of a head: an even number if they are rotated."""
        if self.in_s_channels is None:
            return None
        count = max(self.increase_hidden_channels * self.in_s_channels // self.num_heads, 4)
        return max(count + count % 2, 8) if self.pos_encoding else count

    @classmethod
    def cast(cls, config: Any) -> SelfAttentionConfig:
        """A configuration, from one or from a dict."""
        return cast(cls, config)


@dataclass
class MLPConfig:
    """A multilayer perceptron. Channels are set by the block that it is for.

    Args:
        mv_channels: multivectors before, between and behind its layers.
        s_channels: scalars likewise.
        activation: "relu", "gelu" or "sigmoid".
        dropout_prob: the probability of dropout, None for none.
    """

    mv_channels: Optional[Sequence[int]] = None
    s_channels: Optional[Sequence[Optional[int]]] = None
    activation: str = "gelu"
    dropout_prob: Optional[float] = None

    def __post_init__(self) -> None:
        self.dropout_prob = _probability(self.dropout_prob)

    @classmethod
    def cast(cls, config: Any) -> MLPConfig:
        """A configuration, from one or from a dict."""
        return cast(cls, config)


def attention_of_block(
    config: Any, mv_channels: int, s_channels: Optional[int], dropout_prob: Optional[float]
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


def mlp_of_block(
    config: Any, mv_channels: int, s_channels: Optional[int], dropout_prob: Optional[float]
) -> MLPConfig:
    """The perceptron of a block of so many channels, twice as wide within."""
    return replace(
        MLPConfig.cast(config),
        mv_channels=(mv_channels, 2 * mv_channels, mv_channels),
        s_channels=None if s_channels is None else (s_channels, 2 * s_channels, s_channels),
        dropout_prob=dropout_prob,
    )
