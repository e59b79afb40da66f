"""Layer normalisation of multivectors and scalars."""

from __future__ import annotations

from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from gradewise.torch._transformers.algebra import Blades
from gradewise.torch._transformers.precision import island


def grade_norms(mv: Tensor, blades: Blades) -> Tensor:
    """The sum over grades of the absolute values of their quadratic forms, for planes ``[16, ...]``: ``[...]``.

    The form itself has either sign in space-time (de Haan, Cohen and Brehmer 2024, arXiv:2311.04744, and Spinner et al. 2024,
    arXiv:2405.14806), and no layer norm could divide by its root.
    """
    forms = blades.inner_by_grade(mv) @ mv.square().reshape(mv.shape[0], -1)
    return forms.abs().sum(0).view(mv.shape[1:])


def form(mv: Tensor, blades: Blades) -> Tensor:
    """The quadratic form of planes ``[16, ...]`` of an algebra where none is negative: ``[...]``."""
    planes = [p for p, factor in enumerate(blades.factors) if factor]
    if planes == list(range(planes[0], planes[-1] + 1, 2)):
        there = mv[planes[0] : planes[-1] + 1 : 2]
    else:
        there = torch.stack([mv[p] for p in planes])
    return there.square().sum(0)


def scales(
    mv: Tensor,
    blades: Blades,
    epsilon: float,
    norms: Callable[[Tensor, Blades], Tensor] = grade_norms,
    gain: float = 1.0,
    axis: int = 1,
) -> Tensor:
    """What planes ``[16, ...]`` are multiplied by so that the mean of their norms over an axis is 1, with that axis of length 1 and
    without that of the planes."""
    with island() as wide:
        found = torch.rsqrt(norms(wide(mv), blades).mean(axis - 1, keepdim=True).clamp(min=epsilon))
        return found if gain == 1 else gain * found


def scalar_norm(s: Optional[Tensor]) -> Optional[Tensor]:
    """Scalars ``[channels, rows]`` normalised over channels."""
    return None if s is None else F.layer_norm(s.t(), (s.shape[0],)).t()
