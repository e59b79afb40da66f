"""Self-attention and cross-attention of multivectors and scalars."""

from __future__ import annotations

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise.torch._transformers.algebra import SPACETIME, constant
from gradewise.torch._transformers.attention import batch, planes_of_heads, rows_of_heads, weigh
from gradewise.torch._transformers.features import Features, Layer, Pair, extra_features, is_own, run
from gradewise.torch._transformers.norm import scales
from gradewise.torch._transformers.precision import island
from gradewise.torch.lgatr.config import CrossAttentionConfig, PrimitivesConfig, SelfAttentionConfig
from gradewise.torch.lgatr.layers.linear import EquiLinear
from gradewise.torch.lgatr.layers.norm import EquiLayerNorm, GradeDropout

Heads = tuple[Tensor, Optional[Tensor]]
"""Multivectors ``[16, groups, channels, heads, rows]`` and scalars ``[groups, heads, rows, channels]``."""


def _heads(x: Features, groups: int, mv_channels: int, s_channels: int, heads: int) -> Heads:
    """Channels ``(groups, channels, heads)`` taken apart."""
    mv = x.mv.view(x.mv.shape[0], groups, mv_channels, heads, x.mv.shape[2])
    if x.s is None or s_channels == 0:
        return mv, None
    return mv, x.s.reshape(groups, s_channels, heads, x.s.shape[1]).permute(0, 2, 3, 1)


def _normalized(norm: nn.Module, heads: Heads, x: Features, query: Optional[int] = None) -> Heads:
    """Each head's features divided by their norm, and those of one group turned into queries: the inner product of multivectors is then
    that of their components."""
    mv, s = heads
    signs = None
    if query is not None:
        ones = (1.0,) * len(x.blades.factors)
        by_group = tuple(zip(*[x.blades.factors if g == query else ones for g in range(mv.shape[1])]))
        signs = constant(by_group, mv)[:, :, None, None, None]
    if is_own(norm, EquiLayerNorm) and norm.weight_mv is None and norm.mv_channel_dim == -2:
        epsilon, gain = norm._constants
        scale = scales(mv, x.blades, epsilon, gain=gain, axis=2)
        s = None if s is None else F.layer_norm(s, s.shape[-1:])
        factor = scale if signs is None else scale * signs
        return (mv * factor).to(mv.dtype), s
    groups, channels, count, rows = mv.shape[1:]
    shape = (groups, count, *x.shape)
    flat = Features(
        mv.transpose(1, 2).reshape(mv.shape[0], channels, groups * count * rows),
        None if s is None else s.flatten(0, 2).t(),
        shape,
        x.blades,
    )
    made = run(norm, EquiLayerNorm, flat)
    mv = made.mv.view(mv.shape[0], channels, groups, count, rows).transpose(1, 2)
    s = None if s is None else made.s.t().reshape(s.shape)
    return (mv if signs is None else mv * signs), s


def _published(heads: Heads, group: int, x: Features) -> Pair:
    """A group's heads as ``[..., heads, items, channels, 16]`` and ``[..., heads, items, channels]``."""
    mv, s = heads
    lead = len(x.shape) - 1
    _, _, channels, count, rows = mv.shape
    planes = mv[:, group].reshape(mv.shape[0], channels, count * rows)
    shown = x.blades.leave(planes).view(count, *x.shape, channels, mv.shape[0]).movedim(0, lead)
    return shown, None if s is None else s[group].reshape(count, *x.shape, s.shape[-1]).movedim(0, lead)


class QKVModule(Layer):
    """Queries, keys and values from one map, normalised.

    Args:
        config: a :class:`SelfAttentionConfig`.
        primitives: a :class:`PrimitivesConfig`.
    """

    _blades = SPACETIME

    def __init__(self, config: Any, primitives: Any = None) -> None:
        super().__init__()
        config = SelfAttentionConfig.cast(config)
        self.in_linear = EquiLinear(
            config.in_mv_channels + config.additional_qk_mv_channels,
            3 * config.hidden_mv_channels * config.num_heads,
            primitives,
            in_s_channels=config.in_s_channels + config.additional_qk_s_channels,
            out_s_channels=3 * config.hidden_s_channels * config.num_heads,
            bias=False,
        )
        self.norm_qkv = EquiLayerNorm()
        self.config = config

    def _project(self, x: Features, extra: Optional[Features], as_query: bool) -> list[Heads]:
        c = self.config
        y = run(self.in_linear, EquiLinear, x.beside(extra))
        heads = _heads(y, 3, c.hidden_mv_channels, c.hidden_s_channels, c.num_heads)
        return [_normalized(self.norm_qkv, heads, x, 0 if as_query else None)]

    def forward(
        self,
        multivectors: Tensor,
        scalars: Optional[Tensor] = None,
        additional_qk_features_mv: Optional[Tensor] = None,
        additional_qk_features_s: Optional[Tensor] = None,
    ) -> tuple[Optional[Tensor], ...]:
        """Queries, keys and values of multivectors, ``[..., heads, items, channels, 16]``, and then of scalars."""
        x = self._enter(multivectors, scalars)
        extra = extra_features(x, additional_qk_features_mv, additional_qk_features_s)
        made = self._project(x, extra, as_query=False)
        pairs = [_published(h, g, x) for h in made for g in range(h[0].shape[1])]
        return (*(mv for mv, _ in pairs), *(s for _, s in pairs))


