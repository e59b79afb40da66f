"""Layers of transformers of geometric algebra that compute by ours: what stands before them, and lets only calls in that were compared."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor, nn

MULTIVECTORS, SCALARS, VECTORS, VECTORS_LAST = "multivectors", "scalars", "vectors", "vectors last"
"""Layouts: ``[..., channels, 16]``, ``[..., channels]``, ``[..., 4, channels]`` and ``[..., channels, 4]``."""

MODES = ("short", "autocast", "autocast, short scalars")
"""How a layer may run beside float32 and float64: with parameters of 16 bits; under autocast; there with scalars of 16 bits."""

_TAIL = {MULTIVECTORS: 2, SCALARS: 1, VECTORS: 2, VECTORS_LAST: 2}


@dataclass(frozen=True)
class Argument:
    """A tensor that a layer takes."""

    layout: str
    channels: Optional[int]
    """None for any number."""
    group: int = 0
    """Whose items: 0 of those that attend, 1 of those attended to."""

    def shape(self, lead: tuple[int, ...], channels: int) -> tuple[int, ...]:
        """That of such a tensor."""
        by_layout = {SCALARS: (channels,), VECTORS: (4, channels), VECTORS_LAST: (channels, 4)}
        return (*lead, *by_layout.get(self.layout, (channels, 16)))

    def lead(self, x: Tensor) -> Optional[tuple[int, ...]]:
        """The axes before channels; None if a tensor is no such one."""
        at = x.dim() - _TAIL[self.layout]
        if at < 1 or (
            self.channels is not None and x.shape[-1 if self.layout in (SCALARS, VECTORS) else -2] != self.channels
        ):
            return None
        if self.layout != SCALARS:
            blades = {MULTIVECTORS: x.shape[-1] == 16, VECTORS: x.shape[-2] == 4, VECTORS_LAST: x.shape[-1] == 4}
            if not blades[self.layout]:
                return None
        return tuple(x.shape[:at])


@dataclass(frozen=True)
class Proven:
    """The calls for which a layer was found to compute the same as ours."""

    arguments: Mapping[str, Argument]
    names: tuple[str, ...]
    """Of the parameters of its ``forward``."""
    takes_more: bool
    """Whether ``forward`` takes further arguments by name."""
    calls: frozenset[tuple[frozenset[str], int]]
    """Which tensors there were, and how many axes before the items."""
    options: frozenset[str]
    """What else there was, as :func:`_option` names it."""
    modes: frozenset[str]
    """Those of :data:`MODES` beside "plain"."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that our layer has and the published one has not."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Proven:
        return self

    def sorted(self, given: tuple[Any, ...], named: dict[str, Any]) -> Optional[dict[str, Any]]:
        """Arguments by name; None if ``forward`` takes no such ones."""
        if len(given) > len(self.names):
            return None
        found = dict(zip(self.names, given))
        for name, value in named.items():
            if name in found or not (self.takes_more or name in self.names):
                return None
            found[name] = value
        return found

    def accepts(self, module: nn.Module, found: dict[str, Any]) -> bool:
        """Whether a call is like one that was compared."""
        tensors = {name: found[name] for name in self.arguments if found.get(name) is not None}
        first = next(iter(tensors.values()), None)
        if first is None or type(first) not in (Tensor, nn.Parameter) or torch.jit.is_tracing():
            return False
        leads: dict[int, tuple[int, ...]] = {}
        for name, x in tensors.items():
            if (
                type(x) not in (Tensor, nn.Parameter)
                or x.layout is not torch.strided
                or x.device != first.device
                or not x.is_floating_point()
                or x.numel() == 0
            ):
                return False
            argument = self.arguments[name]
            lead = argument.lead(x)
            if lead is None or leads.setdefault(argument.group, lead) != lead:
                return False
        outer = {lead[:-1] for lead in leads.values()}
        if len(outer) != 1 or (frozenset(tensors), min(len(outer.pop()), 2)) not in self.calls:
            return False
        if self._mode(module, tensors) not in self.modes:
            return False
        for name, value in found.items():
            if name in self.arguments:
                continue
            option = _option(name, value, leads, first.dtype)
            if option is None or (option and not set(option.split(" ")) <= self.options):
                return False
        return True

    def _mode(self, module: nn.Module, tensors: dict[str, Tensor]) -> Optional[str]:
        kind = next(iter(tensors.values())).device.type
        if kind not in ("cpu", "cuda"):
            return None
        parameter = next(module.parameters(), None)
        of_parameter = None if parameter is None else parameter.dtype
        dtypes = {x.dtype for x in tensors.values()}
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            if of_parameter not in (None, torch.float32) or not torch.is_autocast_enabled(kind):
                return None
            if _is_naive(type(module)._published):
                return None
            if dtypes == {torch.float32}:
                return "autocast"
            of_scalars = {x.dtype for name, x in tensors.items() if self.arguments[name].layout == SCALARS}
            rest = {x.dtype for name, x in tensors.items() if self.arguments[name].layout != SCALARS}
            is_mixed = rest == {torch.float32} and of_scalars == {torch.get_autocast_dtype(kind)}
            return "autocast, short scalars" if is_mixed else None
        if of_parameter is not None:
            dtypes.add(of_parameter)
        if len(dtypes) != 1:
            return None
        return "plain" if dtypes <= {torch.float32, torch.float64} else "short"


