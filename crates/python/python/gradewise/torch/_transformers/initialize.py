"""How the published linear maps draw their parameters: uniformly, so that the variance of the features stays (He et al. 2015,
arXiv:1502.01852)."""

from __future__ import annotations

import math
from typing import Any, Optional, Sequence

from torch import nn

from gradewise._errors import ArgumentError

_SCALES = {
    # Of multivectors, of scalars, and what is added to the bias on the multivectors' scalars.
    "default": (1.0, 1.0, 0.0),
    "small": (0.1, 0.1, 0.0),
    "unit_scalar": (0.1, 1.0, 1.0),
    "almost_unit_scalar": (0.5, 1.0, 1.0),
}


class NotPublishedError(ArgumentError, NotImplementedError):
    """What the published packages refuse as not implemented."""


def check(initialization: str, bias: bool, has_scalars: bool) -> None:
    """Refuses a scheme that there is none of, or that needs a bias or scalars that are not there."""
    if initialization not in _SCALES:
        raise ArgumentError(
            f"EquiLinear: initialization {initialization!r}, expected one of {', '.join(map(repr, _SCALES))}"
        )
    if _SCALES[initialization][2] and not (bias and has_scalars):
        raise NotPublishedError(
            f"EquiLinear: initialization {initialization!r} draws the bias of the map from scalars around 1, and there is none: give it "
            "bias=True and in_s_channels of 1 or more"
        )


def initialize(
    layer: Any,
    initialization: str,
    gain: float,
    factor: Optional[float],
    components: Optional[Sequence[float]] = None,
) -> None:
    """Draws the parameters of a :class:`~gradewise.torch._transformers.linear.LinearLayer`, in the published order.

    Args:
        layer: the map.
        initialization: "default", "small", "unit_scalar" or "almost_unit_scalar".
        gain: of the activation before it.
        factor: what all bounds are multiplied by; 1/√3 if None.
        components: what the bounds of each map's coefficients are multiplied by, if they are not all the same.
    """
    mv_scale, s_scale, shift = _SCALES[initialization]
    scale = gain * (1 / math.sqrt(3) if factor is None else factor) * math.sqrt(3)
    mv_scale, s_scale = mv_scale * scale, s_scale * scale
    fan_in = max(layer.weight.shape[1], 1)
    first = 1.0 if components is None else components[0]

    def uniform(weight, bound: float, center: float = 0.0) -> None:
        nn.init.uniform_(weight, center - bound, center + bound)

    if components is None:
        uniform(layer.weight, mv_scale / math.sqrt(fan_in))
    else:
        for number, component in enumerate(components):
            uniform(layer.weight[..., number], component * mv_scale / math.sqrt(fan_in))
    if layer.s2mvs is not None:
        # Multivectors and scalars each contribute half of the variance.
        # The published GATr draws these onto a copy, so that its coefficients keep the first draw; the numbers are used up there too.
        scalars = layer.weight[..., 0] if components is None else layer.weight[..., 0].clone()
        uniform(scalars, first * mv_scale / math.sqrt(2 * fan_in))
        if layer._mixes:
            uniform(layer.weight[..., -1], first * mv_scale / math.sqrt(2 * fan_in))
        width = layer.s2mvs.in_features
        uniform(layer.s2mvs.weight, first * mv_scale / math.sqrt(2 * max(width, 1)))
        if layer.s2mvs.bias is not None:
            uniform(layer.s2mvs.bias, first / math.sqrt(width + layer.weight.shape[1]), shift)
    models = [m for m in (layer.s2s, layer.mvs2s) if m is not None]
    for model in models:
        uniform(model.weight, s_scale / math.sqrt(max(model.in_features, 1) * len(models)))
    if layer.mvs2s is not None and layer.mvs2s.bias is not None:
        total = sum(model.in_features for model in models)
        uniform(layer.mvs2s.bias, s_scale / math.sqrt(total) if total else 0.0)


def freeze_empty(module: nn.Module) -> None:
    """Parameters without elements get no gradients: distributed training asks that each has one at every step or never."""
    for parameter in module.parameters():
        if parameter.numel() == 0:
            parameter.requires_grad_(False)
