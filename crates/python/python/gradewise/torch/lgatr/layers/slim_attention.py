"""Attention and blocks of vectors and scalars."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._transformers.options import positive
from gradewise.torch._transformers.algebra import constant
from gradewise.torch._transformers.attention import weigh
from gradewise.torch._transformers.features import acts_as, is_without_hooks
from gradewise.torch._transformers.precision import island
from gradewise.torch.lgatr.layers.slim import Pair, SlimDropout, SlimLinear, SlimMLP, SlimRMSNorm

_METRIC = (1.0, -1.0, -1.0, -1.0)


class _Attention(nn.Module):
    """What both kinds of attention share: heads, and what comes before and behind them."""

    hidden_v_channels: int
    hidden_s_channels: int
    num_heads: int
    norm: nn.Module

    def _become(self, v_channels: int, s_channels: int, num_heads: int, attn_ratio: int) -> None:
        positive(type(self).__name__, num_heads=num_heads, attn_ratio=attn_ratio)
        self.hidden_v_channels = max(attn_ratio * v_channels // num_heads, 1)
        self.hidden_s_channels = max(attn_ratio * s_channels // num_heads, 4)
        self.num_heads = num_heads

    def _in(self, v_channels: int, s_channels: int, groups: int) -> SlimLinear:
        return SlimLinear(
            v_channels,
            groups * self.hidden_v_channels * self.num_heads,
            s_channels,
            groups * self.hidden_s_channels * self.num_heads,
            bias=False,
            initialization="small",
        )

    def _out(self, v_channels: int, s_channels: int, dropout_prob: Optional[float]) -> None:
        self.linear_out = SlimLinear(
            self.hidden_v_channels * self.num_heads,
            v_channels,
            self.hidden_s_channels * self.num_heads,
            s_channels,
            initialization="small",
        )
        self.norm = SlimRMSNorm(self.hidden_v_channels, self.hidden_s_channels, elementwise_affine=False)
        self.dropout = None if dropout_prob is None else SlimDropout(dropout_prob)

    def _matrices(self, v: Tensor, s: Tensor, groups: int, query: Optional[int]) -> Tensor:
        """Normalised features of heads, ``[groups, ..., heads, items, 4 · vectors + scalars]``; those of one group are queries."""
        v = v.unflatten(-1, (groups, self.hidden_v_channels, self.num_heads))
        s = s.unflatten(-1, (groups, self.hidden_s_channels, self.num_heads))
        signs = None
        if query is not None:
            signs = constant(tuple(tuple(m if g == query else 1.0 for g in range(groups)) for m in _METRIC), v)[
                :, :, None, None
            ]
        norm = self.norm
        own = acts_as(norm) is SlimRMSNorm and norm.weight_v is None and "forward" not in norm.__dict__
        own = own and is_without_hooks(norm)
        if own:
            with island() as wide:
                v, s = wide(v), wide(s)
                squares = v.square()
                forms = squares.select(-4, 0) - squares.narrow(-4, 1, 3).sum(-4)
                total = forms.abs().sum(-2, keepdim=True) + s.square().sum(-2, keepdim=True)
                scale = torch.rsqrt(total / (v.shape[-2] + s.shape[-2]) + norm.epsilon)
                s = s * scale
                factor = scale[..., None, :, :, :]
                v = v * (factor if signs is None else factor * signs.to(v.dtype))
        v, s = v.movedim((-3, -1), (0, -4)), s.movedim((-3, -1), (0, -3))
        if not own:
            v, s = norm(v, s)
            if signs is not None:
                v = v * signs[:, :, 0, 0].t().reshape(groups, *[1] * (v.dim() - 3), 4, 1).to(v.dtype)
        return torch.cat((v.flatten(-2), s), -1)

    def _weighed(self, q: Tensor, k: Tensor, v: Tensor, options: dict) -> Pair:
        with island() as wide:
            h = weigh(wide(q), wide(k), wide(v), **options)
        split = 4 * self.hidden_v_channels
        h_v = h[..., :split].unflatten(-1, (4, self.hidden_v_channels)).movedim(-4, -2).flatten(-2)
        h_v, h_s = self.linear_out(h_v, h[..., split:].movedim(-2, -3).flatten(-2))
        return (h_v, h_s) if self.dropout is None else self.dropout(h_v, h_s)


class SlimSelfAttention(_Attention):
    """Attention between the items of one set, by the products of vectors and those of scalars.

    Args:
        v_channels: vectors.
        s_channels: scalars.
        num_heads: heads.
        attn_ratio: channels of all heads together over those of the input.
        dropout_prob: the probability of dropout, None for none.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        num_heads: int,
        attn_ratio: int = 1,
        dropout_prob: Optional[float] = None,
    ) -> None:
        super().__init__()
        self._become(v_channels, s_channels, num_heads, attn_ratio)
        self.linear_in = self._in(v_channels, s_channels, 3)
        self._out(v_channels, s_channels, dropout_prob)

    def forward(self, vectors: Tensor, scalars: Tensor, **attn_kwargs: Any) -> Pair:
        """Vectors ``[..., items, 4, channels]`` and scalars ``[..., items, channels]``.

        Args:
            vectors: ``[..., items, 4, channels]``.
            scalars: ``[..., items, channels]``.
            attn_kwargs: of the attention, such as ``attn_mask``.
        """
        q, k, v = self._matrices(*self.linear_in(vectors, scalars), 3, 0).unbind(0)
        return self._weighed(q, k, v, attn_kwargs)


