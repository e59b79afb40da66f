"""Drawing the parameters of linear maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from torch import nn

from gradewise._transformers.initialize import Map, draws


def initialize(
    layer: Any,
    initialization: str,
    gain: float,
    factor: Optional[float],
    components: Optional[Sequence[float]] = None,
) -> None:
    """Draws the parameters of a :class:`~gradewise.torch._transformers.linear.LinearLayer`, as
    :func:`gradewise._transformers.initialize.draws` says."""

    def told(model: Any) -> Optional[tuple[int, bool]]:
        return None if model is None else (model.in_features, model.bias is not None)

    _, in_mv, maps = layer.weight.shape
    columns = None if layer.s2s is None else layer.s2s.in_features
    shape = Map(in_mv, maps, layer._mixes, told(layer.s2mvs), told(layer.mvs2s), columns)
    for draw in draws(shape, initialization, gain, factor, components):
        parameter = layer.get_parameter(draw.name)
        part = parameter if draw.coefficient is None else parameter[..., draw.coefficient]
        part = part if draw.is_kept else part.clone()
        nn.init.uniform_(part, draw.center - draw.bound, draw.center + draw.bound)


def freeze_empty(module: nn.Module) -> None:
    """Parameters without elements get no gradients: distributed training asks that each has one at every step or never."""
    for parameter in module.parameters():
        if parameter.numel() == 0:
            parameter.requires_grad_(False)
