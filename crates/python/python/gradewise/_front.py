"""The operators on Clifford features, for every array library: :func:`install` gives a library's module these functions, which run its
own ``apply``.

Features are arrays ``[blades, rows, features]``: the components of ``features`` multivectors for each of ``rows`` rows, blades ordered
by grade and then lexicographically (in Cl(3,0): 1, e1, e2, e3, e12, e13, e23, e123). Everything that operators share is here, so that
the libraries' modules differ in nothing but how they hold arrays and gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Literal, Optional, TypeVar, Union

A = TypeVar("A")

Signature = Union[tuple[int, int, int], tuple[int, int], tuple[int]]
"""Numbers of generators that square to +1, to −1 and to 0; those left out are 0."""

Bias = Literal["scalar", "all_blades"]
"""The blades to which a bias is added. Added to others than the scalar it breaks equivariance."""


def written(signature: Signature) -> str:
    """A signature as attributes of operators have it: ``"3,0,0"``."""
    p, q, r = signature if len(signature) == 3 else (*signature, 0, 0)[:3]
    return f"{p},{q},{r}"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _of(signature: Signature) -> str:
    """The attributes of an operator that has no others than its algebra."""
    return f'{{"algebra":"{written(signature)}"}}'


def _apply(operation: str, attributes: str, inputs: Sequence[Any]) -> Any:
    """Runs an operation: in a library's module its own."""
    raise NotImplementedError(f"{operation}: these functions are called in a library's module, such as gradewise.torch")


def install(module: dict[str, Any], apply: Callable[[str, str, Sequence[Any]], Any]) -> None:
    """Makes the functions of this file functions of a library's module, which run ``apply``.

    They are copies whose global names are those of that module. So a library has operators with these texts and signatures, without a
    second list of them, and a call goes straight to its ``apply``.

    Args:
        module: the ``globals()`` of the library's module.
        apply: runs an operation, given its name, its attributes as JSON and its inputs.
    """
    names = {name: value for name, value in globals().items() if not name.startswith("__")}
    for name, value in names.items():
        if isinstance(value, FunctionType) and value is not install:
            copy = FunctionType(value.__code__, module, name, value.__defaults__)
            copy.__doc__, copy.__annotations__, copy.__module__ = (
                value.__doc__,
                value.__annotations__,
                module["__name__"],
            )
            names[name] = copy
    module.update(names, _apply=apply)


def geometric_product(x: A, y: A, signature: Signature = (3, 0, 0)) -> A:
    """The geometric product, position by position.

    Args:
        x: ``[blades, rows, features]``.
        y: as ``x``.
        signature: (p, q, r) of the algebra.
    """
    attributes = f'{{"product":"geometric","algebra":"{written(signature)}"}}'
    return _apply("table_product", attributes, [x, y])


def regressive_product(x: A, y: A, signature: Signature = (3, 0, 1)) -> A:
    """The regressive product, position by position: dual(x ∨ y) = dual(x) ∧ dual(y), in projective algebras the join of points.

    Args:
        x: ``[blades, rows, features]``.
        y: as ``x``.
        signature: (p, q, r) of the algebra.
    """
    attributes = f'{{"product":"regressive","algebra":"{written(signature)}"}}'
    return _apply("table_product", attributes, [x, y])


def mv_linear(
    x: A,
    weight: A,
    bias: Optional[A] = None,
    signature: Signature = (3, 0, 0),
    bias_on: Bias = "scalar",
) -> A:
    """Each blade times the matrix of its grade, plus a bias.

    Args:
        x: ``[blades, rows, in]``.
        weight: ``[grades, in, out]``, or ``[in, out]`` for one matrix that all grades share.
        bias: ``[out]``.
        signature: (p, q, r) of the algebra.
        bias_on: "scalar", or "all_blades" as Flash Clifford has it, which is not equivariant.

    Returns:
        ``[blades, rows, out]``.
    """
    kind = "null" if bias is None else f'"{bias_on}"'
    attributes = f'{{"algebra":"{written(signature)}","bias":{kind}}}'
    return _apply("mv_linear", attributes, [x, weight] if bias is None else [x, weight, bias])


def mv_silu(x: A, a: A, b: A, signature: Signature = (3, 0, 0)) -> A:
    """Grade k times σ(a_k·u_k + b_k), where u_0 is the scalar and u_k the quadratic form of grade k (Ruhe et al. 2023,
    arXiv:2305.11141).

    Args:
        x: ``[blades, rows, features]``.
        a: ``[features, grades]``.
        b: ``[features, grades]``.
        signature: (p, q, r) of the algebra.
    """
    return _apply("mv_silu", _of(signature), [x, a, b])