class SlimCrossAttention(_Attention):
    """Attention of one set of items to another.

    Args:
        q_v_channels: vectors that queries are made of.
        kv_v_channels: vectors that keys and values are made of.
        q_s_channels: scalars that queries are made of.
        kv_s_channels: scalars that keys and values are made of.
        num_heads: heads.
        attn_ratio: channels of all heads together over those of the queries' input.
        dropout_prob: the probability of dropout, None for none.
    """

    def __init__(
        self,
        q_v_channels: int,
        kv_v_channels: int,
        q_s_channels: int,
        kv_s_channels: int,
        num_heads: int,
        attn_ratio: int = 1,
        dropout_prob: Optional[float] = None,
    ) -> None:
        super().__init__()
        self._become(q_v_channels, q_s_channels, num_heads, attn_ratio)
        self.linear_in_q = self._in(q_v_channels, q_s_channels, 1)
        self.linear_in_kv = self._in(kv_v_channels, kv_s_channels, 2)
        self._out(q_v_channels, q_s_channels, dropout_prob)

    def forward(
        self, vectors_q: Tensor, vectors_kv: Tensor, scalars_q: Tensor, scalars_kv: Tensor, **attn_kwargs: Any
    ) -> Pair:
        """Vectors ``[..., items, 4, channels]`` and scalars ``[..., items, channels]``.

        Args:
            vectors_q: of the items that attend, ``[..., items, 4, channels]``.
            vectors_kv: of those attended to, ``[..., other items, 4, channels]``.
            scalars_q: ``[..., items, channels]``.
            scalars_kv: ``[..., other items, channels]``.
            attn_kwargs: of the attention, such as ``attn_mask``.
        """
        q = self._matrices(*self.linear_in_q(vectors_q, scalars_q), 1, 0)[0]
        k, v = self._matrices(*self.linear_in_kv(vectors_kv, scalars_kv), 2, None).unbind(0)
        return self._weighed(q, k, v, attn_kwargs)


