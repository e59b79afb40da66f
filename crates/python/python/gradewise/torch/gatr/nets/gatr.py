"""GATr: the transformer that is equivariant under rotations, reflections and translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Optional, Union
from warnings import warn

from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise.torch._pretrained import Pretrained
from gradewise.torch._transformers.algebra import PROJECTIVE
from gradewise.torch._transformers.features import Features, Layer, Pair, computed_again, reinserted, run
from gradewise.torch.gatr.config import MLPConfig, SelfAttentionConfig
from gradewise.torch.gatr.layers.block import GATrBlock
from gradewise.torch.gatr.layers.linear import EquiLinear
from gradewise.torch.gatr.nets.reference import construct_reference_multivector


class GATr(Pretrained, Layer):
    """GATr (Brehmer, de Haan, Behrends and Cohen 2023, arXiv:2305.18415): a linear map, blocks, and a linear map.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        hidden_mv_channels: multivectors within.
        in_s_channels: scalars of the input, None for none.
        out_s_channels: scalars of the output, None for none.
        hidden_s_channels: scalars within.
        attention: a :class:`SelfAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        num_blocks: blocks.
        reinsert_mv_channels: multivectors of the input, by number, that each block's queries and keys are made of too.
        reinsert_s_channels: scalars of the input likewise.
        checkpoint_blocks: as ``checkpoint=["block"]``; the published code has deprecated it.
        dropout_prob: the probability of dropout, None for none.
        checkpoint: what the backward pass computes again: ``["block"]``, or some of "mlp" and "attention".
        kwargs: have no effect, as in the published code.
    """

    _blades = PROJECTIVE

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: Optional[int],
        out_s_channels: Optional[int],
        hidden_s_channels: Optional[int],
        attention: Any,
        mlp: Any,
        num_blocks: int = 10,
        reinsert_mv_channels: Optional[Sequence[int]] = None,
        reinsert_s_channels: Optional[Sequence[int]] = None,
        checkpoint_blocks: bool = False,
        dropout_prob: Optional[float] = None,
        checkpoint: Optional[Sequence[str]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if checkpoint_blocks:
            if checkpoint is not None:
                raise ArgumentError(
                    "GATr: Both checkpoint_blocks and checkpoint were specified; leave out checkpoint_blocks, and give checkpoint=['block']"
                )
            warn("checkpoint_blocks is deprecated; use checkpoint=['block']", category=DeprecationWarning, stacklevel=2)
            checkpoint = ["block"]
        parts = tuple(checkpoint or ())
        if not set(parts) <= {"block", "mlp", "attention"}:
            raise ArgumentError(f"GATr: checkpoint {list(parts)}, expected some of 'block', 'mlp' and 'attention'")
        if "block" in parts and len(parts) > 1:
            raise ArgumentError(
                f"GATr: checkpoint {list(parts)}: Checkpointing both on the block level and that of its parts computes everything three "
                "times; give ['block'], or some of 'mlp' and 'attention'"
            )
        self._checkpoint_blocks = "block" in parts
        self.linear_in = EquiLinear(in_mv_channels, hidden_mv_channels, in_s_channels, hidden_s_channels)
        attention = replace(
            SelfAttentionConfig.cast(attention),
            additional_qk_mv_channels=len(reinsert_mv_channels or ()),
            additional_qk_s_channels=len(reinsert_s_channels or ()),
        )
        mlp = MLPConfig.cast(mlp)
        self.blocks = nn.ModuleList(
            GATrBlock(
                hidden_mv_channels,
                hidden_s_channels,
                attention,
                mlp,
                dropout_prob,
                None if self._checkpoint_blocks else checkpoint,
            )
            for _ in range(num_blocks)
        )
        self.linear_out = EquiLinear(hidden_mv_channels, out_mv_channels, hidden_s_channels, out_s_channels)
        self._reinsert_mv_channels, self._reinsert_s_channels = reinsert_mv_channels, reinsert_s_channels

    def _run(self, x: Features, reference: Tensor, mask: Any = None) -> Features:
        extra = reinserted(x, self._reinsert_mv_channels, self._reinsert_s_channels, "GATr")
        x = run(self.linear_in, EquiLinear, x)
        for block in self.blocks:
            if self._checkpoint_blocks:
                x = computed_again(partial(run, block, GATrBlock), x, reference, extra, mask)
            else:
                x = run(block, GATrBlock, x, reference, extra, mask)
        return run(self.linear_out, EquiLinear, x)

    def forward(
        self,
        multivectors: Tensor,
        scalars: Optional[Tensor] = None,
        attention_mask: Any = None,
        join_reference: Union[Tensor, str] = "data",
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            multivectors: ``[batch, ..., items, in, 16]``.
            scalars: ``[batch, ..., items, in]``.
            attention_mask: see :class:`~gradewise.torch.gatr.layers.GeometricAttention`.
            join_reference: what joins take their behaviour under reflections from: "data" for the mean of the input, "canonical", or a
                multivector ``[..., 16]``.
        """
        reference = construct_reference_multivector(join_reference, multivectors)
        return self._run(self._enter(multivectors, scalars), reference, attention_mask).leave()
