"""Operators under ``torch.func`` and with dual numbers: derivatives in both modes, to any order, and batches.

First derivatives, in reverse and in forward mode, are kernels; what lies beyond is PyTorch's differentiation of the definitions. A batch
over features alone is folded into their rows, which an operator computes one by one; other batches go through the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradewise.torch import _definitions

Gradients = list[Optional[Tensor]]


@dataclass(frozen=True)
class Rules:
    """An operator under transformations."""

    run: Callable[[str, Sequence[Tensor]], Tensor]
    """The output, for attributes and inputs, none of which is absent."""
    pull: Callable[..., Gradients]
    """The gradients of the inputs that are needed, for attributes, what is needed, the output's gradient, the output and the inputs."""


def derivative_rules(
    name: str,
    rows: Sequence[int],
    forward_kernel: Callable[[str, Sequence[Tensor]], Tensor],
    backward_kernel: Callable[[str, tuple[bool, ...], Tensor, Sequence[Tensor], Tensor], Sequence[Tensor]],
    tangent_kernel: Callable[[str, tuple[bool, ...], Sequence[Tensor], Sequence[Tensor]], Tensor],
) -> Rules:
    """How an operator runs under any transformation.

    Args:
        name: the operation.
        rows: the inputs that have rows, by number.
        forward_kernel: the output.
        backward_kernel: the needed gradients, for the attributes, what is needed, the output's gradient, the inputs, and the output.
        tangent_kernel: the derivative along tangents of the inputs that move.
    """

    @lru_cache(maxsize=4096)
    def rules(attributes: str, count: int) -> tuple[type[torch.autograd.Function], Callable[..., Any]]:
        has_rows = [index in rows for index in range(count)]

        class Forward(torch.autograd.Function):
            @staticmethod
            def forward(*inputs):
                return forward_kernel(attributes, inputs)

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs, output)
                ctx.save_for_forward(*inputs)

            @staticmethod
            def backward(ctx, grad):
                *inputs, output = ctx.saved_tensors
                needs = tuple(map(bool, ctx.needs_input_grad))
                arriving = iter(backward(needs).apply(grad, output.detach(), *inputs))
                return tuple(next(arriving) if need else None for need in needs)

            @staticmethod
            def jvp(ctx, *tangents):
                moves = tuple(t is not None for t in tangents)
                return push(moves).apply(*ctx.saved_tensors[:count], *(t for t in tangents if t is not None))

            @staticmethod
            def vmap(info, in_dims, *inputs):
                if all(dim is None or of_rows for dim, of_rows in zip(in_dims, has_rows)):
                    folded = [
                        _folded(x, dim, info.batch_size) if r else x for x, dim, r in zip(inputs, in_dims, has_rows)
                    ]
                    return _unfolded(Forward.apply(*folded), info.batch_size), 0
                return _batched(lambda *xs: _definitions.define(name, attributes, xs), info, in_dims, inputs), 0

        @lru_cache(maxsize=None)
        def backward(needs: tuple[bool, ...]) -> type[torch.autograd.Function]:
            definition = _definitions.gradients(name, attributes, needs)
            # The gradient of an input without rows sums over them.
            folds = all(of_rows or not need for of_rows, need in zip(has_rows, needs))

            class Backward(torch.autograd.Function):
                @staticmethod
                def forward(grad, output, *inputs):
                    return _apart(grad, backward_kernel(attributes, needs, grad, inputs, output))

                @staticmethod
                def setup_context(ctx, inputs, output):
                    grad, _, *features = inputs
                    ctx.save_for_backward(grad, *features)
                    ctx.save_for_forward(grad, *features)
                    ctx.set_materialize_grads(False)

                @staticmethod
                def backward(ctx, *gradients):
                    of_grad, *of_inputs = _pulled(definition, ctx.saved_tensors, gradients)
                    return of_grad, None, *of_inputs

                @staticmethod
                def jvp(ctx, of_grad, _, *of_inputs):
                    return _pushed(definition, ctx.saved_tensors, (of_grad, *of_inputs))

                @staticmethod
                def vmap(info, in_dims, grad, output, *inputs):
                    grad_dim, output_dim, *dims = in_dims
                    count = sum(needs)
                    if folds and all(dim is None or of_rows for dim, of_rows in zip(dims, has_rows)):
                        size = info.batch_size
                        folded = [_folded(x, dim, size) if r else x for x, dim, r in zip(inputs, dims, has_rows)]
                        results = Backward.apply(
                            _folded(grad, grad_dim, size), _folded(output, output_dim, size), *folded
                        )
                        return tuple(_unfolded(y, size) for y in results), (0,) * count
                    results = _batched(definition, info, (grad_dim, *dims), (grad, *inputs))
                    return _apart(grad, results), (0,) * count

            return Backward

        @lru_cache(maxsize=None)
        def push(moves: tuple[bool, ...]) -> type[torch.autograd.Function]:
            definition = _definitions.tangent(name, attributes, moves)
            which = [*has_rows, *(r for r, moving in zip(has_rows, moves) if moving)]

            class Push(torch.autograd.Function):
                @staticmethod
                def forward(*arguments):
                    return tangent_kernel(attributes, moves, arguments[:count], arguments[count:])

                @staticmethod
                def setup_context(ctx, inputs, output):
                    ctx.save_for_backward(*inputs)
                    ctx.save_for_forward(*inputs)

                @staticmethod
                def backward(ctx, grad):
                    return tuple(_pulled(definition, ctx.saved_tensors, grad))

                @staticmethod
                def jvp(ctx, *tangents):
                    return _pushed(definition, ctx.saved_tensors, tangents)

                @staticmethod
                def vmap(info, in_dims, *arguments):
                    if all(dim is None or of_rows for dim, of_rows in zip(in_dims, which)):
                        size = info.batch_size
                        folded = [_folded(x, dim, size) if r else x for x, dim, r in zip(arguments, in_dims, which)]
                        return _unfolded(Push.apply(*folded), size), 0
                    return _batched(definition, info, in_dims, arguments), 0

            return Push

        return Forward, backward

    def run(attributes: str, inputs: Sequence[Tensor]) -> Tensor:
        return rules(attributes, len(inputs))[0].apply(*inputs)

    def pull(
        attributes: str, needs: Sequence[bool], grad: Tensor, output: Tensor, inputs: Sequence[Tensor]
    ) -> Gradients:
        of = rules(attributes, len(inputs))[1](tuple(map(bool, needs)))
        arriving = iter(of.apply(grad, output, *inputs))
        return [next(arriving) if need else None for need in needs]

    return Rules(run, pull)


