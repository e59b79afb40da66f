"""How the published linear maps draw their parameters: uniformly, so that the variance of the features stays (He et al. 2015,
arXiv:1502.01852)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from gradewise._errors import ArgumentError

_SCALES = {
    # Of multivectors, of scalars, and what is added to the bias on the multivectors' scalars.
    "default": (1.0, 1.0, 0.0),
    "small": (0.1, 0.1, 0.0),
    "unit_scalar": (0.1, 1.0, 1.0),
    "almost_unit_scalar": (0.5, 1.0, 1.0),
}

COMPONENTS = tuple(math.sqrt(x) for x in (1.0, 4.0, 6.0, 2.0, 0.5, 0.5, 1.5, 1.5, 0.5))
"""What GATr's maps draw each coefficient with: the maps have norm 1, and the more blades a grade has, the less of each."""


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


@dataclass(frozen=True)
class Map:
    """What the initial values of an equivariant map depend on."""

    in_mv: int
    maps: int
    mixes: bool
    """Whether scalars are mapped to and from pseudoscalars too."""
    s2mvs: Optional[tuple[int, bool]] = None
    """The scalars of the input, and whether there is a bias; None without the map."""
    mvs2s: Optional[tuple[int, bool]] = None
    """The columns of the map to scalars, and whether it has a bias."""
    s2s: Optional[int] = None
    """The columns of the map of scalars."""


@dataclass(frozen=True)
class Draw:
    """Values between ``center - bound`` and ``center + bound``."""

    name: str
    bound: float
    center: float = 0.0
    coefficient: Optional[int] = None
    """The last index of the part of a parameter that is drawn, None for all of it."""
    is_kept: bool = True
    """Whether the parameter has the values; otherwise random numbers are used up."""


def draws(
    shape: Map,
    initialization: str,
    gain: float = 1.0,
    factor: Optional[float] = None,
    components: Optional[Sequence[float]] = None,
) -> Iterator[Draw]:
    """The draws of a map's parameters in the published order; a later one replaces what it overlaps. Other parameters are 0.

    Args:
        shape: the map.
        initialization: "default", "small", "unit_scalar" or "almost_unit_scalar".
        gain: of the activation before it.
        factor: what all bounds are multiplied by; 1/√3 if None.
        components: what the bounds of each map's coefficients are multiplied by, if they are not all the same.
    """
    mv_scale, s_scale, shift = _SCALES[initialization]
    scale = gain * (1 / math.sqrt(3) if factor is None else factor) * math.sqrt(3)
    mv_scale, s_scale = mv_scale * scale, s_scale * scale
    fan_in = max(shape.in_mv, 1)
    first = 1.0 if components is None else components[0]
    if components is None:
        yield Draw("weight", mv_scale / math.sqrt(fan_in))
    else:
        for number, component in enumerate(components):
            yield Draw("weight", component * mv_scale / math.sqrt(fan_in), coefficient=number)
    if shape.s2mvs is not None:
        # Multivectors and scalars each contribute half of the variance.
        # The published GATr draws these onto a copy, so that its coefficients keep the first draw; the numbers are used up there too.
        half = first * mv_scale / math.sqrt(2 * fan_in)
        yield Draw("weight", half, coefficient=0, is_kept=components is None)
        if shape.mixes:
            yield Draw("weight", half, coefficient=shape.maps - 1)
        width, has_bias = shape.s2mvs
        yield Draw("s2mvs.weight", first * mv_scale / math.sqrt(2 * max(width, 1)))
        if has_bias:
            yield Draw("s2mvs.bias", first / math.sqrt(width + shape.in_mv), shift)
    columns = [count for count in (shape.s2s, shape.mvs2s and shape.mvs2s[0]) if count is not None]
    for name, count in (("s2s", shape.s2s), ("mvs2s", shape.mvs2s and shape.mvs2s[0])):
        if count is not None:
            yield Draw(f"{name}.weight", s_scale / math.sqrt(max(count, 1) * len(columns)))
    if shape.mvs2s is not None and shape.mvs2s[1]:
        total = sum(columns)
        yield Draw("mvs2s.bias", s_scale / math.sqrt(total) if total else 0.0)
