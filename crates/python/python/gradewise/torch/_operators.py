"""Operators of gradewise as operators of PyTorch: kernels, shapes for compilers, gradients to second order, mixed precision.

Each operation on features becomes three operators of ``torch.ops.gradewise``: ``NAME``, ``NAME_backward`` and
``NAME_backward_twice``, so that eager code, ``torch.compile``, CUDA graphs and profilers see them like PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional, Union

import torch
from torch import Tensor

from gradewise import _core
from gradewise._errors import ArgumentError, DeviceError, DTypeError
from gradewise._registry import OPERATORS, Operator, Saved, operation, saved_axes, sized
from gradewise.torch import _definitions
from gradewise.torch._composite import (
    Composite,
    is_any_autocast,
    is_batch_of_gradients,
    is_followed,
    is_plain,
    is_transformed,
    over_batch,
    unwrapped,
)
from gradewise.torch._composite import run as run_composite
from gradewise.torch._functional_rules import derivative_rules

Inputs = Sequence[Optional[Tensor]]


@dataclass(frozen=True, eq=False)
class View:
    """How an operator sees a parameter whose module keeps it with axes in another order, or with more of them. Told from others by what
    it is, not by what it has: eager calls look up what was made for their views."""

    of: Callable[[Tensor], Tensor]
    """The parameter as the operator sees it, without a copy."""
    back: Callable[[Tensor], Tensor]
    """A gradient of what the operator sees, as one of the parameter."""
    code: str
    """What composites call it."""

    def __call__(self, parameter: Tensor) -> Viewed:
        """The parameter, for :func:`apply`."""
        return Viewed(parameter, self)


class Viewed:
    """An input that an operator sees in another way. In eager code the view is no operation of its own in the graph of gradients, where
    it would take as long as a small operator."""

    __slots__ = ("tensor", "view")

    def __init__(self, tensor: Tensor, view: View) -> None:
        self.tensor, self.view = tensor, view

    def shown(self) -> Tensor:
        """What the operator sees."""
        return self.view.of(self.tensor)


Given = Union[Tensor, Viewed]
Views = Optional[Sequence[Optional[View]]]


def _shown(inputs: Sequence[Tensor], views: Views) -> Sequence[Tensor]:
    """The inputs as the operator sees them."""
    return inputs if views is None else [x if view is None else view.of(x) for x, view in zip(inputs, views)]


_SERVED = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def _has_kernels(name: str, attributes: str, inputs: Inputs) -> bool:
    """Whether an operation runs as one kernel, rather than by its parts, which are differentiated by running them once more."""
    x = inputs[0]
    dtype = _SERVED.get(x.dtype)
    if x.device.type != "cuda" or dtype is None or x.shape[1] == 0:
        return False
    rows = OPERATORS[name].features
    shapes = tuple(
        (int(t.shape[0]), 1, int(t.shape[2])) if index in rows else tuple(map(int, t.shape))
        for index, t in enumerate(inputs)
        if t is not None
    )
    return _serves(name, attributes, shapes, dtype, str(x.device.index or 0))


@lru_cache(maxsize=4096)
def _serves(name: str, attributes: str, shapes: tuple[tuple[int, ...], ...], dtype: str, device: str) -> bool:
    try:
        return operation(name, attributes).serves([list(s) for s in shapes], dtype, f"cuda:{device}")
    except DeviceError:
        # A program that is only traced, for a device that is not there.
        return False


def _saved_shapes(operator: Operator, attributes: str, inputs: Inputs) -> list[Optional[tuple[int, ...]]]:
    """The shapes of what a forward pass on the device of the inputs leaves, in order; None for what it does not leave."""
    needs_kernels = any(s.needs_kernels for s in operator.saved)
    has_kernels = not needs_kernels or _has_kernels(operator.name, attributes, inputs)
    return [
        None if axes is None or (s.needs_kernels and not has_kernels) else sized(axes, inputs)
        for s, axes in zip(operator.saved, saved_axes(operator.name, attributes))
    ]


def _nothing(like: Tensor) -> Tensor:
    return like.new_empty(0)


def _there(inputs: Inputs) -> list[Tensor]:
    return [x for x in inputs if x is not None]


def _spread(gradients: Sequence[Optional[Tensor]], inputs: Inputs, needs: Sequence[bool]) -> tuple[Tensor, ...]:
    """Gradients as an operator returns them, one for each input: nothing for those that are not there or not asked for, and zeros for
    inputs that the result does not depend on."""
    arriving = iter(gradients)
    some = next(x for x in inputs if x is not None)
    results = []
    for x, need in zip(inputs, needs):
        gradient = next(arriving) if x is not None else None
        if x is None or not need:
            results.append(_nothing(some))
        else:
            results.append(torch.zeros_like(x, memory_format=torch.contiguous_format) if gradient is None else gradient)
    return tuple(results)


def _room(x: Tensor) -> int:
    """The elements that a gradient takes among packed ones."""
    return (x.numel() + 3) // 4 * 4


def _unpacked(packed: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the inputs, as parts of the tensor that holds them."""
    parts = packed.split([_room(x) for x in inputs])
    sizes = [x.numel() for x in inputs]
    return [
        (part if part.shape[0] == size else part[:size]).view(x.shape) for part, size, x in zip(parts, sizes, inputs)
    ]


