"""Self-attention and cross-attention by inner products and by distances of points."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise.torch._transformers.algebra import PROJECTIVE
from gradewise.torch._transformers.features import (
    Features,
    Layer,
    Pair,
    enter,
    extra_features,
    is_own,
    is_without_hooks,
    run,
)
from gradewise.torch.gatr.config import SelfAttentionConfig
from gradewise.torch.gatr.layers.geometric import GeometricAttention, Heads, heads_of, published
from gradewise.torch.gatr.layers.linear import EquiLinear
from gradewise.torch.gatr.layers.norm import GradeDropout
from gradewise.torch.gatr.layers.rotary import ApplyRotaryPositionalEncoding


def split(x: Features, groups: int, mv_channels: int, s_channels: int, heads: int) -> list[Heads]:
    """Channels ``(groups, channels, heads)`` taken apart: for each group planes ``[16, channels, heads, rows]`` and scalars ``[heads, rows,
    channels]``."""
    mv = x.mv.view(x.mv.shape[0], groups, mv_channels, heads, x.mv.shape[2])
    s = None if x.s is None else x.s.reshape(groups, s_channels, heads, x.s.shape[1]).permute(0, 2, 3, 1)
    return [(mv[:, group], None if s is None else s[group]) for group in range(groups)]


class QKVModule(Layer):
    """Queries, keys and values from one map.

    Args:
        config: a :class:`SelfAttentionConfig`.
    """

    _blades = PROJECTIVE

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config = SelfAttentionConfig.cast(config)
        mv, s = _inputs(config)
        self.in_linear = EquiLinear(
            mv + config.additional_qk_mv_channels,
            3 * config.hidden_mv_channels * config.num_heads,
            s + config.additional_qk_s_channels,
            3 * config.hidden_s_channels * config.num_heads,
        )

    def _project(self, x: Features, extra: Optional[Features]) -> list[Heads]:
        c = self.config
        y = run(self.in_linear, EquiLinear, x.beside(extra))
        return split(y, 3, c.hidden_mv_channels, c.hidden_s_channels, c.num_heads)

    def forward(
        self,
        inputs: Tensor,
        scalars: Optional[Tensor],
        additional_qk_features_mv: Optional[Tensor] = None,
        additional_qk_features_s: Optional[Tensor] = None,
    ) -> tuple[Optional[Tensor], ...]:
        """Queries, keys and values of multivectors, ``[..., heads, items, channels, 16]``, and then of scalars."""
        x = self._enter(inputs, scalars)
        made = self._project(x, extra_features(x, additional_qk_features_mv, additional_qk_features_s))
        pairs = [published(heads, x) for heads in made]
        return (*(mv for mv, _ in pairs), *(s for _, s in pairs))


class MultiQueryQKVModule(QKVModule):
    """Queries for each head, and keys and values that all heads share.

    Args:
        config: a :class:`SelfAttentionConfig`.
    """

    def __init__(self, config: Any) -> None:
        nn.Module.__init__(self)
        self.config = config = SelfAttentionConfig.cast(config)
        in_mv, in_s = _inputs(config)
        mv, s = config.hidden_mv_channels, config.hidden_s_channels
        more_mv, more_s = config.additional_qk_mv_channels, config.additional_qk_s_channels
        self.q_linear = EquiLinear(in_mv + more_mv, mv * config.num_heads, in_s + more_s, s * config.num_heads)
        self.k_linear = EquiLinear(in_mv + more_mv, mv, in_s + more_s, s)
        self.v_linear = EquiLinear(in_mv, mv, in_s, s)

    def _project(self, x: Features, extra: Optional[Features]) -> list[Heads]:
        c = self.config
        more = x.beside(extra)
        made = []
        for name, heads, inputs in (("q", c.num_heads, more), ("k", 1, more), ("v", 1, x)):
            y = run(getattr(self, f"{name}_linear"), EquiLinear, inputs)
            made += split(y, 1, c.hidden_mv_channels, c.hidden_s_channels, heads)
        return made


def _inputs(config: SelfAttentionConfig) -> tuple[int, int]:
    if config.in_mv_channels is None or config.in_s_channels is None:
        raise ArgumentError(
            f"SelfAttentionConfig: in_mv_channels {config.in_mv_channels}, in_s_channels {config.in_s_channels}, expected numbers: "
            "attention needs scalars too; make the model with hidden_s_channels"
        )
    return config.in_mv_channels, config.in_s_channels


def _out(config: SelfAttentionConfig) -> EquiLinear:
    return EquiLinear(
        config.hidden_mv_channels * config.num_heads,
        config.out_mv_channels,
        None if config.in_s_channels is None else config.hidden_s_channels * config.num_heads,
        config.out_s_channels,
        initialization=config.output_init,
    )


class SelfAttention(Layer):
    """Attention between the items of one set.

    Args:
        config: a :class:`SelfAttentionConfig` or a dict.

    Parameters: those of ``qkv_module``, ``attention`` and ``out_linear``.
    """

    _blades = PROJECTIVE

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config = SelfAttentionConfig.cast(config)
        self.qkv_module = (MultiQueryQKVModule if config.multi_query else QKVModule)(config)
        self.out_linear = _out(config)
        self.pos_encoding: nn.Module = nn.Identity()
        if config.pos_encoding:
            self.pos_encoding = ApplyRotaryPositionalEncoding(
                config.hidden_s_channels, item_dim=-2, base=config.pos_enc_base
            )
        self.attention = GeometricAttention(config)
        self.dropout = None if config.dropout_prob is None else GradeDropout(config.dropout_prob)

    def _run(self, x: Features, extra: Optional[Features] = None, mask: Any = None) -> Features:
        module = self.qkv_module
        own = is_own(module, MultiQueryQKVModule if isinstance(module, MultiQueryQKVModule) else QKVModule)
        if own:
            q, k, v = module._project(x, extra)
        else:
            mv, s = x.leave()
            made = module(mv, s, *((None, None) if extra is None else extra.leave()))
            q, k, v = (heads_of(m, part) for m, part in zip(made[:3], made[3:]))
        h = self._attend(q, k, v, x, mask)
        h = run(self.out_linear, EquiLinear, h)
        return h if self.dropout is None else run(self.dropout, GradeDropout, h)

    def _attend(self, q: Heads, k: Heads, v: Heads, x: Features, mask: Any) -> Features:
        """The heads' results behind one another."""
        q, k = ((mv, self._placed(s, x)) for mv, s in (q, k))
        if is_own(self.attention, GeometricAttention):
            return self.attention._weigh(q, k, v, x, x.shape, mask)
        pairs = [published(heads, x) for heads in (q, k, v)]
        mv, s = self.attention(*(m for m, _ in pairs), *(p for _, p in pairs), attention_mask=mask)
        return enter(x.blades, mv.transpose(-4, -3).flatten(-3, -2), s.transpose(-3, -2).flatten(-2), "attention")

    def _placed(self, s: Optional[Tensor], x: Features) -> Optional[Tensor]:
        """Scalars of heads ``[heads, rows, channels]``, rotated by the number of their item."""
        encoding = self.pos_encoding
        if s is None or (type(encoding) is nn.Identity and is_without_hooks(encoding)):
            return s
        return encoding(s.unflatten(1, x.shape)).reshape(s.shape)

    @staticmethod
    def _call(module: nn.Module, x: Features, extra: Optional[Features] = None, mask: Any = None) -> Pair:
        mv, s = x.leave()
        more = (None, None) if extra is None else extra.leave()
        return module(
            mv,
            scalars=s,
            additional_qk_features_mv=more[0],
            additional_qk_features_s=more[1],
            attention_mask=mask,
        )

    def forward(
        self,
        multivectors: Tensor,
        additional_qk_features_mv: Optional[Tensor] = None,
        scalars: Optional[Tensor] = None,
        additional_qk_features_s: Optional[Tensor] = None,
        attention_mask: Any = None,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``.

        Args:
            multivectors: ``[..., items, in, 16]``.
            additional_qk_features_mv: multivectors beside them for queries and keys.
            scalars: ``[..., items, in]``.
            additional_qk_features_s: scalars beside them for queries and keys.
            attention_mask: see :class:`GeometricAttention`.
        """
        x = self._enter(multivectors, scalars)
        extra = extra_features(x, additional_qk_features_mv, additional_qk_features_s)
        return self._run(x, extra, attention_mask).leave()


class CrossAttention(Layer):
    """Attention of one set of items to another, whose keys and values all heads share.

    Args:
        config: a :class:`SelfAttentionConfig` or a dict; its inputs are those of keys and values.
        in_q_mv_channels: multivectors that queries are made of.
        in_q_s_channels: scalars that queries are made of.
    """

    _blades = PROJECTIVE

    def __init__(self, config: Any, in_q_mv_channels: int, in_q_s_channels: Optional[int] = None) -> None:
        super().__init__()
        self.config = config = SelfAttentionConfig.cast(config)
        for option, is_there in (
            ("multi_query=False", not config.multi_query),
            ("additional channels", config.additional_qk_mv_channels > 0 or config.additional_qk_s_channels > 0),
            ("pos_encoding", config.pos_encoding),
        ):
            if is_there:
                raise ArgumentError(
                    f"CrossAttention: {option} in its options, which the published layer does not have: leave it out"
                )
        in_mv, in_s = _inputs(config)
        mv, s = config.hidden_mv_channels, config.hidden_s_channels
        self.q_linear = EquiLinear(in_q_mv_channels, mv * config.num_heads, in_q_s_channels, s * config.num_heads)
        self.k_linear = EquiLinear(in_mv, mv, in_s, s)
        self.v_linear = EquiLinear(in_mv, mv, in_s, s)
        self.out_linear = _out(config)
        self.attention = GeometricAttention(config)
        self.dropout = None if config.dropout_prob is None else GradeDropout(config.dropout_prob)

    def _run(self, x: Features, kv: Features, mask: Any = None) -> Features:
        c = self.config
        sizes = (c.hidden_mv_channels, c.hidden_s_channels)
        (q,) = split(run(self.q_linear, EquiLinear, x), 1, *sizes, c.num_heads)
        (k,) = split(run(self.k_linear, EquiLinear, kv), 1, *sizes, 1)
        (v,) = split(run(self.v_linear, EquiLinear, kv), 1, *sizes, 1)
        h = run(self.out_linear, EquiLinear, self.attention._weigh(q, k, v, x, kv.shape, mask))
        return h if self.dropout is None else run(self.dropout, GradeDropout, h)

    def forward(
        self,
        multivectors_kv: Tensor,
        multivectors_q: Tensor,
        scalars_kv: Optional[Tensor] = None,
        scalars_q: Optional[Tensor] = None,
        attention_mask: Any = None,
    ) -> Pair:
        """Multivectors ``[..., items, out, 16]`` and scalars ``[..., items, out]``.

        Args:
            multivectors_kv: of the items attended to, ``[..., other items, channels, 16]``.
            multivectors_q: of those that attend, ``[..., items, channels, 16]``.
            scalars_kv: ``[..., other items, channels]``.
            scalars_q: ``[..., items, channels]``.
            attention_mask: see :class:`GeometricAttention`.
        """
        x, kv = self._enter(multivectors_q, scalars_q), self._enter(multivectors_kv, scalars_kv)
        return self._run(x, kv, attention_mask).leave()
