"""The operations on features, as the registry describes them: what every front of the package takes names and shapes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Union

from gradewise import _core
from gradewise._core import Operation

Size = Union[tuple[int, int], int]
"""The number and the axis of an input, or a number."""


@dataclass(frozen=True)
class Operand:
    """An input of an operation."""

    name: str
    is_optional: bool
    has_rows: bool
    """Whether its second axis counts rows, each of which is computed by itself."""
    may_be_wide: bool
    """Whether it may be in float32 where features have 16 bits: a parameter, which autocast leaves as it is."""
    is_packed: bool
    """Whether its gradient is part of one array with those of its like, each from a multiple of 4 on."""


@dataclass(frozen=True)
class Saved:
    """An array that a forward pass may leave for its backward pass."""

    name: str
    is_wide: bool
    """Whether it is in float32 where the features have 16 bits."""
    needs_kernels: bool
    """Whether it is left by kernels alone, which not all devices, dtypes and sizes have."""


@dataclass(frozen=True)
class Operator:
    """An operation on features."""

    name: str
    rule: str
    """What mixed precision does with the inputs, as in settings: "16-bit" computes in its dtype, "f32" in float32."""
    operands: tuple[Operand, ...]
    saved: tuple[Saved, ...]

    @cached_property
    def features(self) -> tuple[int, ...]:
        """The inputs that have rows."""
        return tuple(index for index, operand in enumerate(self.operands) if operand.has_rows)

    @cached_property
    def packed(self) -> tuple[int, int]:
        """The inputs, from the first to before the second, whose gradients are one array."""
        flags = [operand.is_packed for operand in self.operands]
        first = flags.index(True) if any(flags) else 0
        return first, first + sum(flags)

    def shape(self, attributes: str, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The shape of the output, by the inputs, whose sizes may be symbols."""
        axes = operation(self.name, attributes).output_axes
        if axes is None:
            raise NotImplementedError(f"{self.name} does not tell the shape of its output")
        return sized(axes, inputs)


def sized(axes: Sequence[Size], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Sizes in terms of the inputs."""
    return tuple(size if isinstance(size, int) else inputs[size[0]].shape[size[1]] for size in axes)


@lru_cache(maxsize=4096)
def operation(name: str, attributes: str) -> Operation:
    """An operation with its attributes as JSON."""
    return Operation(name, attributes)


@lru_cache(maxsize=4096)
def saved_axes(name: str, attributes: str) -> tuple[Union[Sequence[Size], None], ...]:
    """The sizes of what an operation's forward pass leaves, in order; None for what it does not leave with these attributes."""
    return tuple(operation(name, attributes).saved_axes)


OPERATORS = {
    name: Operator(name, rule, tuple(Operand(*o) for o in operands), tuple(Saved(*s) for s in saved))
    for name, rule, operands, saved in _core.operators()
}
"""The operators by name."""
