"""Algebras by the squares of their generators in the order of the axes of a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Optional, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from gradewise._core import Algebra
from gradewise._errors import ArgumentError, ShapeError
from gradewise.jax import _functional as ops
from gradewise.jax._definitions import clamped_norm

MIN_CLAMP = 0.01
"""The least quadratic form under a norm in steerable networks."""


class Metric:
    """The squares of the generators, and the tables that follow from them.

    The operators number generators by their squares, +1 before -1. Features in their order of blades are called sorted here: blade ``b``
    of the metric is ``sign[b]`` times the sorted blade ``place[b]``.
    """

    def __init__(self, squares: tuple[int, ...]) -> None:
        self.squares, self.dim = squares, len(squares)
        self.signature = (squares.count(1), squares.count(-1), 0)
        order = sorted(range(self.dim), key=lambda axis: -squares[axis])
        rank = [order.index(axis) for axis in range(self.dim)]
        blades = [b for grade in range(self.dim + 1) for b in itertools.combinations(range(self.dim), grade)]
        index = {blade: at for at, blade in enumerate(blades)}
        self.blades = len(blades)
        self.grades = tuple(map(len, blades))
        images = [[rank[axis] for axis in blade] for blade in blades]
        self.place = np.array([index[tuple(sorted(image))] for image in images])
        self.sign = np.array([_parity(image) for image in images])
        self.is_sorted = bool((self.place == np.arange(self.blades)).all())
        self.norms = np.array([math.prod(squares[axis] for axis in blade) for blade in blades])
        """The scalar part of each blade's reverse times the blade."""
        self.cayley = np.zeros((self.blades,) * 3, np.int8)
        """The sign of each product: left factor, result, right factor."""
        for (i, left), (k, right) in itertools.product(enumerate(blades), repeat=2):
            both = math.prod(squares[axis] for axis in left if axis in right)
            self.cayley[i, index[tuple(sorted(set(left) ^ set(right)))], k] = both * _parity([*left, *right])
        self.paths = Algebra(*self.signature).paths
        numbers = {path: number for number, path in enumerate(self.paths)}
        self.by_path = np.zeros((len(self.paths), *self.cayley.shape), np.int8)
        """The products, each under the number of its path of grades."""
        for i, j, k in zip(*self.cayley.nonzero()):
            path = numbers[self.grades[i], self.grades[j], self.grades[k]]
            self.by_path[path, i, j, k] = self.cayley[i, j, k]

    def to_sorted(self, x: Array) -> Array:
        """``[blades, …]`` in the operators' order."""
        if self.is_sorted:
            return x
        first = np.argsort(self.place)
        return self._signed(x[first], self.sign[first])

    def from_sorted(self, x: Array) -> Array:
        """The inverse of :meth:`to_sorted`."""
        return x if self.is_sorted else self._signed(x[self.place], self.sign)

    def _signed(self, x: Array, sign: np.ndarray) -> Array:
        return x * jnp.asarray(sign.reshape(-1, *[1] * (x.ndim - 1)), x.dtype)

    def by_blade(self, by_grade: Array) -> Array:
        """``[…, grades]`` as ``[…, blades]``.

        A product with zeros and ones, as its gradient is a product too: that of indexing adds in an order that changes from run to run on
        a GPU.
        """
        table = jnp.asarray(np.array(self.grades) == np.arange(self.dim + 1)[:, None], by_grade.dtype)
        return jnp.matmul(by_grade, table, precision=jax.lax.Precision.HIGHEST)

    def form(self, x: Array) -> Array:
        """The quadratic form of multivectors ``[…, blades]``, with an axis of size 1 in their place."""
        return (x * x * jnp.asarray(self.norms, x.dtype)).sum(-1, keepdims=True)

    def embed(self, values: Array, blades: Sequence[int]) -> Array:
        """``[…, n]`` as multivectors ``[…, blades]`` with these on ``n`` blades and zeros elsewhere."""
        chosen = tuple(blades)
        if values.shape[-1] != len(chosen) or any(not 0 <= blade < self.blades for blade in chosen):
            raise ShapeError(
                f"the last axis of {list(values.shape)} holds the blades {chosen}: as many, each below {self.blades}"
            )
        table = jnp.asarray(np.array(chosen).reshape(-1, 1) == np.arange(self.blades), values.dtype)
        return jnp.matmul(values, table, precision=jax.lax.Precision.HIGHEST)


def _parity(generators: Sequence[int]) -> int:
    """The sign of the permutation that sorts generators."""
    return (-1) ** sum(a > b for a, b in itertools.combinations(generators, 2))


@lru_cache(maxsize=64)
def _metric(squares: tuple[int, ...]) -> Metric:
    return Metric(squares)


