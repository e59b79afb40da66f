"""Layer normalisation, dropout and gates."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gradewise._errors import ArgumentError
from gradewise.torch._transformers.algebra import SPACETIME
from gradewise.torch._transformers.dropout import GradeDropoutLayer
from gradewise.torch._transformers.features import Features, Layer, Pair
from gradewise.torch._transformers.initialize import freeze_empty
from gradewise.torch._transformers.norm import scalar_norm, scales
from gradewise.torch._transformers.options import activation


class EquiLayerNorm(Layer):
    """Multivectors divided by the root of the mean of their norms over channels, and scalars by layer normalisation.

    Args:
        mv_channels: multivectors, for the gains.
        s_channels: scalars, for the gains.
        mv_channel_dim: the axis of the channels of multivectors.
        epsilon: the least mean norm that is divided by. As the published package keeps it in single precision, it is rounded to that.
        gain: what the result is multiplied by.
        elementwise_affine: whether there is a gain for each grade of each channel.

    Parameters: with ``elementwise_affine`` ``weight_mv`` ``[mv_channels, 5]`` and ``weight_s`` ``[s_channels]``.
    """

    _blades = SPACETIME

    def __init__(
        self,
        mv_channels: int = 0,
        s_channels: int = 0,
        mv_channel_dim: int = -2,
        epsilon: float = 0.01,
        gain: float = 1.0,
        elementwise_affine: bool = False,
    ) -> None:
        super().__init__()
        self.mv_channel_dim = mv_channel_dim
        self.epsilon, self.gain = (float(torch.tensor(x, dtype=torch.float32)) for x in (epsilon, gain))
        self._constants = self.epsilon, self.gain
        self.elementwise_affine = elementwise_affine
        self.weight_mv = nn.Parameter(torch.ones(mv_channels, 5)) if elementwise_affine else None
        self.weight_s = nn.Parameter(torch.ones(s_channels)) if elementwise_affine else None
        freeze_empty(self)

    def _run(self, x: Features) -> Features:
        epsilon, gain = self._constants
        scale = scales(x.mv, x.blades, epsilon, gain=gain)
        s = scalar_norm(x.s)
        if self.weight_mv is None:
            return x.with_(_scaled(x.mv, scale), s)
        by_plane = self.weight_mv.t().index_select(0, x.blades.grade_of_planes(x.mv))[:, :, None]
        if s is not None:
            s = s * self.weight_s.to(s.dtype)[:, None]
        return x.with_(_scaled(x.mv, scale) * by_plane.to(x.mv.dtype), s)

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``, normalised."""
        if self.mv_channel_dim in (-2, multivectors.dim() - 2):
            return self._alike(multivectors, scalars)
        if self.elementwise_affine:
            raise ArgumentError(
                f"EquiLayerNorm: mv_channel_dim {self.mv_channel_dim} with elementwise_affine: gains belong to the axis before the last"
            )
        turned = multivectors.movedim(self.mv_channel_dim, -2)
        mv, _ = self._run(self._enter(turned, None)).leave()
        s = None if scalars is None else F.layer_norm(scalars, scalars.shape[-1:])
        return mv.movedim(-2, self.mv_channel_dim), s

    def extra_repr(self) -> str:
        return f"epsilon={self.epsilon:.3g}, elementwise_affine={self.elementwise_affine}"


def _scaled(mv: Tensor, scale: Tensor) -> Tensor:
    return (mv * scale).to(mv.dtype)


class GradeDropout(GradeDropoutLayer):
    __doc__ = GradeDropoutLayer.__doc__

    _blades = SPACETIME

    def _draws(self) -> bool:
        return self.training and self._dropout_prob != 0

    def extra_repr(self) -> str:
        return f"p={self._dropout_prob}"


class ScalarGatedNonlinearity(Layer):
    """Multivectors times an activation of their scalars, and the activation of scalars.

    Args:
        nonlinearity: "relu", "sigmoid", "tanh", "gelu" (by its approximation with tanh) or "silu".
    """

    _blades = SPACETIME

    def __init__(self, nonlinearity: str = "gelu") -> None:
        super().__init__()
        self.nonlinearity = activation(nonlinearity)
        self._label = nonlinearity

    def _run(self, x: Features) -> Features:
        return x.with_(self.nonlinearity(x.mv[:1]) * x.mv, None if x.s is None else self.nonlinearity(x.s))

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``, gated."""
        gates = self.nonlinearity(multivectors[..., :1])
        return gates * multivectors, None if scalars is None else self.nonlinearity(scalars)

    def extra_repr(self) -> str:
        return repr(self._label)
