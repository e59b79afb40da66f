"""Operations of gradewise as foreign functions of XLA: shapes, derivatives to second order, and batches.

Each pass of an operation (forward, backward, and backward once more) is a call of one of three targets, with what it is of as text. A
call is made by :func:`_call`, whose result is a function that ``vmap`` knows; ``jax.custom_vjp`` joins them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Union

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from gradewise import _core
from gradewise._errors import ArgumentError, DTypeError, NotDifferentiableError


def _interface() -> int:
    """The minor version of the interface of foreign functions of the installed jaxlib, as its header says."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    found = re.search(r"#define XLA_FFI_API_MINOR (\d+)", header.read_text(encoding="utf-8"))
    return int(found.group(1)) if found else 0


for _name, _platform, _handler in _core.jax_handlers(_interface()):
    jax.ffi.register_ffi_target(_name, _handler, platform=_platform)

FEATURES = {
    "table_product": (0, 1),
    "mv_linear": (0,),
    "mv_silu": (0,),
    "mv_normalization": (0,),
    "mv_layer_norm": (0,),
    "sgp": (0, 1),
    "gelu_sgp_norm": (0, 1),
    "fcgp": (0, 1),
    "gelu_fcgp_norm": (0, 1),
    "clifford_layer": (0,),
    "fc_clifford_layer": (0,),
    "steerable_gp": (0, 1, 4),
    "steerable_layer": (0,),
    "mv_block": (0, 11),
    "traceless_product": (0, 1),
}
"""The operations, and which of their inputs are features: they have rows, each of which is computed by itself."""

DTYPES = ("float64", "float32", "bfloat16", "float16")


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Operation:
    """An operation with its attributes, and what of it is wanted."""

    name: str
    attributes: str
    wanted: tuple[bool, ...] = ()
    """For each input, whether it has a gradient."""

    def rows(self, count: int) -> list[bool]:
        """For each of so many inputs, whether it has rows."""
        return [index in FEATURES[self.name] for index in range(count)]


def _flags(values: Sequence[bool]) -> str:
    return "".join("1" if value else "0" for value in values)


@lru_cache(maxsize=4096)
def _call(
    target: str, texts: tuple[tuple[str, str], ...], has_rows: tuple[bool, ...], results_have_rows: tuple[bool, ...]
) -> Callable[..., tuple[Array, ...]]:
    """A call of a target: a function of the shapes of its results, which are static, and its arguments."""

    def run(shapes: tuple[tuple[int, ...], ...], *arguments: Array) -> tuple[Array, ...]:
        types = tuple(jax.ShapeDtypeStruct(shape, arguments[0].dtype) for shape in shapes)
        return tuple(jax.ffi.ffi_call(target, types, vmap_method="sequential")(*arguments, **dict(texts)))

    @lru_cache(maxsize=1024)
    def batched(shapes: tuple[tuple[int, ...], ...]) -> Callable[..., tuple[Array, ...]]:
        @custom_vmap
        def function(*arguments: Array) -> tuple[Array, ...]:
            return run(shapes, *arguments)

        @function.def_vmap
        def _(size: int, is_batched: Sequence[bool], *arguments: Array) -> tuple[tuple[Array, ...], tuple[bool, ...]]:
            all_batched = tuple(True for _ in shapes)
            folds = all(rows or not of_batch for rows, of_batch in zip(has_rows, is_batched)) and all(results_have_rows)
            if not folds:
                varying = [x for x, of_batch in zip(arguments, is_batched) if of_batch]

                def one(some: list[Array]) -> tuple[Array, ...]:
                    arriving = iter(some)
                    return function(*(next(arriving) if b else x for x, b in zip(arguments, is_batched)))

                return jax.lax.map(one, varying), all_batched
            folded = []
            for x, of_batch, rows in zip(arguments, is_batched, has_rows):
                if rows:
                    x = jnp.moveaxis(x, 0, 1) if of_batch else jnp.repeat(x[:, None], size, axis=1)
                    x = x.reshape(x.shape[0], size * x.shape[2], x.shape[3])
                folded.append(x)
            larger = tuple((shape[0], size * shape[1], shape[2]) for shape in shapes)
            results = batched(larger)(*folded)
            unfolded = (
                jnp.moveaxis(y.reshape(shape[0], size, shape[1], shape[2]), 1, 0) for y, shape in zip(results, shapes)
            )
            return tuple(unfolded), all_batched

        return function

    return lambda shapes, *arguments: batched(shapes)(*arguments)


