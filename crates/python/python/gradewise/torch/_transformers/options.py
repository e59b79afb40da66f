"""Activations and compiling, as both packages take them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ArgumentError

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
