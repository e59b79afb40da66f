"""L-GATr with a condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Optional

from torch import Tensor, nn

from gradewise.torch._pretrained import Pretrained
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.features import Features, Layer, Pair, computed_again, run
from gradewise.torch._transformers.options import compile_forward
from gradewise.torch._transformers.precision import naive_amp as _naive_amp
from gradewise.torch.lgatr.config import CrossAttentionConfig, MLPConfig, PrimitivesConfig, SelfAttentionConfig
from gradewise.torch.lgatr.layers.block import ConditionalLGATrBlock
from gradewise.torch.lgatr.layers.linear import EquiLinear


class ConditionalLGATr(Pretrained, Layer):
    """L-GATr whose blocks attend to the items of a condition as well, which another network may have prepared.

    Args:
        num_blocks: blocks.
        in_mv_channels: multivectors of the input.
        mv_channels_cond: multivectors of the condition.
        out_mv_channels: multivectors of the output.
        hidden_mv_channels: multivectors within.
        in_s_channels: scalars of the input, 0 for none.
        s_channels_cond: scalars of the condition, 0 for none.
        out_s_channels: scalars of the output, 0 for none.
        hidden_s_channels: scalars within.
        attention: a :class:`SelfAttentionConfig` or a dict.
        crossattention: a :class:`CrossAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        primitives, dropout_prob, norm_elementwise_affine, checkpoint_blocks, naive_amp, compile, compile_kwargs,
            activation_memory_budget: see :class:`LGATr`.
    """

    _blades = SPACETIME

    def __init__(
        self,
        num_blocks: int,
        in_mv_channels: int,
        mv_channels_cond: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int,
        s_channels_cond: int,
        out_s_channels: int,
        hidden_s_channels: int,
        attention: Any,
        crossattention: Any,
        mlp: Any,
        primitives: Any = None,
        dropout_prob: Optional[float] = None,
        norm_elementwise_affine: bool = True,
        checkpoint_blocks: bool = False,
        naive_amp: bool = False,
        compile: bool = False,
        compile_kwargs: Optional[Mapping[str, Any]] = None,
        activation_memory_budget: Optional[float] = None,
    ) -> None:
        super().__init__()
        self.primitives = primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        self.linear_in = EquiLinear(in_mv_channels, hidden_mv_channels, primitives, in_s_channels, hidden_s_channels)
        attention = replace(
            SelfAttentionConfig.cast(attention), additional_qk_mv_channels=0, additional_qk_s_channels=0
        )
        crossattention = CrossAttentionConfig.cast(crossattention)
        mlp = MLPConfig.cast(mlp)
        self.blocks = nn.ModuleList(
            ConditionalLGATrBlock(
                hidden_mv_channels,
                hidden_s_channels,
                mv_channels_cond,
                s_channels_cond,
                attention,
                crossattention,
                mlp,
                primitives,
                dropout_prob,
                norm_elementwise_affine,
            )
            for _ in range(num_blocks)
        )
        self.linear_out = EquiLinear(hidden_mv_channels, out_mv_channels, primitives, hidden_s_channels, out_s_channels)
        self._checkpoint_blocks, self._naive_amp = checkpoint_blocks, naive_amp
        if compile:
            compile_forward(self, compile_kwargs, activation_memory_budget)

    def _run(
        self, x: Features, cond: Features, options: Optional[dict] = None, cross_options: Optional[dict] = None
    ) -> Features:
        x = run(self.linear_in, EquiLinear, x)
        for block in self.blocks:
            through = partial(run, block, ConditionalLGATrBlock)
            given = (x, cond, options, cross_options)
            x = computed_again(through, *given) if self._checkpoint_blocks else through(*given)
        return run(self.linear_out, EquiLinear, x)

    def forward(
        self,
        multivectors: Tensor,
        multivectors_cond: Tensor,
        scalars: Optional[Tensor] = None,
        scalars_cond: Optional[Tensor] = None,
        attn_kwargs: Optional[dict] = None,
        crossattn_kwargs: Optional[dict] = None,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            multivectors: ``[..., items, in, 16]``.
            multivectors_cond: of the condition, ``[..., its items, its channels, 16]``.
            scalars: ``[..., items, in]``.
            scalars_cond: of the condition, ``[..., its items, its channels]``.
            attn_kwargs: of the self-attention, such as ``attn_mask``.
            crossattn_kwargs: of the attention to the condition.
        """
        with _naive_amp(self._naive_amp):
            x, cond = self._enter(multivectors, scalars), self._enter(multivectors_cond, scalars_cond)
            return self._run(x, cond, attn_kwargs, crossattn_kwargs).leave()
