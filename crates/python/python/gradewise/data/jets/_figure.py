"""Histograms of two classes as SVG, without a plotting library."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

Array = Any

WIDTH, HEIGHT = 300, 200
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 30, 38
# Of class 0 and class 1; apart for those who see few colours, too.
COLOURS = ("#0072b2", "#d55e00")


@dataclass
class Panel:
    """A histogram.

    Attributes:
        title: what is on the axis, with its unit.
        values: of class 0 and class 1.
        low, high, bins: the axis. What lies outside is counted in no bin.
        marks: known values, drawn as dashed lines with their names.
        logarithmic: whether the axis of counts is.
    """

    title: str
    values: tuple[Array, Array]
    low: float
    high: float
    bins: int = 50
    marks: dict[str, float] = field(default_factory=dict)
    logarithmic: bool = False


def figure(title: str, names: tuple[str, str], panels: list[Panel], across: int = 3) -> str:
    """The panels in rows."""
    down = -(-len(panels) // across)
    width, height = across * WIDTH, down * HEIGHT + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="18" font-size="13">{escape(title)}</text>',
    ]
    for index, name in enumerate(names):
        x = 12 + 120 * index
        parts.append(f'<rect x="{x}" y="26" width="12" height="12" fill="{COLOURS[index]}"/>')
        parts.append(f'<text x="{x + 18}" y="36">{escape(name)}</text>')
    for index, panel in enumerate(panels):
        x, y = index % across * WIDTH, 44 + index // across * HEIGHT
        parts.append(f'<g transform="translate({x},{y})">{_panel(panel)}</g>')
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel) -> str:
    edges = np.linspace(panel.low, panel.high, panel.bins + 1)
    step = edges[1] - edges[0]
    densities = []
    for values in panel.values:
        counts = np.histogram(values, edges)[0]
        densities.append(counts / max(len(values), 1) / step)
    highest = max((float(density.max()) for density in densities), default=0.0) or 1.0
    positive = [float(density[density > 0].min()) for density in densities if (density > 0).any()]
    floor = 10 ** math.floor(math.log10(min(positive))) if panel.logarithmic and positive else 0.0
    ceiling = 10 ** math.ceil(math.log10(highest) + 1e-9) if floor else 1.1 * highest
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x_of(value: float) -> float:
        return LEFT + inner * (value - panel.low) / (panel.high - panel.low)

    def y_of(value: float) -> float:
        if floor:
            part = math.log10(max(value, floor) / floor) / math.log10(ceiling / floor)
        else:
            part = value / ceiling
        return TOP + tall * (1 - part)

    bottom = TOP + tall
    parts = [
        f'<text x="{LEFT}" y="{TOP - 12}">{escape(panel.title)}</text>',
        f'<path d="M{LEFT} {TOP}V{bottom}H{LEFT + inner}" fill="none" stroke="#444"/>',
    ]
    for tick in _ticks(panel.low, panel.high):
        x = x_of(tick)
        parts.append(f'<path d="M{x:.1f} {bottom}v4" stroke="#444"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    heights = (
        [10.0**power for power in range(round(math.log10(floor)), round(math.log10(ceiling)) + 1)]
        if floor
        else _ticks(0, ceiling)
    )
    for tick in heights[:: max(1, len(heights) // 5)]:
        y = y_of(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}h-4" stroke="#444"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:.0e}</text>' if floor else "")
    for index, density in enumerate(densities):
        path = f"M{LEFT} {bottom}"
        for start, value in zip(edges, density):
            path += f"L{x_of(start):.1f} {y_of(value):.1f}H{x_of(start + step):.1f}"
        path += f"V{bottom}"
        colour = COLOURS[index]
        parts.append(f'<path d="{path}" fill="{colour}" fill-opacity="0.15" stroke="{colour}" stroke-width="1.2"/>')
    for index, (name, value) in enumerate(panel.marks.items()):
        if panel.low <= value <= panel.high:
            x = x_of(value)
            parts.append(f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#444" stroke-dasharray="4 3"/>')
            parts.append(f'<text x="{x + 3:.1f}" y="{TOP + 9 + 11 * index}" fill="#444">{escape(name)}</text>')
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]
