"""Self-attention and cross-attention by inner products and by distances of points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Optional

import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._errors import ArgumentError
from gradewise._transformers.algebra import POINT_WEIGHT, PROJECTIVE
from gradewise._transformers.gatr import SelfAttentionConfig
from gradewise.jax._transformers.attention import planes_of_heads, rows_of_heads, weigh
from gradewise.jax._transformers.definition import Constant, Definition, Draws, Parameters, exact, wide
from gradewise.jax._transformers.features import Features, Pair, enter
from gradewise.jax.gatr.layers import EquiLinear, GradeDropout

Heads = tuple[Array, Optional[Array]]
"""Multivectors as planes ``[16, channels, heads, rows]`` and scalars ``[heads, rows, channels]``."""

_INNER = np.asarray(
    [p for p, factor in enumerate(PROJECTIVE.factors) if factor and PROJECTIVE.order[p] != POINT_WEIGHT]
)
"""The planes whose components make the inner product, less the weight of points, which distances have in them."""
_POINT = np.asarray(PROJECTIVE.planes(11, 12, 13))
_WEIGHT = PROJECTIVE.planes(POINT_WEIGHT)[0]


def divided_by_square(weight: Array, epsilon: float = 1e-3) -> Array:
    """w / (w² + epsilon): nearly the inverse of a point's weight, and no trouble where that is 0."""
    return weight / (weight * weight + epsilon)


def distances(mv: Array, normalizer: Callable[[Array], Array], is_query: bool) -> Array:
    """Five features of points whose products of queries and keys are minus their squared distances: ``[5, channels, heads, rows]``.

    Points are multiplied by the normalizer of their weight. For normalised points p, p' of weights u, u' the sum is -(u'p - u p')², and
    bilinear in (p², u², u p) and (-u'², -p'², 2 u' p').
    """
    weight = mv[_WEIGHT]
    scale = jnp.asarray(normalizer(wide(weight)), weight.dtype)
    point, weight = mv[_POINT] * scale, weight * scale
    square, own, mixed = (point * point).sum(0)[None], (weight * weight)[None], point * weight
    return jnp.concatenate((square, own, mixed) if is_query else (-own, -square, 2 * mixed))


def weighed(
    q: Heads,
    k: Heads,
    v: Heads,
    shapes: Sequence[tuple[int, ...]],
    normalizer: Callable[[Array], Array],
    weights: Optional[Array],
    mask: Optional[Array],
) -> Array:
    """The heads' results ``[rows before the items, heads, items, 16 · channels + scalars]``, for queries and for keys and values of rows of
    these shapes, and weights of distances ``[channels, heads, 1]``."""
    far = distances(q[0], normalizer, is_query=True)
    if weights is not None:
        far = far * weights.astype(far.dtype)
    queries = jnp.concatenate((q[0][_INNER], far))
    keys = jnp.concatenate((k[0][_INNER], distances(k[0], normalizer, is_query=False)))

    def rows(mv: Array, s: Optional[Array], shape: tuple[int, ...]) -> Array:
        return rows_of_heads(mv[:, None], None if s is None else s[None], shape)[0]

    parts = rows(queries, q[1], shapes[0]), rows(keys, k[1], shapes[1]), rows(v[0], v[1], shapes[1])
    return weigh(*parts, shapes[0], {"attn_mask": mask})


def frequencies(channels: int, base: float) -> Constant:
    """The frequencies of rotary positions for an even number of channels, in single precision as the published code has them."""
    exponents = np.arange(0, channels, 2, dtype=np.float32) / np.float32(channels)
    return Constant(tuple(map(float, (1.0 / np.float32(base) ** exponents).astype(np.float32))))


def rotated(s: Array, items: int, frequencies: Constant) -> Array:
    """Scalars ``[heads, rows, channels]``, whose rows are ``(..., items)``, in pairs rotated by an angle that grows with the number of
    their item (Su et al. 2021, arXiv:2104.09864)."""
    dtype = wide(s).dtype
    angles = jnp.arange(items, dtype=dtype)[:, None] * jnp.asarray(frequencies.values, dtype)
    cos, sin = jnp.cos(angles).astype(s.dtype), jnp.sin(angles).astype(s.dtype)
    first, second = jnp.split(s.reshape(s.shape[0], -1, items, s.shape[2]), 2, -1)
    return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), -1).reshape(s.shape)


