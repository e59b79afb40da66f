"""Algebras by their metric, and embeddings of vectors and scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch._layout import n_paths
from gradewise.torch._pretrained.arguments import Recorded
from gradewise.torch._space import grade_sizes, space_of, tables


class CliffordAlgebra(Recorded, nn.Module):
    """An algebra by its metric: the sizes that modules ask for, and embeddings of vectors and scalars.

    Args:
        metric: the squares of the generators, 1, -1 or 0 each, in any order. Operators take those of 1 first, then those of -1, then those
            of 0; the modules of this package permute features of another order, which costs a copy where they enter and leave.
    """

    def __init__(self, metric: Sequence[float]) -> None:
        super().__init__()
        self.space = space_of(metric)
        self.signature = self.space.signature
        self.dim = sum(self.signature)
        self.n_blades = 2**self.dim
        self.n_subspaces = self.dim + 1
        self.sizes = grade_sizes(self.signature)

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
        if not 0 <= grade < len(self.sizes):
            raise ArgumentError(f"get_grade: grade {grade}, expected 0 to {len(self.sizes) - 1}")
        first = sum(self.sizes[:grade])
        return mv[..., first : first + self.sizes[grade]]

    def extra_repr(self) -> str:
        return "{}, {}, {}".format(*self.signature)

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        # The published code keeps its tables in checkpoints, and asks for them when it loads one.
        for name, table in tables(self.space.metric).items():
            destination[prefix + name] = table.clone()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, errors) -> None:
        # They follow from the metric; weights of another algebra are refused.
        self.space.check(state_dict, prefix)
        for name in tables(self.space.metric):
            state_dict.pop(prefix + name, None)


def embed(tensor: Tensor, tensor_index: Sequence[int], blades: int) -> Tensor:
    """:meth:`CliffordAlgebra.embed` in an algebra of so many blades."""
    index = [int(blade) for blade in tensor_index]
    if len(set(index)) != len(index) or not all(0 <= blade < blades for blade in index):
        raise ArgumentError(f"embed: the blades are {index}, expected different numbers from 0 to {blades - 1}")
    if tensor.dim() == 0 or tensor.shape[-1] != len(index):
        raise ShapeError(
            f"embed: the components have shape {list(tensor.shape)}, expected [..., {len(index)}]: one for each of the blades {index}"
        )
    if not index:
        return tensor.new_zeros(*tensor.shape[:-1], blades)
    first, count = index[0], len(index)
    planes = tensor.movedim(-1, 0)
    if index != list(range(first, first + count)):
        zeros = torch.zeros_like(planes[0])
        return torch.stack([planes[index.index(b)] if b in index else zeros for b in range(blades)]).movedim(0, -1)
    pad = (0, 0) * (planes.dim() - 1) + (first, blades - first - count)
    return F.pad(planes, pad).movedim(0, -1)


def embed_grade(tensor: Tensor, grade: int, sizes: Sequence[int]) -> Tensor:
    """:meth:`CliffordAlgebra.embed_grade` in an algebra of so many blades of each grade."""
    if not 0 <= grade < len(sizes):
        raise ArgumentError(f"embed_grade: grade {grade}, expected 0 to {len(sizes) - 1}")
    if tensor.dim() == 0 or tensor.shape[-1] != sizes[grade]:
        raise ShapeError(
            f"embed_grade: the components have shape {list(tensor.shape)}, expected [..., {sizes[grade]}]: one for each blade of grade "
            f"{grade}"
        )
    first = sum(sizes[:grade])
    return embed(tensor, range(first, first + sizes[grade]), sum(sizes))


def _algebra(algebra: Any) -> CliffordAlgebra:
    if isinstance(algebra, CliffordAlgebra):
        return algebra
    metric = getattr(algebra, "metric", algebra)
    return CliffordAlgebra(metric.tolist() if isinstance(metric, Tensor) else metric)
