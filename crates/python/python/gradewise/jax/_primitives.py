"""Operations of gradewise as primitives of JAX: shapes, derivatives in both modes to any order, batches.

============  ======================================================================  =======================================
primitive     computes                                                                by
============  ======================================================================  =======================================
forward       the output y of inputs x                                                a kernel
push          the derivative of y along tangents of x, which it is linear in          a kernel; transposed: pull
pull          the gradients of x for a gradient of y                                  a kernel
pull_push     the derivative of pull along tangents, which it is linear in            the definition; transposed: pull_pull
pull_pull     the gradients of x and of y's gradient, for gradients of pull's         a kernel
============  ======================================================================  =======================================

So first derivatives in both modes, and second ones in reverse mode, are kernels. Everything beyond is JAX's differentiation of the
definitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from gradewise import _core
from gradewise._definitions import computes_by_feature
from gradewise._errors import ShapeError
from gradewise._registry import OPERATORS
from gradewise.jax._batches import (
    Parts,
    chosen,
    from_features,
    from_rows,
    into_features,
    into_rows,
    pulled,
    pushed,
    spread,
)
from gradewise.jax._definitions import define
from gradewise.jax._sharding import by_rows, need_devices, varying_alike


def _interface() -> int:
    """The minor version of the interface of foreign functions of the installed jaxlib, as its header says."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    found = re.search(r"#define XLA_FFI_API_MINOR (\d+)", header.read_text(encoding="utf-8"))
    return int(found.group(1)) if found else 0


_handlers = _core.jax_handlers(_interface())
for _name, _platform, _handler in _handlers:
    jax.ffi.register_ffi_target(_name, _handler, platform=_platform)
TARGETS: tuple[str, ...] = tuple(dict.fromkeys(name for name, _, _ in _handlers))
"""The names by which programs call operators."""

Flags = tuple[bool, ...]
Parameters = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Operation:
    """An operation with its attributes and the number of its inputs."""

    name: str
    attributes: str
    count: int

    def rows(self) -> Flags:
        """For each input, whether it has rows."""
        return tuple(operand.has_rows for operand in OPERATORS[self.name].operands[: self.count])

    def define(self, *inputs: Array) -> Array:
        """The output, by the definition."""
        return define(self.name, self.attributes, inputs)

    def part(self, *inputs: Array) -> Array:
        """The output, by the operator's parts."""
        return _parts.define(self.name, self.attributes, inputs)

    @property
    def by_feature(self) -> bool:
        """Whether each feature is computed by itself."""
        return computes_by_feature(self.name, self.attributes)

    def texts(self, **more: Flags) -> dict[str, str]:
        """What a foreign function is told."""
        flags = {name: "".join("1" if value else "0" for value in values) for name, values in more.items()}
        return {"operation": self.name, "attributes": self.attributes, **flags}


