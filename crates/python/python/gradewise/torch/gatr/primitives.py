"""The functions that layers are made of, on multivectors ``[..., 16]`` of the projective algebra."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Optional, Union

import torch
from torch import Tensor

from gradewise._transformers.algebra import DUAL_SIGNS, JOIN_SIGNS
from gradewise.torch._transformers import public
from gradewise.torch._transformers.algebra import PROJECTIVE, constant
from gradewise.torch._transformers.dropout import grade_factors
from gradewise.torch._transformers.embedding import check
from gradewise.torch._transformers.precision import island

NUM_PIN_LINEAR_BASIS_ELEMENTS = len(PROJECTIVE.maps)
"""The coefficients of an equivariant map of one multivector."""


def equi_linear(x: Tensor, coeffs: Tensor) -> Tensor:
    """The equivariant map of ``[..., in, 16]`` with coefficients ``[out, in, 9]``: ``[..., out, 16]``."""
    return public.equi_linear(x, coeffs, PROJECTIVE)


def grade_project(x: Tensor) -> Tensor:
    """The grades of ``[..., 16]`` apart from one another: ``[..., 5, 16]``."""
    return public.grade_project(x, PROJECTIVE)


def reverse(x: Tensor) -> Tensor:
    """The reversal of ``[..., 16]``: the order of the generators in each blade turned round."""
    return public.by_grade(x, PROJECTIVE, (1, 1, -1, -1, 1), "reverse")


def grade_involute(x: Tensor) -> Tensor:
    """``[..., 16]`` with the sign of odd grades changed."""
    return public.by_grade(x, PROJECTIVE, (1, -1, 1, -1, 1), "grade_involute")


def geometric_product(x: Tensor, y: Tensor) -> Tensor:
    """The geometric product of ``[..., 16]`` and ``[..., 16]``, which broadcast."""
    return public.position_by_position(PROJECTIVE.product, PROJECTIVE, x, y, "geometric_product")


def dual(x: Tensor) -> Tensor:
    """Each blade exchanged for the one that it lacks to the pseudoscalar: ``[..., 16]``."""
    check(x, 16, "dual")
    return x.flip(-1) * constant(tuple(map(float, DUAL_SIGNS)), x)


def outer_product(x: Tensor, y: Tensor) -> Tensor:
    """The outer product of ``[..., 16]`` and ``[..., 16]``, which broadcast: the parts of the geometric product whose grades add up."""
    # The regressive product is the outer product of duals, and taking the dual twice changes the sign of odd grades alone.
    inverse = public.by_grade(dual(x), PROJECTIVE, (1, -1, 1, -1, 1), "outer_product")
    other = public.by_grade(dual(y), PROJECTIVE, (1, -1, 1, -1, 1), "outer_product")
    made = _join(inverse, other)
    return public.by_grade(dual(made), PROJECTIVE, (1, -1, 1, -1, 1), "outer_product")


def _join(x: Tensor, y: Tensor) -> Tensor:
    made = public.position_by_position(PROJECTIVE.regressive, PROJECTIVE, x, y, "join")
    return public.by_grade(made, PROJECTIVE, JOIN_SIGNS, "join")


def equivariant_join(x: Tensor, y: Tensor, reference: Tensor) -> Tensor:
    """The join dual(dual(x) ∧ dual(y)) of ``[..., 16]`` and ``[..., 16]``, times the trivector e123 of a reference, which turns with
    reflections as the join does not."""
    check(reference, 16, "equivariant_join")
    return reference[..., 14:15] * _join(x, y)


def inner_product(x: Tensor, y: Tensor) -> Tensor:
    """The scalar part of reverse(x)·y: ``[..., 1]``."""
    check(x, 16, "inner_product")
    check(y, 16, "inner_product")
    factors = constant(tuple(factor for _, factor in sorted(zip(PROJECTIVE.order, PROJECTIVE.factors))), x)
    return (x * factors * y).sum(-1, keepdim=True)


def norm(x: Tensor) -> Tensor:
    """The root of the inner product of ``[..., 16]`` with itself: ``[..., 1]``."""
    with island() as wide:
        x = wide(x)
        return inner_product(x, x).clamp(min=0).sqrt()


def pin_invariants(x: Tensor) -> Tensor:
    """The scalar of ``[..., 16]`` and the norms of its other grades: ``[..., 5]``."""
    return torch.cat((x[..., :1], norm(grade_project(x))[..., 1:, 0]), -1)


def equi_layer_norm(x: Tensor, channel_dim: int = -2, gain: float = 1.0, epsilon: float = 0.01) -> Tensor:
    """Multivectors divided by the root of the mean over channels of their inner products with themselves.

    Args:
        x: ``[..., 16]``.
        channel_dim: the axis of the channels.
        gain: what the result is multiplied by.
        epsilon: the least mean that is divided by.
    """
    with island() as wide:
        wider = wide(x)
        mean = inner_product(wider, wider).mean(channel_dim, keepdim=True).clamp(min=epsilon)
        return gain * wider * torch.rsqrt(mean)


def grade_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Dropout of the grades of ``[..., 16]``, each as a whole."""
    check(x, 16, "grade_dropout")
    if not training:
        return x
    factors = grade_factors(x, x.numel() // 16, 5, p).repeat_interleave(
        torch.tensor([1, 4, 6, 4, 1], device=x.device), -1, output_size=16
    )
    return x * factors.view(x.shape)


