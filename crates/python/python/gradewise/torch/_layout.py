"""Two ways to number the axes of the same features, without copies between them.

The published Clifford-group-equivariant modules take ``[rows, features, ..., blades]``; the operators take ``[blades, rows, features]``.
What the operators return is shown to the modules' users with its axes permuted: the elements stay where they are, so that the next
module, which permutes back, finds them in the operators' order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from torch import Tensor

from gradewise._core import Algebra
from gradewise._errors import ShapeError


def to_planes(x: Tensor, blades: int, operation: str) -> Tensor:
    """Features ``[rows, features, ..., blades]`` as ``[blades, rows, features]``; axes between are joined to the rows."""
    if x.dim() < 3 or x.shape[-1] != blades:
        raise ShapeError(
            f"{operation}: the input has shape {list(x.shape)}, expected [rows, features, ..., {blades}]: the last axis holds the blades"
        )
    if x.dim() == 3:
        return x.permute(2, 0, 1)
    return x.movedim((-1, 1), (0, -1)).flatten(1, -2)


def to_features(planes: Tensor, like: Sequence[int]) -> Tensor:
    """``[blades, rows, features]`` as ``[rows, features, ..., blades]``, with the axes between of the shape ``like``."""
    if len(like) == 3:
        return planes.permute(1, 2, 0)
    between = planes.reshape(planes.shape[0], like[0], *like[2:-1], planes.shape[-1])
    return between.movedim((0, -1), (-1, 1))


@lru_cache(maxsize=64)
def n_paths(signature: tuple[int, int, int]) -> int:
    """The number of triples of grades (left, result, right) that occur in the geometric product of an algebra."""
    return len(Algebra(*signature).paths)