class MultiQueryQKVModule(QKVModule):
    """Queries for each head, and keys and values that all heads share, normalised.

    Args:
        config: a :class:`SelfAttentionConfig`.
        primitives: a :class:`PrimitivesConfig`.
    """

    def __init__(self, config: Any, primitives: Any = None) -> None:
        nn.Module.__init__(self)
        config = SelfAttentionConfig.cast(config)
        mv, s = config.hidden_mv_channels, config.hidden_s_channels
        more = (config.additional_qk_mv_channels, config.additional_qk_s_channels)

        def linear(heads: int, extra: tuple[int, int]) -> EquiLinear:
            return EquiLinear(
                config.in_mv_channels + extra[0],
                mv * heads,
                primitives,
                in_s_channels=config.in_s_channels + extra[1],
                out_s_channels=s * heads,
                bias=False,
            )

        self.q_linear = linear(config.num_heads, more)
        self.k_linear = linear(1, more)
        self.v_linear = linear(1, (0, 0))
        self.norm_qkv = EquiLayerNorm()
        self.config = config

    def _project(self, x: Features, extra: Optional[Features], as_query: bool) -> list[Heads]:
        c = self.config
        made = []
        for name, heads in (("q", c.num_heads), ("k", 1), ("v", 1)):
            y = run(getattr(self, f"{name}_linear"), EquiLinear, x if name == "v" else x.beside(extra))
            split = _heads(y, 1, c.hidden_mv_channels, c.hidden_s_channels, heads)
            made.append(_normalized(self.norm_qkv, split, x, 0 if as_query and name == "q" else None))
        return made


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, x: Features, mv_channels: int, scale: Optional[Tensor], options: dict
) -> Features:
    """Attention of heads' matrices, each head's result times its scale, as features with the heads' channels behind one another."""
    with island() as wide:
        h = weigh(wide(queries), wide(keys), wide(values), **options)
    if scale is not None:
        h = h * scale[:, None, None]
    mv, s = planes_of_heads(h, x.blades.size, mv_channels)
    return x.with_(mv, s if s.shape[0] else None)


