"""Dropout of whole grades, and of scalars, from the random numbers that the published packages draw for them."""

from __future__ import annotations

from typing import Optional

import torch.nn.functional as F
from torch import Tensor

from gradewise._errors import ArgumentError
from gradewise.torch._transformers.features import Features, Layer, Pair


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


class GradeDropoutLayer(Layer):
    """Dropout of the grades of multivectors, each as a whole, and of scalars.

    Args:
        p: the probability.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"GradeDropout: p {p!r}, expected a probability, 0 to 1")
        self._dropout_prob = p

    def _draws(self) -> bool:
        """Whether random numbers are drawn."""
        return self.training

    def _run(self, x: Features) -> Features:
        return drop(x, self._dropout_prob) if self._draws() else x

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``, some of them 0."""
        return self._alike(multivectors, scalars) if self._draws() else (multivectors, scalars)
