"""Equivariant linear maps."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from gradewise._errors import ArgumentError
from gradewise._transformers.initialize import check
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.features import Features
from gradewise.torch._transformers.initialize import freeze_empty, initialize
from gradewise.torch._transformers.linear import LinearLayer
from gradewise.torch.lgatr.config import PrimitivesConfig


class EquiLinear(LinearLayer):
    """The general equivariant linear map of multivectors and scalars (Spinner et al. 2024, arXiv:2405.14806).

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        primitives: the group, a :class:`PrimitivesConfig` or a dict.
        in_s_channels: scalars of the input.
        out_s_channels: scalars of the output.
        bias: whether there are biases, on scalars and on the multivectors' scalars.
        initialization: "default", "small", "unit_scalar" or "almost_unit_scalar".

    Parameters: ``weight`` ``[out, in, maps]``, and those of the linear maps ``s2mvs``, ``mvs2s`` and ``s2s``.
    """

    _blades = SPACETIME

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        primitives: Any = None,
        in_s_channels: int = 0,
        out_s_channels: int = 0,
        bias: bool = True,
        initialization: str = "default",
    ) -> None:
        super().__init__()
        check(initialization, bias, in_s_channels > 0)
        self.primitives = PrimitivesConfig() if primitives is None else PrimitivesConfig.cast(primitives)
        self._in_mv_channels, self._out_mv_channels = in_mv_channels, out_mv_channels
        self._in_s_channels, self._out_s_channels = in_s_channels, out_s_channels
        self._bias = bias
        mixed = 2 if self._mixes else 1
        maps = self.primitives.num_pin_linear_basis_elements
        self.weight = nn.Parameter(torch.empty(out_mv_channels, in_mv_channels, maps))
        self.bias = nn.Parameter(torch.zeros(out_mv_channels, 1)) if bias and in_s_channels == 0 else None
        self.s2mvs = nn.Linear(in_s_channels, mixed * out_mv_channels, bias=bias) if in_s_channels else None
        self.mvs2s = nn.Linear(mixed * in_mv_channels, out_s_channels, bias=bias) if out_s_channels else None
        self.s2s = nn.Linear(in_s_channels, out_s_channels, bias=False) if in_s_channels and out_s_channels else None
        self.reset_parameters(initialization)
        freeze_empty(self)

    def reset_parameters(
        self, initialization: str, gain: float = 1.0, additional_factor: Optional[float] = None
    ) -> None:
        """Draws the parameters.

        Args:
            initialization: "default" keeps the variance of the features, "small" gives a tenth of their deviation, "unit_scalar" and
                "almost_unit_scalar" multivectors close to the scalar 1.
            gain: of the activation before it.
            additional_factor: what the bounds are multiplied by, 1/√3 if None.
        """
        check(initialization, self._bias, self._in_s_channels > 0)
        initialize(self, initialization, gain, additional_factor)

    @property
    def _mixes(self) -> bool:  # type: ignore[override]
        return self.primitives.subgroup

    def _fits(self, x: Features) -> None:
        given = 0 if x.s is None else x.s.shape[0]
        if given == 0 and self._in_s_channels > 0:
            raise ArgumentError(
                f"EquiLinear: no scalars, expected {self._in_s_channels} channels of them: give scalars"
            )
        if given > 0 and self._in_s_channels == 0:
            raise ArgumentError(
                f"EquiLinear: scalars of {given} channels for a map without any: leave them out, or make it with in_s_channels={given}"
            )
        super()._fits(x)

    def extra_repr(self) -> str:
        scalars = (
            f", s {self._in_s_channels} to {self._out_s_channels}"
            if self._in_s_channels or self._out_s_channels
            else ""
        )
        return f"{self._in_mv_channels}, {self._out_mv_channels}{scalars}, bias={self._bias}"
