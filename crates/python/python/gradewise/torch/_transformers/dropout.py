"""Dropout of whole grades, and of scalars, from the random numbers that the published packages draw for them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from gradewise.torch._transformers.features import Features


def grade_factors(like: Tensor, rows: int, grades: int, p: float) -> Tensor:
    """0 or 1/(1 - p) for each grade of each multivector: ``[rows, grades]``."""
    return F.dropout1d(like.new_ones(rows, grades, 1), p=p, training=True)[..., 0]


def drop(x: Features, p: float) -> Features:
    """Features with grades of multivectors and with scalars dropped."""
    channels, rows = x.mv.shape[1:]
    grades = len(x.blades.metric) + 1
    factors = grade_factors(x.mv, rows * channels, grades, p).view(rows, channels, grades)
    mv = x.mv * factors.permute(2, 1, 0).index_select(0, x.blades.grade_of_planes(x.mv))
    s = x.s
    if s is not None:
        s = s * F.dropout(s.new_ones(s.shape[1], s.shape[0]), p=p, training=True).t()
    return x.with_(mv, s)