@lru_cache(maxsize=4096)
def _output_shape(operation: Operation, shapes: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    has_rows = list(operation.rows())
    if all(isinstance(size, int) for shape in shapes for size in shape):
        return tuple(_core.output_shape(operation.name, operation.attributes, shapes, has_rows))
    # Sizes of a program for several shapes. Numbers of rows that are not known stand for any; they agree where they are the same symbol.
    counts = {shape[1] for shape, has in zip(shapes, has_rows) if has and len(shape) > 1}
    known = [(shape[0], 1, *shape[2:]) if has and len(shape) > 1 else shape for shape, has in zip(shapes, has_rows)]
    if len(counts) > 1 or not all(isinstance(size, int) for shape in known for size in shape):
        raise ShapeError(
            f"{operation.name}: shapes {', '.join(str(list(shape)) for shape in shapes)}, of which only the rows, the second axis of features, "
            "may be a symbol, the same for all features"
        )
    found = _core.output_shape(operation.name, operation.attributes, known, has_rows)
    return (found[0], counts.pop(), *found[2:])


def _primitive(
    name: str,
    shapes: Callable[..., list[tuple[int, ...]]],
    compute: Callable[..., Sequence[Array]],
    by_parts: Callable[..., Sequence[Array]],
    rows: Callable[..., tuple[Flags, Flags]] | None,
) -> Primitive:
    """A primitive with several results.

    Args:
        name: how jaxprs show it.
        shapes: the shapes of its results, for the shapes of its arguments and its parameters.
        compute: its results, for its arguments, the shapes of its results and its parameters.
        by_parts: its results, for its arguments and parameters, by what JAX batches: for batches that cannot be folded.
        rows: for its parameters, which arguments and which results have rows; None if ``compute`` is JAX's own to batch and to share out.
    """
    primitive = Primitive(f"gradewise_{name}")
    primitive.multiple_results = True

    @lru_cache(maxsize=4096)
    def function(parameters: Parameters) -> Callable[..., list[Array]]:
        told = dict(parameters)
        return lambda *arguments: list(compute(arguments, shapes([x.shape for x in arguments], **told), **told))

    def run(*arguments: Array, **parameters: Any) -> list[Array]:
        of = function(tuple(sorted(parameters.items())))
        if is_shared:
            flags = rows(**parameters)
            results = shapes([x.shape for x in arguments], **parameters)
            of = by_rows(of, *flags, (tuple(x.ndim for x in arguments), tuple(map(len, results))))
        return list(of(*arguments))

    @primitive.def_abstract_eval
    def _(*avals: Any, **parameters: Any) -> list[Any]:
        # Axes of a mesh over which results vary, in functions for shards.
        varying = {"vma": frozenset().union(*(a.vma for a in avals))} if hasattr(avals[0], "vma") else {}
        return [avals[0].update(shape=shape, **varying) for shape in shapes([a.shape for a in avals], **parameters)]

    @lru_cache(maxsize=4096)
    def compiled(parameters: Parameters) -> Callable[..., list[Array]]:
        return jax.jit(lambda *arguments: run(*arguments, **dict(parameters)))

    primitive.def_impl(lambda *arguments, **parameters: compiled(tuple(sorted(parameters.items())))(*arguments))
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=True))
    is_shared = rows is not None and need_devices(primitive)

    @lru_cache(maxsize=4096)
    def batched(parameters: Parameters, is_batched: Flags) -> Callable[..., list[Array]]:
        # Compiled once, outside of jit too.
        axes = [0 if there else None for there in is_batched]
        return jax.jit(jax.vmap(lambda *xs: list(by_parts(xs, **dict(parameters))), in_axes=axes))

    def batch(arguments: Sequence[Array], dims: Sequence[Any], **parameters: Any) -> tuple[list[Array], list[int]]:
        is_batched = [dim is not None for dim in dims]
        size = next(x.shape[dim] for x, dim, there in zip(arguments, dims, is_batched) if there)
        first = [jnp.moveaxis(x, dim, 0) if there else x for x, dim, there in zip(arguments, dims, is_batched)]
        if rows is not None:
            of_arguments, of_results = rows(**parameters)
            if all(has or not there for has, there in zip(of_arguments, is_batched)) and all(of_results):
                folded = [
                    into_rows(x, there, size) if has else x for x, there, has in zip(first, is_batched, of_arguments)
                ]
                results = [from_rows(y, size) for y in primitive.bind(*folded, **parameters)]
                return results, [0] * len(results)
            if parameters["operation"].by_feature:
                folded = [into_features(x, there, has, size) for x, there, has in zip(first, is_batched, of_arguments)]
                made = primitive.bind(*folded, **parameters)
                results = [from_features(y, has, size) for y, has in zip(made, of_results)]
                return results, [0] * len(results)
        results = batched(tuple(sorted(parameters.items())), tuple(is_batched))(*first)
        return results, [0] * len(results)

    batching.primitive_batchers[primitive] = batch
    return primitive


def _foreign(target: str, arguments: Sequence[Array], shapes: Sequence[tuple[int, ...]], texts: dict[str, str]) -> Any:
    types = tuple(jax.ShapeDtypeStruct(shape, arguments[0].dtype) for shape in shapes)
    return jax.ffi.ffi_call(target, types)(*arguments, **texts)


# Forward: the inputs.

_forward = _primitive(
    "forward",
    lambda shapes, operation: [_output_shape(operation, tuple(shapes))],
    lambda arguments, shapes, operation: _foreign("gradewise_forward", arguments, shapes, operation.texts()),
    lambda arguments, operation: [operation.part(*arguments)],
    lambda operation: (operation.rows(), (True,)),
)

