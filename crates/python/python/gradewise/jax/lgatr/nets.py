"""L-GATr, and L-GATr with a condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

from jax import Array

from gradewise._transformers.algebra import SPACETIME
from gradewise._transformers.lgatr import (
    SelfAttentionConfig,
    attention_of_block,
    cross_attention_of_block,
    mlp_of_block,
)
from gradewise.jax._transformers.definition import Definition, Draws, Parameters, exact, keys
from gradewise.jax._transformers.features import Features, Pair, computed_again, enter, reinserted
from gradewise.jax.lgatr.attention import CrossAttention, SelfAttention
from gradewise.jax.lgatr.layers import EquiLayerNorm, EquiLinear, GeoMLP, primitives_of


class _Parts(Definition):
    """A layer of named layers."""

    _inner: dict[str, Any]

    def _parameters(self, made: Draws) -> Parameters:
        return {name: layer._parameters(made) for name, layer in self._inner.items()}


class LGATrBlock(_Parts):
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
        primitives = primitives_of(primitives)
        norm = lambda: EquiLayerNorm(mv_channels, s_channels, elementwise_affine=norm_elementwise_affine)  # noqa: E731
        self._inner = {
            "norm1": norm(),
            "norm2": norm(),
            "attention": SelfAttention(attention_of_block(attention, mv_channels, s_channels, dropout_prob), primitives),
            "mlp": GeoMLP(mlp_of_block(mlp, mv_channels, s_channels, dropout_prob), primitives),
        }

    def run(
        self,
        p: Parameters,
        x: Features,
        extra: Optional[Features] = None,
        options: Optional[dict[str, Any]] = None,
        key: Optional[Array] = None,
    ) -> Features:
        """The block on planes."""
        inner, (of_attention, of_mlp) = self._inner, keys(key, 2)
        normed = inner["norm1"].run(p["norm1"], x)
        x = x + inner["attention"].run(p["attention"], normed, extra, options, of_attention)
        return x + inner["mlp"].run(p["mlp"], inner["norm2"].run(p["norm2"], x), of_mlp)

    __call__ = SelfAttention.__call__


class ConditionalLGATrBlock(_Parts):
    """Self-attention, attention to a condition, and a multilayer perceptron, each behind a norm and with a residual sum.

    Args:
        mv_channels: multivectors.
        s_channels: scalars.
        mv_channels_cond: multivectors of the condition.
        s_channels_cond: scalars of the condition.
        attention: a :class:`SelfAttentionConfig` or a dict.
        crossattention: a :class:`CrossAttentionConfig` or a dict.
        mlp: an :class:`MLPConfig` or a dict.
        primitives, dropout_prob, norm_elementwise_affine: see :class:`LGATrBlock`.
    """

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
        primitives = primitives_of(primitives)
        norm = lambda: EquiLayerNorm(mv_channels, s_channels, elementwise_affine=norm_elementwise_affine)  # noqa: E731
        cross = cross_attention_of_block(
            crossattention, (mv_channels, s_channels), (mv_channels_cond, s_channels_cond), dropout_prob
        )
        self._inner = {
            "norm1": norm(),
            "norm2": norm(),
            "norm3": norm(),
            "norm_cond": EquiLayerNorm(mv_channels_cond, s_channels_cond, elementwise_affine=norm_elementwise_affine),
            "attention": SelfAttention(attention_of_block(attention, mv_channels, s_channels, dropout_prob), primitives),
            "crossattention": CrossAttention(cross, primitives),
            "mlp": GeoMLP(mlp_of_block(mlp, mv_channels, s_channels, dropout_prob), primitives),
        }

    def run(
        self,
        p: Parameters,
        x: Features,
        cond: Features,
        options: Optional[dict[str, Any]] = None,
        cross_options: Optional[dict[str, Any]] = None,
        key: Optional[Array] = None,
    ) -> Features:
        """The block on planes."""
        inner, (of_attention, of_cross, of_mlp) = self._inner, keys(key, 3)
        normed = inner["norm1"].run(p["norm1"], x)
        x = x + inner["attention"].run(p["attention"], normed, None, options, of_attention)
        normed = inner["norm2"].run(p["norm2"], x)
        cond = inner["norm_cond"].run(p["norm_cond"], cond)
        x = x + inner["crossattention"].run(p["crossattention"], normed, cond, cross_options, of_cross)
        return x + inner["mlp"].run(p["mlp"], inner["norm3"].run(p["norm3"], x), of_mlp)

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        multivectors_cond: Array,
        scalars: Optional[Array] = None,
        scalars_cond: Optional[Array] = None,
        attn_kwargs: Optional[dict[str, Any]] = None,
        crossattn_kwargs: Optional[dict[str, Any]] = None,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., items, channels, 16]`` and scalars ``[..., items, channels]``; see :class:`ConditionalLGATr`."""
        name = type(self).__name__
        x = enter(SPACETIME, multivectors, scalars, name)
        cond = enter(SPACETIME, multivectors_cond, scalars_cond, f"{name}, condition")
        return self.run(parameters, x, cond, attn_kwargs, crossattn_kwargs, key).leave()


