"""Masses, momenta, multiplicities and prongs of jets, and what is said of their distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from gradewise.data.jets import _momenta as kinematics
from gradewise.data.jets._card import Card
from gradewise.data.jets._file import Jets
from gradewise.data.jets._subjets import axes, tau

Array = Any


@dataclass
class Shapes:
    """Numbers of jets, an array each, and the classes."""

    labels: Array
    values: dict[str, Array]
    constituents: tuple[Array, Array]

    @classmethod
    def of(cls, jets: Jets, card: Optional[Card]) -> Shapes:
        radius = card.radius if card else 0.8
        momenta = np.asarray(jets.momenta, dtype="f8")
        labels = np.asarray(jets.labels).astype(bool)
        axis = momenta.sum(axis=1)
        transverse = kinematics.pt(momenta)
        ratios, pairs = [], []
        for jet in momenta:
            one, two, three = tau(jet, radius)
            ratios.append((two / one if one > 0 else math.nan, three / two if two > 0 else math.nan))
            pairs.append(least_pair(jet))
        prongs = np.array(ratios)
        values = {
            "pt": kinematics.pt(axis),
            "eta": kinematics.eta(axis),
            "mass": kinematics.mass(axis),
            "multiplicity": (transverse > 0).sum(axis=1).astype("f8"),
            "leading": transverse[:, 0] / np.maximum(kinematics.pt(axis), 1e-300),
            "tau21": prongs[:, 0],
            "tau32": prongs[:, 1],
            "pair": np.array(pairs),
        }
        return cls(labels, values, (transverse[~labels], transverse[labels]))

    def of_class(self, name: str, signal: bool) -> Array:
        values = self.values[name][self.labels == signal]
        return values[np.isfinite(values)]


def least_pair(momenta: Array) -> float:
    """The least mass of two of the three prongs of a jet; of a top that is mostly the W's. NaN with fewer than three constituents."""
    transverse = kinematics.pt(momenta)
    momenta, transverse = momenta[transverse > 0], transverse[transverse > 0]
    if len(momenta) < 3:
        return math.nan
    rapidity, azimuth = kinematics.rapidity(momenta), kinematics.phi(momenta)
    directions = axes(transverse, rapidity, azimuth, 3)[3]
    separations = np.hypot(
        rapidity[:, None] - rapidity[directions], kinematics.turn(azimuth[:, None] - azimuth[directions])
    )
    nearest = separations.argmin(axis=1)
    prongs = np.stack([momenta[nearest == index].sum(axis=0) for index in range(3)])
    return float(min(kinematics.mass(prongs[a] + prongs[b]) for a, b in ((0, 1), (0, 2), (1, 2))))


def peak(values: Array, part: float = 0.2) -> tuple[float, float]:
    """The middle of the shortest interval with a fifth of the values, and its half width over the root of their number."""
    values = np.sort(values)
    size = max(int(len(values) * part), 2)
    if len(values) < size:
        return math.nan, math.nan
    widths = values[size - 1 :] - values[: len(values) - size + 1]
    start = int(widths.argmin())
    return float(values[start] + values[start + size - 1]) / 2, float(widths[start]) / 2 / math.sqrt(size / 10)


def area(background: Array, signal: Array) -> tuple[float, float]:
    """The area under the ROC curve of a number that is larger for signal, and its standard error (Hanley and McNeil, 1982)."""
    order = np.argsort(np.concatenate([background, signal]), kind="stable")
    both = np.concatenate([background, signal])[order]
    # Equal values share the mean of their ranks.
    _, first, count = np.unique(both, return_index=True, return_counts=True)
    ranks = np.empty(len(both))
    ranks[order] = np.repeat(first + (count - 1) / 2 + 1, count)
    n, m = len(background), len(signal)
    if not n or not m:
        return math.nan, math.nan
    value = float(ranks[n:].sum() - m * (m + 1) / 2) / (n * m)
    q1, q2 = value / (2 - value), 2 * value**2 / (1 + value)
    variance = (value * (1 - value) + (m - 1) * (q1 - value**2) + (n - 1) * (q2 - value**2)) / (n * m)
    return value, math.sqrt(max(variance, 0.0))
