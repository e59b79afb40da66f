"""Batch normalisation of complex numbers and multivectors."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor, nn

from gradewise._errors import ShapeError, at_least_one
from gradewise.torch.cliffordlayers.nn.functional.batchnorm import clifford_batch_norm, complex_batch_norm
from gradewise.torch.cliffordlayers.signature import CliffordSignature


class Norm(nn.Module):
    """Parameters and running statistics of whitening: what batch and group normalisation share."""

    _axes: tuple[int, ...]
    """The numbers of axes that an input may have."""
    num_batches_tracked: Optional[Tensor]

    def _build(
        self,
        blades: int,
        channels: int,
        eps: float,
        momentum: Optional[float],
        affine: bool,
        track_running_stats: bool,
    ) -> None:
        at_least_one(type(self).__name__, channels=channels)
        self._blades = blades
        self.channels, self.eps, self.momentum = channels, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = nn.Parameter(torch.empty(blades, blades, channels))
            self.bias = nn.Parameter(torch.empty(blades, channels))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        if track_running_stats:
            self.register_buffer("running_mean", torch.empty(blades, channels))
            self.register_buffer("running_cov", torch.empty(blades, blades, channels))
            self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long))
        else:
            for name in ("running_mean", "running_cov", "num_batches_tracked"):
                self.register_parameter(name, None)
        self.reset_running_stats()
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Zeros as running means, the identity as running covariances."""
        if self.track_running_stats:
            self.num_batches_tracked.zero_()
            self.running_mean.zero_()
            self.running_cov.copy_(torch.eye(self._blades)[..., None])

    def reset_parameters(self) -> None:
        """The identity as matrices, and no bias."""
        if self.affine:
            self.weight.data.copy_(torch.eye(self._blades)[..., None])
            nn.init.zeros_(self.bias)

    def _need_input(self, x: Tensor) -> None:
        if x.dim() not in self._axes:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(x.shape)}, expected {' or '.join(map(str, self._axes))} axes"
            )

    def _is_measuring(self) -> bool:
        """Whether the statistics are those of the input."""
        return self.training or not self.track_running_stats

    def _momentum(self) -> float:
        """The share of a batch in the running statistics; without a momentum, all batches count alike."""
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
            if self.momentum is None:
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    def _run(self, x: Tensor, momentum: float) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """The normalised input, of the same shape."""
        self._need_input(x)
        return self._run(x, self._momentum())

    def extra_repr(self) -> str:
        return (
            f"{self.channels}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _ComplexBatchNorm(Norm):
    def __init__(
        self,
        channels: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self._build(2, channels, eps, momentum, affine, track_running_stats)

    def _run(self, x: Tensor, momentum: float) -> Tensor:
        statistics = (self.running_mean, self.running_cov, self.weight, self.bias)
        return complex_batch_norm(x, *statistics, self._is_measuring(), momentum, self.eps)


class ComplexBatchNorm1d(_ComplexBatchNorm):
    """Batch normalisation of complex numbers ``[batch, channels]`` or ``[batch, channels, x]``, by whitening of their two parts (Trabelsi et
    al. 2018, arXiv:1705.09792).

    Args:
        channels: channels.
        eps: added to the covariance's diagonal, in units of its greatest entry.
        momentum: the share of a batch in the running statistics; None for the mean of all batches.
        affine: whether there is a matrix and a bias for each channel.
        track_running_stats: whether there are running statistics, for evaluation.

    Parameters: ``weight`` ``[2, 2, channels]``, ``bias`` ``[2, channels]``. Buffers: ``running_mean``, ``running_cov`` likewise, and
    ``num_batches_tracked``.
    """

    _axes = (2, 3)


class ComplexBatchNorm2d(_ComplexBatchNorm):
    """:class:`ComplexBatchNorm1d` of ``[batch, channels, x, y]``."""

    _axes = (4,)


class ComplexBatchNorm3d(_ComplexBatchNorm):
    """:class:`ComplexBatchNorm1d` of ``[batch, channels, x, y, z]``."""

    _axes = (5,)


class CliffordNorm(Norm):
    """A norm of multivectors."""

    def _become(self, g: Any) -> int:
        """Keeps the signature; the number of blades."""
        signature = CliffordSignature(g)
        self.g, self.dim, self.n_blades = signature.g, signature.dim, signature.n_blades
        return signature.n_blades

    def _need_input(self, x: Tensor) -> None:
        if x.dim() == 0 or x.shape[-1] != self.n_blades:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(x.shape)}, expected {self.n_blades} blades on the last axis"
            )
        super()._need_input(x)


class _CliffordBatchNorm(CliffordNorm):
    def __init__(
        self,
        g: Any,
        channels: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self._build(self._become(g), channels, eps, momentum, affine, track_running_stats)

    def _run(self, x: Tensor, momentum: float) -> Tensor:
        statistics = (self.running_mean, self.running_cov, self.weight, self.bias)
        return clifford_batch_norm(x, self.n_blades, *statistics, self._is_measuring(), momentum, self.eps)


class CliffordBatchNorm1d(_CliffordBatchNorm):
    """Batch normalisation of multivectors ``[batch, channels, blades]`` or ``[batch, channels, x, blades]``: whitening of the blades of each
    channel, then a matrix and a bias (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the squares of one to three generators.
        channels: channels.
        eps: added to the covariance's diagonal, in units of its greatest entry.
        momentum: the share of a batch in the running statistics; None for the mean of all batches.
        affine: whether there is a matrix and a bias for each channel.
        track_running_stats: whether there are running statistics, for evaluation.

    Parameters: ``weight`` ``[blades, blades, channels]``, ``bias`` ``[blades, channels]``. Buffers: ``running_mean``, ``running_cov`` likewise,
    and ``num_batches_tracked``. 16-bit features are whitened in float32.
    """

    _axes = (3, 4)


class CliffordBatchNorm2d(_CliffordBatchNorm):
    """:class:`CliffordBatchNorm1d` of ``[batch, channels, x, y, blades]``."""

    _axes = (5,)


class CliffordBatchNorm3d(_CliffordBatchNorm):
    """:class:`CliffordBatchNorm1d` of ``[batch, channels, x, y, z, blades]``."""

    _axes = (6,)
