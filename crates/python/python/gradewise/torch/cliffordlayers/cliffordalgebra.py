"""Algebras as the layers of geometric Clifford algebra networks take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from torch import Tensor

from gradewise._errors import ShapeError
from gradewise.torch import _functional as ops
from gradewise.torch._space import space_of, tables
from gradewise.torch.cgenn.algebra import embed
from gradewise.torch.cliffordlayers.basisbladeorder import ShortLexBasisBladeOrder


class CliffordAlgebra:
    """An algebra by its metric.

    Args:
        metric: the squares of the generators, 1, -1 or 0 each, in any order.

    Attributes:
        metric: the squares, a tensor.
        dim: the number of generators, ``num_bases`` too.
        n_blades: the number of blades.
        bbo: the order of the blades.
        cayley: the table of the product, ``[left, result, right]``.
    """

    def __init__(self, metric: Sequence[float]) -> None:
        self.space = space_of(metric)
        known = tables(self.space.metric)
        self.metric, self.cayley = known["metric"].clone(), known["cayley"].clone()
        self.dim = self.num_bases = len(self.space.metric)
        self.n_blades = self.space.blades
        self.bbo = ShortLexBasisBladeOrder(self.dim)

    def to(self, device: Union[torch.device, str]) -> CliffordAlgebra:
        """Moves the tables to a device. Layers need it not: their constants follow their inputs."""
        self.bbo.grades = self.bbo.grades.to(device)
        self.metric, self.cayley = self.metric.to(device), self.cayley.to(device)
        return self

    def geometric_product(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of multivectors ``[batch, ..., blades]``, position by position, in the shape of ``a``."""
        x, y = (self._planes(mv) for mv in (a, b))
        if x.shape != y.shape:
            raise ShapeError(
                f"geometric_product: shapes {list(a.shape)} and {list(b.shape)}, expected as many multivectors"
            )
        product = ops.geometric_product(x, y, self.space.signature)
        return self.space.leave(product).movedim(0, -1).reshape(a.shape)

    def _planes(self, mv: Tensor) -> Tensor:
        if mv.dim() < 2 or mv.shape[-1] != self.n_blades:
            raise ShapeError(
                f"geometric_product: the input has shape {list(mv.shape)}, expected [batch, ..., {self.n_blades}]: the last axis holds the "
                "blades"
            )
        return self.space.enter(mv.reshape(len(mv), -1, self.n_blades).movedim(-1, 0))

    def reverse(self, mv: Tensor, blades: Optional[Any] = None) -> Tensor:
        """The reverse: grade k times (−1)^(k(k−1)/2).

        Args:
            mv: ``[..., blades]``.
            blades: the numbers of the blades that ``mv`` has; all if None.
        """
        grades = self.bbo.grades.to(mv.device)
        grades = grades if blades is None else grades[torch.as_tensor(blades, device=mv.device)]
        if mv.dim() == 0 or mv.shape[-1] != len(grades):
            raise ShapeError(
                f"reverse: the input has shape {list(mv.shape)}, expected {len(grades)} blades on the last axis"
            )
        return mv * (1 - grades * (grades - 1) % 4).to(mv.dtype)

    def embed(self, tensor: Tensor, tensor_index: Sequence[int]) -> Tensor:
        """Components ``[..., n]`` on the ``n`` blades of these numbers, and zeros on the others: ``[..., blades]``."""
        return embed(tensor, tensor_index, self.n_blades)

    def get(self, mv: Tensor, blade_index: Sequence[int]) -> Tensor:
        """The components of ``[..., blades]`` on the blades of these numbers."""
        return mv[..., tuple(blade_index)]

    def mag2(self, mv: Tensor) -> Tensor:
        """The product of the reverse with the multivector."""
        return self.geometric_product(self.reverse(mv), mv)

    def norm(self, mv: Tensor) -> Tensor:
        """The square root of the absolute value of the scalar part of :meth:`mag2`: ``[..., 1]``."""
        return self.mag2(mv)[..., :1].abs().sqrt()

    def sandwich(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of ``a``, ``b`` and the reverse of ``a``."""
        return self.geometric_product(self.geometric_product(a, b), self.reverse(a))