def _define(operator: Operator) -> Callable[[Sequence[Given], str], Tensor]:
    name = operator.name
    names = [operand.name for operand in operator.operands]
    arity, count = len(names), len(operator.saved)
    inputs = ", ".join(f"Tensor{'?' if operand.is_optional else ''} {operand.name}" for operand in operator.operands)
    saved = ", ".join(f"Tensor {s.name}" for s in operator.saved)
    arriving = ", ".join(f"Tensor? grad_{word}" for word in names)

    def tensors(number: int) -> str:
        return "Tensor" if number == 1 else "(" + ", ".join(["Tensor"] * number) + ")"

    def define(suffix: str, parameters: Sequence[str], results: int) -> str:
        full = f"gradewise::{name}{suffix}"
        schema = f"({', '.join(filter(None, parameters))}) -> {tensors(results)}"
        torch.library.define(full, schema, tags=torch.Tag.pt2_compliant_tag)
        return full

    first, end = operator.packed
    # The gradients as the backward operator returns them: those of packed inputs count as one.
    width = arity - (end - first) + (end > first)
    forward_name = define("", [inputs, "str attributes"], 1 + count)
    backward_name = define(
        "_backward", ["Tensor grad", inputs, "Tensor output", saved, "bool[] needs", "str attributes"], width
    )
    twice_name = define(
        "_backward_twice",
        ["Tensor grad", inputs, arriving, "bool[] needs", "bool needs_grad", "str attributes"],
        arity + 1,
    )

    # What the machine computes.

    @torch.library.impl(forward_name, ("cpu", "cuda"))
    def forward(*arguments):
        *inputs, attributes = arguments
        output, saved = operation(name, attributes).forward(_there(inputs))
        if count == 0:
            return output
        # None of an operation that ran elsewhere, such as one on 16-bit numbers on the CPU: the backward pass runs it once more.
        left = iter(saved or ())
        shapes = _saved_shapes(operator, attributes, inputs)
        return output, *(next(left) if saved and shape is not None else _nothing(inputs[0]) for shape in shapes)

    @torch.library.impl(backward_name, ("cpu", "cuda"))
    def backward(grad, *arguments):
        inputs, output = arguments[:arity], arguments[arity]
        saved, (needs, attributes) = arguments[arity + 1 : -2], arguments[-2:]
        there = [
            (s, shape) for s, shape in zip(saved, _saved_shapes(operator, attributes, inputs)) if shape is not None
        ]
        is_known = count > 0 and all(tuple(s.shape) == tuple(shape) for s, shape in there)
        gradients = operation(name, attributes).backward(
            _there(inputs),
            output,
            [s for s, _ in there] if is_known else None,
            grad,
            [need for need, x in zip(needs, inputs) if x is not None],
            operator.packed if end > first else None,
        )
        if end > first:
            # Only inputs before and after the packed ones may be absent or need nothing.
            kept = [*inputs[:first], gradients[first], *inputs[end:]]
            results = _spread(gradients, kept, [*needs[:first], True, *needs[end:]])
        else:
            results = _spread(gradients, inputs, needs)
        return results if width > 1 else results[0]

    @torch.library.impl(twice_name, ("cpu", "cuda"))
    def backward_twice(grad, *arguments):
        inputs, gradients, (needs, needs_grad, attributes) = arguments[:arity], arguments[arity:-3], arguments[-3:]
        *of_inputs, of_grad = operation(name, attributes).backward_twice(
            _there(inputs),
            grad,
            [g for g, x in zip(gradients, inputs) if x is not None],
            [need for need, x in zip(needs, inputs) if x is not None],
            needs_grad,
        )
        return *_spread(of_inputs, inputs, needs), *_spread([of_grad], [grad], [needs_grad])

    # What compilers need: shapes and dtypes.

    @torch.library.register_fake(forward_name)
    def _(*arguments):
        *inputs, attributes = arguments
        x = inputs[0]
        output = x.new_empty(operator.shape(attributes, inputs))
        if count == 0:
            return output
        is_short = x.dtype.itemsize == 2
        ran_elsewhere = is_short and x.device.type == "cpu"

        def left(s: Saved, shape: Optional[Sequence[int]]) -> Tensor:
            if ran_elsewhere or shape is None:
                return _nothing(x)
            return x.new_empty(shape, dtype=torch.float32 if s.is_wide and is_short else x.dtype)

        shapes = _saved_shapes(operator, attributes, inputs)
        return output, *(left(s, shape) for s, shape in zip(operator.saved, shapes))

    @torch.library.register_fake(backward_name)
    def _(grad, *arguments):
        inputs, needs = arguments[:arity], arguments[-2]
        results = [x.new_empty(x.shape) if need else _nothing(grad) for x, need in zip(inputs, needs)]
        if end > first:
            results[first:end] = [inputs[first].new_empty(sum(_room(x) for x in inputs[first:end]))]
        return tuple(results) if width > 1 else results[0]

    @torch.library.register_fake(twice_name)
    def _(grad, *arguments):
        inputs, (needs, needs_grad, _) = arguments[:arity], arguments[-3:]
        wanted = zip([*inputs, grad], [*needs, needs_grad])
        return tuple(x.new_empty(x.shape) if need else _nothing(grad) for x, need in wanted)

    # Gradients.

    run = getattr(torch.ops.gradewise, name).default
    run_backward = getattr(torch.ops.gradewise, f"{name}_backward").default
    run_twice = getattr(torch.ops.gradewise, f"{name}_backward_twice").default

    def separate(results, inputs: Inputs) -> list[Tensor]:
        """What the backward operator returns, as a gradient for each input."""
        gradients = list(results) if width > 1 else [results]
        if end > first:
            gradients[first : first + 1] = _unpacked(gradients[first], inputs[first:end])
        return gradients

    def keep(ctx, inputs, output) -> None:
        *tensors, ctx.attributes = inputs
        ctx.set_materialize_grads(False)
        outputs = output if count else (output,)
        ctx.save_for_backward(*tensors, *(outputs if operation(name, ctx.attributes).reads_output else outputs[1:]))

    def differentiate(ctx, grad, *_):
        if grad is None:
            return (None,) * (arity + 1)
        needs = [bool(need) for need in ctx.needs_input_grad[:arity]]
        # Asked for once: under activation checkpointing each time would compute them.
        saved = ctx.saved_tensors
        reads_output = operation(name, ctx.attributes).reads_output
        if is_transformed() or is_batch_of_gradients(grad):
            there = [index for index, x in enumerate(saved[:arity]) if x is not None]
            wanted, some = [needs[index] for index in there], [saved[index] for index in there]

            def pull(grad):
                return transformed.pull(ctx.attributes, wanted, grad, saved[arity] if reads_output else grad, some)

            arriving = iter(over_batch(pull, grad))
            return *(next(arriving) if x is not None else None for x in saved[:arity]), None
        if not reads_output:
            # In its place something of its shape, so that the output itself may be changed.
            saved = *saved[:arity], grad, *saved[arity:]
        gradients = separate(run_backward(grad, *saved, needs, ctx.attributes), saved)
        return *(g if need else None for g, need in zip(gradients, needs)), None

    torch.library.register_autograd(forward_name, differentiate, setup_context=keep)

    def keep_backward(ctx, inputs, output) -> None:
        grad, *tensors = inputs[: arity + 1]
        ctx.asked, ctx.attributes = inputs[-2:]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(grad, *tensors)

    def differentiate_backward(ctx, *gradients):
        grad, *inputs = ctx.saved_tensors
        needs_grad, *needs = (bool(need) for need in ctx.needs_input_grad[: arity + 1])
        gradients = list(gradients)
        if end > first:
            packed = gradients[first]
            parts = [None] * (end - first) if packed is None else _unpacked(packed, inputs[first:end])
            gradients[first : first + 1] = parts
        # Of gradients that were not asked for there is nothing.
        arriving = [g if asked else None for g, asked in zip(gradients, ctx.asked)]
        results = run_twice(grad, *inputs, *arriving, needs, needs_grad, ctx.attributes)
        *of_inputs, of_grad = [g if need else None for g, need in zip(results, [*needs, needs_grad])]
        # The output and what was saved are functions of the inputs, by which they have been differentiated.
        return of_grad, *of_inputs, None, *(None for _ in range(count)), None, None

    torch.library.register_autograd(backward_name, differentiate_backward, setup_context=keep_backward)

    def keep_twice(ctx, inputs, output) -> None:
        *ctx.asked, ctx.wants_grad, ctx.attributes = *inputs[-3], *inputs[-2:]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[:-3])

    def differentiate_twice(ctx, *gradients):
        # Third derivatives: by the definition, and so differentiable again. What is linear in gradients that are absent is left out.
        grad, *tensors = ctx.saved_tensors
        inputs, arriving = tensors[:arity], tensors[arity:]
        given = [index for index, x in enumerate(inputs) if x is not None]
        needs = tuple(arriving[index] is not None for index in given)
        function = _definitions.gradients(name, ctx.attributes, needs)
        some = [arriving[index] for index, need in zip(given, needs) if need]

        def second(grad, *rest):
            xs, gs = rest[: len(given)], rest[len(given) :]
            of_grad, *of_inputs = torch.func.vjp(function, grad, *xs)[1](gs)
            return *of_inputs, of_grad

        asked = [*(ctx.asked[index] for index in given), ctx.wants_grad]
        results = [*(gradients[index] for index in given), gradients[arity]]
        outputs, pull = torch.func.vjp(second, grad, *(inputs[index] for index in given), *some)
        cotangents = tuple(
            torch.zeros_like(y) if g is None or not wanted else g for y, g, wanted in zip(outputs, results, asked)
        )
        of_grad, *rest = pull(cotangents)
        of_inputs, of_arriving = iter(rest[: len(given)]), iter(rest[len(given) :])
        spread = [next(of_inputs) if x is not None else None for x in inputs]
        pulled = [next(of_arriving) if g is not None else None for g in arriving]
        return of_grad, *spread, *pulled, None, None, None

    torch.library.register_autograd(twice_name, differentiate_twice, setup_context=keep_twice)

    # Under transformations.

    def padded(inputs: Sequence[Tensor]) -> Sequence[Optional[Tensor]]:
        return *inputs, *(None,) * (arity - len(inputs))

    def forward_kernel(attributes: str, inputs: Sequence[Tensor]) -> Tensor:
        result = run(*padded(inputs), attributes)
        return result[0] if count else result

    def backward_kernel(attributes, needs, grad, inputs, output):
        missing = (False,) * (arity - len(inputs))
        kept = [_nothing(output)] * count
        results = run_backward(grad, *padded(inputs), output, *kept, [*needs, *missing], attributes)
        gradients = separate(results, inputs)
        return [g for g, need in zip(gradients, needs) if need]

    def tangent_kernel(attributes, moves, inputs, tangents):
        # The transpose of the gradients, which are linear in the output's: that of the output is there for its shape.
        arriving = iter(tangents)
        along = [next(arriving) if moving else None for moving in moves]
        like = inputs[0].new_zeros(operator.shape(attributes, padded(inputs)))
        return run_twice(like, *padded(inputs), *padded(along), [False] * arity, True, attributes)[-1]

    transformed = derivative_rules(name, operator.features, forward_kernel, backward_kernel, tangent_kernel)

    @lru_cache(maxsize=4096)
    def eager(attributes: str, views: Views, present: int) -> Composite:
        """The operator where nobody but autograd looks on. It does what the registered one does, which takes several times as long to get
        through PyTorch's dispatcher."""

        def second(inputs, output, grad, needs, _):
            shown = _shown(inputs, views)
            if is_transformed():
                wanted = transformed.pull(attributes, needs, grad, output, shown)
            else:
                arriving = iter(backward_kernel(attributes, needs, grad, shown, output))
                wanted = [next(arriving) if need else None for need in needs]
            if views is None:
                return wanted
            return [g if g is None or view is None else view.back(g) for g, view in zip(wanted, views)]

        codes = ["same" if view is None else view.code for view in views or (None,) * present]
        native = _core.Composite([(name, attributes, list(range(present)))], codes, "same")
        return Composite(native, second, operation(name, attributes).reads_output)

    def call(inputs: Sequence[Given], attributes: str) -> Tensor:
        views = None
        for x in inputs:
            if type(x) is Viewed:
                views = tuple([x.view if type(x) is Viewed else None for x in inputs])
                inputs = [x.tensor if type(x) is Viewed else x for x in inputs]
                break
        for index, x in enumerate(inputs):
            if not isinstance(x, Tensor):
                raise ArgumentError(
                    f"{name}: input {index} is a {type(x).__module__}.{type(x).__qualname__}, expected a torch.Tensor; convert it with "
                    "torch.as_tensor, or use gradewise.numpy or gradewise.jax"
                )
        # What most calls are, told by one look at all of their tensors.
        if not is_followed() and not is_any_autocast():
            made = eager(attributes, views, len(inputs))
            if made.native.admits(inputs):
                return run_composite(made, inputs)
        prepared = _in_precision(inputs, operator)
        # Dynamo up to PyTorch 2.11 cannot trace a context variable, and what traces programs with definitions is not Dynamo.
        if not torch.compiler.is_dynamo_compiling() and _definitions.are_used():
            return _definitions.write_out(name, attributes, _shown(prepared, views))
        if is_transformed():
            shown = _shown(prepared, views)
            # Compilers follow definitions through transformations, and no rules of one's own.
            is_compiled = torch.compiler.is_compiling()
            return _definitions.define(name, attributes, shown) if is_compiled else transformed.run(attributes, shown)
        if is_plain(prepared):
            return run_composite(eager(attributes, views, len(prepared)), unwrapped(prepared))
        missing = (None,) * (arity - len(prepared))
        result = run(*_shown(prepared, views), *missing, attributes)
        return result[0] if count else result

    return call


