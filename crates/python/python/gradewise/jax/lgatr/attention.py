"""Self-attention and cross-attention of multivectors and scalars."""

from __future__ import annotations

from typing import Any, Optional

import jax.numpy as jnp
from jax import Array

from gradewise._transformers.algebra import SPACETIME
from gradewise._transformers.lgatr import CrossAttentionConfig, SelfAttentionConfig
from gradewise.jax._transformers.attention import planes_of_heads, rows_of_heads, weigh
from gradewise.jax._transformers.definition import Definition, Draws, Parameters, exact
from gradewise.jax._transformers.features import Features, Pair, enter
from gradewise.jax._transformers.layers import layer_norm, scales
from gradewise.jax.lgatr.layers import CONSTANTS, EquiLinear, GradeDropout, primitives_of

Heads = tuple[Array, Optional[Array]]
"""Multivectors ``[16, groups, channels, heads, rows]`` and scalars ``[groups, heads, rows, channels]``."""


def _heads(x: Features, groups: int, mv_channels: int, s_channels: int, heads: int) -> Heads:
    """Channels ``(groups, channels, heads)`` taken apart."""
    mv = x.mv.reshape(x.mv.shape[0], groups, mv_channels, heads, x.mv.shape[2])
    if x.s is None or s_channels == 0:
        return mv, None
    return mv, x.s.reshape(groups, s_channels, heads, x.s.shape[1]).transpose(0, 2, 3, 1)


def _normalized(heads: Heads, x: Features, query: Optional[int] = None) -> Heads:
    """Each head's features divided by their norm, and those of one group turned into queries: the inner product of multivectors is then
    that of their components."""
    mv, s = heads
    epsilon, gain = CONSTANTS
    factor = scales(mv, x.blades, epsilon, gain=gain, axis=2)
    if query is not None:
        ones = (1.0,) * len(x.blades.factors)
        by_group = tuple(zip(*[x.blades.factors if g == query else ones for g in range(mv.shape[1])]))
        factor = factor * jnp.asarray(by_group, factor.dtype)[:, :, None, None, None]
    return (mv * factor).astype(mv.dtype), None if s is None else layer_norm(s, -1)


def _attended(
    q: Array, k: Array, v: Array, x: Features, channels: int, scale: Optional[Array], options: dict[str, Any]
) -> Features:
    """Attention of heads' matrices, each head's result times its scale, as features with the heads' channels behind one another."""
    h = weigh(q, k, v, x.shape, options)
    if scale is not None:
        h = h * scale[:, None, None]
    mv, s = planes_of_heads(h, x.blades.size, channels)
    return x.with_(mv, s if s.shape[0] else None)


class _Attention(Definition):
    """What both kinds of attention share: what comes behind them."""

    _inner: dict[str, EquiLinear]

    def _become(self, config: Any, primitives: Any) -> None:
        self._config = config
        self._sizes = config.hidden_mv_channels, config.hidden_s_channels
        mv, s = self._sizes
        self._out = EquiLinear(
            mv * config.num_heads,
            config.out_mv_channels,
            primitives,
            in_s_channels=s * config.num_heads,
            out_s_channels=config.out_s_channels,
            initialization=config.output_init,
        )
        self._dropout = GradeDropout(config.dropout_prob or 0.0)

    def _parameters(self, made: Draws) -> Parameters:
        parameters: dict[str, Any] = self._of_inputs(made)
        parameters["out_linear"] = self._out._parameters(made)
        if self._config.head_scale:
            parameters["head_scale"] = made.filled((self._config.num_heads,), 1.0)
        return parameters

    def _of_inputs(self, made: Draws) -> dict[str, Any]:
        return {name: layer._parameters(made) for name, layer in self._inner.items()}

    def _left(self, p: Parameters, h: Features, key: Optional[Array]) -> Features:
        return self._dropout.run({}, self._out.run(p["out_linear"], h), key)