# Push: the inputs, the output, the tangents. The kernel is that of `pull_pull`: a gradient of the inputs' gradients, taken back to the
# output's gradient, which those are linear in. It does not depend on that gradient, in whose place the output stands.


def _push_kernel(arguments: Sequence[Array], shapes: Any, operation: Operation, moves: Flags) -> Any:
    texts = operation.texts(needs=(*(False for _ in moves), True), given=moves)
    return _foreign("gradewise_backward_twice", arguments, shapes, texts)


_push = _primitive(
    "push",
    lambda shapes, operation, moves: [shapes[operation.count]],
    _push_kernel,
    lambda arguments, operation, moves: [
        pushed(operation.part, arguments[: operation.count], moves, arguments[operation.count + 1 :])
    ],
    lambda operation, moves: ((*operation.rows(), True, *chosen(operation.rows(), moves)), (True,)),
)

# Pull: the inputs, the output, its gradient.

_pull = _primitive(
    "pull",
    lambda shapes, operation, wanted: list(chosen(shapes, wanted)),
    lambda arguments, shapes, operation, wanted: _foreign(
        "gradewise_backward", arguments, shapes, operation.texts(needs=wanted)
    ),
    lambda arguments, operation, wanted: pulled(operation.part, arguments[: operation.count], wanted, arguments[-1]),
    lambda operation, wanted: ((*operation.rows(), True, True), chosen(operation.rows(), wanted)),
)

# Push of pull: the inputs, the output's gradient, tangents of those of them that move.


def _pull_push_defined(arguments: Sequence[Array], _: Any, operation: Operation, wanted: Flags, moves: Flags) -> Any:
    primals, tangents = arguments[: len(moves)], arguments[len(moves) :]
    pull = lambda *all: pulled(operation.define, all[:-1], wanted, all[-1])  # noqa: E731
    return jax.jvp(pull, tuple(primals), spread(primals, moves, tangents))[1]


_pull_push = _primitive(
    "pull_push",
    lambda shapes, operation, wanted, moves: list(chosen(shapes, wanted)),
    _pull_push_defined,
    lambda arguments, **parameters: _pull_push_defined(arguments, None, **parameters),
    None,
)

# Pull of pull: the inputs, the output's gradient, gradients of the gradients for which `given` says so.


def _pull_pull_kernel(
    arguments: Sequence[Array], shapes: Any, operation: Operation, wanted: Flags, given: Flags
) -> Any:
    return _foreign("gradewise_backward_twice", arguments, shapes, operation.texts(needs=wanted, given=given))


def _pull_pull_by(
    function: Callable[..., Array], operation: Operation, wanted: Flags, given: Flags, *arguments: Array
) -> tuple[Array, ...]:
    primals, gradients = arguments[: operation.count + 1], arguments[operation.count + 1 :]
    pull = lambda *all: pulled(function, all[:-1], given, all[-1])  # noqa: E731
    return chosen(jax.vjp(pull, *primals)[1](tuple(gradients)), wanted)


_pull_pull = _primitive(
    "pull_pull",
    lambda shapes, operation, wanted, given: list(chosen(shapes, wanted)),
    _pull_pull_kernel,
    lambda arguments, operation, wanted, given: _pull_pull_by(operation.part, operation, wanted, given, *arguments),
    lambda operation, wanted, given: (
        (*operation.rows(), True, *chosen(operation.rows(), given)),
        chosen((*operation.rows(), True), wanted),
    ),
)


# Derivatives.


def _is_there(tangent: Any) -> bool:
    return not isinstance(tangent, ad.Zero)


