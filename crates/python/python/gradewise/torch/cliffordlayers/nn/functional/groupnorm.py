"""Whitening of multivectors by sample and group of channels."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from gradewise._errors import ArgumentError, ShapeError
from gradewise.torch.cliffordlayers.nn.functional.batchnorm import clifford_batch_norm, need_pair, parts_of

__all__ = ["clifford_group_norm", "complex_group_norm"]


def clifford_group_norm(
    x: Tensor,
    n_blades: int,
    num_groups: int = 1,
    running_mean: Optional[Tensor] = None,
    running_cov: Optional[Tensor] = None,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """:func:`clifford_batch_norm` of each sample by itself, over space and ``num_groups`` neighbouring channels.

    As in the published code ``num_groups`` is the number of channels that are whitened together: 1 whitens each channel by itself, the number
    of channels all of them.

    Args:
        x: ``[batch, channels, *space, blades]``.
        n_blades: the number of blades.
        num_groups: divides the number of channels.
        running_mean: ``[blades, channels / num_groups]``, the mean over the samples; changed in place in training.
        running_cov: ``[blades, blades, channels / num_groups]``, likewise.
        weight: ``[blades, blades, channels / num_groups]``.
        bias: ``[blades, channels / num_groups]``.
        training, momentum, eps: as in :func:`whiten_data`.
    """
    operation = "clifford_group_norm"
    if x.dim() < 3 or x.shape[-1] != n_blades:
        raise ShapeError(
            f"{operation}: the input has shape {list(x.shape)}, expected [batch, channels, ..., {n_blades}]: the last axis holds the blades"
        )
    samples, channels = x.shape[:2]
    if num_groups < 1 or channels % num_groups:
        raise ArgumentError(
            f"{operation}: {channels} channels and num_groups {num_groups}, expected a divisor of the channels"
        )
    need_pair(operation, "running_mean", running_mean, "running_cov", running_cov)
    need_pair(operation, "weight", weight, "bias", bias)
    own = channels // num_groups
    for name, given in (
        ("running_mean", running_mean),
        ("running_cov", running_cov),
        ("weight", weight),
        ("bias", bias),
    ):
        if given is not None and given.shape[-1] != own:
            raise ShapeError(f"{operation}: {name} has shape {list(given.shape)}, expected {own} on the last axis")

    def repeated(parameter: Optional[Tensor]) -> Optional[Tensor]:
        return None if parameter is None else parameter.repeat(*(1,) * (parameter.dim() - 1), samples)

    statistics = repeated(running_mean), repeated(running_cov)
    made = clifford_batch_norm(
        # Axis by axis: a reshape of several would fix the number of samples in programs that are traced.
        x.unflatten(1, (own, num_groups)).flatten(0, 1)[None],
        n_blades,
        *statistics,
        repeated(weight),
        repeated(bias),
        training,
        momentum,
        eps,
    )
    # Unchanged in evaluation, to the last bit: the mean of equal numbers may be rounded.
    for running, now in zip((running_mean, running_cov), statistics):
        if running is not None and training:
            # Over the samples: the published code averages the covariance over blades, which fails unless there are as many samples.
            running.copy_(now.unflatten(-1, (samples, own)).mean(dim=-2))
    return made[0].unflatten(0, (samples, own)).flatten(1, 2)


def complex_group_norm(
    x: Tensor,
    num_groups: int = 1,
    running_mean: Optional[Tensor] = None,
    running_cov: Optional[Tensor] = None,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    training: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """:func:`clifford_group_norm` of complex numbers ``[batch, channels, *space]``."""
    parts = parts_of(x, "complex_group_norm")
    made = clifford_group_norm(parts, 2, num_groups, running_mean, running_cov, weight, bias, training, momentum, eps)
    return torch.view_as_complex(made.contiguous())
