"""GATr, and GATr along two axes by turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional, Union

from jax import Array

from gradewise._errors import ArgumentError, ShapeError
from gradewise._transformers.algebra import PROJECTIVE
from gradewise._transformers.gatr import SelfAttentionConfig, attention_of_block, mlp_of_block
from gradewise.jax._transformers.definition import Definition, Draws, Parameters, exact, keys
from gradewise.jax._transformers.features import Features, Pair, computed_again, enter, reinserted
from gradewise.jax.gatr.attention import SelfAttention
from gradewise.jax.gatr.layers import EquiLayerNorm, EquiLinear, GeoMLP, reference_of


class GATrBlock(Definition):
    """Attention and a multilayer perceptron, each behind a norm and with a residual sum.

    Args:
        mv_channels: multivectors.
        s_channels: scalars.
        attention: a :class:`SelfAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        dropout_prob: the probability of dropout, None for none.
        checkpoint: which parts the backward pass computes again, of "mlp" and "attention".
    """

    def __init__(
        self,
        mv_channels: int,
        s_channels: Optional[int],
        attention: Any,
        mlp: Any,
        dropout_prob: Optional[float] = None,
        checkpoint: Optional[Sequence[str]] = None,
    ) -> None:
        self._again = tuple(checkpoint or ())
        if not set(self._again) <= {"mlp", "attention"}:
            raise ArgumentError(f"GATrBlock: checkpoint {list(self._again)}, expected 'mlp', 'attention' or both")
        attention = attention_of_block(attention, mv_channels, s_channels, dropout_prob)
        mlp = mlp_of_block(mlp, mv_channels, s_channels, dropout_prob)
        self._norm, self._attention, self._mlp = EquiLayerNorm(), SelfAttention(attention), GeoMLP(mlp)

    def _parameters(self, made: Draws) -> Parameters:
        return {"attention": self._attention._parameters(made), "mlp": self._mlp._parameters(made)}

    def run(
        self,
        p: Parameters,
        x: Features,
        reference: Optional[Array] = None,
        extra: Optional[Features] = None,
        mask: Optional[Array] = None,
        key: Optional[Array] = None,
    ) -> Features:
        """The block on planes."""

        def attended(x: Features, p: Parameters, extra: Any, mask: Any, key: Any) -> Features:
            return self._attention.run(p, self._norm.run({}, x), extra, mask, key)

        def mapped(x: Features, p: Parameters, reference: Any, key: Any) -> Features:
            return self._mlp.run(p, self._norm.run({}, x), key, reference)

        of_attention, of_mlp = keys(key, 2)
        given = (p["attention"], extra, mask, of_attention)
        x = x + (computed_again(attended, x, *given) if "attention" in self._again else attended(x, *given))
        more = (p["mlp"], reference, of_mlp)
        return x + (computed_again(mapped, x, *more) if "mlp" in self._again else mapped(x, *more))

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        scalars: Array,
        reference_mv: Array,
        attention_mask: Optional[Array] = None,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., items, channels, 16]`` and scalars ``[..., items, channels]``.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., items, channels, 16]``.
            scalars: ``[..., items, channels]``.
            reference_mv: see :class:`~gradewise.jax.gatr.GeometricBilinear`.
            attention_mask: see :class:`~gradewise.jax.gatr.SelfAttention`.
            key: of what dropout drops; nothing is dropped without one.
        """
        x = enter(PROJECTIVE, multivectors, scalars, "GATrBlock")
        return self.run(parameters, x, reference_mv, None, attention_mask, key).leave()


class _Stack(Definition):
    """A linear map, blocks, and a linear map."""

    _linear_in: EquiLinear
    _linear_out: EquiLinear
    _blocks: list[GATrBlock]

    def _parameters(self, made: Draws) -> Parameters:
        return {
            "linear_in": self._linear_in._parameters(made),
            "blocks": [block._parameters(made) for block in self._blocks],
            "linear_out": self._linear_out._parameters(made),
        }


class GATr(_Stack):
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
        dropout_prob: the probability of dropout, None for none.
        checkpoint: what the backward pass computes again: ``["block"]``, or some of "mlp" and "attention".
    """

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
        dropout_prob: Optional[float] = None,
        checkpoint: Optional[Sequence[str]] = None,
    ) -> None:
        parts = tuple(checkpoint or ())
        if not set(parts) <= {"block", "mlp", "attention"} or ("block" in parts and len(parts) > 1):
            raise ArgumentError(f"GATr: checkpoint {list(parts)}, expected ['block'], or some of 'mlp' and 'attention'")
        self._again = "block" in parts
        attention = replace(
            SelfAttentionConfig.cast(attention),
            additional_qk_mv_channels=len(reinsert_mv_channels or ()),
            additional_qk_s_channels=len(reinsert_s_channels or ()),
        )
        sizes, inner = (hidden_mv_channels, hidden_s_channels), None if self._again else parts
        self._linear_in = EquiLinear(in_mv_channels, hidden_mv_channels, in_s_channels, hidden_s_channels)
        self._blocks = [GATrBlock(*sizes, attention, mlp, dropout_prob, inner) for _ in range(num_blocks)]
        self._linear_out = EquiLinear(hidden_mv_channels, out_mv_channels, hidden_s_channels, out_s_channels)
        self._reinserted = reinsert_mv_channels, reinsert_s_channels

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        scalars: Optional[Array] = None,
        attention_mask: Optional[Array] = None,
        join_reference: Union[Array, str] = "data",
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[batch, ..., items, in, 16]``.
            scalars: ``[batch, ..., items, in]``.
            attention_mask: see :class:`~gradewise.jax.gatr.SelfAttention`.
            join_reference: what joins take their behaviour under reflections from: "data" for the mean of the input over all axes but the
                first and the last, "canonical", or a multivector ``[..., 16]``.
            key: of what dropout drops; nothing is dropped without one.
        """
        reference = reference_of(join_reference, multivectors)
        x = enter(PROJECTIVE, multivectors, scalars, "GATr")
        extra = reinserted(x, *self._reinserted, "GATr")
        x = self._linear_in.run(parameters["linear_in"], x)
        for block, own, drawn in zip(self._blocks, parameters["blocks"], keys(key, len(self._blocks))):
            run = lambda x, own, *given, block=block: block.run(own, x, *given)  # noqa: E731
            given = (own, reference, extra, attention_mask, drawn)
            x = computed_again(run, x, *given) if self._again else run(x, *given)
        return self._linear_out.run(parameters["linear_out"], x).leave()


class AxialGATr(_Stack):
    """GATr for items with two axes, such as objects and times: blocks attend along the second axis and along the first by turns.

    Args:
        in_mv_channels, out_mv_channels, hidden_mv_channels, in_s_channels, out_s_channels, hidden_s_channels, attention, mlp, num_blocks:
            see :class:`GATr`.
        checkpoint_blocks: whether the backward pass computes the blocks again, for less memory.
        pos_encodings: whether items are told apart by their number, along the first and along the second axis.
    """

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
    ) -> None:
        attention, sizes = SelfAttentionConfig.cast(attention), (hidden_mv_channels, hidden_s_channels)
        self._linear_in = EquiLinear(in_mv_channels, hidden_mv_channels, in_s_channels, hidden_s_channels)
        self._blocks = [
            GATrBlock(*sizes, replace(attention, pos_encoding=pos_encodings[(number + 1) % 2]), mlp)
            for number in range(num_blocks)
        ]
        self._linear_out = EquiLinear(hidden_mv_channels, out_mv_channels, hidden_s_channels, out_s_channels)
        self._again = checkpoint_blocks

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        scalars: Optional[Array] = None,
        attention_mask: Optional[Sequence[Optional[Array]]] = None,
        join_reference: Union[Array, str] = "data",
    ) -> Pair:
        """Multivectors ``[..., first, second, out, 16]`` and scalars ``[..., first, second, out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., first, second, in, 16]``.
            scalars: ``[..., first, second, in]``.
            attention_mask: for blocks along the first and along the second axis, each as GATr takes it.
            join_reference: as GATr takes it.
        """
        if multivectors.ndim < 4:
            raise ShapeError(
                f"AxialGATr: multivectors of shape {list(multivectors.shape)}, expected [..., first, second, channels, 16]"
            )
        reference = reference_of(join_reference, multivectors)
        x = enter(PROJECTIVE, multivectors, scalars, "AxialGATr")
        x = self._linear_in.run(parameters["linear_in"], x)
        for number, (block, own) in enumerate(zip(self._blocks, parameters["blocks"])):
            run = lambda x, own, *given, block=block: block.run(own, x, *given)  # noqa: E731
            mask = None if attention_mask is None else attention_mask[(number + 1) % 2]
            x = _turned(x) if number % 2 else x
            given = (own, reference, None, mask)
            x = computed_again(run, x, *given) if self._again else run(x, *given)
            x = _turned(x) if number % 2 else x
        return self._linear_out.run(parameters["linear_out"], x).leave()


def _turned(x: Features) -> Features:
    """With the two axes of the items exchanged."""

    def turned(planes: Array) -> Array:
        return planes.reshape(*planes.shape[:-1], *x.shape).swapaxes(-1, -2).reshape(planes.shape)

    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    return replace(x, mv=turned(x.mv), s=None if x.s is None else turned(x.s), shape=shape)
