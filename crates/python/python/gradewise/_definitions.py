"""The operators written in primitives of an array library, for derivatives and batches that kernels do not have.

Kernels compute an operator, its gradients, and the gradients of those. Everything beyond (third derivatives, batches of weights, forward
mode of a gradient) is the library's own differentiation of these definitions. Tests compare each definition with the kernels.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional, Protocol, TypeVar

from gradewise import _core
from gradewise._core import Algebra

A = TypeVar("A")

EPSILON = 1e-6
"""Added to a divisor that may vanish."""
SMOOTHING = 1e-16
"""Added to q² under the fourth root, so that a norm has a derivative where q = 0."""


_BY_FEATURE = ("mv_normalization", "mv_silu", "steerable_gp", "table_product", "traceless_product")
_BY_FEATURE_UNLESS_NORMALIZED = ("gelu_sgp_norm", "sgp")


@lru_cache(maxsize=4096)
def computes_by_feature(name: str, attributes: str) -> bool:
    """Whether an operator computes each feature by itself. Its parameters then have features on their first axis."""
    if name in _BY_FEATURE_UNLESS_NORMALIZED:
        return not json.loads(attributes)["normalize"]
    return name in _BY_FEATURE


class Library(Protocol[A]):
    """The primitives. Arrays have arithmetic operators with broadcasting, ``@``, slices and ``reshape``."""

    def constant(self, values: Sequence[float], like: A) -> A:
        """A vector in the dtype and on the device of another array."""

    def take(self, x: A, index: Sequence[int]) -> A:
        """The entries of the first axis at these places."""

    def join(self, parts: Sequence[A]) -> A:
        """Arrays one behind the other along the first axis."""

    def sum(self, x: A, axis: int) -> A:
        """The sum over an axis, which stays with size 1."""

    def last_two_swapped(self, x: A) -> A: ...

    def sqrt(self, x: A) -> A: ...

    def erf(self, x: A) -> A: ...

    def sigmoid(self, x: A) -> A: ...

    def absolute(self, x: A) -> A: ...

    def maximum(self, x: A, y: float) -> A: ...

    def where(self, condition: A, x: A, y: A) -> A: ...


@dataclass(frozen=True)
class _Terms:
    """A bilinear table: for each result the same number of terms, filled up by terms with the sign 0."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    sign: tuple[int, ...]
    weight: tuple[int, ...]
    """The number of each term's weight, 0 for tables without weights."""
    results: int

    @staticmethod
    def of(terms: Sequence[tuple[int, int, int, int, int]], results: int) -> _Terms:
        """From terms (left, right, result, sign, weight)."""
        by_result = defaultdict(list)
        for left, right, result, sign, weight in terms:
            by_result[result].append((left, right, sign, weight))
        most = max(map(len, by_result.values()), default=1)
        rows = [by_result[r] + [(0, 0, 0, 0)] * (most - len(by_result[r])) for r in range(results)]
        columns = zip(*(term for row in rows for term in row))
        return _Terms(*columns, results)

    def products(self, library: Library[A], x: A, y: A, weights: Optional[A] = None) -> A:
        """The results ``[results, rows, features]``; ``weights`` is ``[weights, features]``."""
        factor = library.constant(self.sign, x).reshape(-1, 1, 1)
        if weights is not None:
            factor = factor * library.take(weights, self.weight)[:, None]
        every = factor * library.take(x, self.left) * library.take(y, self.right)
        count = len(self.left) // self.results
        return library.sum(every.reshape(self.results, count, *every.shape[1:]), 1)[:, 0]


@lru_cache(maxsize=256)
def _table(attributes: str) -> _Terms:
    (_, _, results), terms = _core.table_terms(attributes)
    return _Terms.of([(*term, 0) for term in terms], results)


class Geometry:
    """What the definitions need of an algebra."""

    def __init__(self, signature: tuple[int, int, int]) -> None:
        algebra = Algebra(*signature)
        self.signature = ",".join(map(str, signature))
        """As attributes have it."""
        self.grades = algebra.grades
        self.grade_count = max(self.grades) + 1
        self.norms = _core.squared_norms(signature)
        numbers = {path: index for index, path in enumerate(algebra.paths)}
        grades = self.grades
        terms = [
            (left, right, out, sign, numbers[grades[left], grades[out], grades[right]])
            for left, right, out, sign in algebra.terms
        ]
        self.weighted = _Terms.of(terms, len(grades))
        """The geometric product, with the path of each term as its weight."""
        keys = sorted({(path, out) for _, _, out, _, path in terms})
        place = {key: index for index, key in enumerate(keys)}
        self.by_path = _Terms.of([(a, b, place[path, out], s, 0) for a, b, out, s, path in terms], len(keys))
        """The geometric product resolved by path and result."""
        self.path_of = tuple(path for path, _ in keys)
        gathered = [(index, 0, out, 1, 0) for index, (_, out) in enumerate(keys)]
        self.gathered = _Terms.of(gathered, len(grades))
        """The results of the geometric product from those of `by_path`."""


