"""L-GATr-slim: the Lorentz-equivariant transformer of vectors and scalars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradewise.torch._pretrained import Pretrained
from gradewise.torch._transformers.options import compile_forward
from gradewise.torch._transformers.precision import naive_amp as _naive_amp
from gradewise.torch.lgatr.layers.slim import Pair, SlimLinear, check_pair, freeze_unused
from gradewise.torch.lgatr.layers.slim_attention import ConditionalSlimBlock, SlimBlock
from gradewise.torch.lgatr.layers.slim_composite import through


class LGATrSlim(Pretrained, nn.Module):
    """L-GATr-slim (Petitjean et al. 2025, arXiv:2512.17011): a linear map, blocks, and a linear map.

    Args:
        num_blocks: blocks.
        in_v_channels: vectors of the input.
        out_v_channels: vectors of the output.
        hidden_v_channels: vectors within.
        in_s_channels: scalars of the input, 1 or more.
        out_s_channels: scalars of the output.
        hidden_s_channels: scalars within.
        num_heads: heads.
        nonlinearity: the activation of scalars: "relu", "sigmoid", "tanh", "gelu" or "silu".
        nonlinearity_v: that of products of vectors; the same if None.
        mlp_ratio: inner channels of a block's perceptron over those of the block.
        attn_ratio: channels of all heads together over those of the block.
        num_layers_mlp: layers of a block's perceptron, 2 or more.
        dropout_prob: the probability of dropout, None for none.
        norm_elementwise_affine: whether the norms have gains.
        checkpoint_blocks: whether the backward pass computes the blocks again, for less memory.
        naive_amp: whether autocast's dtype holds for vectors too.
        compile: whether ``forward`` is compiled by ``torch.compile``.
        compile_kwargs: options of ``torch.compile``.
        activation_memory_budget: the share of activations that a compiled model may keep, 0 to 1.
    """

    def __init__(
        self,
        num_blocks: int,
        in_v_channels: int,
        out_v_channels: int,
        hidden_v_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        hidden_s_channels: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: Optional[str] = "sigmoid",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: Optional[float] = None,
        norm_elementwise_affine: bool = True,
        checkpoint_blocks: bool = False,
        naive_amp: bool = False,
        compile: bool = False,
        compile_kwargs: Optional[Mapping[str, Any]] = None,
        activation_memory_budget: Optional[float] = None,
    ) -> None:
        super().__init__()
        self._naive_amp, self._checkpoint_blocks = naive_amp, checkpoint_blocks
        self.linear_in = SlimLinear(in_v_channels, hidden_v_channels, in_s_channels, hidden_s_channels)
        self.blocks = nn.ModuleList(
            SlimBlock(
                hidden_v_channels,
                hidden_s_channels,
                num_heads,
                nonlinearity,
                nonlinearity_v,
                mlp_ratio,
                attn_ratio,
                num_layers_mlp,
                dropout_prob,
                norm_elementwise_affine,
            )
            for _ in range(num_blocks)
        )
        self.linear_out = SlimLinear(hidden_v_channels, out_v_channels, hidden_s_channels, out_s_channels)
        if num_blocks:
            freeze_unused(self.blocks[-1].norm2, self.blocks[-1].mlp, out_v_channels, out_s_channels)
        if compile:
            compile_forward(self, compile_kwargs, activation_memory_budget)

    def forward(self, vectors: Tensor, scalars: Tensor, **attn_kwargs: Any) -> Pair:
        """Vectors ``[..., items, out, 4]`` and scalars ``[..., items, out]``.

        Args:
            vectors: ``[..., items, in, 4]``, components (t, x, y, z).
            scalars: ``[..., items, in]``.
            attn_kwargs: of the attention, such as ``attn_mask``.
        """
        with _naive_amp(self._naive_amp):
            v = vectors.transpose(-2, -1)
            check_pair("LGATrSlim", v, scalars)
            v, s = self.linear_in(v, scalars)
            v, s = through(self.blocks, v, s, attn_kwargs, again=self._checkpoint_blocks)
            v, s = self.linear_out(v, s)
            return v.transpose(-2, -1), s


class ConditionalLGATrSlim(Pretrained, nn.Module):
    """L-GATr-slim whose blocks attend to the items of a condition as well.

    Args:
        num_blocks: blocks.
        in_v_channels: vectors of the input.
        v_channels_cond: vectors of the condition.
        out_v_channels: vectors of the output.
        hidden_v_channels: vectors within.
        in_s_channels: scalars of the input, 1 or more.
        s_channels_cond: scalars of the condition, 1 or more.
        out_s_channels: scalars of the output.
        hidden_s_channels: scalars within.
        num_heads: heads.
        nonlinearity, nonlinearity_v, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob, norm_elementwise_affine, checkpoint_blocks,
            naive_amp, compile, compile_kwargs, activation_memory_budget: see :class:`LGATrSlim`.
    """

    def __init__(
        self,
        num_blocks: int,
        in_v_channels: int,
        v_channels_cond: int,
        out_v_channels: int,
        hidden_v_channels: int,
        in_s_channels: int,
        s_channels_cond: int,
        out_s_channels: int,
        hidden_s_channels: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: Optional[str] = "sigmoid",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: Optional[float] = None,
        norm_elementwise_affine: bool = True,
        checkpoint_blocks: bool = False,
        naive_amp: bool = False,
        compile: bool = False,
        compile_kwargs: Optional[Mapping[str, Any]] = None,
        activation_memory_budget: Optional[float] = None,
    ) -> None:
        super().__init__()
        self._naive_amp, self._checkpoint_blocks = naive_amp, checkpoint_blocks
        self.linear_in = SlimLinear(in_v_channels, hidden_v_channels, in_s_channels, hidden_s_channels)
        self.blocks = nn.ModuleList(
            ConditionalSlimBlock(
                hidden_v_channels,
                v_channels_cond,
                hidden_s_channels,
                s_channels_cond,
                num_heads,
                nonlinearity,
                nonlinearity_v,
                mlp_ratio,
                attn_ratio,
                num_layers_mlp,
                dropout_prob,
                norm_elementwise_affine,
            )
            for _ in range(num_blocks)
        )
        self.linear_out = SlimLinear(hidden_v_channels, out_v_channels, hidden_s_channels, out_s_channels)
        if num_blocks:
            freeze_unused(self.blocks[-1].norm3, self.blocks[-1].mlp, out_v_channels, out_s_channels)
        if compile:
            compile_forward(self, compile_kwargs, activation_memory_budget)

    def forward(
        self,
        vectors: Tensor,
        vectors_cond: Tensor,
        scalars: Tensor,
        scalars_cond: Tensor,
        attn_kwargs: Optional[dict] = None,
        crossattn_kwargs: Optional[dict] = None,
    ) -> Pair:
        """Vectors ``[..., items, out, 4]`` and scalars ``[..., items, out]``.

        Args:
            vectors: ``[..., items, in, 4]``, components (t, x, y, z).
            vectors_cond: of the condition, ``[..., its items, its channels, 4]``.
            scalars: ``[..., items, in]``.
            scalars_cond: of the condition, ``[..., its items, its channels]``.
            attn_kwargs: of the self-attention, such as ``attn_mask``.
            crossattn_kwargs: of the attention to the condition.
        """
        with _naive_amp(self._naive_amp):
            v, v_cond = vectors.transpose(-2, -1), vectors_cond.transpose(-2, -1)
            check_pair("ConditionalLGATrSlim", v, scalars)
            check_pair("ConditionalLGATrSlim, condition", v_cond, scalars_cond)
            v, s = self.linear_in(v, scalars)
            options = {"attn_kwargs": attn_kwargs, "crossattn_kwargs": crossattn_kwargs}
            for block in self.blocks:
                if self._checkpoint_blocks:
                    v, s = checkpoint(block, v, v_cond, s, scalars_cond, use_reentrant=False, **options)
                else:
                    v, s = block(v, v_cond, s, scalars_cond, **options)
            v, s = self.linear_out(v, s)
            return v.transpose(-2, -1), s
