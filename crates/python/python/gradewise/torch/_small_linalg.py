"""Factors and solutions of small matrices in sums, products and roots, for programs in which linear algebra has no operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradewise._errors import ArgumentError

_MOST = 16
"""The most rows of a matrix that is written out: terms grow as the cube of it."""


def _rows(matrix: Tensor, operation: str) -> int:
    count = int(matrix.shape[-1])
    if count > _MOST:
        raise ArgumentError(
            f"{operation} of matrices with {count} rows, which ONNX has no operator for; up to {_MOST} are written out"
        )
    return count


def cholesky(matrix: Tensor, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive matrices ``[..., n, n]``."""
    columns: list[Tensor] = []
    for j in range(_rows(matrix, "a Cholesky factor")):
        rest = matrix[..., j:, j]
        for column in columns:
            rest = rest - column[..., j:] * column[..., j : j + 1]
        columns.append(F.pad(rest / rest[..., :1].sqrt(), (j, 0)))
    lower = torch.stack(columns, -1)
    return lower.mT if upper else lower


def solve_triangular(
    matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """What times triangular matrices ``[..., n, n]``, from the left or the right, is ``right``."""
    if not left:
        return solve_triangular(matrix.mT, right.mT, upper=not upper, unitriangular=unitriangular).mT
    count = _rows(matrix, "a triangular system")
    found: dict[int, Tensor] = {}
    for i in reversed(range(count)) if upper else range(count):
        row = right[..., i, :]
        for k, known in found.items():
            row = row - matrix[..., i, k, None] * known
        found[i] = row if unitriangular else row / matrix[..., i, i, None]
    return torch.stack([found[i] for i in range(count)], -2)


def table() -> dict[Any, Callable[..., Any]]:
    """These by the operators of PyTorch that they stand for."""
    aten = torch.ops.aten
    return {aten.linalg_cholesky.default: cholesky, aten.linalg_solve_triangular.default: solve_triangular}
