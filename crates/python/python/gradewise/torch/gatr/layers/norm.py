"""Layer normalisation, dropout and gates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from gradewise._errors import ArgumentError
from gradewise.torch._transformers.algebra import PROJECTIVE
from gradewise.torch._transformers.dropout import GradeDropoutLayer
from gradewise.torch._transformers.features import Features, Layer, Pair
from gradewise.torch._transformers.norm import form, scalar_norm, scales

_GATES = {"relu": F.relu, "gelu": partial(F.gelu, approximate="tanh"), "sigmoid": torch.sigmoid}
_SCALARS = {"relu": F.relu, "gelu": F.gelu, "sigmoid": torch.sigmoid}


class EquiLayerNorm(Layer):
    """Multivectors divided by the root of the mean of their squared norms over channels, and scalars by layer normalisation.

    Args:
        mv_channel_dim: the axis of the channels of multivectors.
        scalar_channel_dim: that of scalars, the last.
        epsilon: the least mean that is divided by.
    """

    _blades = PROJECTIVE

    def __init__(self, mv_channel_dim: int = -2, scalar_channel_dim: int = -1, epsilon: float = 0.01) -> None:
        super().__init__()
        self.mv_channel_dim, self.epsilon = mv_channel_dim, epsilon
        if scalar_channel_dim != -1:
            raise ArgumentError(
                f"EquiLayerNorm: scalar_channel_dim {scalar_channel_dim}, expected -1: move the axis to the end"
            )

    def _run(self, x: Features) -> Features:
        scale = scales(x.mv, x.blades, self.epsilon, norms=form)
        # Under autocast the result stays in float32, as the published one.
        return x.with_(x.mv * scale, scalar_norm(x.s))

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``, normalised."""
        if self.mv_channel_dim in (-2, multivectors.dim() - 2):
            return self._alike(multivectors, scalars)
        turned = multivectors.movedim(self.mv_channel_dim, -2)
        mv, _ = self._run(self._enter(turned, None)).leave()
        s = None if scalars is None else F.layer_norm(scalars, scalars.shape[-1:])
        return mv.movedim(-2, self.mv_channel_dim), s


class GradeDropout(GradeDropoutLayer):
    __doc__ = GradeDropoutLayer.__doc__

    _blades = PROJECTIVE


def gate(nonlinearity: str) -> Callable[[Tensor], Tensor]:
    """What multivectors are multiplied by, of their scalars."""
    return _GATES[nonlinearity]


class ScalarGatedNonlinearity(Layer):
    """Multivectors times an activation of their scalars, and the activation of scalars.

    Args:
        nonlinearity: "relu", "gelu" (of multivectors by its approximation with tanh, as in the published code) or "sigmoid".
        kwargs: have no effect, as in the published code.
    """

    _blades = PROJECTIVE

    def __init__(self, nonlinearity: str = "relu", **kwargs: Any) -> None:
        super().__init__()
        if nonlinearity not in _GATES:
            raise ArgumentError(
                f"ScalarGatedNonlinearity: nonlinearity {nonlinearity!r}, expected one of {', '.join(map(repr, _GATES))}"
            )
        self.gated_nonlinearity, self.scalar_nonlinearity = _GATES[nonlinearity], _SCALARS[nonlinearity]
        self._gate = gate(nonlinearity)

    def _run(self, x: Features) -> Features:
        return x.with_(self._gate(x.mv[:1]) * x.mv, None if x.s is None else self.scalar_nonlinearity(x.s))

    def forward(self, multivectors: Tensor, scalars: Optional[Tensor] = None) -> Pair:
        """Multivectors ``[..., channels, 16]`` and scalars ``[..., channels]``, gated."""
        gated = self._gate(multivectors[..., :1]) * multivectors
        return gated, None if scalars is None else self.scalar_nonlinearity(scalars)
