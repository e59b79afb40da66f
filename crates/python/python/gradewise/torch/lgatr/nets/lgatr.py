"""L-GATr: the Lorentz-equivariant transformer of multivectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Optional

from torch import Tensor, nn

from gradewise.torch._pretrained import Pretrained
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.features import Features, Layer, Pair, computed_again, is_own, reinserted, run
from gradewise.torch._transformers.options import compile_forward
from gradewise.torch._transformers.precision import naive_amp as _naive_amp
from gradewise.torch.lgatr.config import MLPConfig, PrimitivesConfig, SelfAttentionConfig
from gradewise.torch.lgatr.layers.block import LGATrBlock
from gradewise.torch.lgatr.layers.composite import block_of
from gradewise.torch.lgatr.layers.linear import EquiLinear


class LGATr(Pretrained, Layer):
    """L-GATr (Spinner et al. 2024, arXiv:2405.14806; Brehmer et al. 2024, arXiv:2411.00446): a linear map, blocks, and a linear map.

    Args:
        num_blocks: blocks.
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        hidden_mv_channels: multivectors within.
        in_s_channels: scalars of the input, 0 for none.
        out_s_channels: scalars of the output, 0 for none.
        hidden_s_channels: scalars within.
        attention: a :class:`SelfAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        primitives: a :class:`PrimitivesConfig` or a dict; the defaults if None.
        reinsert_mv_channels: multivectors of the input, by number, that each block's queries and keys are made of too.
        reinsert_s_channels: scalars of the input likewise.
        dropout_prob: the probability of dropout, None for none.
        norm_elementwise_affine: whether the norms have gains.
        checkpoint_blocks: whether the backward pass computes the blocks again, for less memory.
        naive_amp: whether autocast's dtype holds for multivectors too.
        compile: whether ``forward`` is compiled by ``torch.compile``.
        compile_kwargs: options of ``torch.compile``.
        activation_memory_budget: the share of activations that a compiled model may keep, 0 to 1.
    """

    _blades = SPACETIME

    def __init__(
        self,
        num_blocks: int,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        hidden_s_channels: int,
        attention: Any,
        mlp: Any,
        primitives: Any = None,
        reinsert_mv_channels: Optional[Sequence[int]] = None,
        reinsert_s_channels: Optional[Sequence[int]] = None,
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
            SelfAttentionConfig.cast(attention),
            additional_qk_mv_channels=len(reinsert_mv_channels or ()),
            additional_qk_s_channels=len(reinsert_s_channels or ()),
        )
        mlp = MLPConfig.cast(mlp)
        self.blocks = nn.ModuleList(
            LGATrBlock(
                hidden_mv_channels,
                hidden_s_channels,
                attention,
                mlp,
                primitives,
                dropout_prob,
                norm_elementwise_affine,
            )
            for _ in range(num_blocks)
        )
        self.linear_out = EquiLinear(hidden_mv_channels, out_mv_channels, primitives, hidden_s_channels, out_s_channels)
        self._reinsert_mv_channels, self._reinsert_s_channels = reinsert_mv_channels, reinsert_s_channels
        self._checkpoint_blocks, self._naive_amp = checkpoint_blocks, naive_amp
        if compile:
            compile_forward(self, compile_kwargs, activation_memory_budget)

    def _run(self, x: Features, options: Optional[dict] = None) -> Features:
        extra = reinserted(x, self._reinsert_mv_channels, self._reinsert_s_channels, "LGATr")
        x = run(self.linear_in, EquiLinear, x)
        for block in self.blocks:
            through = partial(run, block, LGATrBlock)
            if not self._checkpoint_blocks:
                x = through(x, extra, options)
                continue
            made = block_of(block, x, extra, options, again=True) if is_own(block, LGATrBlock) else None
            x = computed_again(through, x, extra, options) if made is None else made
        return run(self.linear_out, EquiLinear, x)

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None, **attn_kwargs: Any) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            multivectors: ``[..., items, in, 16]``.
            scalars: ``[..., items, in]``.
            attn_kwargs: of the attention, such as ``attn_mask`` (see :func:`~gradewise.torch.lgatr.primitives.sdp_attention`).
        """
        with _naive_amp(self._naive_amp):
            return self._run(self._enter(multivectors, scalars), attn_kwargs).leave()