class SlimBlock(nn.Module):
    """Self-attention and a multilayer perceptron, each behind a norm and with a residual sum.

    Args:
        v_channels: vectors.
        s_channels: scalars.
        num_heads: heads.
        nonlinearity: the activation of scalars.
        nonlinearity_v: that of products of vectors; the same if None.
        mlp_ratio: inner channels of the perceptron over those of the block.
        attn_ratio: channels of all heads together over those of the block.
        num_layers_mlp: layers of the perceptron, 2 or more.
        dropout_prob: the probability of dropout, None for none.
        norm_elementwise_affine: whether the norms have gains.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: Optional[str] = "sigmoid",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: Optional[float] = None,
        norm_elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self.norm1 = SlimRMSNorm(v_channels, s_channels, elementwise_affine=norm_elementwise_affine)
        self.norm2 = SlimRMSNorm(v_channels, s_channels, elementwise_affine=norm_elementwise_affine)
        self.attention = SlimSelfAttention(v_channels, s_channels, num_heads, attn_ratio, dropout_prob)
        self.mlp = SlimMLP(
            v_channels, s_channels, nonlinearity, nonlinearity_v, mlp_ratio, num_layers_mlp, dropout_prob
        )

    def forward(self, vectors: Tensor, scalars: Tensor, **attn_kwargs: Any) -> Pair:
        """Vectors ``[..., items, 4, channels]`` and scalars ``[..., items, channels]``; see :class:`SlimSelfAttention`."""
        v, s = self.attention(*self.norm1(vectors, scalars), **attn_kwargs)
        vectors, scalars = vectors + v, scalars + s
        v, s = self.mlp(*self.norm2(vectors, scalars))
        return vectors + v, scalars + s


class ConditionalSlimBlock(nn.Module):
    """Self-attention, attention to a condition, and a multilayer perceptron, each behind a norm and with a residual sum.

    Args:
        v_channels: vectors.
        v_channels_cond: vectors of the condition.
        s_channels: scalars.
        s_channels_cond: scalars of the condition.
        num_heads: heads.
        nonlinearity, nonlinearity_v, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob, norm_elementwise_affine: see
            :class:`SlimBlock`.
    """

    def __init__(
        self,
        v_channels: int,
        v_channels_cond: int,
        s_channels: int,
        s_channels_cond: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: Optional[str] = "sigmoid",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: Optional[float] = None,
        norm_elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self.norm1 = SlimRMSNorm(v_channels, s_channels, elementwise_affine=norm_elementwise_affine)
        self.norm2 = SlimRMSNorm(v_channels, s_channels, elementwise_affine=norm_elementwise_affine)
        self.norm3 = SlimRMSNorm(v_channels, s_channels, elementwise_affine=norm_elementwise_affine)
        self.selfattention = SlimSelfAttention(v_channels, s_channels, num_heads, attn_ratio, dropout_prob)
        self.crossattention = SlimCrossAttention(
            v_channels, v_channels_cond, s_channels, s_channels_cond, num_heads, attn_ratio, dropout_prob
        )
        self.mlp = SlimMLP(
            v_channels, s_channels, nonlinearity, nonlinearity_v, mlp_ratio, num_layers_mlp, dropout_prob
        )

    def forward(
        self,
        vectors: Tensor,
        vectors_cond: Tensor,
        scalars: Tensor,
        scalars_cond: Tensor,
        attn_kwargs: Optional[dict] = None,
        crossattn_kwargs: Optional[dict] = None,
    ) -> Pair:
        """Vectors ``[..., items, 4, channels]`` and scalars ``[..., items, channels]``.

        Args:
            vectors: ``[..., items, 4, channels]``.
            vectors_cond: of the condition, ``[..., its items, 4, its channels]``.
            scalars: ``[..., items, channels]``.
            scalars_cond: of the condition, ``[..., its items, its channels]``.
            attn_kwargs: of the self-attention.
            crossattn_kwargs: of the attention to the condition.
        """
        v, s = self.selfattention(*self.norm1(vectors, scalars), **(attn_kwargs or {}))
        vectors, scalars = vectors + v, scalars + s
        v, s = self.norm2(vectors, scalars)
        v, s = self.crossattention(v, vectors_cond, s, scalars_cond, **(crossattn_kwargs or {}))
        vectors, scalars = vectors + v, scalars + s
        v, s = self.mlp(*self.norm3(vectors, scalars))
        return vectors + v, scalars + s
