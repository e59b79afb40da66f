"""The arguments that an object was made with, as JSON, and back."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Optional

from gradewise._errors import ArgumentError, CheckpointError

_OWN = "gradewise.torch"
_MODULES = ("torch.nn.functional", "torch", "torch.nn")
"""Modules whose functions and classes a folder may name beside those of gradewise: what it names is imported and called."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")


@dataclass(frozen=True)
class Unwritten:
    """In place of an argument that JSON cannot hold."""

    reason: str


@dataclass(frozen=True)
class Record:
    """How an object was made.

    Attributes:
        kind: module and name of its class.
        arguments: those of its constructor by name, as JSON with :class:`Unwritten` in it.
    """

    kind: tuple[str, str]
    arguments: Mapping[str, Any]

    def checked(self) -> dict[str, Any]:
        """The arguments, all of which JSON can hold.

        Raises:
            ArgumentError: one that it cannot.
        """

        def visit(name: str, value: Any) -> None:
            if isinstance(value, Unwritten):
                raise ArgumentError(
                    f"save_pretrained: the argument {name} of {self.kind[1]} is {value.reason}, which config.json cannot hold; make the "
                    "model from numbers, text, lists, dicts, configurations, and functions of torch, or save its state_dict"
                )
            items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            for key, inner in items:
                visit(f"{name}.{key}", inner)

        for name, value in self.arguments.items():
            visit(name, value)
        return dict(self.arguments)


class Recorded:
    """An object that knows the arguments it was made with."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        made = super().__new__(cls)
        try:
            bound = inspect.signature(cls.__init__).bind(made, *arguments, **named)
        except TypeError:
            # Copies and pickles pass none and bring the record along; for others `__init__` says what is wrong.
            return made
        bound.apply_defaults()
        kinds = inspect.signature(cls.__init__).parameters
        given: dict[str, Any] = {}
        for name, value in list(bound.arguments.items())[1:]:
            if kinds[name].kind is inspect.Parameter.VAR_KEYWORD:
                given |= {key: encode(inner) for key, inner in value.items()}
            elif kinds[name].kind is inspect.Parameter.VAR_POSITIONAL:
                if value:
                    given[name] = Unwritten("a list of arguments without names")
            else:
                given[name] = encode(value)
        # Not by `Module.__setattr__`, which waits for `Module.__init__`.
        made.__dict__["_record"] = Record((cls.__module__, cls.__qualname__), given)
        return made

    def _recorded(self) -> Record:
        record = self.__dict__.get("_record")
        if record is None:
            raise ArgumentError(
                f"save_pretrained: this {type(self).__name__} does not know the arguments it was made with; make it by its constructor and "
                "load its state_dict"
            )
        return record


def encode(value: Any) -> Any:
    """A value as JSON; :class:`Unwritten` where there is none."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return number if math.isfinite(number) else Unwritten(repr(number))
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) and key not in ("class", "function") for key in value):
            return Unwritten("a dict whose keys are not names")
        return {key: encode(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [encode(inner) for inner in value]
    if isinstance(value, Recorded):
        record = value.__dict__.get("_record")
        if record is not None:
            return {"class": path_of(*record.kind), "arguments": dict(record.arguments)}
    if is_dataclass(value) and not isinstance(value, type):
        # Constructors take options by name in place of a configuration.
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    path = _function_path(value) if callable(value) else None
    return {"function": path} if path else Unwritten(f"{value!r} of type {type(value).__name__}"[:200])


def decode(value: Any, where: str) -> Any:
    """The value of what :func:`encode` made.

    Raises:
        CheckpointError: a class or a function that is not there, or that folders must not name.
    """
    if isinstance(value, list):
        return [decode(inner, where) for inner in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"function"}:
        return _function(value["function"], where)
    if set(value) == {"class", "arguments"}:
        arguments = {name: decode(inner, where) for name, inner in value["arguments"].items()}
        return class_of(value["class"], where)(**arguments)
    return {name: decode(inner, where) for name, inner in value.items()}


def path_of(module: str, name: str) -> str:
    """Where a class is found: in the outermost package of gradewise that has it, otherwise in its own module."""
    kind = getattr(sys.modules.get(module), name, None)
    parts = module.split(".")
    for depth in range(1, len(parts)):
        package = ".".join(parts[:depth])
        if package.startswith(_OWN) and kind is not None and getattr(sys.modules.get(package), name, None) is kind:
            return f"{package}.{name}"
    return f"{module}.{name}"


def class_of(path: Any, where: str) -> type[Recorded]:
    """A class of gradewise by its path."""
    kind = _attribute(path, (), where)
    if not (isinstance(kind, type) and issubclass(kind, Recorded)):
        raise CheckpointError(f"{where}: {path!r} is no class of gradewise that is made from arguments")
    return kind


def _function_path(value: Callable[..., Any]) -> Optional[str]:
    """The public path of a function or class, None if it has none."""
    name = getattr(value, "__name__", "")
    own = getattr(value, "__module__", None) or ""
    for module in (*_MODULES, *([own] if own.startswith(_OWN) else [])):
        if name and getattr(sys.modules.get(module), name, None) is value:
            return f"{module}.{name}"
    return None


def _function(path: Any, where: str) -> Callable[..., Any]:
    found = _attribute(path, _MODULES, where)
    if not callable(found):
        raise CheckpointError(f"{where}: {path!r} is no function")
    return found


def _attribute(path: Any, others: Sequence[str], where: str) -> Any:
    """What a path names, of gradewise.torch or of one of the ``others``."""
    if not isinstance(path, str) or not _NAME.fullmatch(path):
        raise CheckpointError(f"{where}: {path!r} is no path of a class or function, such as {_OWN}.lgatr.LGATr")
    module, _, name = path.rpartition(".")
    if not (module == _OWN or module.startswith(f"{_OWN}.") or module in others):
        hint = "call from_pretrained of the class itself" if not others else "name a function of torch.nn.functional"
        raise CheckpointError(
            f"{where}: {path} is not of {_OWN}, and nothing else is imported because a file says so; {hint}"
        )
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CheckpointError(
            f"{where}: there is no {path} in this version of gradewise; install the version that wrote it ({error})"
        ) from error
