"""Group normalisation of complex numbers and multivectors."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor

from gradewise._errors import ArgumentError, at_least_one
from gradewise.torch.cliffordlayers.nn.functional.groupnorm import clifford_group_norm, complex_group_norm
from gradewise.torch.cliffordlayers.nn.modules.batchnorm import CliffordNorm, Norm


class _Grouped(Norm):
    num_groups: int

    def _own_channels(self, num_groups: int, channels: int) -> int:
        at_least_one(type(self).__name__, num_groups=num_groups, channels=channels)
        if channels % num_groups:
            raise ArgumentError(
                f"{type(self).__name__}: {channels} channels and num_groups {num_groups}, expected a divisor of the channels"
            )
        self.num_groups = num_groups
        return channels // num_groups

    def _momentum(self) -> float:
        # As published: batches are not counted.
        return 0.0 if self.momentum is None else self.momentum

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {super().extra_repr()}"


class _ComplexGroupNorm(_Grouped):
    def __init__(
        self,
        num_groups: int,
        channels: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = False,
    ) -> None:
        super().__init__()
        self._build(2, self._own_channels(num_groups, channels), eps, momentum, affine, track_running_stats)

    def _run(self, x: Tensor, momentum: float) -> Tensor:
        statistics = (self.running_mean, self.running_cov, self.weight, self.bias)
        return complex_group_norm(x, self.num_groups, *statistics, self._is_measuring(), momentum, self.eps)


class ComplexGroupNorm1d(_ComplexGroupNorm):
    """Group normalisation of complex numbers ``[batch, channels]`` or ``[batch, channels, x]``: see :class:`CliffordGroupNorm1d`."""

    _axes = (2, 3)


class ComplexGroupNorm2d(_ComplexGroupNorm):
    """:class:`ComplexGroupNorm1d` of ``[batch, channels, x, y]``."""

    _axes = (4,)


class ComplexGroupNorm3d(_ComplexGroupNorm):
    """:class:`ComplexGroupNorm1d` of ``[batch, channels, x, y, z]``."""

    _axes = (5,)


class _CliffordGroupNorm(_Grouped, CliffordNorm):
    def __init__(
        self,
        g: Any,
        num_groups: int,
        channels: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = False,
    ) -> None:
        super().__init__()
        blades = self._become(g)
        self._build(blades, self._own_channels(num_groups, channels), eps, momentum, affine, track_running_stats)

    def _run(self, x: Tensor, momentum: float) -> Tensor:
        statistics = (self.running_mean, self.running_cov, self.weight, self.bias)
        return clifford_group_norm(
            x, self.n_blades, self.num_groups, *statistics, self._is_measuring(), momentum, self.eps
        )


class CliffordGroupNorm1d(_CliffordGroupNorm):
    """Group normalisation of multivectors ``[batch, channels, blades]`` or ``[batch, channels, x, blades]``: whitening of each sample over
    space and ``num_groups`` neighbouring channels, then a matrix and a bias (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the squares of one to three generators.
        num_groups: the number of channels that are whitened together, as in the published code; divides the channels.
        channels: channels.
        eps, momentum, affine: as in :class:`CliffordBatchNorm1d`; without a momentum the running statistics stay.
        track_running_stats: whether there are running statistics, means over the samples.

    Parameters: ``weight`` ``[blades, blades, channels / num_groups]``, ``bias`` ``[blades, channels / num_groups]``.
    """

    _axes = (3, 4)


class CliffordGroupNorm2d(_CliffordGroupNorm):
    """:class:`CliffordGroupNorm1d` of ``[batch, channels, x, y, blades]``."""

    _axes = (5,)


class CliffordGroupNorm3d(_CliffordGroupNorm):
    """:class:`CliffordGroupNorm1d` of ``[batch, channels, x, y, z, blades]``."""

    _axes = (6,)
