"""What motions of projective algebra do to multivectors, as matrices: constant tables contracted with the motions' components."""

from __future__ import annotations

import itertools
import math
from array import array
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gradewise.torch._composite import is_followed

PGA = (0.0, 1.0, 1.0, 1.0)
"""The metric of projective algebra in three dimensions."""
POINT = 14
"""The blade e123, the weight of points."""


_BLADES = [blade for grade in range(5) for blade in itertools.combinations(range(4), grade)]


def _product(a: int, b: int) -> tuple[int, float]:
    """The blade that is the product of two, by number, and its factor."""
    one, other = _BLADES[a], _BLADES[b]
    swaps = sum(x > y for x in one for y in other)
    factor = math.prod(PGA[x] for x in one if x in other)
    return _BLADES.index(tuple(sorted({*one} ^ {*other}))), factor * (-1.0) ** swaps


def _reverse(blade: int) -> float:
    """The sign of a blade's reverse."""
    grade = len(_BLADES[blade])
    return (-1.0) ** (grade * (grade - 1) // 2)


@torch.compiler.assume_constant_result
def _host_sandwiches(action: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Tensor:
    # Compilers look through a cache at what it keeps, and a tensor in it might be one of a mode that is over.
    numbers = torch.frombuffer(bytearray(_sandwiches(action, inputs, outputs)), dtype=torch.float64)
    return numbers.reshape(len(action), len(action), len(outputs), len(inputs))


@lru_cache(maxsize=64)
def _sandwiches(action: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> bytes:
    numbers = array("d", bytes(8 * len(action) ** 2 * len(outputs) * len(inputs)))
    for (i, a), (j, b), (r, x) in itertools.product(enumerate(action), enumerate(action), enumerate(inputs)):
        middle, one = _product(a, x)
        result, other = _product(middle, b)
        if result in outputs:
            place = ((i * len(action) + j) * len(outputs) + outputs.index(result)) * len(inputs) + r
            numbers[place] = one * other * _reverse(b)
    return numbers.tobytes()


_CONSTANTS: dict[Any, Tensor] = {}


def sandwiches_like(x: Tensor, action: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Tensor:
    """What a product of two components of an action does to a blade under k·x·k̃, ``[action, action, outputs, inputs]``, with the device and
    dtype of a tensor."""
    key = (action, inputs, outputs, x.device, x.dtype)
    # Tensors made under a mode or a compiler belong to it.
    is_kept = not is_followed() and not torch.is_inference_mode_enabled()
    if is_kept and key in _CONSTANTS:
        return _CONSTANTS[key]
    made = _host_sandwiches(action, inputs, outputs).to(x.device, x.dtype)
    if is_kept:
        _CONSTANTS[key] = made
    return made


def square(blade: int) -> float:
    """The scalar part of the reverse of a blade times itself."""
    return _reverse(blade) * _product(blade, blade)[1]