def _split(x: Features, groups: int, mv_channels: int, s_channels: int, heads: int) -> list[Heads]:
    """Channels ``(groups, channels, heads)`` taken apart, for each group."""
    mv = x.mv.reshape(x.mv.shape[0], groups, mv_channels, heads, x.mv.shape[2])
    s = None if x.s is None else x.s.reshape(groups, s_channels, heads, x.s.shape[1]).transpose(0, 2, 3, 1)
    return [(mv[:, group], None if s is None else s[group]) for group in range(groups)]


class _Attention(Definition):
    """What both kinds of attention share."""

    _inner: dict[str, EquiLinear]

    def _become(self, config: SelfAttentionConfig) -> None:
        if config.in_mv_channels is None or config.in_s_channels is None:
            raise ArgumentError(
                f"SelfAttentionConfig: in_mv_channels {config.in_mv_channels}, in_s_channels {config.in_s_channels}, expected numbers: "
                "attention needs scalars too; make the model with hidden_s_channels"
            )
        self._config, self._sizes = config, (config.hidden_mv_channels, config.hidden_s_channels)
        mv, s = self._sizes
        self._out = EquiLinear(
            mv * config.num_heads,
            config.out_mv_channels,
            s * config.num_heads,
            config.out_s_channels,
            initialization=config.output_init,
        )
        self._dropout = GradeDropout(config.dropout_prob or 0.0)

    def _parameters(self, made: Draws) -> Parameters:
        shape = (self._config.num_heads, 1, self._sizes[0])
        return {
            **self._of_inputs(made),
            "out_linear": self._out._parameters(made),
            "attention": {"log_weights": made.filled(shape, 0.0)},
        }

    def _of_inputs(self, made: Draws) -> dict[str, Any]:
        return {name: layer._parameters(made) for name, layer in self._inner.items()}

    def _attended(
        self,
        p: Parameters,
        parts: Sequence[Heads],
        x: Features,
        others: tuple[int, ...],
        mask: Optional[Array],
        key: Optional[Array],
    ) -> Features:
        normalizer = partial(divided_by_square, epsilon=self._config.normalizer_eps)
        weights = jnp.exp(p["attention"]["log_weights"])[:, 0].T[:, :, None]
        h = weighed(*parts, (x.shape, others), normalizer, weights, mask)
        mv, s = planes_of_heads(h, x.blades.size, self._sizes[0])
        return self._dropout.run({}, self._out.run(p["out_linear"], x.with_(mv, s)), key)