def gated_relu(x: Tensor, gates: Tensor) -> Tensor:
    """Multivectors times the positive part of gates ``[..., 1]``."""
    return gates.relu() * x


def gated_sigmoid(x: Tensor, gates: Tensor) -> Tensor:
    """Multivectors times the sigmoid of gates ``[..., 1]``."""
    return gates.sigmoid() * x


def gated_gelu(x: Tensor, gates: Tensor) -> Tensor:
    """Multivectors times the GELU of gates ``[..., 1]``, by its approximation with tanh."""
    return torch.nn.functional.gelu(gates, approximate="tanh") * x


def gated_gelu_divide(x: Tensor, gates: Tensor) -> Tensor:
    """Multivectors times the sigmoid that the GELU of gates ``[..., 1]`` multiplies them by, in its approximation with tanh."""
    return torch.sigmoid(2 * math.sqrt(2 / math.pi) * (gates + 0.044715 * gates**3)) * x


def sdp_attention(
    q_mv: Tensor, k_mv: Tensor, v_mv: Tensor, q_s: Tensor, k_s: Tensor, v_s: Tensor
) -> tuple[Tensor, Tensor]:
    """Attention by the inner products of multivectors ``[..., items, channels, 16]`` and those of scalars ``[..., items, channels]``."""
    from gradewise.torch._transformers.attention import weigh

    inner = [blade for blade, factor in sorted(zip(PROJECTIVE.order, PROJECTIVE.factors)) if factor]
    q, k = (
        torch.cat((torch.stack([mv[..., b] for b in inner], -1).flatten(-2), s), -1)
        for mv, s in ((q_mv, q_s), (k_mv, k_s))
    )
    h = weigh(q, k, torch.cat((v_mv.flatten(-2), v_s), -1))
    channels = v_mv.shape[-2]
    return h[..., : 16 * channels].unflatten(-1, (channels, 16)), h[..., 16 * channels :]


def geometric_attention(
    q_mv: Tensor,
    k_mv: Tensor,
    v_mv: Tensor,
    q_s: Tensor,
    k_s: Tensor,
    v_s: Tensor,
    normalizer: Callable[[Tensor], Union[Tensor, float]],
    weights: Optional[Tensor] = None,
    attn_mask: Any = None,
) -> tuple[Tensor, Tensor]:
    """Attention by inner products, minus squared distances of points, and products of scalars.

    Args:
        q_mv: queries ``[..., heads, items, channels, 16]``; all without heads for one.
        k_mv: keys ``[..., heads or 1, other items, channels, 16]``.
        v_mv: values as keys.
        q_s: ``[..., heads, items, channels]``.
        k_s: ``[..., heads or 1, other items, channels]``.
        v_s: as keys.
        normalizer: of points' weights ``[...]``, what points are multiplied by.
        weights: of distances, ``[heads, 1, channels]``.
        attn_mask: see :class:`~gradewise.torch.gatr.layers.GeometricAttention`.
    """
    from gradewise.torch.gatr.layers.geometric import attend

    turned = None if weights is None else weights[:, 0].t()[:, :, None]
    return attend(q_mv, k_mv, v_mv, q_s, k_s, v_s, normalizer, turned, attn_mask)
