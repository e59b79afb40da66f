"""What one module may become: the comparisons of the proof, once for modules that are built alike."""

from __future__ import annotations

import copy
import copyreg
import functools
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

import torch
from torch import Tensor, nn

from gradewise.torch._accelerate.compare import examine_layer, takes_its_parts
from gradewise.torch._accelerate.compare_fields import examine_field
from gradewise.torch._accelerate.fields import FieldKind
from gradewise.torch._accelerate.gate import FieldProven, Proven
from gradewise.torch._accelerate.kinds import Kind, Stays, refusal
from gradewise.torch._accelerate.layers import LayerKind
from gradewise.torch._accelerate.proof import (
    SINGLE_TOLERANCE,
    TOLERANCE,
    Observed,
    Trial,
    Unlike,
    compare,
    copy_of,
    disturbed,
    observe,
    quiet,
    trials,
)
from gradewise.torch._accelerate.sizes import Sizes
from gradewise.torch._accelerate.swap import is_swapped, restore, swap
from gradewise.torch.cgenn.maps import Setting
from gradewise.torch.cgenn.stack import Stack


@dataclass(frozen=True)
class Outcome:
    """What an examination found."""

    setting: Union[Setting, Proven, FieldProven, None] = None
    """What the module computes; None if it stays."""
    layer: Union[LayerKind, FieldKind, None] = None
    """Of a layer of a transformer or for fields, what it is."""
    reason: str = ""
    difference: Optional[float] = None
    are_parts_kept: bool = True
    """Whether what is inside may stay replaced if the module is not."""


def examine(module: nn.Module, kind: Kind) -> Outcome:
    """Compares a module, whose parts may have been replaced, with what would take its place."""
    reason = refusal(module)
    if reason is not None:
        return Outcome(reason=reason)
    try:
        sizes, settings = kind.settings(module)
    except Stays as stays:
        kept = stays.sizes is None or _takes_its_parts(module, kind, stays.sizes)
        return Outcome(reason=str(stays), are_parts_kept=kept)
    try:
        with quiet(module):
            return _search(module, kind, sizes, settings)
    except Unlike as unlike:
        return Outcome(reason=str(unlike), difference=unlike.size)
    except Exception as error:
        # Somebody else's code on arguments that it did not expect, or a module that cannot be copied.
        return Outcome(reason=f"it could not be compared: {_line(error)}")


def examine_layers(module: nn.Module, kinds: Sequence[LayerKind]) -> Outcome:
    """Compares a layer of a transformer with those of ours that it may be."""
    reason = refusal(module)
    if reason is not None:
        return Outcome(reason=reason)
    worst: Optional[Outcome] = None
    for kind in kinds:
        try:
            return Outcome(setting=examine_layer(module, kind), layer=kind)
        except Unlike as unlike:
            outcome = Outcome(reason=str(unlike), difference=unlike.size)
        except Exception as error:
            outcome = Outcome(reason=f"it could not be compared: {_line(error)}")
        worst = worst or outcome
    assert worst is not None
    return replace(worst, are_parts_kept=takes_its_parts(module, kinds[0]))


def examine_fields(module: nn.Module, kind: FieldKind) -> Outcome:
    """Compares a layer for fields with ours."""
    reason = refusal(module)
    if reason is not None:
        return Outcome(reason=reason)
    try:
        return Outcome(setting=examine_field(module, kind), layer=kind)
    except Unlike as unlike:
        return Outcome(reason=str(unlike), difference=unlike.size)
    except Exception as error:
        # Somebody else's code on an input that it did not expect, or a module that cannot be copied.
        return Outcome(reason=f"it could not be compared: {_line(error)}")


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


class _Evidence:
    """What the published module does with made-up arguments."""

    def __init__(self, module: nn.Module, kind: Kind, sizes: Sizes) -> None:
        self.row_axis = 1 if sizes.are_blades_first else 0
        try:
            self._gather(module, sizes, torch.float64)
            self.tolerance = TOLERANCE
        except Exception:
            if not kind.is_single:
                raise
            self._gather(module, sizes, torch.float32)
            self.tolerance = SINGLE_TOLERANCE

    def _gather(self, module: nn.Module, sizes: Sizes, dtype: torch.dtype) -> None:
        self.base = copy_of(module, dtype)
        disturbed(self.base)
        published = copy.deepcopy(self.base)
        restore(published)
        device = next((p.device for p in self.base.parameters()), torch.device("cpu"))
        self.expected: list[tuple[Trial, Observed]] = []
        self.optional: list[tuple[Trial, Observed]] = []
        for trial in trials(sizes, device, dtype):
            try:
                observed = observe(published, trial, self.row_axis)
            except Exception:
                if trial.is_optional:
                    continue
                raise
            (self.optional if trial.is_optional else self.expected).append((trial, observed))

    def need(self, candidate: nn.Module) -> None:
        """Raises :class:`Unlike` if a module computes something else."""
        for trial, expected in self.expected:
            try:
                found = observe(candidate, trial, self.row_axis)
            except Unlike:
                raise
            except Exception as error:
                raise Unlike(f"the operators refuse what the published module takes: {_line(error)}") from error
            compare(found, expected, self.tolerance, self.row_axis)

    def is_between_allowed(self, candidate: nn.Module) -> bool:
        """Whether a module computes the same with axes between features and blades."""
        try:
            for trial, expected in self.optional:
                compare(observe(candidate, trial), expected, self.tolerance)
        except Exception:
            return False
        return bool(self.optional)


