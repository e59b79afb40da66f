"""Equivariant linear maps."""

from __future__ import annotations

import math
from typing import Optional

import torch
from torch import nn

from gradewise._transformers.initialize import COMPONENTS, check
from gradewise.torch._transformers.algebra import PROJECTIVE
from gradewise.torch._transformers.initialize import initialize
from gradewise.torch._transformers.linear import LinearLayer


class EquiLinear(LinearLayer):
    """The general linear map of multivectors of the projective algebra that is equivariant under rotations, reflections and translations
    (Brehmer et al. 2023, arXiv:2305.18415), and of scalars.

    Args:
        in_mv_channels: multivectors of the input.
        out_mv_channels: multivectors of the output.
        in_s_channels: scalars of the input, None for none.
        out_s_channels: scalars of the output, None for none.
        bias: whether there are biases, on scalars and on the multivectors' scalars.
        initialization: "default", "small", "unit_scalar" or "almost_unit_scalar".

    Parameters: ``weight`` ``[out, in, 9]``, and those of the linear maps ``s2mvs``, ``mvs2s`` and ``s2s``.
    """

    _blades = PROJECTIVE
    _is_wide = False

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        in_s_channels: Optional[int] = None,
        out_s_channels: Optional[int] = None,
        bias: bool = True,
        initialization: str = "default",
    ) -> None:
        super().__init__()
        check(initialization, bias, in_s_channels is not None)
        self._in_mv_channels = in_mv_channels
        self.weight = nn.Parameter(torch.empty(out_mv_channels, in_mv_channels, len(PROJECTIVE.maps)))
        self.bias = nn.Parameter(torch.zeros(out_mv_channels, 1)) if bias and in_s_channels is None else None
        self.s2mvs = nn.Linear(in_s_channels, out_mv_channels, bias=bias) if in_s_channels else None
        self.mvs2s = nn.Linear(in_mv_channels, out_s_channels, bias=bias) if out_s_channels else None
        has_both = in_s_channels is not None and out_s_channels is not None
        self.s2s = nn.Linear(in_s_channels, out_s_channels, bias=False) if has_both else None
        self.reset_parameters(initialization)

    def reset_parameters(
        self,
        initialization: str,
        gain: float = 1.0,
        additional_factor: float = 1.0 / math.sqrt(3.0),
        use_mv_heuristics: bool = True,
    ) -> None:
        """Draws the parameters.

        Args:
            initialization: "default" keeps the variance of the features, "small" gives a tenth of their deviation, "unit_scalar" and
                "almost_unit_scalar" multivectors close to the scalar 1.
            gain: of the activation before it.
            additional_factor: what the bounds are multiplied by.
            use_mv_heuristics: whether the maps are drawn with weights of their own.
        """
        components = COMPONENTS if use_mv_heuristics else (1.0,) * len(COMPONENTS)
        initialize(self, initialization, gain, additional_factor, components)

    def extra_repr(self) -> str:
        out, in_, _ = self.weight.shape
        return f"{in_}, {out}"