class SelfAttention(Layer):
    """Attention between the items of one set: by the inner products of multivectors and those of scalars.

    Args:
        config: channels, heads and the rest, a :class:`SelfAttentionConfig`.
        primitives: a :class:`PrimitivesConfig`.

    Parameters: those of ``qkv_module`` and ``out_linear``, and ``head_scale`` ``[heads]`` if there is one.
    """

    _blades = SPACETIME

    def __init__(self, config: Any, primitives: Any = None) -> None:
        super().__init__()
        config = SelfAttentionConfig.cast(config)
        primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        self.qkv_module = (MultiQueryQKVModule if config.multi_query else QKVModule)(config, primitives)
        self.out_linear = EquiLinear(
            config.hidden_mv_channels * config.num_heads,
            config.out_mv_channels,
            primitives,
            in_s_channels=config.hidden_s_channels * config.num_heads,
            out_s_channels=config.out_s_channels,
            initialization=config.output_init,
        )
        self.dropout = None if config.dropout_prob is None else GradeDropout(config.dropout_prob)
        self.use_head_scale = config.head_scale
        if config.head_scale:
            self.head_scale = nn.Parameter(torch.ones(config.num_heads))

    def _run(self, x: Features, extra: Optional[Features] = None, options: Optional[dict] = None) -> Features:
        options = dict(options or {})
        module = self.qkv_module
        shape = batch(x.shape, options)
        if is_own(module, MultiQueryQKVModule if isinstance(module, MultiQueryQKVModule) else QKVModule):
            made = module._project(x, extra, as_query=True)
            channels = made[0][0].shape[2]
            if len(made) == 1:
                q, k, v = rows_of_heads(*made[0], shape).unbind(0)
            else:
                q, k, v = (rows_of_heads(*heads, shape)[0] for heads in made)
        else:
            q, k, v, channels = self._called(x, extra, shape)
        h = attend(q, k, v, x, channels, self.head_scale if self.use_head_scale else None, options)
        h = run(self.out_linear, EquiLinear, h)
        return h if self.dropout is None else run(self.dropout, GradeDropout, h)

    def _called(
        self, x: Features, extra: Optional[Features], shape: tuple[int, ...]
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        """Queries, keys and values from a module that is not what it was made as."""
        mv, s = x.leave()
        more = (None, None) if extra is None else extra.leave()
        *mvs, q_s, k_s, v_s = self.qkv_module(mv, s, *more)
        made = []
        for number, (m, part) in enumerate(zip(mvs, (q_s, k_s, v_s))):
            m = m.index_select(-1, torch.tensor(x.blades.order, device=m.device)).transpose(-1, -2)
            m = (
                m
                * constant(
                    tuple(a * b for a, b in zip(x.blades.signs, x.blades.factors if number == 0 else (1.0,) * 16)), m
                )[:, None]
            )
            whole = m.flatten(-2) if part is None else torch.cat((m.flatten(-2), part), -1)
            made.append(whole.reshape(*shape[:-1], *whole.shape[-3:]))
        return (*made, mvs[2].shape[-2])

    @staticmethod
    def _call(module: nn.Module, x: Features, extra: Optional[Features] = None, options: Optional[dict] = None) -> Pair:
        mv, s = x.leave()
        more = (None, None) if extra is None else extra.leave()
        return module(
            mv, scalars=s, additional_qk_features_mv=more[0], additional_qk_features_s=more[1], **(options or {})
        )

    def forward(
        self,
        multivectors: Tensor,
        scalars: Optional[Tensor] = None,
        additional_qk_features_mv: Optional[Tensor] = None,
        additional_qk_features_s: Optional[Tensor] = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            multivectors: ``[..., items, channels, 16]``.
            scalars: ``[..., items, channels]``.
            additional_qk_features_mv: multivectors beside them for queries and keys.
            additional_qk_features_s: scalars beside them for queries and keys.
            attn_kwargs: of the attention, such as ``attn_mask`` (see :func:`~gradewise.torch.lgatr.primitives.sdp_attention`).
        """
        x = self._enter(multivectors, scalars)
        return self._run(x, extra_features(x, additional_qk_features_mv, additional_qk_features_s), attn_kwargs).leave()


class CrossAttention(Layer):
    """Attention of one set of items to another.

    Args:
        config: channels, heads and the rest, a :class:`CrossAttentionConfig`.
        primitives: a :class:`PrimitivesConfig`.

    Parameters: those of ``q_linear``, ``kv_linear`` and ``out_linear``, and ``head_scale`` ``[heads]`` if there is one.
    """

    _blades = SPACETIME

    def __init__(self, config: Any, primitives: Any = None) -> None:
        super().__init__()
        self.config = config = CrossAttentionConfig.cast(config)
        primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        mv, s, heads = config.hidden_mv_channels, config.hidden_s_channels, config.num_heads
        shared = 1 if config.multi_query else heads
        self.q_linear = EquiLinear(
            config.q_mv_channels, mv * heads, primitives, config.q_s_channels, s * heads, bias=False
        )
        self.kv_linear = EquiLinear(
            config.kv_mv_channels, 2 * mv * shared, primitives, config.kv_s_channels, 2 * s * shared, bias=False
        )
        self.out_linear = EquiLinear(
            mv * heads,
            config.out_mv_channels,
            primitives,
            in_s_channels=s * heads,
            out_s_channels=config.out_s_channels,
            initialization=config.output_init,
        )
        self.norm = EquiLayerNorm()
        self.dropout = None if config.dropout_prob is None else GradeDropout(config.dropout_prob)
        self.use_head_scale = config.head_scale
        if config.head_scale:
            self.head_scale = nn.Parameter(torch.ones(heads))

    def _run(self, x: Features, kv: Features, options: Optional[dict] = None) -> Features:
        options = dict(options or {})
        c = self.config
        mv, s, heads = c.hidden_mv_channels, c.hidden_s_channels, c.num_heads
        q = _heads(run(self.q_linear, EquiLinear, x), 1, mv, s, heads)
        both = _heads(run(self.kv_linear, EquiLinear, kv), 2, mv, s, 1 if c.multi_query else heads)
        queries = rows_of_heads(*_normalized(self.norm, q, x, 0), batch(x.shape, options))[0]
        keys, values = rows_of_heads(*_normalized(self.norm, both, kv), batch(kv.shape, options)).unbind(0)
        h = attend(queries, keys, values, x, mv, self.head_scale if self.use_head_scale else None, options)
        h = run(self.out_linear, EquiLinear, h)
        return h if self.dropout is None else run(self.dropout, GradeDropout, h)

    @staticmethod
    def _call(module: nn.Module, x: Features, kv: Features, options: Optional[dict] = None) -> Pair:
        (mv, s), (mv_kv, s_kv) = x.leave(), kv.leave()
        return module(multivectors_q=mv, multivectors_kv=mv_kv, scalars_q=s, scalars_kv=s_kv, **(options or {}))

    def forward(
        self,
        multivectors_q: Tensor,
        multivectors_kv: Tensor,
        scalars_q: Optional[Tensor] = None,
        scalars_kv: Optional[Tensor] = None,
        **attn_kwargs: Any,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``, None if there are none.

        Args:
            multivectors_q: of the items that attend, ``[..., items, channels, 16]``.
            multivectors_kv: of those attended to, ``[..., other items, channels, 16]``.
            scalars_q: ``[..., items, channels]``.
            scalars_kv: ``[..., other items, channels]``.
            attn_kwargs: of the attention, such as ``attn_mask``.
        """
        x, kv = self._enter(multivectors_q, scalars_q), self._enter(multivectors_kv, scalars_kv)
        return self._run(x, kv, attn_kwargs).leave()
