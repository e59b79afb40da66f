"""Many multivectors at once: an array of coefficients with the operators of a multivector."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any, Union

from gradewise._array import run
from gradewise._core import Algebra, Multivector, Rotor
from gradewise._errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    import numpy as np

_PRODUCTS: dict[str, Callable[[Any, Any], Multivector]] = {
    "geometric": lambda x, y: x * y,
    "outer": lambda x, y: x ^ y,
    "inner": lambda x, y: x | y,
    "regressive": lambda x, y: x & y,
    "left contraction": lambda x, y: x << y,
    "right contraction": lambda x, y: x >> y,
}
_SHOWN = 10


@lru_cache(maxsize=64)
def _table(signature: tuple[int, int, int], product: str) -> str:
    """The terms of a product of blades, as the attributes of the operator that computes it."""
    algebra, multiply = Algebra(*signature), _PRODUCTS[product]
    blades = [algebra[name] for name in algebra.blades]
    terms = [
        (left, right, out, int(coefficient))
        for left, x in enumerate(blades)
        for right, y in enumerate(blades)
        for out, coefficient in enumerate(multiply(x, y).coefficients)
        if coefficient
    ]
    return json.dumps({"sizes": [len(blades)] * 3, "terms": terms})


class Multivectors:
    """Multivectors of one algebra in an array of any shape, with the operators of :class:`Multivector`, element by element.

    ``x * y`` is the geometric product, ``x ^ y`` the outer, ``x | y`` the inner, ``x & y`` the regressive one, ``x << y`` and ``x >> y``
    the contractions, ``x @ y`` what the versors x make of y, ``~x`` the reverse. The other operand is another batch, whose shape is
    broadcast, a multivector, a rotor or a number. ``x[3]`` and ``x[:, 0]`` are elements and parts, ``x["e12"]`` the coefficients of a blade.

    Attributes:
        algebra: the algebra.
        coefficients: float64 ``[..., 2ⁿ]``, in the order of ``algebra.blades``.

    Args:
        algebra: the algebra.
        coefficients: numbers ``[..., 2ⁿ]``, or a list of multivectors.

    Raises:
        ShapeError: the last axis has another size than 2ⁿ, or shapes that cannot be broadcast.
        ArgumentError: operands of different algebras.
    """

    __array_ufunc__ = None

    def __init__(self, algebra: Algebra, coefficients: Any) -> None:
        import numpy as np

        if isinstance(coefficients, (list, tuple)):
            coefficients = [_of(algebra, x) if isinstance(x, (Multivector, Rotor)) else x for x in coefficients]
        self.algebra = algebra
        self.coefficients = np.asarray(coefficients, np.float64)
        if self.coefficients.ndim == 0 or self.coefficients.shape[-1] != len(algebra.blades):
            raise ShapeError(
                f"Multivectors: the coefficients have shape {list(self.coefficients.shape)}, expected [..., {len(algebra.blades)}], one for "
                f"each blade of {algebra!r}"
            )

    @staticmethod
    def vectors(algebra: Algebra, components: Any) -> Multivectors:
        """Vectors with components ``[..., n]`` along e1, …, en."""
        import numpy as np

        components = np.asarray(components, np.float64)
        if components.ndim == 0 or components.shape[-1] != algebra.dimension:
            raise ShapeError(
                f"Multivectors.vectors: the components have shape {list(components.shape)}, expected [..., {algebra.dimension}]"
            )
        made = np.zeros((*components.shape[:-1], len(algebra.blades)))
        made[..., 1 : 1 + algebra.dimension] = components
        return Multivectors(algebra, made)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the batch: that of the coefficients without the blades."""
        return self.coefficients.shape[:-1]

    @property
    def vector_part(self) -> np.ndarray:
        """The components ``[..., n]`` of the vector parts."""
        return self.coefficients[..., 1 : 1 + self.algebra.dimension]

    def grade(self, grade: int) -> Multivectors:
        """The parts of a grade; zero beyond n."""
        return self._made(self.coefficients * [float(own == grade) for own in self.algebra.grades])

    def involution(self) -> Multivectors:
        """The grade involution: every vector negated."""
        return self._made(self.coefficients * [(-1.0) ** grade for grade in self.algebra.grades])

    def squared_norm(self) -> np.ndarray:
        """⟨reverse(x) x⟩₀ of each, with its sign."""
        return (~self * self).coefficients[..., 0]

    def norm(self) -> np.ndarray:
        """√|⟨reverse(x) x⟩₀| of each."""
        return abs(self.squared_norm()) ** 0.5

    def sandwich(self, other: Any) -> Multivectors:
        """What versors x make of y: x y x⁻¹, with the grade involution of y where x is odd, so that vectors reflect.

        Raises:
            ArgumentError: an element that is no versor: one that has even and odd parts, or no inverse.
        """
        import numpy as np

        moved, even = self._operand(other), [grade % 2 == 0 for grade in self.algebra.grades]
        is_even, is_odd = ((self.coefficients[..., part] == 0).all(-1) for part in (np.logical_not(even), even))
        square = ~self * self
        scalar = square.coefficients[..., 0]
        largest = abs(square.coefficients[..., 1:]).max(-1, initial=0)
        wrong = ~(is_even | is_odd) | (scalar == 0) | ~np.isfinite(scalar) | (largest > 1e-9 * abs(scalar))
        if wrong.any():
            index = [int(i) for i in np.argwhere(wrong)[0]]
            raise ArgumentError(
                f"Multivectors.sandwich: element {index} is no versor, {self[tuple(index)] if index else self._made(self.coefficients)}: it "
                "has even and odd parts, or no inverse"
            )
        signed = np.where(is_odd[..., None], moved.involution().coefficients, moved.coefficients)
        inverse = (~self).coefficients / scalar[..., None]
        return self * self._made(signed) * self._made(inverse)

    def numpy(self) -> np.ndarray:
        """The coefficients."""
        return self.coefficients

    def _made(self, coefficients: Any) -> Multivectors:
        return Multivectors(self.algebra, coefficients)

    def _operand(self, other: Any) -> Multivectors:
        if isinstance(other, Multivectors):
            if other.algebra != self.algebra:
                raise ArgumentError(
                    f"Multivectors: operands of {self.algebra!r} and {other.algebra!r}, expected one algebra"
                )
            return other
        return self._made(_of(self.algebra, other))

    def _product(self, product: str, left: Any, right: Any) -> Multivectors:
        import numpy as np

        if not (_serves(left) and _serves(right)):
            return NotImplemented
        factors = [self._operand(x).coefficients for x in (left, right)]
        try:
            x, y = np.broadcast_arrays(*factors)
        except ValueError:
            shapes = " and ".join(str(list(factor.shape[:-1])) for factor in factors)
            raise ShapeError(f"Multivectors: batches of {shapes}, which cannot be broadcast") from None
        rows = [np.ascontiguousarray(factor.reshape(-1, x.shape[-1]).T)[:, :, None] for factor in (x, y)]
        made = np.asarray(run("table_product", _table(self.algebra.signature, product), rows))
        return self._made(made[:, :, 0].T.reshape(x.shape))

    def __mul__(self, other: Any) -> Multivectors:
        return self._product("geometric", self, other)

    def __rmul__(self, other: Any) -> Multivectors:
        return self._product("geometric", other, self)

    def __xor__(self, other: Any) -> Multivectors:
        return self._product("outer", self, other)

    def __rxor__(self, other: Any) -> Multivectors:
        return self._product("outer", other, self)

    def __or__(self, other: Any) -> Multivectors:
        return self._product("inner", self, other)

    def __ror__(self, other: Any) -> Multivectors:
        return self._product("inner", other, self)

    def __and__(self, other: Any) -> Multivectors:
        return self._product("regressive", self, other)

    def __rand__(self, other: Any) -> Multivectors:
        return self._product("regressive", other, self)

    def __lshift__(self, other: Any) -> Multivectors:
        return self._product("left contraction", self, other)

    def __rlshift__(self, other: Any) -> Multivectors:
        return self._product("left contraction", other, self)

    def __rshift__(self, other: Any) -> Multivectors:
        return self._product("right contraction", self, other)

    def __rrshift__(self, other: Any) -> Multivectors:
        return self._product("right contraction", other, self)

    def __matmul__(self, other: Any) -> Multivectors:
        return self.sandwich(other) if _serves(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Multivectors:
        return self._operand(other).sandwich(self) if _serves(other) else NotImplemented

    def __add__(self, other: Any) -> Multivectors:
        return self._made(self.coefficients + self._operand(other).coefficients) if _serves(other) else NotImplemented

    def __radd__(self, other: Any) -> Multivectors:
        return self + other

    def __sub__(self, other: Any) -> Multivectors:
        return self + -self._operand(other) if _serves(other) else NotImplemented

    def __rsub__(self, other: Any) -> Multivectors:
        return self._operand(other) - self if _serves(other) else NotImplemented

    def __truediv__(self, divisor: float) -> Multivectors:
        return self._made(self.coefficients / divisor) if isinstance(divisor, Real) else NotImplemented

    def __neg__(self) -> Multivectors:
        return self._made(-self.coefficients)

    def __invert__(self) -> Multivectors:
        """The reverse: the order of all factors turned around."""
        return self._made(self.coefficients * [(-1.0) ** (grade * (grade - 1) // 2) for grade in self.algebra.grades])

    def __getitem__(self, key: Any) -> Union[Multivectors, Multivector, np.ndarray]:
        if isinstance(key, str):
            blade = self.algebra[key].coefficients
            index = next(number for number, sign in enumerate(blade) if sign)
            return blade[index] * self.coefficients[..., index]
        key = key if isinstance(key, tuple) else (key,)
        made = self.coefficients[(*key, *(() if Ellipsis in key else (Ellipsis,)), slice(None))]
        return self.algebra.multivector(list(made)) if made.ndim == 1 else self._made(made)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a batch without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return f"<multivectors {list(self.shape)} of {self.algebra!r}>"

    def _repr_html_(self) -> str:
        flat = self.coefficients.reshape(-1, self.coefficients.shape[-1])
        shown = [self.algebra.multivector(list(row))._repr_html_() for row in flat[:_SHOWN]]
        rows = "".join(f"<tr><td>{number}</td><td>{text}</td></tr>" for number, text in enumerate(shown))
        more = f"<tr><td>…</td><td>{len(flat) - _SHOWN} more</td></tr>" if len(flat) > _SHOWN else ""
        return f"<table><caption>{html.escape(repr(self)[1:-1])}</caption>{rows}{more}</table>"


def _serves(value: Any) -> bool:
    """Whether a value is an operand of operators."""
    return isinstance(value, (Multivectors, Multivector, Rotor, Real))


def _of(algebra: Algebra, value: Any) -> Any:
    """The coefficients of what becomes a multivector of an algebra."""
    return algebra.multivector(value).coefficients
