"""The algebras of the transformers: which blades equivariant maps join, the maps themselves, inner products and products.

Everything is derived from the metric. The maps are the projections on grades, and each grade times one multivector that the group leaves
alone: the pseudoscalar in the algebra of space-time, from the right; the generator that squares to 0 in the projective one, from the left.
Both join blades in pairs, so that a map of multivectors is eight maps of two blades each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

from gradewise._core import Algebra, squared_norms
from gradewise._metrics import Metric

Entry = tuple[int, int, float]
"""An entry of a map of blades: row, column, value."""


@dataclass(frozen=True)
class Tables:
    """The algebra of a transformer.

    Planes hold the blades pair by pair, with the orientation that the operators give them, so that products need no signs.
    """

    metric: tuple[float, ...]
    """The squares of the generators, in the published order."""
    joining: int
    """The blade that joins the others in pairs, in the published order."""
    from_the_left: bool
    """Whether it is multiplied from the left."""
    is_normalized: bool
    """Whether the maps have Frobenius norm 1, rather than entries of 1 and -1."""

    @cached_property
    def space(self) -> Metric:
        return Metric(self.metric)

    @cached_property
    def size(self) -> int:
        return 2 ** len(self.metric)

    @cached_property
    def grades(self) -> tuple[int, ...]:
        """The grade of each blade."""
        return tuple(grade for grade, count in enumerate(self.space.sizes) for _ in range(count))

    @cached_property
    def joined(self) -> dict[int, tuple[int, float]]:
        """For each blade whose product with the joining one is not 0: the blade that it becomes, and with which factor."""
        own, signs = self.space.order or (tuple(range(self.size)), (1.0,) * self.size)
        found = {}
        for left, right, product, sign in Algebra(*self.space.signature).terms:
            special, other = (left, right) if self.from_the_left else (right, left)
            if own[special] == self.joining:
                found[own[other]] = own[product], sign * signs[left] * signs[right] * signs[product]
        return found

    @cached_property
    def maps(self) -> tuple[tuple[Entry, ...], ...]:
        """The equivariant maps in the published order, each by its entries."""
        top = len(self.metric) + 1
        diagonal = [[(b, b, 1.0) for b in range(self.size) if self.grades[b] == grade] for grade in range(top)]
        others = [
            [(to, b, factor) for b, (to, factor) in sorted(self.joined.items()) if self.grades[b] == grade]
            for grade in range(top)
        ]
        made = [entries for entries in diagonal + others if entries]
        if self.is_normalized:
            made = [[(i, j, value / len(entries) ** 0.5) for i, j, value in entries] for entries in made]
        return tuple(tuple(entries) for entries in made)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The blade of each plane: pairs of joined blades, that of the scalar first."""
        pairs = {tuple(sorted((b, to))) for b, (to, _) in self.joined.items()}
        return tuple(blade for pair in sorted(pairs) for blade in pair)

    @cached_property
    def signs(self) -> tuple[float, ...]:
        """The sign of each plane: of the published blade against that of the operators."""
        return tuple(self.space.place(blade)[1] for blade in self.order)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The operators' number of each plane's blade."""
        return tuple(self.space.place(blade)[0] for blade in self.order)

    def planes(self, *blades: int) -> list[int]:
        """The planes of blades in the published order."""
        return [self.order.index(blade) for blade in blades]

    @cached_property
    def table(self) -> list[list[float]]:
        table = [[0.0] * (2 * self.size) for _ in self.maps]
        for number, entries in enumerate(self.maps):
            for i, j, value in entries:
                row, column = self.order.index(i), self.order.index(j)
                assert row // 2 == column // 2, "a map beyond the pairs of blades"
                table[number][2 * row + column % 2] = value * self.signs[row] * self.signs[column]
        return table

    def entries(self, maps: int) -> list[tuple[int, int, int, float]]:
        """The first maps by their entries: map, plane of the result, plane, value."""
        return [
            (number, place // 2, place // 4 * 2 + place % 2, value)
            for number, row in enumerate(self.table[:maps])
            for place, value in enumerate(row)
            if value
        ]

    @cached_property
    def factors(self) -> tuple[float, ...]:
        """The scalar part of reverse(blade)·blade for each plane."""
        norms = squared_norms(self.space.signature)
        return tuple(float(norms[place]) for place in self.places)

    @cached_property
    def products(self) -> dict[str, str]:
        """The attributes of the products of planes, by their names."""
        of = {"algebra": "{},{},{}".format(*self.space.signature), "order": list(self.places)}
        return {product: json.dumps({"product": product, **of}) for product in ("geometric", "regressive")}


SPACETIME = Tables((1.0, -1.0, -1.0, -1.0), joining=15, from_the_left=False, is_normalized=False)
"""Cl(1,3), of L-GATr. Its pseudoscalar commutes with what keeps orientation and the direction of time."""

PROJECTIVE = Tables((0.0, 1.0, 1.0, 1.0), joining=1, from_the_left=True, is_normalized=True)
"""Cl(3,0,1), of GATr, with the generator that squares to 0 first."""

JOIN_SIGNS = (-1, 1, -1, 1, -1)
"""What the published join has of each grade of the regressive product: it is dual(dual(x) ∧ dual(y)), with the dual once more in the place
of its inverse, and the pseudoscalar with the other sign."""

DUAL_SIGNS = (1, -1, 1, -1, 1, 1, -1, 1, 1, -1, 1, -1, 1, -1, 1, 1)
"""The signs of duals in the projective algebra. A blade's dual is what it lacks to the pseudoscalar, with the sign by which their outer
product is that of the first of both in the published order."""

POINT_WEIGHT = 14
"""The projective blade e123: of points it is their weight, and of a reference it turns with reflections, as the join does not."""
