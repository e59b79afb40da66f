"""The definitions of operators in PyTorch's own operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import Optional

import torch
from torch import Tensor

from gradewise import _core
from gradewise._definitions import Definitions
from gradewise._registry import OPERATORS


class _Library:
    """PyTorch's primitives."""

    def constant(self, values: Sequence[float], like: Tensor) -> Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device)

    def take(self, x: Tensor, index: Sequence[int]) -> Tensor:
        places = torch.tensor(index, device=x.device)
        # The backward pass of `index_select` adds in no fixed order on a GPU, that of an index on a CPU with several threads.
        return x[places] if x.is_cuda else x.index_select(0, places)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts))

    def sum(self, x: Tensor, axis: int) -> Tensor:
        return x.sum(axis, keepdim=True)

    def last_two_swapped(self, x: Tensor) -> Tensor:
        return x.transpose(-2, -1)

    def maximum(self, x: Tensor, y: float) -> Tensor:
        return x.clamp(min=y)

    sqrt = staticmethod(torch.sqrt)
    erf = staticmethod(torch.erf)
    sigmoid = staticmethod(torch.sigmoid)
    absolute = staticmethod(torch.abs)
    where = staticmethod(torch.where)


_definitions = Definitions(_Library())


def define(operation: str, attributes: str, inputs: Sequence[Optional[Tensor]]) -> Tensor:
    """An operation on tensors, in PyTorch's own operators: differentiable to any order, in both modes, and for ``vmap``. 16-bit numbers are
    computed in float32 and rounded, as kernels do."""
    there = [x for x in inputs if x is not None]
    dtype = there[0].dtype
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    kind = there[0].device.type
    # Entered where it changes something alone: programs that are traced would show it.
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        return _definitions(operation, attributes, [x.to(wide) for x in there]).to(dtype)


_ARE_USED: ContextVar[bool] = ContextVar("gradewise_definitions_are_used", default=False)


@contextmanager
def used() -> Iterator[None]:
    """Programs traced within have the definitions in place of the operators."""
    token = _ARE_USED.set(True)
    try:
        yield
    finally:
        _ARE_USED.reset(token)


are_used = _ARE_USED.get
"""Whether a traced program is to have definitions in place of operators."""


def write_out(operation: str, attributes: str, inputs: Sequence[Tensor]) -> Tensor:
    """An operation in a program that is traced: :func:`define`, and what kernels refuse is refused with their text.

    A number of rows that is a symbol stands for any; other symbols are PyTorch's to check.
    """
    features = OPERATORS[operation].features
    has_rows = [index in features for index in range(len(inputs))]
    is_symbol = any(rows and x.dim() > 1 and not isinstance(x.shape[1], int) for x, rows in zip(inputs, has_rows))
    shapes = [
        [1 if is_symbol and rows and axis == 1 else size for axis, size in enumerate(x.shape)]
        for x, rows in zip(inputs, has_rows)
    ]
    if all(isinstance(size, int) for shape in shapes for size in shape):
        _core.output_shape(operation, attributes, shapes, has_rows)
    return define(operation, attributes, inputs)


Function = Callable[..., Tensor]


@lru_cache(maxsize=4096)
def gradients(operation: str, attributes: str, needs: tuple[bool, ...]) -> Callable[..., tuple[Tensor, ...]]:
    """The gradients of an operation's inputs, as far as they are needed: a function of the output's gradient and the inputs."""

    def run(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        def forward(*needed: Tensor) -> Tensor:
            arriving = iter(needed)
            return define(operation, attributes, [next(arriving) if n else x for x, n in zip(inputs, needs)])

        _, pull = torch.func.vjp(forward, *(x for x, n in zip(inputs, needs) if n))
        return pull(grad)

    return run


@lru_cache(maxsize=4096)
def tangent(operation: str, attributes: str, moves: tuple[bool, ...]) -> Function:
    """The derivative of an operation along tangents of some inputs: a function of the inputs and of those tangents.

    It is the transpose of the gradients, which are linear in the output's gradient, so that it needs reverse mode alone: PyTorch does
    not nest its forward mode within dual numbers of the caller.
    """

    def run(*arguments: Tensor) -> Tensor:
        inputs, tangents = arguments[: len(moves)], arguments[len(moves) :]
        pull = gradients(operation, attributes, moves)
        like = define(operation, attributes, inputs).detach()
        _, push = torch.func.vjp(lambda grad: pull(grad, *inputs), torch.zeros_like(like))
        return push(tuple(tangents))[0]

    return run
