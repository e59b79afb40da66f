"""Blocks: norm, attention and residual; norm, product and residual."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor, nn

from gradewise._transformers.lgatr import attention_of_block, cross_attention_of_block, mlp_of_block
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.features import Features, Layer, Pair, extra_features, run
from gradewise.torch.lgatr.config import PrimitivesConfig
from gradewise.torch.lgatr.layers.attention import CrossAttention, SelfAttention
from gradewise.torch.lgatr.layers.composite import block_of
from gradewise.torch.lgatr.layers.mlp import GeoMLP
from gradewise.torch.lgatr.layers.norm import EquiLayerNorm


class LGATrBlock(Layer):
    """Self-attention and a multilayer perceptron, each behind a norm and with a residual sum.

    Args:
        mv_channels: multivectors.
        s_channels: scalars.
        attention: a :class:`SelfAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        primitives: a :class:`PrimitivesConfig` or a dict.
        dropout_prob: the probability of dropout, None for none.
        norm_elementwise_affine: whether the norms have gains.
    """

    _blades = SPACETIME

    def __init__(
        self,
        mv_channels: int,
        s_channels: int,
        attention: Any,
        mlp: Any,
        primitives: Any = None,
        dropout_prob: Optional[float] = None,
        norm_elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        affine = norm_elementwise_affine
        self.norm1 = EquiLayerNorm(mv_channels, s_channels, elementwise_affine=affine)
        self.norm2 = EquiLayerNorm(mv_channels, s_channels, elementwise_affine=affine)
        self.attention = SelfAttention(attention_of_block(attention, mv_channels, s_channels, dropout_prob), primitives)
        self.mlp = GeoMLP(mlp_of_block(mlp, mv_channels, s_channels, dropout_prob), primitives)

    def _run(self, x: Features, extra: Optional[Features] = None, options: Optional[dict] = None) -> Features:
        made = block_of(self, x, extra, options)
        if made is not None:
            return made
        x = x + run(self.attention, SelfAttention, run(self.norm1, EquiLayerNorm, x), extra, options)
        return x + run(self.mlp, GeoMLP, run(self.norm2, EquiLayerNorm, x))

    _call = staticmethod(SelfAttention._call)

    def forward(
        self,
        multivectors: Tensor,
        scalars: Optional[Tensor] = None,
        additional_qk_features_mv: Optional[Tensor] = None,
        additional_qk_features_s: Optional[Tensor] = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Multivectors ``[..., items, channels, 16]`` and scalars ``[..., items, channels]``; see :class:`SelfAttention`."""
        x = self._enter(multivectors, scalars)
        return self._run(x, extra_features(x, additional_qk_features_mv, additional_qk_features_s), attn_kwargs).leave()


class ConditionalLGATrBlock(Layer):
    """Self-attention, attention to a condition, and a multilayer perceptron, each behind a norm and with a residual sum.

    Args:
        mv_channels: multivectors.
        s_channels: scalars.
        mv_channels_cond: multivectors of the condition.
        s_channels_cond: scalars of the condition.
        attention: a :class:`SelfAttentionConfig` or a dict.
        crossattention: a :class:`CrossAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        primitives: a :class:`PrimitivesConfig` or a dict.
        dropout_prob: the probability of dropout, None for none.
        norm_elementwise_affine: whether the norms have gains.
    """

    _blades = SPACETIME

    def __init__(
        self,
        mv_channels: int,
        s_channels: int,
        mv_channels_cond: int,
        s_channels_cond: int,
        attention: Any,
        crossattention: Any,
        mlp: Any,
        primitives: Any = None,
        dropout_prob: Optional[float] = None,
        norm_elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        affine = norm_elementwise_affine
        self.norm1 = EquiLayerNorm(mv_channels, s_channels, elementwise_affine=affine)
        self.norm2 = EquiLayerNorm(mv_channels, s_channels, elementwise_affine=affine)
        self.norm3 = EquiLayerNorm(mv_channels, s_channels, elementwise_affine=affine)
        self.norm_cond = EquiLayerNorm(mv_channels_cond, s_channels_cond, elementwise_affine=affine)
        self.attention = SelfAttention(attention_of_block(attention, mv_channels, s_channels, dropout_prob), primitives)
        crossed = cross_attention_of_block(
            crossattention, (mv_channels, s_channels), (mv_channels_cond, s_channels_cond), dropout_prob
        )
        self.crossattention = CrossAttention(crossed, primitives)
        self.mlp = GeoMLP(mlp_of_block(mlp, mv_channels, s_channels, dropout_prob), primitives)

    def _run(
        self, x: Features, cond: Features, options: Optional[dict] = None, cross_options: Optional[dict] = None
    ) -> Features:
        x = x + run(self.attention, SelfAttention, run(self.norm1, EquiLayerNorm, x), None, options)
        h, c = run(self.norm2, EquiLayerNorm, x), run(self.norm_cond, EquiLayerNorm, cond)
        x = x + run(self.crossattention, CrossAttention, h, c, cross_options)
        return x + run(self.mlp, GeoMLP, run(self.norm3, EquiLayerNorm, x))

    @staticmethod
    def _call(
        module: nn.Module,
        x: Features,
        cond: Features,
        options: Optional[dict] = None,
        cross_options: Optional[dict] = None,
    ) -> Pair:
        (mv, s), (mv_cond, s_cond) = x.leave(), cond.leave()
        return module(
            mv,
            multivectors_cond=mv_cond,
            scalars=s,
            scalars_cond=s_cond,
            attn_kwargs=options,
            crossattn_kwargs=cross_options,
        )

    def forward(
        self,
        multivectors: Tensor,
        multivectors_cond: Tensor,
        scalars: Optional[Tensor] = None,
        scalars_cond: Optional[Tensor] = None,
        attn_kwargs: Optional[dict] = None,
        crossattn_kwargs: Optional[dict] = None,
    ) -> Pair:
        """Multivectors ``[..., items, channels, 16]`` and scalars ``[..., items, channels]``.

        Args:
            multivectors: ``[..., items, channels, 16]``.
            multivectors_cond: of the condition, ``[..., its items, its channels, 16]``.
            scalars: ``[..., items, channels]``.
            scalars_cond: of the condition, ``[..., its items, its channels]``.
            attn_kwargs: of the self-attention.
            crossattn_kwargs: of the attention to the condition.
        """
        x, cond = self._enter(multivectors, scalars), self._enter(multivectors_cond, scalars_cond)
        return self._run(x, cond, attn_kwargs, crossattn_kwargs).leave()