class SelfAttention(_Attention):
    """Attention between the items of one set: by the inner products of multivectors and those of scalars.

    Args:
        config: channels, heads and the rest, a :class:`SelfAttentionConfig`.
        primitives: a :class:`PrimitivesConfig`.

    Parameters: those of ``qkv_module`` and ``out_linear``, and ``head_scale`` ``[heads]`` if there is one.
    """

    def __init__(self, config: Any, primitives: Any = None) -> None:
        config, primitives = SelfAttentionConfig.cast(config), primitives_of(primitives)
        self._become(config, primitives)
        mv, s = self._sizes
        more = config.additional_qk_mv_channels, config.additional_qk_s_channels

        def linear(count: int, extra: tuple[int, int]) -> EquiLinear:
            in_mv, in_s = config.in_mv_channels + extra[0], config.in_s_channels + extra[1]
            return EquiLinear(in_mv, count * mv, primitives, in_s, count * s, bias=False)

        if config.multi_query:
            self._inner = {
                "q_linear": linear(config.num_heads, more),
                "k_linear": linear(1, more),
                "v_linear": linear(1, (0, 0)),
            }
        else:
            self._inner = {"in_linear": linear(3 * config.num_heads, more)}

    def _of_inputs(self, made: Draws) -> dict[str, Any]:
        return {"qkv_module": super()._of_inputs(made)}

    def run(
        self,
        p: Parameters,
        x: Features,
        extra: Optional[Features] = None,
        options: Optional[dict[str, Any]] = None,
        key: Optional[Array] = None,
    ) -> Features:
        """Attention on planes; queries and keys are made of the extra features too."""
        count, own, more = self._config.num_heads, p["qkv_module"], x.beside(extra)
        if self._config.multi_query:
            parts = []
            for name, heads, given in (("q", count, more), ("k", 1, more), ("v", 1, x)):
                y = self._inner[f"{name}_linear"].run(own[f"{name}_linear"], given)
                split = _normalized(_heads(y, 1, *self._sizes, heads), x, 0 if name == "q" else None)
                parts.append(rows_of_heads(*split, x.shape)[0])
            q, k, v = parts
        else:
            y = self._inner["in_linear"].run(own["in_linear"], more)
            q, k, v = rows_of_heads(*_normalized(_heads(y, 3, *self._sizes, count), x, 0), x.shape)
        h = _attended(q, k, v, x, self._sizes[0], p.get("head_scale"), options or {})
        return self._left(p, h, key)

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        scalars: Optional[Array] = None,
        additional_qk_features_mv: Optional[Array] = None,
        additional_qk_features_s: Optional[Array] = None,
        *,
        key: Optional[Array] = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., items, channels, 16]``.
            scalars: ``[..., items, channels]``.
            additional_qk_features_mv: multivectors beside them for queries and keys.
            additional_qk_features_s: scalars beside them for queries and keys.
            key: of what dropout drops; nothing is dropped without one.
            attn_kwargs: of the attention, such as ``attn_mask`` (see :func:`~gradewise.jax.lgatr.sdp_attention`).
        """
        x = enter(SPACETIME, multivectors, scalars, "SelfAttention")
        extra = None
        if additional_qk_features_mv is not None or additional_qk_features_s is not None:
            none = jnp.zeros((*x.shape, 0, 16), x.mv.dtype)
            mv = none if additional_qk_features_mv is None else additional_qk_features_mv
            extra = enter(SPACETIME, mv, additional_qk_features_s, "additional_qk_features")
        return self.run(parameters, x, extra, attn_kwargs, key).leave()


class CrossAttention(_Attention):
    """Attention of one set of items to another.

    Args:
        config: channels, heads and the rest, a :class:`CrossAttentionConfig`.
        primitives: a :class:`PrimitivesConfig`.

    Parameters: those of ``q_linear``, ``kv_linear`` and ``out_linear``, and ``head_scale`` ``[heads]`` if there is one.
    """

    def __init__(self, config: Any, primitives: Any = None) -> None:
        config, primitives = CrossAttentionConfig.cast(config), primitives_of(primitives)
        self._become(config, primitives)
        mv, s = self._sizes
        heads = config.num_heads
        self._shared = shared = 1 if config.multi_query else heads
        q = (config.q_mv_channels, mv * heads, primitives, config.q_s_channels, s * heads)
        kv = (config.kv_mv_channels, 2 * mv * shared, primitives, config.kv_s_channels, 2 * s * shared)
        self._inner = {"q_linear": EquiLinear(*q, bias=False), "kv_linear": EquiLinear(*kv, bias=False)}

    def run(
        self,
        p: Parameters,
        x: Features,
        kv: Features,
        options: Optional[dict[str, Any]] = None,
        key: Optional[Array] = None,
    ) -> Features:
        """Attention on planes."""
        q = _heads(self._inner["q_linear"].run(p["q_linear"], x), 1, *self._sizes, self._config.num_heads)
        both = _heads(self._inner["kv_linear"].run(p["kv_linear"], kv), 2, *self._sizes, self._shared)
        (queries,) = rows_of_heads(*_normalized(q, x, 0), x.shape)
        keys, values = rows_of_heads(*_normalized(both, kv), kv.shape)
        h = _attended(queries, keys, values, x, self._sizes[0], p.get("head_scale"), options or {})
        return self._left(p, h, key)

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors_q: Array,
        multivectors_kv: Array,
        scalars_q: Optional[Array] = None,
        scalars_kv: Optional[Array] = None,
        *,
        key: Optional[Array] = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            parameters: as ``init`` gives them.
            multivectors_q: of the items that attend, ``[..., items, channels, 16]``.
            multivectors_kv: of those attended to, ``[..., other items, channels, 16]``.
            scalars_q: ``[..., items, channels]``.
            scalars_kv: ``[..., other items, channels]``.
            key: of what dropout drops; nothing is dropped without one.
            attn_kwargs: of the attention, such as ``attn_mask``.
        """
        x = enter(SPACETIME, multivectors_q, scalars_q, "CrossAttention")
        kv = enter(SPACETIME, multivectors_kv, scalars_kv, "CrossAttention, keys and values")
        return self.run(parameters, x, kv, attn_kwargs, key).leave()
