"""Known numbers of documented sets, with which a check compares."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from gradewise.data.jets._card import Card


@dataclass(frozen=True)
class Documented:
    """A set that was drawn and measured once.

    Attributes:
        card: its settings; the seed does not matter.
        versions: what drew it.
        jets: how many were measured, half of each class.
        hashes: SHA-256 of the first thousand jets by seed and split. The same versions give the same bits on x86-64.
        numbers: measured values with their standard errors, by quantity and class. They hold for any seed.
    """

    card: Card
    versions: Mapping[str, str]
    jets: int
    hashes: Mapping[tuple[int, str], str]
    numbers: Mapping[tuple[str, str], tuple[float, float]]


DRAWN_BY = {"pythia8mc": "8.317.2", "fastjet": "3.5.2.0"}

SETS: tuple[Documented, ...] = (
    Documented(
        Card(),
        DRAWN_BY,
        10_000,
        {(0, "train"): "22a52f3a23c2b3c36e83bfd8cc0aff9a0afde36323ba3f608d87045b7840064a"},
        {
            ("mean transverse momentum, GeV", "QCD"): (592.12, 0.4),
            ("mean transverse momentum, GeV", "top"): (593.16, 0.4),
            ("mean mass, GeV", "QCD"): (90.375, 0.71),
            ("mean mass, GeV", "top"): (177.23, 0.32),
            ("mean number of constituents", "QCD"): (60.949, 0.37),
            ("mean number of constituents", "top"): (75.268, 0.26),
            ("mean share of the hardest constituent", "QCD"): (0.20417, 0.0016),
            ("mean share of the hardest constituent", "top"): (0.15418, 0.00099),
            ("mean tau21", "QCD"): (0.59835, 0.0027),
            ("mean tau21", "top"): (0.46524, 0.0016),
            ("mean tau32", "QCD"): (0.78268, 0.0014),
            ("mean tau32", "top"): (0.47989, 0.0021),
            ("AUC of tau32 alone", "both"): (0.9448, 0.0024),
        },
    ),
    Documented(
        Card(interactions=True),
        DRAWN_BY,
        2000,
        {(0, "train"): "981252727168997da0fee6cc2abab047680e3b3fed4a188f0b475755eb8e9df3"},
        {
            ("mean transverse momentum, GeV", "QCD"): (591.61, 0.89),
            ("mean transverse momentum, GeV", "top"): (594.17, 0.91),
            ("mean mass, GeV", "QCD"): (100.86, 1.5),
            ("mean mass, GeV", "top"): (180.82, 0.66),
            ("mean number of constituents", "QCD"): (71.108, 0.89),
            ("mean number of constituents", "top"): (83.003, 0.61),
            ("mean share of the hardest constituent", "QCD"): (0.20295, 0.0036),
            ("mean share of the hardest constituent", "top"): (0.15152, 0.0022),
            ("mean tau21", "QCD"): (0.61782, 0.0057),
            ("mean tau21", "top"): (0.46738, 0.0036),
            ("mean tau32", "QCD"): (0.78664, 0.0032),
            ("mean tau32", "top"): (0.4859, 0.0048),
            ("AUC of tau32 alone", "both"): (0.94285, 0.0054),
        },
    ),
    Documented(
        Card.quark_gluon(),
        DRAWN_BY,
        1000,
        {(0, "train"): "e218e66a5734ddc187f9bdab0775df8b1acc173657d13f32b8b454c1200471bd"},
        {
            ("mean transverse momentum, GeV", "gluon"): (522.93, 0.62),
            ("mean transverse momentum, GeV", "quark"): (522.17, 0.64),
            ("mean mass, GeV", "gluon"): (52.12, 0.89),
            ("mean mass, GeV", "quark"): (37.11, 0.8),
            ("mean number of constituents", "gluon"): (52.616, 0.71),
            ("mean number of constituents", "quark"): (33.562, 0.61),
            ("mean share of the hardest constituent", "gluon"): (0.17724, 0.0039),
            ("mean share of the hardest constituent", "quark"): (0.2907, 0.0063),
            ("mean tau21", "gluon"): (0.64123, 0.0075),
            ("mean tau21", "quark"): (0.66291, 0.007),
            ("mean tau32", "gluon"): (0.79807, 0.0038),
            ("mean tau32", "quark"): (0.79016, 0.0032),
            ("AUC of multiplicity alone", "both"): (0.83463, 0.013),
        },
    ),
)


def _of(record: Optional[dict[str, Any]]) -> list[Documented]:
    """Documented sets of the settings of a record but for the seed."""
    if record is None:
        return []
    card = Card.from_dict({**record["card"], "seed": 0})
    return [there for there in SETS if dataclasses.replace(there.card, seed=0) == card]


def hash_of(record: dict[str, Any]) -> Optional[str]:
    """The documented hash of the first thousand jets of these settings, seed, split and versions."""
    for there in _of(record):
        if all(record["versions"].get(name) == number for name, number in there.versions.items()):
            return there.hashes.get((record["card"]["seed"], record["split"]))
    return None


def known(record: Optional[dict[str, Any]], quantity: str, group: str) -> Optional[tuple[float, float, str]]:
    """A documented value, its standard error and its source."""
    for there in _of(record):
        if (quantity, group) in there.numbers:
            value, error = there.numbers[quantity, group]
            return value, error, f"{there.jets} jets of pythia8mc {there.versions['pythia8mc']}"
    return None


def top_mass(card: Card) -> tuple[float, float, str]:
    """The mass at which tops peak, how far off a peak of jets may be, and its source.

    Neutrinos and what leaves the radius take mass away, other radiation adds some.
    """
    return _setting(card, "6:m0", 173.0), 8.0, "top mass of Pythia"


def w_mass(card: Card) -> tuple[float, float, str]:
    """As :func:`top_mass`, for the W."""
    return _setting(card, "24:m0", 80.385), 8.0, "W mass of Pythia"


def _setting(card: Card, name: str, default: float) -> float:
    """A mass of Pythia, which settings may change."""
    for line in reversed(card.pythia):
        key, _, value = line.partition("=")
        if key.strip().lower() == name:
            return float(value)
    return default
