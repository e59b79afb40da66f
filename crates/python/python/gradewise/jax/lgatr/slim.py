"""L-GATr-slim, and L-GATr-slim with a condition."""

from __future__ import annotations

from typing import Any, Optional

import jax
from jax import Array

from gradewise.jax._transformers.definition import Definition, Draws, Parameters, exact, keys
from gradewise.jax.lgatr.slim_layers import MLP, Attention, Linear, Norm, Pair, Parts, check_pair


class _Block(Parts):
    """Self-attention, attention to a condition if there is one, and a multilayer perceptron, each behind a norm and with a residual sum."""

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        num_heads: int,
        nonlinearity: str,
        nonlinearity_v: Optional[str],
        mlp_ratio: int,
        attn_ratio: int,
        num_layers_mlp: int,
        dropout_prob: Optional[float],
        norm_elementwise_affine: bool,
        cond: Optional[tuple[int, int]] = None,
    ) -> None:
        attention = (v_channels, s_channels, num_heads, attn_ratio, dropout_prob)
        parts: list[tuple[str, Any]] = [("attention" if cond is None else "selfattention", Attention(*attention))]
        if cond is not None:
            parts.append(("crossattention", Attention(*attention, others=cond)))
        mlp = (nonlinearity, nonlinearity_v, mlp_ratio, num_layers_mlp, dropout_prob)
        parts.append(("mlp", MLP(v_channels, s_channels, *mlp)))
        self._names = [name for name, _ in parts]
        self._inner = dict(parts)
        for number in range(len(parts)):
            self._inner[f"norm{number + 1}"] = Norm(v_channels, s_channels, norm_elementwise_affine)

    def run(
        self,
        p: Parameters,
        v: Array,
        s: Array,
        cond: Optional[Pair],
        options: tuple[dict[str, Any], dict[str, Any]],
        key: Optional[Array],
    ) -> Pair:
        """Vectors ``[..., items, 4, channels]`` and scalars ``[..., items, channels]``."""
        for number, (name, drawn) in enumerate(zip(self._names, keys(key, len(self._names)))):
            norm = f"norm{number + 1}"
            inner = self._inner[norm].run(p[norm], v, s)
            if name == "mlp":
                made = self._inner[name].run(p[name], *inner, drawn)
            else:
                is_cross = name == "crossattention"
                given = (cond, options[1]) if is_cross else (None, options[0])
                made = self._inner[name].run(p[name], *inner, *given, drawn)
            v, s = v + made[0], s + made[1]
        return v, s


class _Stack(Definition):
    """A linear map, blocks, and a linear map."""

    def _become(self, ends: tuple[int, int, int, int, int, int], blocks: list[_Block], again: bool) -> None:
        in_v, out_v, v, in_s, out_s, s = ends
        self._linear_in, self._linear_out = Linear(in_v, v, in_s, s), Linear(v, out_v, s, out_s)
        self._blocks, self._again = blocks, again

    def _parameters(self, made: Draws) -> Parameters:
        return {
            "linear_in": self._linear_in._parameters(made),
            "blocks": [block._parameters(made) for block in self._blocks],
            "linear_out": self._linear_out._parameters(made),
        }

    def _run(
        self,
        p: Parameters,
        v: Array,
        s: Array,
        cond: Optional[Pair],
        options: tuple[dict[str, Any], dict[str, Any]],
        key: Optional[Array],
    ) -> Pair:
        check_pair(type(self).__name__, v, s)
        if cond is not None:
            check_pair(f"{type(self).__name__}, condition", *cond)
        v, s = self._linear_in.run(p["linear_in"], v, s)
        for block, own, drawn in zip(self._blocks, p["blocks"], keys(key, len(self._blocks))):
            through = lambda own, v, s, cond, drawn, block=block: block.run(own, v, s, cond, options, drawn)  # noqa: E731
            v, s = (jax.checkpoint(through) if self._again else through)(own, v, s, cond, drawn)
        v, s = self._linear_out.run(p["linear_out"], v, s)
        return v.swapaxes(-2, -1), s


class LGATrSlim(_Stack):
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
    ) -> None:
        options = (nonlinearity, nonlinearity_v, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob)
        sizes = (hidden_v_channels, hidden_s_channels, num_heads)
        ends = (in_v_channels, out_v_channels, hidden_v_channels, in_s_channels, out_s_channels, hidden_s_channels)
        blocks = [_Block(*sizes, *options, norm_elementwise_affine) for _ in range(num_blocks)]
        self._become(ends, blocks, checkpoint_blocks)

    @exact
    def __call__(
        self, parameters: Parameters, vectors: Array, scalars: Array, *, key: Optional[Array] = None, **attn_kwargs: Any
    ) -> Pair:
        """Vectors ``[..., items, out, 4]`` and scalars ``[..., items, out]``.

        Args:
            parameters: as ``init`` gives them.
            vectors: ``[..., items, in, 4]``, components (t, x, y, z).
            scalars: ``[..., items, in]``.
            key: of what dropout drops; nothing is dropped without one.
            attn_kwargs: of the attention, such as ``attn_mask`` (see :func:`~gradewise.jax.lgatr.sdp_attention`).
        """
        return self._run(parameters, vectors.swapaxes(-2, -1), scalars, None, (attn_kwargs, {}), key)


class ConditionalLGATrSlim(_Stack):
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
        nonlinearity, nonlinearity_v, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob, norm_elementwise_affine, checkpoint_blocks: see
            :class:`LGATrSlim`.
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
    ) -> None:
        options = (nonlinearity, nonlinearity_v, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob)
        sizes, cond = (hidden_v_channels, hidden_s_channels, num_heads), (v_channels_cond, s_channels_cond)
        ends = (in_v_channels, out_v_channels, hidden_v_channels, in_s_channels, out_s_channels, hidden_s_channels)
        blocks = [_Block(*sizes, *options, norm_elementwise_affine, cond) for _ in range(num_blocks)]
        self._become(ends, blocks, checkpoint_blocks)

    @exact
    def __call__(
        self,
        parameters: Parameters,
        vectors: Array,
        vectors_cond: Array,
        scalars: Array,
        scalars_cond: Array,
        attn_kwargs: Optional[dict[str, Any]] = None,
        crossattn_kwargs: Optional[dict[str, Any]] = None,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Vectors ``[..., items, out, 4]`` and scalars ``[..., items, out]``.

        Args:
            parameters: as ``init`` gives them.
            vectors: ``[..., items, in, 4]``, components (t, x, y, z).
            vectors_cond: of the condition, ``[..., its items, its channels, 4]``.
            scalars: ``[..., items, in]``.
            scalars_cond: of the condition, ``[..., its items, its channels]``.
            attn_kwargs: of the self-attention, such as ``attn_mask``.
            crossattn_kwargs: of the attention to the condition.
            key: of what dropout drops; nothing is dropped without one.
        """
        cond = vectors_cond.swapaxes(-2, -1), scalars_cond
        options = (attn_kwargs or {}, crossattn_kwargs or {})
        return self._run(parameters, vectors.swapaxes(-2, -1), scalars, cond, options, key)
