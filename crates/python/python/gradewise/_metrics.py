"""Metrics in any order of their signs, beside the order that the operators know."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from gradewise._errors import ArgumentError

Signature = tuple[int, int, int]
Order = tuple[tuple[int, ...], tuple[float, ...]]
"""For each blade of the operators, the number of the blade of the metric's own order that has its generators, and the sign between them."""


@dataclass(frozen=True)
class Metric:
    """An algebra by the squares of its generators, 1, -1 or 0 each, in any order.

    Operators know generators of square 1 first, then those of -1, then those of 0.
    """

    metric: tuple[float, ...]
    signature: Signature = field(init=False, compare=False)
    order: Optional[Order] = field(init=False, compare=False)
    """None if the blades are in the operators' order already."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "signature", _signature(self.metric))
        object.__setattr__(self, "order", _order(self.metric))

    @property
    def blades(self) -> int:
        """The number of blades."""
        return 2 ** len(self.metric)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of blades of each grade."""
        return grade_sizes(self.signature)

    def place(self, blade: int) -> tuple[int, float]:
        """Where a blade of the metric's own order is among the operators', and with which sign."""
        if self.order is None:
            return blade, 1.0
        place = self.order[0].index(blade)
        return place, self.order[1][place]


def _signature(metric: Sequence[float]) -> Signature:
    p, q, r = (sum(square == value for square in metric) for value in (1.0, -1.0, 0.0))
    if p + q + r != len(metric) or not metric:
        raise ArgumentError(f"metric {list(metric)}: generators must square to 1, -1 or 0; scale them")
    return p, q, r


def _order(metric: Sequence[float]) -> Optional[Order]:
    rank = {1.0: 0, -1.0: 1, 0.0: 2}
    generators = sorted(range(len(metric)), key=lambda g: rank[metric[g]])
    if generators == list(range(len(metric))):
        return None
    own = [blade for grade in range(len(metric) + 1) for blade in itertools.combinations(range(len(metric)), grade)]
    found, signs = [], []
    for blade in own:
        there = [generators[g] for g in blade]
        swaps = sum(a > b for a, b in itertools.combinations(there, 2))
        found.append(own.index(tuple(sorted(there))))
        signs.append(-1.0 if swaps % 2 else 1.0)
    return tuple(found), tuple(signs)


def grade_sizes(signature: Signature) -> tuple[int, ...]:
    """The number of blades of each grade."""
    dim = sum(signature)
    return tuple(math.comb(dim, grade) for grade in range(dim + 1))