def _is_naive(published: Any) -> bool:
    """Whether the published package's own switch for autocast, which ours does not see, is on."""
    package = published.__module__.split(".")[0]
    return bool(getattr(sys.modules.get(f"{package}.utils.autocast"), "_NAIVE_AMP", False))


def _option(name: str, value: Any, leads: dict[int, tuple[int, ...]], dtype: torch.dtype) -> Optional[str]:
    """What an argument beside the features is: "" for one that changes nothing, None for one that is not known."""
    if value is None or (name == "is_causal" and value is False) or (name == "dropout_p" and value == 0):
        return ""
    if name in ("attn_kwargs", "crossattn_kwargs") and isinstance(value, dict):
        groups = leads if name == "crossattn_kwargs" else {0: leads[0]}
        inner = [_option(key, item, groups, dtype) for key, item in value.items()]
        return None if None in inner else " ".join(f"{name}:{option}" for option in inner if option)
    if name == "is_causal" and value is True:
        return name
    if name == "scale" and isinstance(value, float):
        return name
    if name in ("attn_mask", "attention_mask") and type(value) is Tensor:
        lead, other = leads[0], leads.get(1, leads[0])
        whole = (lead[-1], other[-1])
        fits = tuple(value.shape) in (whole, (*lead[:-1], 1, *whole))
        if not fits or value.requires_grad or value.dtype not in (torch.bool, dtype):
            return None
        return f"{name}.{'bool' if value.dtype == torch.bool else 'float'}.{value.dim()}"
    if name == "join_reference" and isinstance(value, str):
        return "" if value == "data" else f"{name}.{value}"
    if name in ("join_reference", "reference_mv") and type(value) is Tensor and value.dtype == dtype and value.dim():
        wide = (leads[0][0], *[1] * len(leads[0]), 16)
        return f"{name}.{value.dim()}" if tuple(value.shape) in (wide, (16,)) else None
    return None


class Gate:
    """A published layer that computes by ours, where a call is like one that was compared; by its own code otherwise."""

    _gradewise: Proven
    _published: ClassVar[type[nn.Module]]
    _acts_as: ClassVar[type[nn.Module]]

    def forward(self, *given: Any, **named: Any) -> Any:
        """As the published layer's."""
        found = self._gradewise.sorted(given, named)
        if found is None or not self._gradewise.accepts(self, found):  # type: ignore[arg-type]
            return self._published.forward(self, *given, **named)  # type: ignore[arg-type]
        return _adjacent(self._acts_as.forward(self, **found))  # type: ignore[arg-type]


@dataclass(frozen=True)
class FieldProven:
    """The fields for which a layer was found to compute the same as ours."""

    channels: Optional[int]
    """None for any number."""
    blades: int
    axes: frozenset[int]
    """The numbers of axes of the input."""
    dtypes: frozenset[torch.dtype]
    is_adjacent: bool
    """Whether the published layer's results are adjacent in memory, for code that asks for views of them."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that our layer has and the published one has not."""

    def __deepcopy__(self, memo: dict[int, Any]) -> FieldProven:
        return self

    def accepts(self, module: nn.Module, x: Any) -> bool:
        """Whether an input is like one that was compared."""
        if type(x) not in (Tensor, nn.Parameter) or torch.jit.is_tracing():
            return False
        parameter = next(module.parameters(), x)
        return (
            x.dtype in self.dtypes
            and parameter.dtype == x.dtype
            and parameter.device == x.device
            and x.device.type in ("cpu", "cuda")
            and not torch.is_autocast_enabled(x.device.type)
            and x.layout is torch.strided
            and x.numel() > 0
            and x.dim() in self.axes
            and x.shape[-1] == self.blades
            and self.channels in (None, x.shape[1])
        )


class FieldGate(Gate):
    """A published layer for fields that computes by ours, where an input is like one that was compared; by its own code otherwise."""

    _gradewise: FieldProven  # type: ignore[assignment]

    def forward(self, *given: Any, **named: Any) -> Any:
        """As the published layer's."""
        proven = self._gradewise
        if named or len(given) != 1 or not proven.accepts(self, given[0]):  # type: ignore[arg-type]
            return self._published.forward(self, *given, **named)  # type: ignore[arg-type]
        made = self._acts_as.forward(self, given[0])  # type: ignore[arg-type]
        return made.contiguous() if proven.is_adjacent else made


def _adjacent(made: Any) -> Any:
    """Results adjacent in memory, for code that asks for views of them."""
    if isinstance(made, Tensor):
        return made.contiguous()
    return tuple(map(_adjacent, made)) if type(made) is tuple else made
