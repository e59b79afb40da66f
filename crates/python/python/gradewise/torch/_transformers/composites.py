"""Composites of the steps of transformers, on whole feature planes ``[scalars + 16 · channels, rows]``: which operators there are, with which
attributes, and which parameters of a module they take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise.torch._composite import Step
from gradewise.torch._transformers.algebra import Blades
from gradewise.torch._transformers.features import is_own, is_without_hooks
from gradewise.torch._transformers.linear import LinearLayer

DEVICES: dict[str, Optional[int]] = {"cuda": None, "cpu": 320}
"""Devices on which blocks are composites, and of how many rows at most. On a CPU, products of large matrices are as fast in PyTorch."""


def pays(device: torch.device, rows: Optional[int] = None) -> bool:
    """Whether a block of so many rows is a composite there; of any number if ``None``."""
    most = DEVICES.get(device.type, 0)
    return most is None or (rows is not None and rows <= most)


_ACTIVATIONS: dict[Callable[..., Tensor], str] = {
    F.relu: "relu",
    torch.relu: "relu",
    torch.sigmoid: "sigmoid",
    F.sigmoid: "sigmoid",
    torch.tanh: "tanh",
    F.tanh: "tanh",
    F.silu: "silu",
    F.gelu: "gelu",
}
"""Activations as the operators name them."""

_PARTS = (
    ("bias", "bias"),
    ("to_planes", "s2mvs.weight"),
    ("to_planes_bias", "s2mvs.bias"),
    ("to_scalars", "mvs2s.weight"),
    ("to_scalars_bias", "mvs2s.bias"),
    ("between", "s2s.weight"),
)
"""Operands of the linear map that may be absent, and the parameters that they are."""


@dataclass(frozen=True)
class Linear:
    """An equivariant linear map: its sizes, and the operands that it has besides the coefficients."""

    out: int
    scalars: int
    maps: int
    mixes: bool
    given: tuple[str, ...]


@dataclass(frozen=True)
class Norm:
    """A norm over channels: its constants, and whether it has gains of multivectors and of scalars."""

    epsilon: float
    gain: float = 1.0
    gains: bool = False
    scalar_gains: bool = False


Named = list[tuple[str, Tensor]]
"""Parameters of a module, by their names in it."""


class Differs(Exception):
    """A block that is not to be run as composites."""


def activation_of(function: Any) -> str:
    """The name of an activation among the operators.

    Raises:
        Differs: for another function.
    """
    if isinstance(function, partial):
        if function.func is F.gelu and not function.args and function.keywords == {"approximate": "tanh"}:
            return "gelu_tanh"
        raise Differs
    name = _ACTIVATIONS.get(function) if callable(function) else None
    if name is None:
        raise Differs
    return name


class Reader:
    """Collects the parameters of layers by their names in a block."""

    def __init__(self) -> None:
        self.named: Named = []

    def take(self, found: Optional[tuple[Any, Named]], name: str) -> Any:
        """What a layer is, whose parameters are noted.

        Raises:
            Differs: if it is None, another layer than is known.
        """
        if found is None:
            raise Differs
        self.named += [(f"{name}.{own}", x) for own, x in found[1]]
        return found[0]


class Part(nn.Module):
    """A part of a block by its layers, with parameters from elsewhere."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    @staticmethod
    def named(names: Sequence[str], parameters: Sequence[Tensor]) -> dict[str, Tensor]:
        """Parameters of the block, by their names in it, for ``functional_call``."""
        return {f"block.{name}": x for name, x in zip(names, parameters)}


def parameter(module: nn.Module, name: str) -> Optional[Tensor]:
    """A parameter that a module keeps itself, by a dotted name; None if it is absent, parametrised or a buffer."""
    *path, last = name.split(".")
    for part in path:
        found = module._modules.get(part)
        if found is None:
            return None
        module = found
    return module._parameters.get(last)