def _pulled(function: Callable[..., Any], arguments: Sequence[Tensor], gradients: Any) -> Sequence[Tensor]:
    """The gradients of a function's arguments, differentiable again."""
    outputs, pull = torch.func.vjp(function, *arguments)
    if isinstance(outputs, Tensor):
        return pull(gradients)
    return pull(tuple(torch.zeros_like(y) if g is None else g for y, g in zip(outputs, gradients)))


def _pushed(function: Callable[..., Any], arguments: Sequence[Tensor], tangents: Sequence[Optional[Tensor]]) -> Any:
    """The derivative of a function along tangents, by reverse mode alone: its transpose is linear in the outputs' gradients.

    PyTorch switches forward mode off while a rule of forward mode runs, for all levels of nested transformations alike, so that third
    derivatives in forward mode would be zero. Here it is on, for arguments without the tangents of the rule's own level.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        return _transposed(function, arguments, tangents)
    with forward_ad._set_fwd_grad_enabled(True):
        return _transposed(function, [forward_ad.unpack_dual(x).primal for x in arguments], tangents)


def _transposed(function: Callable[..., Any], arguments: Sequence[Tensor], tangents: Sequence[Optional[Tensor]]) -> Any:
    outputs, pull = torch.func.vjp(function, *arguments)
    if isinstance(outputs, Tensor):
        like: Any = torch.zeros_like(outputs.detach())
    else:
        like = tuple(torch.zeros_like(y.detach()) for y in outputs)
    _, push = torch.func.vjp(pull, like)
    return push(tuple(torch.zeros_like(x) if t is None else t for x, t in zip(arguments, tangents)))[0]


def _apart(grad: Tensor, gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients as a function of PyTorch may return them: no parts of one array, for views have tangents of another kind, and not the
    output's gradient itself, which is that of what is added."""
    return tuple(g.clone() if g is grad or g._is_view() else g for g in gradients)


def _batched(
    function: Callable[..., Any], info: Any, dims: Sequence[Optional[int]], arguments: Sequence[Tensor]
) -> Any:
    return torch.func.vmap(function, in_dims=tuple(dims), randomness=info.randomness)(*arguments)


def _folded(x: Tensor, dim: Optional[int], size: int) -> Tensor:
    """A batch of features ``[blades, rows, features]`` as features with ``size`` times the rows."""
    x = x[:, None].expand(-1, size, -1, -1) if dim is None else x.movedim(dim, 1)
    return x.reshape(x.shape[0], size * x.shape[2], x.shape[3])


def _unfolded(x: Tensor, size: int) -> Tensor:
    return x.reshape(x.shape[0], size, x.shape[1] // size, x.shape[2]).movedim(1, 0)