class SelfAttention(_Attention):
    """Attention between the items of one set.

    Args:
        config: a :class:`SelfAttentionConfig` or a dict.

    Parameters: those of ``qkv_module``, ``attention`` and ``out_linear``, and the numbers ``inv_freq`` of ``pos_encoding`` if there is one.
    """

    def __init__(self, config: Any) -> None:
        config = SelfAttentionConfig.cast(config)
        self._become(config)
        mv, s = self._sizes
        more_mv, more_s = config.additional_qk_mv_channels, config.additional_qk_s_channels

        def linear(count: int, is_more: bool = True) -> EquiLinear:
            in_mv = config.in_mv_channels + (more_mv if is_more else 0)
            in_s = config.in_s_channels + (more_s if is_more else 0)
            return EquiLinear(in_mv, count * mv, in_s, count * s)

        if config.multi_query:
            self._inner = {"q_linear": linear(config.num_heads), "k_linear": linear(1), "v_linear": linear(1, False)}
        else:
            self._inner = {"in_linear": linear(3 * config.num_heads)}

    def _of_inputs(self, made: Draws) -> dict[str, Any]:
        parameters: dict[str, Any] = {"qkv_module": super()._of_inputs(made)}
        if self._config.pos_encoding:
            parameters["pos_encoding"] = {"inv_freq": frequencies(self._sizes[1], self._config.pos_enc_base)}
        return parameters

    def run(
        self,
        p: Parameters,
        x: Features,
        extra: Optional[Features] = None,
        mask: Optional[Array] = None,
        key: Optional[Array] = None,
    ) -> Features:
        """Attention on planes; queries and keys are made of the extra features too."""
        own, more, count = p["qkv_module"], x.beside(extra), self._config.num_heads
        if self._config.multi_query:
            parts = []
            for name, heads, given in (("q", count, more), ("k", 1, more), ("v", 1, x)):
                y = self._inner[f"{name}_linear"].run(own[f"{name}_linear"], given)
                parts += _split(y, 1, *self._sizes, heads)
        else:
            parts = _split(self._inner["in_linear"].run(own["in_linear"], more), 3, *self._sizes, count)
        if self._config.pos_encoding:
            turn = partial(rotated, items=x.shape[-1], frequencies=p["pos_encoding"]["inv_freq"])
            parts = [(mv, turn(s)) for mv, s in parts[:2]] + parts[2:]
        return self._attended(p, parts, x, x.shape, mask, key)

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors: Array,
        additional_qk_features_mv: Optional[Array] = None,
        scalars: Optional[Array] = None,
        additional_qk_features_s: Optional[Array] = None,
        attention_mask: Optional[Array] = None,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``.

        Args:
            parameters: as ``init`` gives them.
            multivectors: ``[..., items, in, 16]``.
            additional_qk_features_mv: multivectors beside them for queries and keys.
            scalars: ``[..., items, in]``.
            additional_qk_features_s: scalars beside them for queries and keys.
            attention_mask: true where an item attends to another, or what is added to the logits, which broadcasts to ``[..., heads,
                items, other items]``.
            key: of what dropout drops; nothing is dropped without one.
        """
        x = enter(PROJECTIVE, multivectors, scalars, "SelfAttention")
        extra = None
        if additional_qk_features_mv is not None or additional_qk_features_s is not None:
            none = jnp.zeros((*x.shape, 0, 16), x.mv.dtype)
            mv = none if additional_qk_features_mv is None else additional_qk_features_mv
            extra = enter(PROJECTIVE, mv, additional_qk_features_s, "additional_qk_features")
        return self.run(parameters, x, extra, attention_mask, key).leave()


class CrossAttention(_Attention):
    """Attention of one set of items to another, whose keys and values all heads share.

    Args:
        config: a :class:`SelfAttentionConfig` or a dict; its inputs are those of keys and values.
        in_q_mv_channels: multivectors that queries are made of.
        in_q_s_channels: scalars that queries are made of.

    Parameters: those of ``q_linear``, ``k_linear``, ``v_linear``, ``attention`` and ``out_linear``.
    """

    def __init__(self, config: Any, in_q_mv_channels: int, in_q_s_channels: Optional[int] = None) -> None:
        config = SelfAttentionConfig.cast(config)
        for option, is_there in (
            ("multi_query=False", not config.multi_query),
            ("additional channels", config.additional_qk_mv_channels > 0 or config.additional_qk_s_channels > 0),
            ("pos_encoding", config.pos_encoding),
        ):
            if is_there:
                raise ArgumentError(
                    f"CrossAttention: {option} in its options, which the published layer does not have: leave it out"
                )
        self._become(config)
        mv, s = self._sizes
        kv = (config.in_mv_channels, mv, config.in_s_channels, s)
        q = (in_q_mv_channels, mv * config.num_heads, in_q_s_channels, s * config.num_heads)
        self._inner = {"q_linear": EquiLinear(*q), "k_linear": EquiLinear(*kv), "v_linear": EquiLinear(*kv)}

    def run(
        self, p: Parameters, x: Features, kv: Features, mask: Optional[Array] = None, key: Optional[Array] = None
    ) -> Features:
        """Attention on planes."""
        parts = []
        for name, heads, given in (("q", self._config.num_heads, x), ("k", 1, kv), ("v", 1, kv)):
            y = self._inner[f"{name}_linear"].run(p[f"{name}_linear"], given)
            parts += _split(y, 1, *self._sizes, heads)
        return self._attended(p, parts, x, kv.shape, mask, key)

    @exact
    def __call__(
        self,
        parameters: Parameters,
        multivectors_kv: Array,
        multivectors_q: Array,
        scalars_kv: Optional[Array] = None,
        scalars_q: Optional[Array] = None,
        attention_mask: Optional[Array] = None,
        *,
        key: Optional[Array] = None,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``.

        Args:
            parameters: as ``init`` gives them.
            multivectors_kv: of the items attended to, ``[..., other items, channels, 16]``.
            multivectors_q: of those that attend, ``[..., items, channels, 16]``.
            scalars_kv: ``[..., other items, channels]``.
            scalars_q: ``[..., items, channels]``.
            attention_mask: see :class:`SelfAttention`.
            key: of what dropout drops; nothing is dropped without one.
        """
        x = enter(PROJECTIVE, multivectors_q, scalars_q, "CrossAttention")
        kv = enter(PROJECTIVE, multivectors_kv, scalars_kv, "CrossAttention, keys and values")
        return self.run(parameters, x, kv, attention_mask, key).leave()