def mv_normalization(x: A, a: A, signature: Signature = (3, 0, 0)) -> A:
    """Grade k divided by σ(a_k)·(‖x⁽ᵏ⁾‖ − 1) + 1 (Ruhe et al. 2023, arXiv:2305.11141).

    Args:
        x: ``[blades, rows, features]``.
        a: ``[features, grades]``.
        signature: (p, q, r) of the algebra.
    """
    return _apply("mv_normalization", _of(signature), [x, a])


def mv_layer_norm(x: A, gain: A, signature: Signature = (3, 0, 0)) -> A:
    """gain·x divided by the mean of ‖x‖ over the features (Ruhe et al. 2023, arXiv:2305.11141).

    Args:
        x: ``[blades, rows, features]``.
        gain: ``[features]``.
        signature: (p, q, r) of the algebra.
    """
    return _apply("mv_layer_norm", _of(signature), [x, gain])


def sgp(
    x: A,
    y: A,
    weight: A,
    signature: Signature = (3, 0, 0),
    gate: bool = False,
    normalize: bool = False,
) -> A:
    """The weighted geometric product: each term times the weight of its feature and of its path of grades.

    Args:
        x: ``[blades, rows, features]``.
        y: as ``x``.
        weight: ``[features, paths]``, paths in the order of (left grade, grade of the result, right grade).
        signature: (p, q, r) of the algebra.
        gate: whether both factors are gated first: x·Φ(scalar of x), with the normal distribution function Φ.
        normalize: whether the result is divided, for each row and grade, by its root mean square.
    """
    name = "gelu_sgp_norm" if gate else "sgp"
    return _apply(name, _product(signature, normalize), [x, y, weight])


def fcgp(
    x: A,
    y: A,
    weight: A,
    signature: Signature = (3, 0, 0),
    gate: bool = False,
    normalize: bool = False,
) -> A:
    """The fully connected geometric product: each path of grades times a matrix over the features.

    Args:
        x: ``[blades, rows, in]``.
        y: as ``x``.
        weight: ``[paths, in, out]``.
        signature: (p, q, r) of the algebra.
        gate: as in :func:`sgp`.
        normalize: as in :func:`sgp`.

    Returns:
        ``[blades, rows, out]``.
    """
    name = "gelu_fcgp_norm" if gate else "fcgp"
    return _apply(name, _product(signature, normalize), [x, y, weight])


def _product(signature: Signature, normalize: bool) -> str:
    return f'{{"algebra":"{written(signature)}","normalize":{_flag(normalize)}}}'


def clifford_layer(
    x: A,
    linear: A,
    weight: A,
    bias: Optional[A] = None,
    signature: Signature = (3, 0, 0),
    gate: bool = True,
    normalize: bool = True,
    fully_connected: bool = False,
    bias_on: Bias = "scalar",
    recompute: bool = False,
) -> A:
    """The layer of the Flash-Clifford family in one operator: y = mv_linear(x) + bias, then the normalised product of gated x and y.

    Args:
        x: ``[blades, rows, features]``.
        linear: ``[grades, features, features]``.
        weight: ``[features, paths]``; if fully connected ``[paths, features, out]``.
        bias: ``[features]``.
        signature: (p, q, r) of the algebra.
        gate: as in :func:`sgp`.
        normalize: as in :func:`sgp`.
        fully_connected: whether the product has a matrix for each path.
        bias_on: as in :func:`mv_linear`.
        recompute: whether the backward pass computes y again instead of keeping it.
    """
    kind = "null" if bias is None else f'"{bias_on}"'
    product = f'{{"gate":{_flag(gate)},"normalize":{_flag(normalize)}}}'
    head = f'{{"algebra":"{written(signature)}","bias":{kind},"product":{product}'
    attributes = f'{head},"recompute":{_flag(recompute)}}}'
    name = "fc_clifford_layer" if fully_connected else "clifford_layer"
    inputs = [x, linear, weight] if bias is None else [x, linear, weight, bias]
    return _apply(name, attributes, inputs)