@lru_cache(maxsize=4096)
def _output_shape(operation: _Operation, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return tuple(_core.output_shape(operation.name, operation.attributes, shapes, operation.rows(len(shapes))))


def _texts(operation: _Operation, **more: str) -> tuple[tuple[str, str], ...]:
    return (("operation", operation.name), ("attributes", operation.attributes), *more.items())


@jax.custom_vjp
def _forward(operation: _Operation, inputs: tuple[Array, ...]) -> Array:
    shape = _output_shape(operation, tuple(x.shape for x in inputs))
    call = _call("gradewise_forward", _texts(operation), tuple(operation.rows(len(inputs))), (True,))
    return call((shape,), *inputs)[0]


def _forward_kept(operation: _Operation, inputs: Any) -> tuple[Array, Any]:
    values = tuple(x.value for x in inputs)
    output = _forward(operation, values)
    wanted = tuple(x.perturbed for x in inputs)
    return output, (_Operation(operation.name, operation.attributes, wanted), values, output)


def _forward_pulled(kept: Any, grad: Any) -> tuple[Any, Any]:
    operation, inputs, output = kept
    if isinstance(grad, SymbolicZero):
        return None, tuple(None for _ in inputs)
    arriving = iter(_backward(operation, inputs, output, grad))
    return None, tuple(next(arriving) if wanted else None for wanted in operation.wanted)


@jax.custom_vjp
def _backward(operation: _Operation, inputs: tuple[Array, ...], output: Array, grad: Array) -> tuple[Array, ...]:
    """The gradients of the inputs that are wanted. The output is there to be read, and a function of the inputs: it has no gradient."""
    rows = operation.rows(len(inputs))
    wanted = [(x, r) for x, r, w in zip(inputs, rows, operation.wanted) if w]
    texts = _texts(operation, needs=_flags(operation.wanted))
    call = _call("gradewise_backward", texts, (*rows, True, True), tuple(r for _, r in wanted))
    return call(tuple(x.shape for x, _ in wanted), *inputs, output, grad)


def _backward_kept(operation: _Operation, inputs: Any, output: Any, grad: Any) -> tuple[Any, Any]:
    values = tuple(x.value for x in inputs)
    needs = _Operation(operation.name, operation.attributes, (*(x.perturbed for x in inputs), grad.perturbed))
    return _backward(operation, values, output.value, grad.value), (operation, needs, values, grad.value)


def _backward_pulled(kept: Any, gradients: Any) -> tuple[Any, Any, Any, Any]:
    operation, needs, inputs, grad = kept
    arriving = iter(gradients)
    spread = [next(arriving) if wanted else None for wanted in operation.wanted]
    given = tuple(g is not None and not isinstance(g, SymbolicZero) for g in spread)
    nothing = None, tuple(None for _ in inputs), None, None
    if not any(given) or not any(needs.wanted):
        return nothing
    results = iter(
        _backward_twice(needs, _Given(given), inputs, grad, tuple(g for g, there in zip(spread, given) if there))
    )
    *of_inputs, of_grad = (next(results) if wanted else None for wanted in needs.wanted)
    return None, tuple(of_inputs), None, of_grad


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Given:
    """For each input, whether its gradient has a gradient."""

    flags: tuple[bool, ...]


@jax.custom_vjp
def _backward_twice(
    operation: _Operation, given: _Given, inputs: tuple[Array, ...], grad: Array, gradients: tuple[Array, ...]
) -> tuple[Array, ...]:
    """The backward pass of the backward pass: gradients of the inputs and of `grad`, as far as they are wanted."""
    rows = operation.rows(len(inputs))
    wanted = [(x, r) for x, r, w in zip((*inputs, grad), (*rows, True), operation.wanted) if w]
    texts = _texts(operation, needs=_flags(operation.wanted), given=_flags(given.flags))
    has_rows = (*rows, True, *(r for r, there in zip(rows, given.flags) if there))
    call = _call("gradewise_backward_twice", texts, has_rows, tuple(r for _, r in wanted))
    return call(tuple(x.shape for x, _ in wanted), *inputs, grad, *gradients)


def _twice_kept(operation: _Operation, *arguments: Any) -> tuple[Any, Any]:
    return _backward_twice(operation, *arguments), operation


def _twice_pulled(operation: _Operation, _: Any) -> Any:
    raise NotDifferentiableError(
        f"{operation.name}: JAX gets its first and second derivatives; third ones are to be had in the Rust library, by its "
        "re-expression"
    )


_forward.defvjp(_forward_kept, _forward_pulled, symbolic_zeros=True)
_backward.defvjp(_backward_kept, _backward_pulled, symbolic_zeros=True)
_backward_twice.defvjp(_twice_kept, _twice_pulled)

# Outside of jit a call is traced once for its shapes, rather than each time.
_compiled = jax.jit(_forward)


def apply(operation: str, attributes: str, inputs: Sequence[Union[Array, Any]]) -> Array:
    """An operation of :data:`FEATURES` with attributes as JSON, on arrays of one dtype or what ``jnp.asarray`` takes."""
    if operation not in FEATURES:
        raise ArgumentError(f"{operation} is no operator for JAX; there are {', '.join(sorted(FEATURES))}")
    arrays = tuple(x if isinstance(x, Array) else jnp.asarray(x) for x in inputs)
    for index, x in enumerate(arrays):
        if x.dtype.name not in DTYPES:
            raise DTypeError(
                f"input {index} has dtype {x.dtype}, expected float64, float32, bfloat16 or float16; convert it with .astype()"
            )
        if x.dtype != arrays[0].dtype:
            raise DTypeError(
                f"input {index} has dtype {x.dtype}, and input 0 has {arrays[0].dtype}; convert one with .astype()"
            )
    return _compiled(_Operation(operation, attributes), arrays)
