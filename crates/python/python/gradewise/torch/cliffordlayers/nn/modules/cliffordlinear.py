"""Clifford linear maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ShapeError, at_least_one
from gradewise.torch.cliffordlayers.nn.modules.cliffordconv import KERNELS, kernel_of, need_blades
from gradewise.torch.cliffordlayers.signature import CliffordSignature, check_signature


class CliffordLinear(nn.Module):
    """A linear map of multivectors by products with weights on the right (Brandstetter et al. 2023, arXiv:2209.04934).

    Args:
        g: the squares of one to three generators, such as ``[1, 1]``.
        in_channels: channels of the input.
        out_channels: channels of the output.
        bias: whether there is a bias on every blade.

    Shapes: ``[batch, in, blades]`` to ``[batch, out, blades]``. Parameters: ``weight`` ``[blades, out, in]``; ``bias`` ``[blades, out]``. The
    buffer ``g`` is in checkpoints; one of another signature is refused.
    """

    def __init__(self, g: Any, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        signature = CliffordSignature(g)
        at_least_one(type(self).__name__, in_channels=in_channels, out_channels=out_channels)
        self.register_buffer("g", signature.g)
        self.dim, self.n_blades = signature.dim, signature.n_blades
        self._get_kernel = KERNELS[self.dim]
        self.in_channels, self.out_channels = in_channels, out_channels
        self.weight = nn.Parameter(torch.empty(self.n_blades, out_channels, in_channels))
        if bias:
            self.bias = nn.Parameter(torch.empty(self.n_blades, out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform weights and biases within fan-in^-½, where all blades count as inputs."""
        fan_in = self.in_channels * self.n_blades
        nn.init.kaiming_uniform_(self.weight.view(self.out_channels, fan_in), a=math.sqrt(5))
        if self.bias is not None:
            nn.init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def forward(self, x: Tensor) -> Tensor:
        """Multivectors ``[batch, in, blades]`` to ``[batch, out, blades]``."""
        need_blades(x, self.n_blades, type(self).__name__)
        if x.dim() != 3 or x.shape[1] != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: the input has shape {list(x.shape)}, expected [batch, {self.in_channels}, {self.n_blades}]"
            )
        blades, kernel = kernel_of(self)
        bias = None if self.bias is None else self.bias.reshape(-1)
        return F.linear(x.movedim(-1, 1).flatten(1), kernel, bias).unflatten(1, (blades, -1)).movedim(1, -1)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        check_signature(self.g, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, g={self.g.tolist()}, bias={self.bias is not None}"
