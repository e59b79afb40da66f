"""Kernels between blades: which weight, with which sign and which squares of generators, maps an input blade to an output blade."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Optional, Union

import torch
from torch import Tensor

from gradewise._core import Algebra
from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch._composite import is_followed

Weights = Union[Tensor, Iterable[Tensor]]
"""A weight for each blade: one tensor ``[blades, out, in, ...]``, or a list of ``[out, in, ...]``."""
Blades = Optional[tuple[int, ...]]
"""The blades that a field has, by number; None for all."""


@dataclass(frozen=True)
class Table:
    """The product x·w of an input blade and a weight's, sorted by output blade (rows) and input blade (columns)."""

    weights: Tensor
    """The number of the weight: ``[rows, columns]``."""
    signs: Tensor
    """The sign of the product in a Euclidean metric: ``[rows, columns]``."""
    shared: Tensor
    """Whether input and weight share a generator, whose square is then a factor: ``[rows, columns, generators]``."""
    inputs: Tensor
    """Of a whole table, the number of the input that meets each weight: ``[rows, weights]``."""


@torch.compiler.assume_constant_result
def _host_table(dim: int, rows: Blades, columns: Blades) -> tuple[list, list, list]:
    # Compilers look through a cache at what it keeps.
    return _numbers(dim, rows, columns)


@lru_cache(maxsize=64)
def _numbers(dim: int, rows: Blades, columns: Blades) -> tuple[list, list, list]:
    generators = [set(b) for grade in range(dim + 1) for b in itertools.combinations(range(dim), grade)]
    found = {(out, x): (w, sign) for x, w, out, sign in Algebra(dim).terms}
    every = tuple(range(2**dim))
    cells = [[(x, *found[out, x]) for x in columns or every] for out in rows or every]
    return (
        [[w for _, w, _ in row] for row in cells],
        [[float(sign) for _, _, sign in row] for row in cells],
        [[[g in generators[x] & generators[w] for g in range(dim)] for x, w, _ in row] for row in cells],
    )


_TABLES: dict[tuple[int, Blades, Blades, torch.device], Table] = {}


def table(dim: int, rows: Blades, columns: Blades, device: torch.device) -> Table:
    """The table of an algebra of ``dim`` generators on a device."""
    key = (dim, rows, columns, device)
    # Tensors made under a mode or a compiler belong to it.
    is_kept = not is_followed() and not torch.is_inference_mode_enabled()
    if is_kept and key in _TABLES:
        return _TABLES[key]
    weights, signs, shared = _host_table(dim, rows, columns)
    inputs = [sorted(range(len(row)), key=row.__getitem__) for row in weights]
    made = Table(*(torch.tensor(values, device=device) for values in (weights, signs, shared, inputs)))
    if is_kept:
        _TABLES[key] = made
    return made


def stacked(w: Weights, count: int, operation: str) -> Tensor:
    """The weights as one tensor ``[count, out, in, ...]``."""
    weights = w if isinstance(w, Tensor) else torch.stack(_listed(w, operation))
    if weights.dim() < 3 or weights.shape[0] != count:
        raise ShapeError(
            f"{operation}: the weights have shape {list(weights.shape)}, expected [{count}, out, in, ...]: one for each blade"
        )
    return weights


def _listed(w: Iterable[Tensor], operation: str) -> list[Tensor]:
    weights = list(w)
    if not weights or not all(isinstance(x, Tensor) for x in weights):
        raise ArgumentError(f"{operation}: the weights are {type(w).__name__}, expected a tensor or a list of tensors")
    if any(x.shape != weights[0].shape for x in weights):
        raise ShapeError(f"{operation}: the weights have shapes {[list(x.shape) for x in weights]}, expected one shape")
    return weights


def joined(blocks: Tensor) -> Tensor:
    """Blocks ``[rows, columns, out, in, ...]`` as the kernel ``[rows·out, columns·in, ...]`` of one convolution or linear map."""
    return blocks.transpose(1, 2).flatten(2, 3).flatten(0, 1)


def blade_kernel(
    w: Weights, g: Tensor, dim: int, operation: str, rows: Blades = None, columns: Blades = None
) -> Tensor:
    """The kernel of x·w in the algebra whose generators square to ``g``, from the input blades ``columns`` to the output blades ``rows``.

    One selection of weights and one multiplication, whatever the algebra is.
    """
    if not isinstance(g, Tensor) or g.numel() != dim:
        found = f"{g.numel()} squares" if isinstance(g, Tensor) else type(g).__name__
        raise ArgumentError(f"{operation}: the signature has {found}, expected a tensor of {dim}")
    weights = stacked(w, 2**dim, operation)
    there = table(dim, rows, columns, weights.device)
    squares = g.to(weights.device, weights.dtype)
    factors = torch.where(there.shared, squares, 1.0).prod(dim=-1) * there.signs
    factors = factors.to(weights.dtype).reshape(*factors.shape, *(1,) * (weights.dim() - 1))
    return joined(weights[there.weights] * factors)


def products(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
    """The products x·w at each of some places: ``x`` ``[blades, places, batch, in]`` and weights ``[blades, out, in, places]`` to ``[batch,
    blades, out, places]``.

    For every output blade the inputs are put beside the weights that they meet, so that the weights are read as they are. Their kernel between
    blades would be as many times larger as there are blades.
    """
    blades, places, batch, channels = x.shape
    there = table(g.numel(), None, None, x.device)
    squares = torch.where(there.shared, g.to(x.device, x.dtype), 1.0).prod(dim=-1) * there.signs
    factors = squares.gather(1, there.inputs).to(x.dtype)[:, :, None, None, None]
    rows = (x[there.inputs] * factors).permute(2, 3, 0, 1, 4).reshape(places, batch * blades, blades * channels)
    matrices = w.permute(3, 0, 2, 1).reshape(places, blades * channels, -1)
    return torch.bmm(rows, matrices).unflatten(1, (batch, blades)).permute(1, 2, 3, 0)


def rotations(w: Sequence[Tensor], scale: Tensor) -> Tensor:
    """The scaled rotation matrices of quaternions: ``[3, 3, out, in, ...]`` for four components and a scale of shape ``[out, in, ...]``.

    The quaternions are divided by √(‖w‖² + 10⁻⁴), as in the published code.
    """
    a, b, c, d = w
    norm = torch.sqrt(a * a + b * b + c * c + d * d + 1e-4)
    a, b, c, d = a / norm, b / norm, c / norm, d / norm
    bb, cc, dd = 2 * b * b, 2 * c * c, 2 * d * d
    ab, ac, ad = 2 * a * b, 2 * a * c, 2 * a * d
    bc, bd, cd = 2 * b * c, 2 * b * d, 2 * c * d
    entries = [1 - (cc + dd), bc - ad, bd + ac, bc + ad, 1 - (bb + dd), cd - ab, bd - ac, cd + ab, 1 - (bb + cc)]
    return (scale * torch.stack(entries)).unflatten(0, (3, 3))


def rotation_blocks(w: Weights, operation: str) -> Tensor:
    """The blocks ``[3, 4, out, in, ...]`` of a quaternion's rotation of the three components, whose first column is the kernel of zeros, from
    four components, the scale and the kernel of zeros."""
    *quaternion, scale, zeros = stacked(w, 6, operation)
    matrices = rotations(quaternion, scale)
    return torch.cat([zeros.expand(3, 1, *zeros.shape), matrices], dim=1)