def metric_of(algebra: Any) -> Metric:
    """The metric of an algebra of this package, of a published one, or of squares of generators.

    Raises:
        ArgumentError: squares other than 1 and -1, or none. A generator that squares to 0 is no direction of a quadratic form.
    """
    if isinstance(algebra, CliffordAlgebra):
        return algebra.tables
    given = np.asarray(getattr(algebra, "metric", algebra))
    squares = tuple(float(square) for square in given.reshape(-1))
    if given.ndim != 1 or not squares or any(square not in (1.0, -1.0) for square in squares):
        raise ArgumentError(
            f"algebra {algebra}: expected the squares 1 and -1 of generators, one for each axis of space, such as (-1, 1, 1)"
        )
    return _metric(tuple(map(int, squares)))


class CliffordAlgebra:
    """An algebra with the attributes and methods of the published one that networks and data need.

    Args:
        metric: the squares of the generators, 1 or -1, one for each axis of space.
    """

    def __init__(self, metric: Union[Sequence[int], Array, np.ndarray]) -> None:
        self.tables = metric_of(tuple(np.asarray(metric).reshape(-1).tolist()))
        self.metric = np.array(self.tables.squares, np.int32)
        self.dim = self.num_bases = self.tables.dim
        self.n_blades = self.tables.blades
        self.n_subspaces = self.dim + 1
        self.grades = list(range(self.dim + 1))
        self.subspaces = np.array([math.comb(self.dim, grade) for grade in self.grades])
        self.bbo_grades = np.array(self.tables.grades)
        self.even_grades = self.bbo_grades % 2 == 0
        self.odd_grades = ~self.even_grades
        ends = np.cumsum(self.subspaces).tolist()
        self.grade_to_slice = [slice(end - size, end) for end, size in zip(ends, self.subspaces.tolist())]
        self.grade_to_index = [np.arange(part.start, part.stop) for part in self.grade_to_slice]
        self.cayley = self.tables.cayley.astype(np.float32)
        self.geometric_product_paths = np.zeros((self.n_subspaces,) * 3, bool)
        self.geometric_product_paths[tuple(np.array(self.tables.paths).T)] = True
        self.geometric_product_paths_sum = len(self.tables.paths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CliffordAlgebra) and self.tables is other.tables

    def __hash__(self) -> int:
        return hash(self.tables.squares)

    def __repr__(self) -> str:
        return f"CliffordAlgebra({self.tables.squares})"

    def geometric_product(self, a: Array, b: Array) -> Array:
        """The product of multivectors ``[…, blades]``, whose other axes broadcast."""
        a, b = jnp.broadcast_arrays(a, b)
        if a.shape[-1] != self.n_blades:
            raise ShapeError(f"geometric_product: the last axis of {list(a.shape)} is not {self.n_blades} blades")
        tables = self.tables
        planes = (tables.to_sorted(jnp.moveaxis(x, -1, 0).reshape(self.n_blades, -1, 1)) for x in (a, b))
        product = tables.from_sorted(ops.geometric_product(*planes, tables.signature))
        return jnp.moveaxis(product.reshape(self.n_blades, *a.shape[:-1]), 0, -1)

    def embed(self, array: Array, array_index: Sequence[int]) -> Array:
        """Values ``[…, n]`` on ``n`` blades of multivectors ``[…, blades]``."""
        return self.tables.embed(jnp.asarray(array), np.asarray(array_index).reshape(-1).tolist())

    def embed_grade(self, array: Array, grade: int) -> Array:
        """Values on the blades of a grade."""
        return self.embed(array, self.grade_to_index[grade])

    def get_grade(self, mv: Array, grade: int) -> Array:
        """The components of a grade."""
        return mv[..., self.grade_to_slice[grade]]

    def beta(self, mv: Array) -> Array:
        """The reverse."""
        return mv * jnp.asarray((-1) ** (self.bbo_grades * (self.bbo_grades - 1) // 2), mv.dtype)

    def q(self, mv: Array) -> Array:
        """The quadratic form, ``[…, 1]``."""
        return self.tables.form(mv)

    def qs(self, mv: Array, grades: Optional[Sequence[int]] = None) -> list[Array]:
        """The quadratic forms of grades, each ``[…, 1]``."""
        parts = self.grades if grades is None else grades
        forms = mv * mv * jnp.asarray(self.tables.norms, mv.dtype)
        return [self.get_grade(forms, grade).sum(-1, keepdims=True) for grade in parts]

    def norm(self, mv: Array, min_clamp: float = MIN_CLAMP) -> Array:
        """(max(q, min_clamp)² + 1e-16)^¼."""
        return clamped_norm(self.q(mv), min_clamp)

    def norms(self, mv: Array, grades: Optional[Sequence[int]] = None, min_clamp: float = MIN_CLAMP) -> list[Array]:
        """The norms of grades, each ``[…, 1]``."""
        return [clamped_norm(form, min_clamp) for form in self.qs(mv, grades)]