def _in_precision(inputs: Sequence[Tensor], operator: Operator) -> Sequence[Tensor]:
    """The inputs in the dtype that autocast says; outside of it as they are, all of one dtype. Parameters that may be wide stay so."""
    x = inputs[0]
    kind = x.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        target = torch.get_autocast_dtype(kind) if operator.rule != "f32" else torch.float32
        stays = (target, torch.float64)
        return [
            t if t.dtype in stays or _may_be_wide(operator, index, t, target) else t.to(target)
            for index, t in enumerate(inputs)
        ]
    for index, t in enumerate(inputs):
        if t.dtype != x.dtype and not _may_be_wide(operator, index, t, x.dtype):
            raise DTypeError(
                f"input {index} has dtype {t.dtype}, and input 0 has {x.dtype}; convert one with .to(), or use torch.autocast"
            )
    return inputs


def _may_be_wide(operator: Operator, index: int, x: Tensor, dtype: torch.dtype) -> bool:
    return operator.operands[index].may_be_wide and x.dtype == torch.float32 and dtype.itemsize == 2


_CALLS = {name: _define(operator) for name, operator in OPERATORS.items()}


def apply(operation: str, attributes: str, inputs: Sequence[Given]) -> Tensor:
    """Runs an operation on features with attributes as JSON."""
    return _CALLS[operation](inputs, attributes)
