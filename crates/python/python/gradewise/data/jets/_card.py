"""What a data set of jets consists of: every setting that decides its bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from gradewise._errors import ArgumentError

SPLITS = ("train", "valid", "test")

# Blocks of a split with seeds of their own. Pythia takes seeds from 1 to 900,000,000; the seed of a block is its place in an enumeration of
# (seed, split, class, block), so that no two blocks share one.
BLOCKS = 50_000
LARGEST_SEED = 900_000_000 // (len(SPLITS) * 2 * BLOCKS) - 1


@dataclass(frozen=True)
class Card:
    """The settings of a data set.

    ``Card()`` is the set of hadronic tops against QCD dijets with the selection of the published top-tagging reference data (Zenodo
    2603256); ``Card.quark_gluon()`` has quarks against gluons.

    Attributes:
        kind: ``"top"``: hadronic tops (class 1) against QCD dijets (class 0). ``"quark-gluon"``: jets of u, d, s quarks (1) and of gluons
            (0) beside a Z that decays into neutrinos.
        seed: of all jets; 0 to 2999.
        energy: of the two protons together, GeV.
        interactions: whether other partons of the protons collide, too (multiple parton interactions).
        hadrons: whether partons become hadrons, which decay; without, the constituents are partons.
        contained: whether the three quarks of a top must lie within `radius` of the jet's axis. The top itself always must.
        radius: R of the anti-kT algorithm.
        pt_low, pt_high: transverse momentum of jets, GeV.
        eta: largest absolute pseudorapidity of jets.
        particles: constituents that are stored of a jet, those of largest transverse momentum.
        pt_hat: smallest transverse momentum of the hard collision, GeV. Collisions below make jets in the window, too, by what else
            they radiate, but seldom.
        block: jets that are drawn from one seed, and kept together when a run is interrupted. Another number is another set of jets.
        pythia: further settings of Pythia, such as ``"6:m0 = 172.5"``; they come last.
    """

    kind: str = "top"
    seed: int = 0
    energy: float = 14_000.0
    interactions: bool = False
    hadrons: bool = True
    contained: bool = True
    radius: float = 0.8
    pt_low: float = 550.0
    pt_high: float = 650.0
    eta: float = 2.0
    particles: int = 200
    pt_hat: float = 400.0
    block: int = 1000
    pythia: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        def refuse(reason: str) -> None:
            raise ArgumentError(f"jets: {reason}")

        object.__setattr__(self, "pythia", tuple(self.pythia))
        if self.kind not in ("top", "quark-gluon"):
            refuse(f"the kind {self.kind!r} is not known; there are 'top' and 'quark-gluon'")
        if not 0 <= self.seed <= LARGEST_SEED:
            refuse(f"the seed is {self.seed}; seeds are 0 to {LARGEST_SEED}")
        if not 1 <= self.particles <= 1000:
            refuse(f"{self.particles} particles a jet; 1 to 1000 can be stored")
        if not 2 <= self.block <= 100_000:
            refuse(f"blocks of {self.block} jets; they have 2 to 100,000")
        for name in ("energy", "radius", "pt_low", "pt_high", "eta", "pt_hat"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                refuse(f"{name} is {value}; it must be above 0")
            object.__setattr__(self, name, float(value))
        if not self.pt_low < self.pt_high:
            refuse(f"pt_low {self.pt_low} is not below pt_high {self.pt_high}")
        if self.pt_hat >= self.pt_low:
            refuse(
                f"pt_hat {self.pt_hat} is not below pt_low {self.pt_low}: jets would be missing; take about {self.pt_low - 150:.0f}"
            )
        for line in self.pythia:
            if "=" not in line or line.strip().lower().startswith("random:"):
                refuse(f"the setting {line!r} is not NAME = VALUE, or sets seeds, which are ours")

    @classmethod
    def quark_gluon(cls, **changes: Any) -> Card:
        """Quarks against gluons, with the selection of the published quark and gluon jets (Zenodo 3164691) but for |η| in place of |y|."""
        return cls(
            **{
                "kind": "quark-gluon",
                "interactions": True,
                "contained": False,
                "radius": 0.4,
                "pt_low": 500.0,
                "pt_high": 550.0,
                "eta": 1.7,
                **changes,
            }
        )

    def classes(self) -> tuple[str, str]:
        """Names of class 0 and class 1."""
        return ("QCD", "top") if self.kind == "top" else ("gluon", "quark")

    def seed_of(self, split: str, signal: bool, block: int) -> int:
        """The seed of the jets of one class in one block of a split."""
        if not 0 <= block < BLOCKS:
            raise ArgumentError(
                f"jets: a split has at most {BLOCKS} blocks, {BLOCKS * self.block} jets; larger blocks or more seeds give more"
            )
        return ((self.seed * len(SPLITS) + SPLITS.index(split)) * 2 + signal) * BLOCKS + block + 1

    def labels_of(self, split: str, block: int) -> list[bool]:
        """The classes of a block, half of each in an order like a drawn one.

        By a hash rather than a generator of random numbers, whose algorithms differ among versions of Python and NumPy.
        """

        def key(index: int) -> bytes:
            return hashlib.sha256(f"{self.seed} {split} {block} {index}".encode()).digest()

        order = sorted(range(self.block), key=key)
        return [index < self.block // 2 for index in order]

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "pythia": list(self.pythia)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Card:
        return cls(**{**values, "pythia": tuple(values.get("pythia", ()))})


def written(value: Any) -> str:
    """JSON with the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The settings in which two records differ, as ``name: one, other``; empty if there is none."""
    return "; ".join(
        f"{name}: {one.get(name)!r}, {other.get(name)!r}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    )
