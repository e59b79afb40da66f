"""What can be wrong with jets in a file."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from gradewise.data.jets import _momenta as kinematics
from gradewise.data.jets._card import Card
from gradewise.data.jets._file import Jets

Array = Any

# A shuffled file does not begin with so many jets of one class; `gradewise train` refuses it.
ONE_CLASS = 64
# Rounding of a massless four-momentum to single precision, relative to the square of its energy.
ROUNDING = 1e-6
# Jets of colliders have less transverse momentum, in GeV; in MeV all have more.
LARGEST = 20_000.0


class Faults:
    """Counts what is wrong, and keeps the first place of each."""

    def __init__(self, card: Optional[Card]) -> None:
        self.card = card
        self.notes: list[str] = []
        self.measurable = True
        self._found: dict[str, tuple[int, str]] = {}
        self._labels: list[int] = []
        self._single = 0
        self._scales: list[float] = []

    def look(self, start: int, jets: Jets) -> None:
        momenta = np.asarray(jets.momenta, dtype="f8")
        finite = np.isfinite(momenta)
        self._add("numbers that are NaN or infinite", start, ~finite.all(axis=2))
        momenta = np.where(finite, momenta, 0.0)
        energy, transverse = momenta[..., 0], kinematics.pt(momenta)
        squared = energy**2 - (momenta[..., 1:] ** 2).sum(axis=-1)
        self._add("constituents with negative energy", start, energy < 0)
        self._add("spacelike constituents, with less energy than momentum", start, squared < -ROUNDING * energy**2)
        there = (momenta != 0).any(axis=-1)
        self._add("constituents after a row of zeros", start, there[:, 1:] & ~there[:, :-1])
        self._add(
            "constituents with more transverse momentum than the one before",
            start,
            transverse[:, 1:] > transverse[:, :-1],
        )
        counts = there.sum(axis=1)
        self._add("jets without constituents", start, counts == 0)
        self._single += int((counts == 1).sum())
        labels = np.asarray(jets.labels)
        self._add("classes other than 0 and 1", start, (labels != 0) & (labels != 1))
        if len(self._labels) < ONE_CLASS:
            self._labels += [int(label) for label in labels[:ONE_CLASS]]
        axis = momenta.sum(axis=1)
        self._scales.append(float(np.median(kinematics.pt(axis))))
        if self.card is not None:
            # Of jets with more constituents than are stored some momentum is missing.
            whole = counts < self.card.particles
            size = kinematics.pt(axis)
            low, high = self.card.pt_low * (1 - 1e-5), self.card.pt_high * (1 + 1e-5)
            self._add("jets outside the card's transverse momenta", start, whole & ((size < low) | (size > high)))
            wide = np.abs(kinematics.eta(axis)) > self.card.eta * (1 + 1e-5)
            self._add("jets outside the card's pseudorapidities", start, whole & wide)

    def _add(self, what: str, start: int, where: Array) -> None:
        if not where.any():
            return
        number, *particle = (int(i) for i in np.argwhere(where)[0])
        place = f"jet {start + number}" + "".join(f", particle {i}" for i in particle)
        seen, first = self._found.get(what, (0, place))
        self._found[what] = (seen + int(where.sum()), first)

    def sentences(self) -> list[str]:
        sentences = [f"{number} {what}; the first: {place}" for what, (number, place) in self._found.items()]
        labels = self._labels[:ONE_CLASS]
        if len(labels) == ONE_CLASS and len(set(labels)) == 1:
            sentences.append(f"its first {ONE_CLASS} jets are of class {labels[0]}: it is sorted, and must be shuffled")
        scale = float(np.median(self._scales))
        if scale > LARGEST:
            sentences.append(
                f"the jets have transverse momenta around {scale:.4g}: that looks like MeV; divide by 1000, units are GeV"
            )
        if self._single:
            self.notes.append(
                f"{self._single} jets have one constituent; those without a mass are left out by `gradewise train`"
            )
        self.measurable = not any(what.startswith(("numbers", "classes")) for what in self._found)
        return sentences
