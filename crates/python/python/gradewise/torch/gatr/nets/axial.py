"""GATr along two axes by turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Optional, Union

from torch import Tensor, nn

from gradewise._errors import ShapeError
from gradewise.torch._pretrained import Pretrained
from gradewise.torch._transformers.algebra import PROJECTIVE
from gradewise.torch._transformers.features import Features, Layer, Pair, computed_again, run
from gradewise.torch.gatr.config import MLPConfig, SelfAttentionConfig
from gradewise.torch.gatr.layers.block import GATrBlock
from gradewise.torch.gatr.layers.linear import EquiLinear
from gradewise.torch.gatr.nets.reference import construct_reference_multivector


class AxialGATr(Pretrained, Layer):
    """GATr for items with two axes, such as objects and times: blocks attend along the second axis and along the first by turns.

    Args:
        in_mv_channels, out_mv_channels, hidden_mv_channels, in_s_channels, out_s_channels, hidden_s_channels, attention, mlp, num_blocks:
            see :class:`~gradewise.torch.gatr.GATr`.
        checkpoint_blocks: whether the backward pass computes the blocks again, for less memory.
        pos_encodings: whether items are told apart by their number, along the first and along the second axis.
        collapse_dims: whether the two axes before the items are made one, in blocks along the second and along the first axis.
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
        num_blocks: int = 20,
        checkpoint_blocks: bool = False,
        pos_encodings: tuple[bool, bool] = (False, False),
        collapse_dims: tuple[bool, bool] = (False, False),
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.linear_in = EquiLinear(in_mv_channels, hidden_mv_channels, in_s_channels, hidden_s_channels)
        attention, mlp = SelfAttentionConfig.cast(attention), MLPConfig.cast(mlp)
        self.blocks = nn.ModuleList(
            GATrBlock(
                hidden_mv_channels,
                hidden_s_channels,
                replace(attention, pos_encoding=pos_encodings[(number + 1) % 2]),
                mlp,
            )
            for number in range(num_blocks)
        )
        self.linear_out = EquiLinear(hidden_mv_channels, out_mv_channels, hidden_s_channels, out_s_channels)
        self._checkpoint_blocks = checkpoint_blocks
        self._collapse_dims_for_even_blocks, self._collapse_dims_for_odd_blocks = collapse_dims

    def _run(self, x: Features, reference: Tensor, masks: Optional[Sequence[Any]] = None) -> Features:
        x = run(self.linear_in, EquiLinear, x)
        for number, block in enumerate(self.blocks):
            is_odd = number % 2 == 1
            collapses = self._collapse_dims_for_odd_blocks if is_odd else self._collapse_dims_for_even_blocks
            mask = None if masks is None else masks[(number + 1) % 2]
            if is_odd:
                x = _turned(x)
            shape = x.shape
            if collapses:
                x = replace(x, shape=(shape[0] * shape[1], *shape[2:]))
            if self._checkpoint_blocks:
                x = computed_again(partial(run, block, GATrBlock), x, reference, None, mask)
            else:
                x = run(block, GATrBlock, x, reference, None, mask)
            x = replace(x, shape=shape)
            if is_odd:
                x = _turned(x)
        return run(self.linear_out, EquiLinear, x)

    def forward(
        self,
        multivectors: Tensor,
        scalars: Optional[Tensor] = None,
        attention_mask: Optional[Sequence[Any]] = None,
        join_reference: Union[Tensor, str] = "data",
    ) -> Pair:
        """Multivectors ``[..., first, second, out, 16]`` and scalars ``[..., first, second, out]``, None if there are none.

        Args:
            multivectors: ``[..., first, second, in, 16]``.
            scalars: ``[..., first, second, in]``.
            attention_mask: for blocks along the first and along the second axis, each as GATr takes it.
            join_reference: as GATr takes it.
        """
        if multivectors.dim() < 4:
            raise ShapeError(
                f"AxialGATr: multivectors of shape {list(multivectors.shape)}, expected [..., first, second, channels, 16]"
            )
        reference = construct_reference_multivector(join_reference, multivectors)
        return self._run(self._enter(multivectors, scalars), reference, attention_mask).leave()


def _turned(x: Features) -> Features:
    """With the two axes of the items exchanged."""
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    mv = x.mv.unflatten(-1, x.shape).transpose(-1, -2).flatten(2)
    s = None if x.s is None else x.s.unflatten(-1, x.shape).transpose(-1, -2).flatten(1)
    return replace(x, mv=mv, s=s, shape=shape)