def steerable_product(x: A, right: A, a: A, weight: A, left: Optional[A] = None, signature: Signature = (3, 0, 0)) -> A:
    """(left + sgp(x, mv_normalization(right; a), weight)) / √2; the product alone without ``left`` (Ruhe et al. 2023).

    Args:
        x: ``[blades, rows, features]``.
        right: as ``x``.
        a: ``[features, grades]``.
        weight: ``[features, paths]``.
        left: as ``x``.
        signature: (p, q, r) of the algebra.
    """
    inputs = [x, right, a, weight] if left is None else [x, right, a, weight, left]
    return _apply("steerable_gp", _of(signature), inputs)


def steerable_layer(
    x: A,
    right: A,
    a: A,
    weight: A,
    left: Optional[tuple[A, A]] = None,
    signature: Signature = (3, 0, 0),
) -> A:
    """(mv_linear(x; left) + sgp(x, mv_normalization(mv_linear(x; right); a), weight)) / √2 in one operator, for few features.

    Args:
        x: ``[blades, rows, features]``.
        right: ``[grades, features, features]``.
        a: ``[features, grades]``.
        weight: ``[features, paths]``.
        left: matrices ``[grades, features, features]`` and a bias ``[features]`` on the scalar.
        signature: (p, q, r) of the algebra.
    """
    inputs = [x, right, a, weight, *(left or ())]
    return _apply("steerable_layer", _of(signature), inputs)


def fc_steerable_layer(
    x: A,
    right: A,
    a: A,
    weight: A,
    left: Optional[tuple[A, A]] = None,
    signature: Signature = (3, 0, 0),
) -> A:
    """As :func:`steerable_layer` with the fully connected product: it may have another number of features at its end.

    Args:
        x: ``[blades, rows, in]``.
        right: ``[grades, in, in]``.
        a: ``[in, grades]``.
        weight: ``[paths, in, out]``.
        left: matrices ``[grades, in, out]`` and a bias ``[out]`` on the scalar.
        signature: (p, q, r) of the algebra.

    Returns:
        ``[blades, rows, out]``.
    """
    factor = mv_normalization(mv_linear(x, right, None, signature), a, signature)
    product = fcgp(x, factor, weight, signature)
    if left is None:
        return product
    return (mv_linear(x, left[0], left[1], signature) + product) * math.sqrt(0.5)


def mv_block(
    x: A,
    linear: tuple[A, A],
    silu: tuple[A, A],
    right: A,
    normalization: A,
    weight: A,
    left: tuple[A, A],
    gain: A,
    residual: Optional[A] = None,
    signature: Signature = (3, 0, 0),
) -> A:
    """mv_layer_norm(steerable_layer(mv_silu(mv_linear(x)))) in one operator, plus a residual (Ruhe et al. 2023).

    Args:
        x: ``[blades, rows, in]``.
        linear: matrices ``[grades, in, features]`` and bias ``[features]`` of the first map.
        silu: ``a`` and ``b`` ``[features, grades]``.
        right: matrices ``[grades, features, features]`` of the right factor.
        normalization: ``[features, grades]``.
        weight: product weights ``[features, paths]``.
        left: matrices ``[grades, features, features]`` and bias ``[features]`` of the map added to the product.
        gain: ``[features]``.
        residual: added to the result, of its shape.
        signature: (p, q, r) of the algebra.
    """
    inputs = [x, *linear, *silu, right, normalization, weight, *left, gain]
    if residual is not None:
        inputs.append(residual)
    return _apply("mv_block", _of(signature), inputs)


def traceless_product(u: A, v: A, signature: Signature = (3, 0, 0)) -> A:
    """The symmetric traceless part of the product of two vectors, ½(u⊗v + v⊗u) − (u·v)/n·g⁻¹.

    Args:
        u: ``[n, rows, features]``, with n = p + q.
        v: as ``u``.
        signature: (p, q, 0).

    Returns:
        ``[n(n+1)/2 − 1, rows, features]``: the components with i ≤ j row by row, without the last.
    """
    p, q, r = (*signature, 0, 0)[:3]
    return _apply("traceless_product", '{"signature":[' + f"{p},{q},{r}" + "]}", [u, v])


__all__ = [
    "clifford_layer",
    "fc_steerable_layer",
    "fcgp",
    "geometric_product",
    "mv_block",
    "mv_layer_norm",
    "mv_linear",
    "mv_normalization",
    "mv_silu",
    "regressive_product",
    "sgp",
    "steerable_layer",
    "steerable_product",
    "traceless_product",
]