@lru_cache(maxsize=64)
def _geometry(signature: str) -> Geometry:
    p, q, r = map(int, signature.split(","))
    return Geometry((p, q, r))


class Definitions:
    """The operators in the primitives of one library."""

    def __init__(self, library: Library[Any]) -> None:
        self.library = library

    def __call__(self, operation: str, attributes: str, inputs: Sequence[Any]) -> Any:
        """An operation with attributes as JSON; inputs in its order, those that are absent at the end left out."""
        return getattr(self, f"_{operation}")(attributes, *inputs)

    # The operators, by their names in the registry.

    def _table_product(self, attributes: str, x: Any, y: Any) -> Any:
        return _table(attributes).products(self.library, x, y)

    def _mv_linear(self, attributes: str, x: Any, weight: Any, bias: Any = None) -> Any:
        told = _read(attributes)
        return self._linear(_geometry(told["algebra"]), x, weight, bias, told.get("bias"))

    def _mv_silu(self, attributes: str, x: Any, a: Any, b: Any) -> Any:
        return self._silu(_geometry(_read(attributes)["algebra"]), x, a, b)

    def _mv_normalization(self, attributes: str, x: Any, a: Any) -> Any:
        told = _read(attributes)
        return self._normalized(_geometry(told["algebra"]), x, a, told.get("min_clamp"))

    def _mv_layer_norm(self, attributes: str, x: Any, gain: Any) -> Any:
        told = _read(attributes)
        return self._layer_norm(_geometry(told["algebra"]), x, gain, told.get("min_clamp"))

    def _sgp(self, attributes: str, x: Any, y: Any, weight: Any) -> Any:
        return self._product(attributes, x, y, weight, False)

    def _gelu_sgp_norm(self, attributes: str, x: Any, y: Any, weight: Any) -> Any:
        return self._product(attributes, x, y, weight, True)

    _fcgp, _gelu_fcgp_norm = _sgp, _gelu_sgp_norm

    def _clifford_layer(self, attributes: str, x: Any, linear: Any, weight: Any, bias: Any = None) -> Any:
        told = _read(attributes)
        geometry, product = _geometry(told["algebra"]), told["product"]
        y = self._linear(geometry, x, linear, bias, told.get("bias"))
        return self._bilinear(geometry, x, y, weight, product["gate"], product["normalize"])

    _fc_clifford_layer = _clifford_layer

    def _steerable_gp(self, attributes: str, x: Any, right: Any, a: Any, weight: Any, left: Any = None) -> Any:
        return self._steerable(_geometry(_read(attributes)["algebra"]), x, right, a, weight, left)

    def _steerable_layer(
        self, attributes: str, x: Any, right: Any, a: Any, weight: Any, left: Any = None, left_bias: Any = None
    ) -> Any:
        geometry = _geometry(_read(attributes)["algebra"])
        factor = self._linear(geometry, x, right, None, None)
        added = None if left is None else self._linear(geometry, x, left, left_bias, "scalar")
        return self._steerable(geometry, x, factor, a, weight, added)

    def _mv_block(self, attributes: str, x: Any, *rest: Any) -> Any:
        linear, bias, a, b, right, normalization, weight, left, left_bias, gain, *residual = rest
        geometry = _geometry(_read(attributes)["algebra"])
        h = self._silu(geometry, self._linear(geometry, x, linear, bias, "scalar"), a, b)
        factor = self._linear(geometry, h, right, None, None)
        added = self._linear(geometry, h, left, left_bias, "scalar")
        y = self._layer_norm(geometry, self._steerable(geometry, h, factor, normalization, weight, added), gain)
        return y + residual[0] if residual else y

    def _traceless_product(self, attributes: str, u: Any, v: Any) -> Any:
        p, q, _ = _read(attributes)["signature"]
        metric = [1] * p + [-1] * q
        n = p + q
        pairs = [(i, j) for i in range(n) for j in range(i, n)][:-1]
        rows, columns = zip(*pairs)
        library = self.library
        half = library.take(u, rows) * library.take(v, columns) + library.take(u, columns) * library.take(v, rows)
        trace = library.sum(u * v * library.constant(metric, u).reshape(-1, 1, 1), 0)
        inverse = library.constant([metric[i] / n if i == j else 0.0 for i, j in pairs], u).reshape(-1, 1, 1)
        return half * 0.5 - trace * inverse

    # Their parts.

    def _linear(self, geometry: Geometry, x: Any, weight: Any, bias: Any, bias_on: Optional[str]) -> Any:
        if len(weight.shape) == 3:
            weight = self.library.take(weight, geometry.grades)
        y = x @ weight
        if bias is None:
            return y
        if bias_on == "all_blades":
            return y + bias
        return self.library.join([y[:1] + bias, y[1:]])

    def _sums_by_grade(self, geometry: Geometry, x: Any) -> Any:
        """The sums over the blades of each grade, ``[grades, rows, features]``."""
        first, parts = 0, []
        for grade in range(geometry.grade_count):
            end = first + geometry.grades.count(grade)
            parts.append(self.library.sum(x[first:end], 0))
            first = end
        return self.library.join(parts)

    def _by_grade(self, geometry: Geometry, x: Any) -> Any:
        """The quadratic form of each grade, ``[grades, rows, features]``."""
        metric = self.library.constant(geometry.norms, x).reshape(-1, 1, 1)
        return self._sums_by_grade(geometry, x * x * metric)

    def _columns(self, parameter: Any) -> Any:
        """``[features, n]`` as ``[n, 1, features]``."""
        return self.library.last_two_swapped(parameter)[:, None]

    def _norm(self, q: Any, least: Optional[float] = None) -> Any:
        """(q² + 1e-16)^¼, without the square of a large q; with ``least``, of the greater of q and that."""
        library = self.library
        if least is not None:
            q = library.maximum(q, least)
        size = library.absolute(q)
        is_large = size > 1e4
        small = library.where(is_large, q * 0 + 1.0, q)
        # Beyond 1e4 the summand is less than half a unit in the last place of q² in float64.
        return library.where(
            is_large, library.sqrt(library.maximum(size, 1.0)), library.sqrt(library.sqrt(small * small + SMOOTHING))
        )

    def _silu(self, geometry: Geometry, x: Any, a: Any, b: Any) -> Any:
        library = self.library
        invariants = library.join([x[:1], self._by_grade(geometry, x)[1:]])
        gates = library.sigmoid(self._columns(a) * invariants + self._columns(b))
        return x * library.take(gates, geometry.grades)

    def _normalized(self, geometry: Geometry, x: Any, a: Any, least: Optional[float] = None) -> Any:
        norms = self._norm(self._by_grade(geometry, x), least)
        divisors = self.library.sigmoid(self._columns(a)) * (norms - 1.0) + (1.0 + EPSILON)
        return x / self.library.take(divisors, geometry.grades)

    def _layer_norm(self, geometry: Geometry, x: Any, gain: Any, least: Optional[float] = None) -> Any:
        norms = self._norm(self.library.sum(self._by_grade(geometry, x), 0), least)
        return gain * x / (self.library.sum(norms, 2) * (1.0 / max(x.shape[2], 1)) + EPSILON)

    def _product(self, attributes: str, x: Any, y: Any, weight: Any, gate: bool) -> Any:
        told = _read(attributes)
        return self._bilinear(_geometry(told["algebra"]), x, y, weight, gate, told["normalize"])

    def _bilinear(self, geometry: Geometry, x: Any, y: Any, weight: Any, gate: bool, normalize: bool) -> Any:
        if gate:
            x, y = self._gated(x), self._gated(y)
        library = self.library
        if len(weight.shape) == 2:
            product = geometry.weighted.products(library, x, y, library.last_two_swapped(weight))
        else:
            pairs = geometry.by_path.products(library, x, y) @ library.take(weight, geometry.path_of)
            product = geometry.gathered.products(library, pairs, pairs[:1] * 0 + 1.0)
        return self._root_mean_square_norm(geometry, product) if normalize else product

    def _gated(self, x: Any) -> Any:
        """x·Φ of its scalar, with the normal distribution function Φ."""
        return x * (0.5 * (1.0 + self.library.erf(x[:1] * math.sqrt(0.5))))

    def _root_mean_square_norm(self, geometry: Geometry, x: Any) -> Any:
        library = self.library
        means = library.sum(self._sums_by_grade(geometry, x * x), 2) * (1.0 / max(x.shape[2], 1))
        return x / library.take(library.sqrt(means + EPSILON), geometry.grades)

    def _steerable(self, geometry: Geometry, x: Any, right: Any, a: Any, weight: Any, left: Any) -> Any:
        product = self._bilinear(geometry, x, self._normalized(geometry, right, a), weight, False, False)
        return product if left is None else (left + product) * math.sqrt(0.5)


@lru_cache(maxsize=4096)
def _read(attributes: str) -> dict[str, Any]:
    return json.loads(attributes)
