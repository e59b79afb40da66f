"""Constants that published packages make once, in the default dtype, and keep."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def exact(model: nn.Module) -> Iterator[None]:
    """The constants that the packages of a model's modules keep are made anew, in double precision, and are as they were afterwards."""
    packages = {type(part).__module__.split(".")[0] for part in model.modules()} - {"torch", "gradewise"}
    kept: list[tuple[Any, str, Any]] = []
    fresh: dict[int, Any] = {}
    for path, found in list(sys.modules.items()):
        if path.split(".")[0] not in packages or ".primitives" not in path:
            continue
        for name, value in list(vars(found).items()):
            if type(value) is functools._lru_cache_wrapper:
                made = fresh.setdefault(id(value), functools.lru_cache(maxsize=None)(value.__wrapped__))
            elif type(value).__name__ == "gatr_cache":
                made = fresh.setdefault(id(value), type(value)(value.fn))
            else:
                continue
            kept.append((found, name, value))
            setattr(found, name, made)
    before = torch.get_default_dtype()
    if kept:
        torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
        for found, name, value in kept:
            setattr(found, name, value)
