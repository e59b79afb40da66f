"""Options of models as their constructors take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gradewise._errors import ArgumentError

C = TypeVar("C")


def cast(kind: type[C], config: Any) -> C:
    """A configuration, from one or from its options by name. One of the published package, with the same options, serves too."""
    if isinstance(config, kind):
        return config
    if isinstance(config, Mapping):
        options = dict(config)
    elif type(config).__name__ == kind.__name__ and hasattr(config, "__dict__"):
        options = dict(vars(config))
    else:
        raise ArgumentError(
            f"{kind.__name__}: {config!r} of type {type(config).__name__}, expected a {kind.__name__} or a dict"
        )
    known = list(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ArgumentError(f"{kind.__name__}: no option {unknown[0]!r}, expected some of {', '.join(known)}")
    return kind(**options)


def positive(operation: str, **sizes: Any) -> None:
    """Refuses sizes below 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ArgumentError(f"{operation}: {name} {size!r}, expected a whole number of 1 or more")
