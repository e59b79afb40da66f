"""The weights of attention between points, planes and scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch._transformers.algebra import PROJECTIVE, constant, index
from gradewise.torch._transformers.attention import batch, planes_of_heads, rows_of_heads, weigh
from gradewise.torch._transformers.features import Features, Layer
from gradewise.torch._transformers.precision import island
from gradewise.torch.gatr.config import SelfAttentionConfig

Normalizer = Callable[[Tensor], Union[Tensor, float]]
"""What points are multiplied by, for their weights."""

Heads = tuple[Tensor, Optional[Tensor]]
"""Multivectors as planes ``[16, channels, heads, rows]`` and scalars ``[heads, rows, channels]``."""

_INNER = [plane for plane, factor in enumerate(PROJECTIVE.factors) if factor and PROJECTIVE.order[plane] != 14]
"""The planes whose components make the inner product, less the weight of points, which distances have in them."""
_POINT = PROJECTIVE.planes(11, 12, 13)
_WEIGHT = PROJECTIVE.planes(14)[0]
assert [2 * number for number in range(7)] == _INNER, "the inner product is of every other plane"


def distances(mv: Tensor, normalizer: Normalizer, is_query: bool) -> Tensor:
    """Five features of points whose products of queries and keys are minus their squared distances: ``[5, channels, heads, rows]``.

    Points are multiplied by the normalizer of their weight. For normalised points p, p' of
    weights u, u' the sum is -(u'p - u p')², and bilinear in (p², u², u p) and (-u'², -p'², 2 u' p').
    """
    weight = mv[_WEIGHT]
    with island() as wide:
        scale = normalizer(wide(weight))
    if isinstance(scale, Tensor):
        scale = scale.to(weight.dtype)
    point = torch.stack([mv[plane] for plane in _POINT]) * scale
    weight = weight * scale
    square, own = point.square().sum(0), weight.square()
    mixed = point * weight
    if is_query:
        return torch.cat((square[None], own[None], mixed))
    return torch.cat((-own[None], -square[None], 2 * mixed))


def divided_by_square(weight: Tensor, epsilon: float = 1e-3) -> Tensor:
    """w / (w² + epsilon): nearly the inverse of a point's weight, and no trouble where that is 0."""
    return weight / (weight.square() + epsilon)


def heads_of(mv: Tensor, s: Optional[Tensor]) -> Heads:
    """Published heads ``[..., heads, items, channels, 16]`` and ``[..., heads, items, channels]`` as planes."""
    n = mv.dim()
    lead = range(n - 4)
    planes = mv.permute(n - 1, n - 2, n - 4, *lead, n - 3).index_select(0, index(PROJECTIVE.order, mv))
    planes = planes.flatten(3) * constant(PROJECTIVE.signs, mv)[:, None, None, None]
    if s is None:
        return planes, None
    return planes, s.permute(n - 4, *lead, n - 3, n - 2).flatten(1, -2)


def published(heads: Heads, x: Features) -> tuple[Tensor, Optional[Tensor]]:
    """Heads as ``[..., heads, items, channels, 16]`` and ``[..., heads, items, channels]``."""
    mv, s = heads
    _, channels, count, rows = mv.shape
    shown = PROJECTIVE.leave(mv.reshape(mv.shape[0], channels, count * rows)).view(
        count, *x.shape, channels, mv.shape[0]
    )
    lead = len(x.shape) - 1
    return shown.movedim(0, lead), None if s is None else s.reshape(count, *x.shape, -1).movedim(0, lead)


