"""Algebras by their metric, and embeddings of vectors and scalars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._core import Algebra
from gradewise.torch._layout import n_paths, signature_of


class CliffordAlgebra(nn.Module):
    """An algebra by its metric: the sizes that modules ask for, and embeddings of vectors and scalars.

    Args:
        metric: the squares of the generators: those of 1, then those of -1, then those of 0.
    """

    def __init__(self, metric: Sequence[float]) -> None:
        super().__init__()
        self._become(signature_of(metric))

    def _become(self, signature: tuple[int, int, int]) -> None:
        self.signature = signature
        self.dim = sum(signature)
        self.n_blades = 2**self.dim
        self.n_subspaces = self.dim + 1
        self.sizes = grade_sizes(signature)

    @property
    def n_paths(self) -> int:
        """The number of triples of grades (left, result, right) that occur in the product."""
        return n_paths(self.signature)

    def embed(self, tensor: Tensor, tensor_index: Sequence[int]) -> Tensor:
        """Components ``[..., n]`` on the ``n`` blades of these numbers, and zeros on the others: ``[..., blades]``."""
        return embed(tensor, tensor_index, self.n_blades)

    def embed_grade(self, tensor: Tensor, grade: int) -> Tensor:
        """Components ``[..., n]`` on the ``n`` blades of a grade: ``[..., blades]``."""
        return embed_grade(tensor, grade, self.sizes)

    def get_grade(self, mv: Tensor, grade: int) -> Tensor:
        """The components of a grade of ``[..., blades]``."""
        first = sum(self.sizes[:grade])
        return mv[..., first : first + self.sizes[grade]]

    def extra_repr(self) -> str:
        return "{}, {}, {}".format(*self.signature)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        # The published code keeps its tables in checkpoints, and asks for them when it loads one.
        for name, table in _tables(self.signature).items():
            destination[prefix + name] = table.clone()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        # They follow from the metric.
        for name in _tables(self.signature):
            state_dict.pop(prefix + name, None)


def grade_sizes(signature: tuple[int, int, int]) -> tuple[int, ...]:
    """The number of blades of each grade."""
    dim = sum(signature)
    return tuple(math.comb(dim, grade) for grade in range(dim + 1))


def embed(tensor: Tensor, tensor_index: Sequence[int], blades: int) -> Tensor:
    """:meth:`CliffordAlgebra.embed` in an algebra of so many blades."""
    index = [int(blade) % blades for blade in tensor_index]
    first, count = index[0], len(index)
    planes = tensor.movedim(-1, 0)
    if index != list(range(first, first + count)):
        zeros = torch.zeros_like(planes[0])
        return torch.stack([planes[index.index(b)] if b in index else zeros for b in range(blades)]).movedim(0, -1)
    pad = (0, 0) * (planes.dim() - 1) + (first, blades - first - count)
    return F.pad(planes, pad).movedim(0, -1)


def embed_grade(tensor: Tensor, grade: int, sizes: Sequence[int]) -> Tensor:
    """:meth:`CliffordAlgebra.embed_grade` in an algebra of so many blades of each grade."""
    first = sum(sizes[:grade])
    return embed(tensor, range(first, first + sizes[grade]), sum(sizes))


@lru_cache(maxsize=64)
def _tables(signature: tuple[int, int, int]) -> dict[str, Tensor]:
    """The buffers of the published algebra."""
    p, q, r = signature
    dim = p + q + r
    sizes = grade_sizes(signature)
    grades = torch.tensor([float(grade) for grade, size in enumerate(sizes) for _ in range(size)])
    cayley = torch.zeros(2**dim, 2**dim, 2**dim)
    for left, right, product, sign in Algebra(*signature).terms:
        cayley[left, product, right] = sign
    return {
        "metric": torch.tensor([1.0] * p + [-1.0] * q + [0.0] * r),
        "subspaces": torch.tensor(sizes),
        "bbo_grades": grades,
        "even_grades": grades % 2 == 0,
        "odd_grades": grades % 2 == 1,
        "cayley": cayley,
    }


def _algebra(algebra: Any) -> CliffordAlgebra:
    if isinstance(algebra, CliffordAlgebra):
        return algebra
    metric = getattr(algebra, "metric", algebra)
    return CliffordAlgebra(metric.tolist() if isinstance(metric, Tensor) else metric)
