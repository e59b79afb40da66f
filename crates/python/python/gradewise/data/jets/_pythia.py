"""Jets from Pythia, found by FastJet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gradewise._errors import DataSetError
from gradewise.data.jets._card import Card
from gradewise.data.jets._need import need, version
from gradewise.data.jets._select import Candidate

# Particles beyond are not clustered: a detector ends there.
ETA = 5.0
# The jets of a collision that may be taken: its hardest two.
HARDEST = 2
# GeV beyond the window at which collisions are dropped before FastJet sees them; for rounding only.
MARGIN = 1.0
# What the partons of a collision must show before they become hadrons: a jet whose transverse momentum is at most so far below and above the
# window, and whose pseudorapidity is at most so far outside. Of 6,209 jets of tops 2 were lost by it; a quarter of
# the time of Pythia is gained.
BELOW, ABOVE, ASIDE = 50.0, 250.0, 0.5
# Collisions that fail in a row before the settings are held to be impossible.
FAILURES = 1000

PROCESSES = {
    ("top", True): ["Top:gg2ttbar = on", "Top:qqbar2ttbar = on", "24:onMode = off", "24:onIfAny = 1 2 3 4 5"],
    ("top", False): ["HardQCD:all = on"],
    ("quark-gluon", True): ["WeakBosonAndParton:qg2gmZq = on"],
    ("quark-gluon", False): ["WeakBosonAndParton:qqbar2gmZg = on"],
}
INVISIBLE_Z = ["WeakZ0:gmZmode = 2", "23:onMode = off", "23:onIfAny = 12 14 16"]


class Pythia:
    """The generator that :func:`gradewise.data.jets.make` uses."""

    def __init__(self, card: Card) -> None:
        self.card = card
        # Whether partons are looked at before they become hadrons. Pythia makes hadrons of a finished collision without the further attempts
        # that it has otherwise, and fails for one in ten with multiple interactions, whose partons take most of the time anyway.
        self.later = card.hadrons and not card.interactions

    def versions(self) -> dict[str, str]:
        return {
            "pythia8mc": version("pythia8mc", "drawing collisions"),
            "fastjet": version("fastjet", "finding jets"),
        }

    def settings(self, signal: bool) -> list[str]:
        card = self.card
        return [
            "Beams:idA = 2212",
            "Beams:idB = 2212",
            f"Beams:eCM = {card.energy!r}",
            f"PhaseSpace:pTHatMin = {card.pt_hat!r}",
            f"PartonLevel:MPI = {_switch(card.interactions)}",
            # Where hadrons are made later, `candidates` does so.
            f"HadronLevel:all = {_switch(card.hadrons and not self.later)}",
            *PROCESSES[card.kind, signal],
            *(INVISIBLE_Z if card.kind == "quark-gluon" else []),
            *card.pythia,
        ]

    def candidates(self, signal: bool, seed: int) -> Iterator[Candidate]:
        pythia8 = need("pythia8mc", "drawing collisions")
        # Of its own for each seed: what a generator adapts while it runs depends on all that it has drawn.
        pythia = pythia8.Pythia("", False)
        if not pythia.readString("Print:quiet = on"):
            # Every version has this setting: it reads its settings from files, which are beside an installation, not in the module.
            raise DataSetError(
                "jets: Pythia finds none of its settings, as where its wheel is unpacked by `pip install --target`; "
                "set PYTHIA8DATA to the folder share/Pythia8/xmldoc of its installation"
            )
        for line in ["Random:setSeed = on", f"Random:seed = {seed}", *self.settings(signal)]:
            if not pythia.readString(line):
                raise DataSetError(f"jets: Pythia does not take the setting {line!r}")
        if not pythia.init():
            raise DataSetError("jets: Pythia does not start with these settings; what it said is in the log")
        finder = Finder(self.card, pythia8)
        failures = 0
        while True:
            drawn = pythia.next()
            if drawn and self.later:
                if not finder.promises(pythia.event):
                    continue
                drawn = pythia.forceHadronLevel()
            if not drawn:
                failures += 1
                if failures == FAILURES:
                    raise DataSetError(f"jets: {FAILURES} collisions failed in a row; what Pythia said is in the log")
                continue
            failures = 0
            for constituents, axis in finder.jets(pythia.event):
                partons = self._partons(pythia.event, signal, axis)
                if partons is not None:
                    yield Candidate(constituents, partons)

    def _partons(self, event: Any, signal: bool, axis: Any) -> Any:
        """What :class:`Candidate` wants to know; None for a jet that has no class."""
        if self.card.kind == "top":
            if not signal:
                return np.zeros((0, 4))
            return min(tops(event), key=lambda top: _separation(top[0], axis))
        # Entries 5 and 6 are what comes out of the hard collision; one of them is the Z.
        parton = next(particle for particle in (event[5], event[6]) if particle.idAbs() != 23)
        # Charm and bottom are not among the published quarks.
        return None if parton.idAbs() in (4, 5) else np.array([_momentum(parton)])


class Finder:
    """Finds the hardest jets of an event."""

    def __init__(self, card: Card, pythia8: Any) -> None:
        self.card = card
        self.fastjet = need("fastjet", "finding jets")
        self.definition = self.fastjet.JetDefinition(self.fastjet.antikt_algorithm, card.radius)
        # The core of FastJet as Pythia carries it: the same jets without a loop over particles in Python, by which most
        # collisions are dropped. -1: anti-kT; 2: without neutrinos; 2: with masses.
        self.glance = pythia8.SlowJet(-1, card.radius, card.pt_low - MARGIN, ETA, 2, 2, None, True)
        self.promise = pythia8.SlowJet(-1, card.radius, max(card.pt_low - BELOW, 1.0), ETA, 2, 2, None, True)

    def promises(self, event: Any) -> bool:
        """Whether the partons of an event may give a jet in the window."""
        if not self.promise.analyze(event):
            return False
        high, wide = self.card.pt_high + ABOVE, self.card.eta + ASIDE
        return any(
            self.promise.pT(index) < high and abs(self.promise.p(index).eta()) < wide
            for index in range(self.promise.sizeJet())
        )

    def jets(self, event: Any) -> Iterator[tuple[Any, Any]]:
        """Constituents and axis ``[4]`` of the hardest jets in the window of transverse momentum."""
        if not self.glance.analyze(event):
            return
        high = self.card.pt_high + MARGIN
        if all(self.glance.pT(index) > high for index in range(min(self.glance.sizeJet(), HARDEST))):
            return
        particles = [
            _momentum(particle)
            for particle in event
            if particle.isFinal() and particle.isVisible() and abs(particle.eta()) < ETA
        ]
        inputs = []
        for index, (energy, *momentum) in enumerate(particles):
            pseudojet = self.fastjet.PseudoJet(*momentum, energy)
            pseudojet.set_user_index(index)
            inputs.append(pseudojet)
        clusters = self.fastjet.ClusterSequence(inputs, self.definition)
        found = self.fastjet.sorted_by_pt(clusters.inclusive_jets(self.card.pt_low - MARGIN))
        for jet in found[:HARDEST]:
            if jet.pt() <= high:
                members = sorted(constituent.user_index() for constituent in jet.constituents())
                constituents = np.array([particles[index] for index in members])
                yield constituents, constituents.sum(axis=0)


def tops(event: Any) -> list[Any]:
    """Four-momenta ``[4, 4]`` of each top before its decay, of its down-type quark and of the two quarks of the W, before they radiate."""
    found = []
    for index in range(event.size()):
        top = event[index]
        if top.idAbs() != 6 or top.iBotCopyId() != index:
            continue
        daughters = [event[i] for i in top.daughterList()]
        bosons = [daughter for daughter in daughters if daughter.idAbs() == 24]
        down = [daughter for daughter in daughters if daughter.idAbs() in (1, 3, 5)]
        if len(bosons) != 1 or len(down) != 1:
            raise DataSetError("jets: a top of Pythia did not decay into a W and a quark; expected are default decays")
        quarks = [event[i] for i in event[bosons[0].iBotCopyId()].daughterList()]
        quarks = [quark for quark in quarks if quark.idAbs() < 6]
        if len(quarks) != 2:
            raise DataSetError("jets: a W of Pythia did not decay into two quarks")
        found.append(np.array([_momentum(particle) for particle in (top, *down, *quarks)]))
        # There are two, early in the event; what follows are a thousand other particles.
        if len(found) == 2:
            break
    if not found:
        raise DataSetError("jets: no top among the particles of a collision that should have two")
    return found


def _momentum(particle: Any) -> tuple[float, float, float, float]:
    return particle.e(), particle.px(), particle.py(), particle.pz()


def _separation(one: Any, other: Any) -> float:
    from gradewise.data.jets._momenta import distance

    return float(distance(one, other))


def _switch(on: bool) -> str:
    return "on" if on else "off"