class GeometricAttention(Layer):
    """Attention whose logits are inner products of multivectors, minus squared distances of points, and products of scalars.

    Args:
        config: a :class:`SelfAttentionConfig` or a dict.

    Parameters: ``log_weights`` ``[heads, 1, channels]``: logarithms of the weights of distances.
    """

    _blades = PROJECTIVE

    def __init__(self, config: Any) -> None:
        super().__init__()
        config = SelfAttentionConfig.cast(config)
        self.normalizer = partial(divided_by_square, epsilon=config.normalizer_eps)
        self.log_weights = nn.Parameter(torch.zeros(config.num_heads, 1, config.hidden_mv_channels))

    def _run(self, x: Features) -> Features:
        raise NotImplementedError("attention is of queries, keys and values")

    def _weigh(self, q: Heads, k: Heads, v: Heads, x: Features, others: Sequence[int], mask: Any) -> Features:
        """The heads' results behind one another, for queries of the rows of ``x`` and keys and values of rows of shape ``others``."""
        weights = weights_of(self.log_weights)
        h = weighed(q, k, v, (x.shape, others), self.normalizer, weights, mask)
        mv, s = planes_of_heads(h, PROJECTIVE.size, v[0].shape[1])
        return x.with_(mv, s)

    def forward(
        self,
        q_mv: Tensor,
        k_mv: Tensor,
        v_mv: Tensor,
        q_s: Tensor,
        k_s: Tensor,
        v_s: Tensor,
        attention_mask: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Multivectors ``[..., heads, items, channels, 16]`` and scalars ``[..., heads, items, channels]``.

        Args:
            q_mv: queries ``[..., heads, items, channels, 16]``.
            k_mv: keys ``[..., heads or 1, other items, channels, 16]``.
            v_mv: values as keys.
            q_s: ``[..., heads, items, channels]``.
            k_s: ``[..., heads or 1, other items, channels]``.
            v_s: as keys.
            attention_mask: true where an item attends to another, or what is added to the logits, ``[..., heads or 1, items, other
                items]`` or ``[items, other items]``; or an ``AttentionBias`` of xformers.
        """
        weights = weights_of(self.log_weights)
        return attend(q_mv, k_mv, v_mv, q_s, k_s, v_s, self.normalizer, weights, attention_mask)


def weights_of(log_weights: Tensor) -> Tensor:
    """The weights of distances ``[channels, heads, 1]``."""
    return log_weights.exp()[:, 0].t()[:, :, None]


def attend(
    q_mv: Tensor,
    k_mv: Tensor,
    v_mv: Tensor,
    q_s: Tensor,
    k_s: Tensor,
    v_s: Tensor,
    normalizer: Normalizer,
    weights: Optional[Tensor],
    mask: Any,
) -> tuple[Tensor, Tensor]:
    """Attention of published heads; see :class:`GeometricAttention`. Items without heads are those of one."""
    if q_mv.dim() == 3:
        one = [x[None] for x in (q_mv, k_mv, v_mv, q_s, k_s, v_s)]
        mv, s = attend(*one, normalizer, weights, mask)
        return mv[0], s[0]
    q, k, v = (heads_of(mv, s) for mv, s in ((q_mv, q_s), (k_mv, k_s), (v_mv, v_s)))
    shapes = tuple((*mv.shape[:-4], mv.shape[-3]) for mv in (q_mv, k_mv))
    h = weighed(q, k, v, shapes, normalizer, weights, mask)
    h = h.reshape(*q_mv.shape[:-3], *h.shape[-2:])
    channels = v_mv.shape[-2]
    # Features are blade by blade, in the order of planes.
    mv = h[..., : 16 * channels].unflatten(-1, (16, channels)) * constant(PROJECTIVE.signs, h)[:, None]
    back = tuple(PROJECTIVE.order.index(blade) for blade in range(16))
    return mv.transpose(-1, -2).index_select(-1, index(back, h)), h[..., 16 * channels :]


def weighed(
    q: Heads,
    k: Heads,
    v: Heads,
    shapes: Sequence[Sequence[int]],
    normalizer: Normalizer,
    weights: Optional[Tensor],
    mask: Any,
) -> Tensor:
    """The heads' results ``[rows before the items, heads, items, 16 · channels + scalars]``."""
    a, b, c = matrices(q, k, v, [batch(shape, {}) for shape in shapes], normalizer, weights)
    return weighed_matrices(a, b, c, shapes[0], mask)


def matrices(
    q: Heads,
    k: Heads,
    v: Heads,
    lengths: Sequence[Sequence[int]],
    normalizer: Normalizer,
    weights: Optional[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as ``[rows before the items, heads, items, features]``."""
    far = distances(q[0], normalizer, is_query=True)
    if weights is not None:
        far = far * weights.to(far.dtype)
    queries = torch.cat((q[0][:13:2], far))
    keys = torch.cat((k[0][:13:2], distances(k[0], normalizer, is_query=False)))

    def rows(mv: Tensor, s: Optional[Tensor], shape: Sequence[int]) -> Tensor:
        return rows_of_heads(mv[:, None], None if s is None else s[None], shape)[0]

    return rows(queries, q[1], lengths[0]), rows(keys, k[1], lengths[1]), rows(v[0], v[1], lengths[1])


def weighed_matrices(a: Tensor, b: Tensor, c: Tensor, shape: Sequence[int], mask: Any) -> Tensor:
    """The heads' results of :func:`matrices`, for queries of rows of this shape."""
    if mask is None or isinstance(mask, Tensor):
        return weigh(a, b, c, attn_mask=_flat(mask, shape), scale=a.shape[-1] ** -0.5)
    if type(mask).__module__.split(".")[0] != "xformers":
        raise ArgumentError(
            f"attention: attention_mask of type {type(mask).__name__}, expected a tensor, or a bias of xformers"
        )
    # Its kernels take values as wide as keys.
    width = max(a.shape[-1], c.shape[-1])
    padded = [F.pad(x, (0, width - x.shape[-1])) for x in (a, b, c)]
    made = weigh(*padded, backend="xformers", attn_bias=mask, scale=a.shape[-1] ** -0.5)
    return made[..., : c.shape[-1]]


def _flat(mask: Optional[Tensor], shape: Sequence[int]) -> Optional[Tensor]:
    """A mask whose axes before the heads are one."""
    if mask is None or mask.dim() <= 2:
        return mask
    if mask.dim() == len(shape) + 2:
        try:
            mask = mask.expand(*shape[:-1], *mask.shape[-3:])
        except RuntimeError as error:
            raise ShapeError(
                f"attention: attention_mask of shape {list(mask.shape)}, expected {[*shape[:-1], 'heads or 1', shape[-1], 'other items']}"
            ) from error
    return mask.reshape(-1, *mask.shape[-3:])
