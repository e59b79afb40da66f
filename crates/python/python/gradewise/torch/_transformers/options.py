"""Configurations, activations and compiling, as both packages take them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Callable, Optional, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def activation(label: str) -> Callable[[Tensor], Tensor]:
    """An activation by its name."""
    if label not in _ACTIVATIONS:
        raise ArgumentError(f"nonlinearity {label!r}, expected one of {', '.join(map(repr, _ACTIVATIONS))}")
    return _ACTIVATIONS[label]


def compile_forward(model: nn.Module, options: Optional[Mapping[str, Any]], memory_budget: Optional[float]) -> None:
    """Replaces a model's ``forward`` by a compiled one.

    Args:
        model: the model.
        options: of ``torch.compile``.
        memory_budget: the share of activations that may be kept rather than computed again, 0 to 1; PyTorch's own if None.
    """
    compiled = torch.compile(model.forward, **dict(options or {}))
    if memory_budget is not None:
        from torch._functorch import config

        compiled = config.patch(activation_memory_budget=memory_budget)(compiled)
    model.forward = compiled  # type: ignore[method-assign]


def positive(operation: str, **sizes: Any) -> None:
    """Refuses sizes below 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise ArgumentError(f"{operation}: {name} {size!r}, expected a whole number of 1 or more")