def _instantiated(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(t if _is_there(t) else jnp.zeros_like(x) for x, t in zip(primals, tangents))


def _forward_jvp(primals: Sequence[Array], tangents: Sequence[Any], operation: Operation) -> Any:
    (output,) = _forward.bind(*primals, operation=operation)
    moves = tuple(map(_is_there, tangents))
    return [output], _push.bind(*primals, output, *chosen(tangents, moves), operation=operation, moves=moves)


def _push_jvp(primals: Sequence[Array], tangents: Sequence[Any], operation: Operation, moves: Flags) -> Any:
    results = _push.bind(*primals, operation=operation, moves=moves)
    # The output is a function of the inputs: it has no tangent of its own.
    count = operation.count
    arguments, along = (*primals[:count], *primals[count + 1 :]), (*tangents[:count], *tangents[count + 1 :])
    push = lambda *all: pushed(operation.define, all[:count], moves, all[count:])  # noqa: E731
    return results, [jax.jvp(push, arguments, _instantiated(arguments, along))[1]]


def _push_transposed(gradients: Sequence[Any], *arguments: Any, operation: Operation, moves: Flags) -> list[Any]:
    (grad,) = gradients
    count = operation.count
    residuals, tangents = arguments[: count + 1], arguments[count + 1 :]
    nothing = [None] * len(residuals)
    if not _is_there(grad):
        return [*nothing, *(ad.Zero(t.aval) if ad.is_undefined_primal(t) else None for t in tangents)]
    *inputs, output = residuals
    found = _pull.bind(*inputs, output, grad, operation=operation, wanted=moves)
    return [*nothing, *(g if ad.is_undefined_primal(t) else None for g, t in zip(found, tangents))]


def _pull_jvp(primals: Sequence[Array], tangents: Sequence[Any], operation: Operation, wanted: Flags) -> Any:
    results = _pull.bind(*primals, operation=operation, wanted=wanted)
    count = operation.count
    arguments, along = (*primals[:count], primals[-1]), (*tangents[:count], tangents[-1])
    moves = tuple(map(_is_there, along))
    if not any(moves):
        return results, [jnp.zeros_like(y) for y in results]
    some = chosen(along, moves)
    return results, _pull_push.bind(*arguments, *some, operation=operation, wanted=wanted, moves=moves)


def _pull_push_jvp(primals: Any, tangents: Any, operation: Operation, wanted: Flags, moves: Flags) -> Any:
    function = lambda *all: list(_pull_push_defined(all, None, operation, wanted, moves))  # noqa: E731
    results = _pull_push.bind(*primals, operation=operation, wanted=wanted, moves=moves)
    return results, jax.jvp(function, tuple(primals), _instantiated(primals, tangents))[1]


def _pull_push_transposed(
    gradients: Sequence[Any], *arguments: Any, operation: Operation, wanted: Flags, moves: Flags
) -> list[Any]:
    primals, tangents = arguments[: len(moves)], arguments[len(moves) :]
    nothing = [None] * len(primals)
    arriving = iter(gradients)
    spread = [next(arriving) if flag else None for flag in wanted]
    given = tuple(g is not None and _is_there(g) for g in spread)
    if not any(given):
        return [*nothing, *(ad.Zero(t.aval) if ad.is_undefined_primal(t) else None for t in tangents)]
    found = _pull_pull.bind(*primals, *chosen(spread, given), operation=operation, wanted=moves, given=given)
    return [*nothing, *(g if ad.is_undefined_primal(t) else None for g, t in zip(found, tangents))]


def _pull_pull_jvp(primals: Any, tangents: Any, operation: Operation, wanted: Flags, given: Flags) -> Any:
    function = lambda *all: list(_pull_pull_by(operation.define, operation, wanted, given, *all))  # noqa: E731
    results = _pull_pull.bind(*primals, operation=operation, wanted=wanted, given=given)
    return results, jax.jvp(function, tuple(primals), _instantiated(primals, tangents))[1]


ad.primitive_jvps[_forward] = _forward_jvp
ad.primitive_jvps[_push] = _push_jvp
ad.primitive_jvps[_pull] = _pull_jvp
ad.primitive_jvps[_pull_push] = _pull_push_jvp
ad.primitive_jvps[_pull_pull] = _pull_pull_jvp
ad.primitive_transposes[_push] = _push_transposed
ad.primitive_transposes[_pull_push] = _pull_push_transposed


def run(operation: str, attributes: str, inputs: Sequence[Array]) -> Array:
    """The output of an operation."""
    return _forward.bind(*varying_alike(inputs), operation=Operation(operation, attributes, len(inputs)))[0]


_parts = Parts(run)
