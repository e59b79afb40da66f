"""The block: norm, attention and residual; norm, perceptron and residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise._transformers.gatr import attention_of_block, mlp_of_block
from gradewise.torch._transformers.algebra import PROJECTIVE
from gradewise.torch._transformers.features import Features, Layer, Pair, computed_again, extra_features, run
from gradewise.torch.gatr.layers.attention import SelfAttention
from gradewise.torch.gatr.layers.composite import block_of
from gradewise.torch.gatr.layers.mlp import GeoMLP
from gradewise.torch.gatr.layers.norm import EquiLayerNorm


class GATrBlock(Layer):
    """Attention and a multilayer perceptron, each behind a norm and with a residual sum.

    Args:
        mv_channels: multivectors.
        s_channels: scalars.
        attention: a :class:`SelfAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        dropout_prob: the probability of dropout, None for none.
        checkpoint: which parts the backward pass computes again, of "mlp" and "attention".
    """

    _blades = PROJECTIVE

    def __init__(
        self,
        mv_channels: int,
        s_channels: Optional[int],
        attention: Any,
        mlp: Any,
        dropout_prob: Optional[float] = None,
        checkpoint: Optional[Sequence[str]] = None,
    ) -> None:
        super().__init__()
        parts = tuple(checkpoint or ())
        if not set(parts) <= {"mlp", "attention"}:
            raise ArgumentError(f"GATrBlock: checkpoint {list(parts)}, expected 'mlp', 'attention' or both")
        self._checkpoint_mlp, self._checkpoint_attn = "mlp" in parts, "attention" in parts
        self.norm = EquiLayerNorm()
        attention = attention_of_block(attention, mv_channels, s_channels, dropout_prob)
        self.attention = SelfAttention(attention)
        mlp = mlp_of_block(mlp, mv_channels, s_channels, dropout_prob)
        self.mlp = GeoMLP(mlp)

    def _run(
        self, x: Features, reference: Optional[Tensor] = None, extra: Optional[Features] = None, mask: Any = None
    ) -> Features:
        made = block_of(self, x, reference, extra, mask)
        if made is not None:
            return made

        def attended(x: Features) -> Features:
            return run(self.attention, SelfAttention, run(self.norm, EquiLayerNorm, x), extra, mask)

        def mapped(x: Features) -> Features:
            return run(self.mlp, GeoMLP, run(self.norm, EquiLayerNorm, x), reference)

        x = x + (computed_again(attended, x) if self._checkpoint_attn else attended(x))
        return x + (computed_again(mapped, x) if self._checkpoint_mlp else mapped(x))

    @staticmethod
    def _call(
        module: nn.Module,
        x: Features,
        reference: Optional[Tensor] = None,
        extra: Optional[Features] = None,
        mask: Any = None,
    ) -> Pair:
        mv, s = x.leave()
        more = (None, None) if extra is None else extra.leave()
        return module(
            mv,
            scalars=s,
            reference_mv=reference,
            additional_qk_features_mv=more[0],
            additional_qk_features_s=more[1],
            attention_mask=mask,
        )

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor,
        reference_mv: Optional[Tensor] = None,
        additional_qk_features_mv: Optional[Tensor] = None,
        additional_qk_features_s: Optional[Tensor] = None,
        attention_mask: Any = None,
    ) -> Pair:
        """Multivectors ``[..., items, channels, 16]`` and scalars ``[..., items, channels]``.

        Args:
            multivectors: ``[..., items, channels, 16]``.
            scalars: ``[..., items, channels]``.
            reference_mv: see :class:`~gradewise.torch.gatr.layers.GeometricBilinear`.
            additional_qk_features_mv: multivectors beside them for queries and keys.
            additional_qk_features_s: scalars beside them for queries and keys.
            attention_mask: see :class:`~gradewise.torch.gatr.layers.GeometricAttention`.
        """
        x = self._enter(multivectors, scalars)
        extra = extra_features(x, additional_qk_features_mv, additional_qk_features_s)
        return self._run(x, reference_mv, extra, attention_mask).leave()
