"""Whitening of multivectors over a batch."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch._composite import is_any_autocast

__all__ = ["clifford_batch_norm", "complex_batch_norm", "whiten_data"]


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize == 2 else x


def _need(operation: str, name: str, x: Optional[Tensor], *shape: int) -> None:
    if x is not None and x.shape != shape:
        raise ShapeError(f"{operation}: {name} has shape {list(x.shape)}, expected {list(shape)}")


def need_pair(operation: str, first: str, a: Optional[Tensor], second: str, b: Optional[Tensor]) -> None:
    """Refuses one of two tensors without the other."""
    if (a is None) != (b is None):
        raise ArgumentError(
            f"{operation}: {first} and {second} come together, and only {second if a is None else first} was given"
        )


def _whitened(
    operation: str,
    x: Tensor,
    training: bool,
    running_mean: Optional[Tensor],
    running_cov: Optional[Tensor],
    momentum: float,
    eps: float,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
) -> Tensor:
    """The whitened features, times a matrix for each channel and plus a bias if there are any.

    The covariance's inverse factor and the matrix become one matrix for each channel, so that the features are read twice and written once.
    """
    if x.dim() < 3:
        raise ShapeError(f"{operation}: the input has shape {list(x.shape)}, expected [batch, channels, ..., blades]")
    channels, blades = x.shape[1], x.shape[-1]
    _need(operation, "running_mean", running_mean, blades, channels)
    _need(operation, "running_cov", running_cov, blades, blades, channels)
    _need(operation, "weight", weight, blades, blades, channels)
    _need(operation, "bias", bias, blades, channels)
    if is_any_autocast() and torch.is_autocast_enabled(x.device.type):
        # A covariance of 16 bits has few digits, and its factor none.
        with torch.autocast(x.device.type, enabled=False):
            return _whitened(operation, x, training, running_mean, running_cov, momentum, eps, weight, bias)
    between = x.movedim((1, -1), (0, 1))
    rows = _wide(between.flatten(2))
    if training or running_mean is None:
        mean = rows.mean(dim=-1)
        _follow(running_mean, mean.T, momentum)
    else:
        mean = running_mean.T.to(rows.dtype)
    rows = rows - mean[..., None]
    if training or running_cov is None:
        cov = rows @ rows.mT / rows.shape[-1]
        _follow(running_cov, cov.permute(1, 2, 0), momentum)
    else:
        cov = running_cov.permute(2, 0, 1).to(rows.dtype)
    unit = torch.eye(blades, device=cov.device, dtype=cov.dtype)
    # Relative to the greatest entry, as published: a fixed one would vanish beside large features.
    upper = torch.linalg.cholesky(cov + eps * cov.amax(dim=(1, 2))[:, None, None] * unit).mH
    if weight is None:
        matrix = torch.linalg.solve_triangular(upper, unit.expand_as(upper), upper=True)
        made = matrix @ rows
    else:
        own = _wide(weight).permute(2, 0, 1).to(rows.dtype)
        matrix = torch.linalg.solve_triangular(upper, own, upper=True, left=False)
        # As published the elements of the bias are read in their own order as [channels, blades].
        offset = _wide(bias).flatten().unflatten(0, (channels, blades))[..., None].to(rows.dtype)
        made = torch.baddbmm(offset, matrix, rows)
    return made.to(x.dtype).unflatten(2, between.shape[2:]).movedim((0, 1), (1, -1))


def _follow(running: Optional[Tensor], now: Tensor, momentum: float) -> None:
    if running is not None:
        running += momentum * (now.detach().to(running.dtype) - running)


def whiten_data(
    x: Tensor,
    training: bool = True,
    running_mean: Optional[Tensor] = None,
    running_cov: Optional[Tensor] = None,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Multivectors times the inverse of U, where UᵀU is the covariance of their blades, for each channel over batch and space.

    Args:
        x: ``[batch, channels, *space, blades]``.
        training: whether mean and covariance are those of ``x``; else the running ones, if there are any.
        running_mean: ``[blades, channels]``; changed in place in training.
        running_cov: ``[blades, blades, channels]``; changed in place in training.
        momentum: the share of what is new in the running statistics.
        eps: added to the covariance's diagonal, in units of its greatest entry.

    Returns:
        The shape of ``x``. 16-bit features are whitened in float32.
    """
    return _whitened("whiten_data", x, training, running_mean, running_cov, momentum, eps)


def clifford_batch_norm(
    x: Tensor,
    n_blades: int,
    running_mean: Optional[Tensor] = None,
    running_cov: Optional[Tensor] = None,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """:func:`whiten_data`, then a matrix and a bias for each channel.

    Args:
        x: ``[batch, channels, *space, blades]``.
        n_blades: the number of blades.
        running_mean, running_cov, training, momentum, eps: as in :func:`whiten_data`.
        weight: ``[blades, blades, channels]``.
        bias: ``[blades, channels]``. As in the published code its elements are read, in their order, as ``[channels, blades]``.
    """
    operation = "clifford_batch_norm"
    if x.dim() == 0 or x.shape[-1] != n_blades:
        raise ShapeError(
            f"{operation}: the input has shape {list(x.shape)}, expected {n_blades} blades on the last axis"
        )
    need_pair(operation, "running_mean", running_mean, "running_cov", running_cov)
    need_pair(operation, "weight", weight, "bias", bias)
    return _whitened(operation, x, training, running_mean, running_cov, momentum, eps, weight, bias)


def complex_batch_norm(
    x: Tensor,
    running_mean: Optional[Tensor] = None,
    running_cov: Optional[Tensor] = None,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """:func:`clifford_batch_norm` of complex numbers ``[batch, channels, *space]`` (Trabelsi et al. 2018, arXiv:1705.09792)."""
    parts = parts_of(x, "complex_batch_norm")
    made = clifford_batch_norm(parts, 2, running_mean, running_cov, weight, bias, training, momentum, eps)
    return torch.view_as_complex(made.contiguous())


def parts_of(x: Tensor, operation: str) -> Tensor:
    """Complex numbers as two real ones on a last axis."""
    if not x.is_complex():
        raise ArgumentError(
            f"{operation}: the input is of {x.dtype}, expected complex numbers; torch.complex makes them of two parts"
        )
    return torch.view_as_real(x)