class _Stack(Definition):
    """A linear map, blocks, and a linear map."""

    _linear_in: EquiLinear
    _linear_out: EquiLinear
    _blocks: list[Any]

    def _parameters(self, made: Draws) -> Parameters:
        return {
            "linear_in": self._linear_in._parameters(made),
            "blocks": [block._parameters(made) for block in self._blocks],
            "linear_out": self._linear_out._parameters(made),
        }

    def _through(self, p: Parameters, x: Features, given: Sequence[Any], again: bool, key: Optional[Array]) -> Features:
        """The blocks, each with these arguments, computed again by the backward pass if asked for."""
        *arrays, options, cross = given

        def run(block: Any) -> Any:
            told = (options,) if cross is None else (options, cross)
            return lambda x, own, drawn, *rest: block.run(own, x, *rest, *told, drawn)

        for block, own, drawn in zip(self._blocks, p["blocks"], keys(key, len(self._blocks))):
            x = computed_again(run(block), x, own, drawn, *arrays) if again else run(block)(x, own, drawn, *arrays)
        return x


class LGATr(_Stack):
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
    """

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
    ) -> None:
        primitives = primitives_of(primitives)
        attention = replace(
            SelfAttentionConfig.cast(attention),
            additional_qk_mv_channels=len(reinsert_mv_channels or ()),
            additional_qk_s_channels=len(reinsert_s_channels or ()),
        )
        sizes, options = (hidden_mv_channels, hidden_s_channels), (dropout_prob, norm_elementwise_affine)
        self._linear_in = EquiLinear(in_mv_channels, hidden_mv_channels, primitives, in_s_channels, hidden_s_channels)
        self._blocks = [LGATrBlock(*sizes, attention, mlp, primitives, *options) for _ in range(num_blocks)]
        self._linear_out = EquiLinear(
            hidden_mv_channels, out_mv_channels, primitives, hidden_s_channels, out_s_channels
        )
        self._reinserted = reinsert_mv_channels, reinsert_s_channels
        self._again = checkpoint_blocks

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        scalars: Optional[Array] = None,
        *,
        key: Optional[Array] = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., items, in, 16]``.
            scalars: ``[..., items, in]``.
            key: of what dropout drops; nothing is dropped without one.
            attn_kwargs: of the attention, such as ``attn_mask`` (see :func:`~gradewise.jax.lgatr.sdp_attention`).
        """
        x = enter(SPACETIME, multivectors, scalars, "LGATr")
        extra = reinserted(x, *self._reinserted, "LGATr")
        x = self._linear_in.run(parameters["linear_in"], x)
        x = self._through(parameters, x, (extra, attn_kwargs, None), self._again, key)
        return self._linear_out.run(parameters["linear_out"], x).leave()


class ConditionalLGATr(_Stack):
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
        primitives, dropout_prob, norm_elementwise_affine, checkpoint_blocks: see :class:`LGATr`.
    """

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
    ) -> None:
        primitives = primitives_of(primitives)
        attention = replace(
            SelfAttentionConfig.cast(attention), additional_qk_mv_channels=0, additional_qk_s_channels=0
        )
        sizes = (hidden_mv_channels, hidden_s_channels, mv_channels_cond, s_channels_cond)
        options = (attention, crossattention, mlp, primitives, dropout_prob, norm_elementwise_affine)
        self._linear_in = EquiLinear(in_mv_channels, hidden_mv_channels, primitives, in_s_channels, hidden_s_channels)
        self._blocks = [ConditionalLGATrBlock(*sizes, *options) for _ in range(num_blocks)]
        self._linear_out = EquiLinear(
            hidden_mv_channels, out_mv_channels, primitives, hidden_s_channels, out_s_channels
        )
        self._again = checkpoint_blocks

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        multivectors_cond: Array,
        scalars: Optional[Array] = None,
        scalars_cond: Optional[Array] = None,
        attn_kwargs: Optional[dict[str, Any]] = None,
        crossattn_kwargs: Optional[dict[str, Any]] = None,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., items, in, 16]``.
            multivectors_cond: of the condition, ``[..., its items, its channels, 16]``.
            scalars: ``[..., items, in]``.
            scalars_cond: of the condition, ``[..., its items, its channels]``.
            attn_kwargs: of the self-attention, such as ``attn_mask``.
            crossattn_kwargs: of the attention to the condition.
            key: of what dropout drops; nothing is dropped without one.
        """
        x = enter(SPACETIME, multivectors, scalars, "ConditionalLGATr")
        cond = enter(SPACETIME, multivectors_cond, scalars_cond, "ConditionalLGATr, condition")
        x = self._linear_in.run(parameters["linear_in"], x)
        x = self._through(parameters, x, (cond, attn_kwargs or {}, crossattn_kwargs or {}), self._again, key)
        return self._linear_out.run(parameters["linear_out"], x).leave()
