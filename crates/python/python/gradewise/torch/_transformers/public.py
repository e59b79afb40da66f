"""Functions of published arrays ``[..., 16]``, by the algebra's planes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradewise._errors import ShapeError
from gradewise.torch._transformers.algebra import Blades, constant
from gradewise.torch._transformers.embedding import check

Product = Callable[[Tensor, Tensor], Tensor]


def position_by_position(product: Product, blades: Blades, x: Tensor, y: Tensor, operation: str) -> Tensor:
    """A product of planes, for arrays ``[..., 16]`` that broadcast."""
    check(x, blades.size, operation)
    check(y, blades.size, operation)
    try:
        x, y = torch.broadcast_tensors(x, y)
    except RuntimeError as error:
        raise ShapeError(f"{operation}: shapes {list(x.shape)} and {list(y.shape)} do not broadcast") from error
    planes = [blades.enter(z.reshape(-1, 1, blades.size)) for z in (x, y)]
    return blades.leave(product(*planes)).reshape(x.shape)


def by_grade(x: Tensor, blades: Blades, signs: tuple[int, ...], operation: str) -> Tensor:
    """Each grade times a sign."""
    check(x, blades.size, operation)
    return x * constant(tuple(float(signs[grade]) for grade in blades.grades), x)


def grade_project(x: Tensor, blades: Blades) -> Tensor:
    """The grades of ``[..., 16]`` apart from one another: ``[..., 5, 16]``."""
    check(x, blades.size, "grade_project")
    rows = range(len(blades.metric) + 1)
    return x[..., None, :] * constant(tuple(tuple(float(g == grade) for g in blades.grades) for grade in rows), x)


def equi_linear(x: Tensor, coeffs: Tensor, blades: Blades) -> Tensor:
    """The equivariant map of ``[..., in, 16]`` with coefficients ``[out, in, maps]``: ``[..., out, 16]``."""
    check(x, blades.size, "equi_linear")
    out, in_, maps = coeffs.shape
    if x.dim() < 2 or x.shape[-2] != in_:
        raise ShapeError(
            f"equi_linear: multivectors of shape {list(x.shape)} and coefficients of shape {list(coeffs.shape)}, expected "
            f"[..., {in_}, {blades.size}]"
        )
    size = blades.size
    table = [[0.0] * (size * size) for _ in range(maps)]
    for number, entries in enumerate(blades.maps[:maps]):
        for i, j, value in entries:
            table[number][i * size + j] = value
    matrix = (coeffs.reshape(out * in_, maps) @ constant(tuple(map(tuple, table)), coeffs)).view(out, in_, size, size)
    matrix = matrix.transpose(1, 2).reshape(out * size, in_ * size)
    return torch.nn.functional.linear(x.flatten(-2), matrix).unflatten(-1, (out, size))
