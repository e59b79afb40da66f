"""Algebras as modules need them: a metric in any order of its signs, and features in the order that the operators take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gradewise._core import Algebra, squared_norms
from gradewise._errors import CheckpointError
from gradewise._metrics import Metric, Order, Signature, grade_sizes
from gradewise.torch._composite import is_followed


@dataclass(frozen=True)
class Space(Metric):
    """An algebra by the squares of its generators, with features in the order that the operators take.

    For a metric of another order, features are permuted, with the signs that an exchange of generators brings, when they come in, and back
    when they leave.
    """

    def enter(self, planes: Tensor) -> Tensor:
        """Features ``[blades, rows, features]`` in the operators' order."""
        if self.order is None:
            return planes
        blades, _, signs = _turns(self.order, planes)
        return planes.index_select(0, blades) * signs

    def leave(self, planes: Tensor) -> Tensor:
        """Features of the operators in the metric's own order."""
        if self.order is None:
            return planes
        _, back, signs = _turns(self.order, planes)
        return (planes * signs).index_select(0, back)

    def check(self, state: Mapping[str, Any], prefix: str) -> None:
        """Refuses weights that were saved with the tables of another algebra: the operators would compute another function with them."""
        for name in ("metric", "cayley"):
            table = state.get(prefix + name)
            if not isinstance(table, Tensor) or table.is_meta:
                continue
            expected = tables(self.metric)[name]
            if table.shape != expected.shape or not torch.equal(table.detach().cpu().double(), expected.double()):
                theirs = state.get(prefix + "metric")
                found = f", metric {[float(x) for x in theirs]}" if isinstance(theirs, Tensor) else ""
                raise CheckpointError(
                    f"{prefix + name} is a table of the checkpoint's algebra{found}, and not that of the model's, metric "
                    f"{list(self.metric)}: the same weights would compute another function. Make the model with the checkpoint's metric."
                )


def space_of(metric: Any) -> Space:
    """The algebra of a metric, given as a tensor or as numbers."""
    squares = metric.tolist() if isinstance(metric, Tensor) else metric
    return Space(tuple(float(square) for square in squares))


_TURNS: dict[tuple[Order, torch.device, torch.dtype], tuple[Tensor, Tensor, Tensor]] = {}


def _turns(order: Order, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where each blade comes from, where it goes back to, and its sign ``[blades, 1, 1]``."""
    key = (order, like.device, like.dtype)
    # Tensors made under a mode or a compiler belong to it.
    is_kept = not is_followed()
    if is_kept and key in _TURNS:
        return _TURNS[key]
    blades, signs = order
    back = [blades.index(blade) for blade in range(len(blades))]
    made = (
        torch.tensor(blades, device=like.device),
        torch.tensor(back, device=like.device),
        torch.tensor(signs, device=like.device, dtype=like.dtype)[:, None, None],
    )
    if is_kept and not torch.is_inference_mode_enabled():
        _TURNS[key] = made
    return made


@lru_cache(maxsize=64)
def tables(metric: tuple[float, ...]) -> dict[str, Tensor]:
    """The buffers of the published algebra of a metric."""
    space = Space(metric)
    dim, sizes = len(metric), space.sizes
    grades = torch.tensor([float(grade) for grade, size in enumerate(sizes) for _ in range(size)])
    own, signs = space.order or (tuple(range(2**dim)), (1.0,) * 2**dim)
    cayley = torch.zeros(2**dim, 2**dim, 2**dim)
    for left, right, product, sign in Algebra(*space.signature).terms:
        turned = signs[left] * signs[right] * signs[product]
        cayley[own[left], own[product], own[right]] = sign * turned
    return {
        "metric": torch.tensor(metric),
        "subspaces": torch.tensor(sizes),
        "bbo_grades": grades,
        "even_grades": grades % 2 == 0,
        "odd_grades": grades % 2 == 1,
        "cayley": cayley,
    }


# What operators do not compute: other constants, other invariants. By PyTorch, in float32 where the features have 16 bits.


def quadratic_forms(x: Tensor, signature: Signature) -> list[Tensor]:
    """The quadratic form of each grade of ``[blades, rows, features]``: ``[1, rows, features]`` each."""
    signs = squared_norms(signature)
    forms, first = [], 0
    for size in grade_sizes(signature):
        terms = [x[blade] * x[blade] * signs[blade] for blade in range(first, first + size) if signs[blade]]
        forms.append(sum(terms[1:], terms[0])[None] if terms else torch.zeros_like(x[:1]))
        first += size
    return forms


def smooth_norm(form: Tensor) -> Tensor:
    """(q² + 1e-16)^¼ of a quadratic form q, without q² itself, which float32 holds for features up to 1e9 alone."""
    return torch.hypot(form, form.new_tensor(1e-8)).sqrt()


def spread(by_grade: Sequence[Tensor], signature: Signature) -> Tensor:
    """Something of each grade, ``[1, rows, features]``, for each blade."""
    return torch.cat([part.expand(size, *part.shape[1:]) for part, size in zip(by_grade, grade_sizes(signature))])
