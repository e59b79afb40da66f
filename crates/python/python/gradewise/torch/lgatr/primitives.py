"""The functions that layers are made of, on multivectors ``[..., 16]`` of space-time."""

from __future__ import annotations

from typing import Any, Optional, Union

import torch
from torch import Tensor

from gradewise._errors import ArgumentError
from gradewise.torch._transformers import public
from gradewise.torch._transformers.algebra import SPACETIME, constant
from gradewise.torch._transformers.attention import weigh
from gradewise.torch._transformers.dropout import grade_factors
from gradewise.torch._transformers.embedding import check
from gradewise.torch._transformers.precision import island
from gradewise.torch.lgatr.config import PrimitivesConfig

__all__ = [
    "PrimitivesConfig",
    "abs_squared_norm",
    "equi_layer_norm",
    "equi_linear",
    "geometric_product",
    "grade_dropout",
    "grade_involute",
    "grade_project",
    "inner_product",
    "reverse",
    "scaled_dot_product_attention",
    "sdp_attention",
]


def equi_linear(x: Tensor, coeffs: Tensor, *, config: Any = None) -> Tensor:
    """The equivariant map of ``[..., in, 16]``: ``[..., out, 16]``.

    Args:
        x: ``[..., in, 16]``.
        coeffs: ``[out, in, 10]``: for each grade, and then for each grade times the pseudoscalar; the first five alone for the full group.
        config: a :class:`PrimitivesConfig`; it has to agree with the coefficients.
    """
    maps = coeffs.shape[-1] if config is None else PrimitivesConfig.cast(config).num_pin_linear_basis_elements
    if coeffs.shape[-1] != maps:
        raise ArgumentError(
            f"equi_linear: coefficients of shape {list(coeffs.shape)}, expected [out, in, {maps}], as subgroup says"
        )
    with island() as wide:
        return public.equi_linear(wide(x), wide(coeffs), SPACETIME)


def grade_project(x: Tensor) -> Tensor:
    """The grades of ``[..., 16]`` apart from one another: ``[..., 5, 16]``."""
    return public.grade_project(x, SPACETIME)


def reverse(x: Tensor) -> Tensor:
    """The reversal of ``[..., 16]``: the order of the generators in each blade turned round."""
    return public.by_grade(x, SPACETIME, (1, 1, -1, -1, 1), "reverse")


def grade_involute(x: Tensor) -> Tensor:
    """``[..., 16]`` with the sign of odd grades changed."""
    return public.by_grade(x, SPACETIME, (1, -1, 1, -1, 1), "grade_involute")


def geometric_product(x: Tensor, y: Tensor, *, config: Any = None) -> Tensor:
    """The geometric product of ``[..., 16]`` and ``[..., 16]``, which broadcast."""
    with island() as wide:
        return public.position_by_position(SPACETIME.product, SPACETIME, wide(x), wide(y), "geometric_product")


def inner_product(x: Tensor, y: Tensor) -> Tensor:
    """The scalar part of reverse(x)·y: ``[..., 1]``."""
    check(x, 16, "inner_product")
    check(y, 16, "inner_product")
    return (x * _factors(x) * y).sum(-1, keepdim=True)


def _factors(like: Tensor) -> Tensor:
    return constant(tuple(factor for _, factor in sorted(zip(SPACETIME.order, SPACETIME.factors))), like)


def abs_squared_norm(x: Tensor) -> Tensor:
    """The sum over grades of the absolute value of <reverse(x) x>: ``[..., 1]``."""
    check(x, 16, "abs_squared_norm")
    with island() as wide:
        x = wide(x)
        squares = (x.square() * _factors(x)).split([1, 4, 6, 4, 1], -1)
        return torch.stack([grade.sum(-1).abs() for grade in squares]).sum(0)[..., None]


def equi_layer_norm(
    x: Tensor, channel_dim: int = -2, gain: Union[float, Tensor] = 1.0, epsilon: Union[float, Tensor] = 0.01
) -> Tensor:
    """Multivectors divided by the root of the mean over channels of :func:`abs_squared_norm`.

    Args:
        x: ``[..., 16]``.
        channel_dim: the axis of the channels.
        gain: what the result is multiplied by.
        epsilon: the least mean that is divided by.
    """
    mean = abs_squared_norm(x).mean(channel_dim, keepdim=True).clamp(min=epsilon)
    return (x * (gain * torch.rsqrt(mean))).to(x.dtype)


def sdp_attention(
    q_mv: Tensor,
    k_mv: Tensor,
    v_mv: Tensor,
    q_s: Optional[Tensor] = None,
    k_s: Optional[Tensor] = None,
    v_s: Optional[Tensor] = None,
    **attn_kwargs: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """Attention by the inner products of multivectors and those of scalars.

    Args:
        q_mv: queries ``[..., items, channels, 16]``.
        k_mv: keys ``[..., other items, channels, 16]``.
        v_mv: values ``[..., other items, channels, 16]``.
        q_s: ``[..., items, channels]``, all three or none.
        k_s: ``[..., other items, channels]``.
        v_s: ``[..., other items, channels]``.
        attn_kwargs: ``backend`` and what it takes: ``attn_mask``, ``dropout_p``, ``is_causal`` and ``scale`` of PyTorch's own;
            ``score_mod`` and ``block_mask`` of its flex attention; on a GPU ``cu_seq_q``, ``cu_seq_k``, ``max_q`` and ``max_k`` of its
            attention of several lengths, ``attn_bias`` of xformers, ``cu_seqlens_q`` and so on of flash-attn.
    """
    if len({part is None for part in (q_s, k_s, v_s)}) != 1:
        raise ArgumentError("sdp_attention: some of q_s, k_s and v_s are None, expected all of them or none")
    channels = v_mv.shape[-2]
    parts = [(q_mv * _factors(q_mv), q_s), (k_mv, k_s), (v_mv, v_s)]
    rows = [mv.flatten(-2) if s is None else torch.cat((mv.flatten(-2), s), -1) for mv, s in parts]
    h = scaled_dot_product_attention(*rows, **attn_kwargs)
    h_mv = h[..., : 16 * channels].unflatten(-1, (channels, 16))
    return h_mv, None if q_s is None else h[..., 16 * channels :]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, **attn_kwargs: Any) -> Tensor:
    """Attention of ``[..., items, features]`` by what the options ask for; see :func:`sdp_attention`."""
    with island() as wide:
        return weigh(wide(query), wide(key), wide(value), **attn_kwargs)


def grade_dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Dropout of the grades of ``[..., 16]``, each as a whole."""
    check(x, 16, "grade_dropout")
    if not training or p == 0:
        return x
    factors = grade_factors(x, x.numel() // 16, 5, p).repeat_interleave(
        torch.tensor([1, 4, 6, 4, 1], device=x.device), -1, output_size=16
    )
    return x * factors.view(x.shape)
