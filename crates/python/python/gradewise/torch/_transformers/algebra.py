"""The tables of the transformers' algebras as tensors, and features as planes."""

from __future__ import annotations

from dataclasses import astuple
from functools import lru_cache

import torch
from torch import Tensor

from gradewise._transformers import algebra
from gradewise._transformers.algebra import Tables
from gradewise.torch._composite import is_followed
from gradewise.torch._operators import apply


class Blades(Tables):
    """The algebra of a transformer, on tensors."""

    def table_of(self, like: Tensor, maps: int) -> Tensor:
        """The first maps as ``[maps, pairs · 2 · 2]``: for each pair of planes, a matrix of two rows."""
        return constant(tuple(map(tuple, self.table[:maps])), like)

    def inner(self, like: Tensor) -> Tensor:
        """``factors`` as a tensor ``[16]``."""
        return constant(self.factors, like)

    def inner_by_grade(self, like: Tensor) -> Tensor:
        """``factors`` of each grade's planes, zeros elsewhere: ``[grades, 16]``."""
        rows = range(len(self.metric) + 1)
        return constant(
            tuple(
                tuple(f if self.grades[b] == grade else 0.0 for f, b in zip(self.factors, self.order)) for grade in rows
            ),
            like,
        )

    def grade_of_planes(self, like: Tensor) -> Tensor:
        """The grade of each plane ``[16]``, as an index."""
        return index(tuple(self.grades[blade] for blade in self.order), like)

    def enter(self, x: Tensor) -> Tensor:
        """Planes ``[16, channels, rows]`` of multivectors ``[rows, channels, 16]``."""
        planes = x.permute(2, 1, 0).index_select(0, index(self.order, x))
        return planes if all(sign == 1 for sign in self.signs) else planes * constant(self.signs, x)[:, None, None]

    def leave(self, planes: Tensor) -> Tensor:
        """Multivectors ``[rows, channels, 16]`` of planes."""
        if not all(sign == 1 for sign in self.signs):
            planes = planes * constant(self.signs, planes)[:, None, None]
        return planes.permute(2, 1, 0).index_select(2, index(_inverse(self.order), planes))

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """The geometric product of planes, position by position."""
        return self._multiply("geometric", x, y)

    def regressive(self, x: Tensor, y: Tensor) -> Tensor:
        """The regressive product of planes, position by position."""
        return self._multiply("regressive", x, y)

    def _multiply(self, product: str, x: Tensor, y: Tensor) -> Tensor:
        return apply("table_product", self.products[product], [x, y])


SPACETIME, PROJECTIVE = (Blades(*astuple(tables)) for tables in (algebra.SPACETIME, algebra.PROJECTIVE))


@lru_cache(maxsize=None)
def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(number) for number in range(len(order)))


_KEPT: dict[tuple, Tensor] = {}


def constant(values: tuple, like: Tensor) -> Tensor:
    """A constant of the dtype and on the device of a tensor, from numbers in double precision: exact in every dtype."""
    return _kept((values, like.device, like.dtype), lambda: torch.tensor(values, dtype=like.dtype, device=like.device))


def index(values: tuple[int, ...], like: Tensor) -> Tensor:
    """An index on the device of a tensor."""
    return _kept((values, like.device, None), lambda: torch.tensor(values, device=like.device))


def _kept(key: tuple, make) -> Tensor:
    # Tensors made under a mode or a compiler belong to it.
    if is_followed() or torch.is_inference_mode_enabled():
        return make()
    if key not in _KEPT:
        _KEPT[key] = make()
    return _KEPT[key]
