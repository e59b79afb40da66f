"""Components among the blades of multivectors: embedding and taking out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from gradewise._errors import ShapeError


def embed(x: Tensor, first: int, count: int, operation: str, blades: int = 16) -> Tensor:
    """Components ``[..., count]`` on the blades from ``first`` on, zeros on the others: ``[..., blades]``."""
    check(x, count, operation)
    return F.pad(x, (first, blades - first - count))


def extract(mv: Tensor, first: int, count: int, operation: str, blades: int = 16) -> Tensor:
    """The components of the blades from ``first`` on: ``[..., count]``."""
    check(mv, blades, operation)
    return mv[..., first : first + count]


def check(x: Tensor, count: int, operation: str) -> None:
    """Refuses a last axis of another length."""
    if x.dim() < 1 or x.shape[-1] != count:
        raise ShapeError(f"{operation}: shape {list(x.shape)}, expected [..., {count}]")