def _search(module: nn.Module, kind: Kind, sizes: Sizes, settings: Any) -> Outcome:
    evidence = _Evidence(module, kind, sizes)
    first: Optional[Unlike] = None
    for setting in settings:
        candidate = copy.deepcopy(evidence.base)
        try:
            swap(candidate, kind.map, setting)
        except TypeError as error:
            return Outcome(reason=f"its class takes no subclass: {_line(error)}")
        try:
            evidence.need(candidate)
        except Unlike as unlike:
            first = first or unlike
            continue
        return Outcome(setting=replace(setting, is_between_allowed=evidence.is_between_allowed(candidate)))
    assert first is not None, "every kind has a setting"
    kept = True
    if any(is_swapped(part) for part in evidence.base.modules()):
        try:
            evidence.need(evidence.base)
        except Unlike:
            kept = False
    return Outcome(reason=str(first), difference=first.size, are_parts_kept=kept)


def _takes_its_parts(module: nn.Module, kind: Kind, sizes: Sizes) -> bool:
    """Whether a module that stays computes the same with those of its parts that were replaced, whose results lie in memory in another
    order. True where that cannot be seen."""
    if not any(is_swapped(part) for part in module.modules()):
        return True
    try:
        with quiet(module):
            evidence = _Evidence(module, kind, sizes)
            evidence.need(evidence.base)
    except Unlike:
        return False
    except Exception:
        # The module itself does not take made-up inputs.
        return True
    return True


class Memory:
    """The outcomes for modules that are built alike: of the same classes, sizes and settings, whatever their parameters are."""

    def __init__(self) -> None:
        self._outcomes: dict[Hashable, Outcome] = {}
        self._algebras: dict[int, Hashable] = {}

    def examine(self, module: nn.Module, kind: Kind) -> Outcome:
        """:func:`examine`, unless a module like this one was examined."""
        return self._remembered(module, kind.name, lambda: examine(module, kind))

    def examine_layers(self, module: nn.Module, kinds: Sequence[LayerKind]) -> Outcome:
        """:func:`examine_layers`, unless a module like this one was examined."""
        return self._remembered(
            module, tuple(kind.replacement for kind in kinds), lambda: examine_layers(module, kinds)
        )

    def examine_fields(self, module: nn.Module, kind: FieldKind) -> Outcome:
        """:func:`examine_fields`, unless a module like this one was examined."""
        return self._remembered(module, kind.replacement, lambda: examine_fields(module, kind))

    def _remembered(self, module: nn.Module, name: Hashable, how: Callable[[], Outcome]) -> Outcome:
        try:
            key = (name, self._print(module))
        except _NoPrint:
            return how()
        if key not in self._outcomes:
            self._outcomes[key] = how()
        return self._outcomes[key]

    def _print(self, module: nn.Module) -> Hashable:
        known = self._algebras.get(id(module))
        if known is not None:
            return known
        own = []
        for name, value in sorted(module.__dict__.items()):
            if name in ("_parameters", "_buffers", "_modules", "training") or name.endswith("_hooks"):
                continue
            own.append((name, _value(value, module, [])))
        parameters = [
            (n, p if p is None else (tuple(p.shape), p.dtype, p.device)) for n, p in module._parameters.items()
        ]
        buffers = [(n, _value(b, module, [])) for n, b in module._buffers.items()]
        children = [(n, c if c is None else self._print(c)) for n, c in module._modules.items()]
        made = (type(module), tuple(own), tuple(parameters), tuple(buffers), tuple(children))
        if not parameters and not children:
            self._algebras[id(module)] = made
        return made


class _NoPrint(Exception):
    """Something of which one cannot say whether it is like another."""


def _value(value: Any, owner: nn.Module, seen: list[int]) -> Hashable:
    if value is None or isinstance(
        value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, slice, Setting, Stack)
    ):
        return repr(value) if isinstance(value, slice) else (type(value), value)
    if isinstance(value, type) or isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        return value
    if isinstance(value, types.MethodType) and value.__self__ is owner:
        return value.__func__
    if type(value) is functools.partial:
        parts = (value.func, value.args, value.keywords)
        return (functools.partial, *(_value(part, owner, seen) for part in parts))
    if isinstance(value, Tensor) and value.device.type == "cpu" and value.dtype != torch.bfloat16:
        return (tuple(value.shape), value.dtype, value.detach().contiguous().numpy().tobytes())
    if isinstance(value, Tensor) and not value.is_meta:
        return (tuple(value.shape), value.dtype, value.device, tuple(value.detach().double().flatten().tolist()))
    if id(value) in seen:
        return "again"
    seen = [*seen, id(value)]
    if type(value) in (tuple, list, torch.Size):
        return (type(value), tuple(_value(item, owner, seen) for item in value))
    if type(value) in (set, frozenset):
        return (type(value), frozenset(_value(item, owner, seen) for item in value))
    if type(value) in (dict, OrderedDict):
        return (type(value), tuple((_value(k, owner, seen), _value(v, owner, seen)) for k, v in value.items()))
    if isinstance(value, nn.Module):
        raise _NoPrint
    # Such as the published algebra's table of blades: an object that is its attributes, and nothing that is hidden from them.
    try:
        made, arguments, state, *items = value.__reduce_ex__(2)
    except Exception as error:
        raise _NoPrint from error
    if made is not copyreg.__newobj__ or len(arguments) != 1 or not isinstance(state, (dict, type(None))) or any(items):
        raise _NoPrint
    return (type(value), tuple((name, _value(v, owner, seen)) for name, v in sorted((state or {}).items())))
