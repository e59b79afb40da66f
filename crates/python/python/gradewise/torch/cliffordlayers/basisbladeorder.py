"""The order of basis blades: by grade, then lexicographically."""

from __future__ import annotations

import itertools

import torch

from gradewise._errors import at_least_one


class ShortLexBasisBladeOrder:
    """Blades as sets of generators, in bits, and their places.

    Args:
        n_vectors: the number of generators.

    Attributes:
        index_to_bitmap: the generators of each blade.
        bitmap_to_index: the place of the blade of these generators.
        grades: the grade of each blade.
    """

    def __init__(self, n_vectors: int) -> None:
        at_least_one("ShortLexBasisBladeOrder", n_vectors=n_vectors)
        blades = [b for grade in range(n_vectors + 1) for b in itertools.combinations(range(n_vectors), grade)]
        self.index_to_bitmap = torch.tensor([sum(1 << g for g in blade) for blade in blades])
        self.grades = torch.tensor([len(blade) for blade in blades])
        self.bitmap_to_index = self.index_to_bitmap.argsort()