def linear_of(module: nn.Module, kind: type, mv: int, s: int) -> Optional[tuple[Linear, Named]]:
    """The linear map of ``mv`` multivectors and ``s`` scalars that a module is, and its parameters; None if it is another one, or not to be
    run without being called, or takes others, which it refuses itself."""
    if not is_own(module, kind):
        return None
    assert isinstance(module, LinearLayer)
    for inner in (module.s2mvs, module.mvs2s, module.s2s):
        if inner is not None and not (
            type(inner).forward is nn.Linear.forward and "forward" not in inner.__dict__ and is_without_hooks(inner)
        ):
            return None
    weight = parameter(module, "weight")
    if weight is None or weight.shape[1] != mv or s != (0 if module.s2mvs is None else module.s2mvs.in_features):
        return None
    named = [("weight", weight)]
    given = []
    for part, name in _PARTS:
        found = parameter(module, name)
        if found is not None:
            given.append(part)
            named.append((name, found))
    scalars = parameter(module, "mvs2s.weight")
    out, _, maps = weight.shape
    return Linear(out, 0 if scalars is None else scalars.shape[0], maps, module._mixes, tuple(given)), named


class Steps:
    """Steps of a composite. Places are numbers of inputs and then of steps. The inputs end with the parameters of the block,
    in the order in which its layers take them."""

    def __init__(self, inputs: int, parameters: int, blades: Blades) -> None:
        self.made: list[Step] = []
        self.inputs, self.blades = inputs + parameters, blades
        self._next = inputs
        self._algebra = "{},{},{}".format(*blades.space.signature)
        self._order = list(blades.places)

    def add(self, name: str, attributes: Any, places: Sequence[int]) -> int:
        """The place of an operator's result."""
        self.made.append((name, json.dumps(attributes), list(places)))
        return self.inputs + len(self.made) - 1

    def parameters(self, count: int) -> list[int]:
        """The places of the next parameters."""
        self._next += count
        return list(range(self._next - count, self._next))

    def linear(self, x: int, linear: Linear, scalars: Optional[int] = None) -> int:
        """A linear map of features at ``x``, with the next parameters; of planes alone beside ``scalars``."""
        given = list(linear.given) if scalars is None else ["scalars", *linear.given]
        attributes = {
            "blades": self.blades.size,
            "maps": linear.maps,
            "mixes": linear.mixes,
            "entries": self.blades.entries(linear.maps),
            "given": given,
        }
        first, *others = self.parameters(1 + len(linear.given))
        return self.add("equi_linear", attributes, [x, first, *([] if scalars is None else [scalars]), *others])

    def norm(
        self,
        x: int,
        channels: int,
        norm: Optional[Norm],
        gate: Optional[str] = None,
        scalar_gate: Optional[str] = None,
    ) -> int:
        """A norm of features at ``x``, with gains that are the next parameters, and gates behind it."""
        attributes: dict[str, Any] = {"algebra": self._algebra, "order": self._order, "channels": channels}
        places = [x]
        if norm is not None:
            attributes |= {"epsilon": norm.epsilon, "gain": norm.gain}
            attributes |= {"gains": norm.gains, "scalar_gains": norm.scalar_gains}
            places += self.parameters(norm.gains + norm.scalar_gains)
        if gate is not None:
            attributes["gate"] = gate
        if scalar_gate is not None:
            attributes["scalar_gate"] = scalar_gate
        return self.add("channel_norm", attributes, places)

    def split(self, x: int, heads: dict[str, Any], norm: Optional[Norm], query: Optional[int]) -> int:
        """Features at ``x`` as the heads of an attention; ``heads`` has groups, channels, scalars, heads, batch and items."""
        attributes = {"algebra": self._algebra, "order": self._order, **heads, "query": query}
        attributes |= {"epsilon": None, "gain": 1.0} if norm is None else {"epsilon": norm.epsilon, "gain": norm.gain}
        return self.add("split_heads", attributes, [x])

    def merge(self, x: int, channels: int, scalars: int) -> int:
        """Heads at ``x`` as features."""
        attributes = {"blades": self.blades.size, "channels": channels, "scalars": scalars}
        return self.add("merge_heads", attributes, [x])

    def product(self, attributes: str, factors: Sequence[int], channels: int, rows: int) -> int:
        """A product of planes at two places: ``[16, channels, rows]``."""
        shape = {"shape": [self.blades.size, channels, rows]}
        planes = [self.add("reshape", shape, [place]) for place in factors]
        self.made.append(("table_product", attributes, planes))
        return self.inputs + len(self.made) - 1

    def flat(self, x: int, channels: int, rows: int) -> int:
        """Planes at a place as a matrix ``[16 · channels, rows]``."""
        return self.add("reshape", {"shape": [self.blades.size * channels, rows]}, [x])

    def first(self, x: int, count: int) -> int:
        """The first rows of a matrix at a place."""
        return self.add("slice", {"axis": 0, "range": {"start": 0, "end": count}}, [x])
