"""Molecules, clusters and crystals at the start of their motion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from gradewise._errors import ArgumentError
from gradewise.data.molecules._need import need

# Aspirin, as the conformer of PubChem's CID 2244 has it, to 0.01 Å.
ASPIRIN = """
O 1.23 0.55 0.78
O -0.70 -2.71 -0.75
O 0.80 -2.18 0.87
O 1.78 0.81 -1.48
C -0.09 0.61 0.44
C -0.79 -0.55 0.12
C -0.73 1.85 0.41
C -2.14 -0.47 -0.22
C -2.08 1.92 0.07
C -2.79 0.76 -0.25
C -0.14 -1.85 0.15
C 2.11 0.67 -0.31
C 3.53 0.60 0.16
H -0.19 2.75 0.66
H -2.72 -1.36 -0.46
H -2.58 2.89 0.05
H -3.84 0.82 -0.51
H 3.73 1.42 0.86
H 4.20 0.70 -0.69
H 3.71 -0.37 0.64
H -0.26 -3.59 -0.73
"""

# Alanine with an acetyl and a methylamide group (ACE-ALA-NME), extended.
ALANINE_DIPEPTIDE = """
H 2.00 1.00 0.00
C 2.00 2.09 0.00
H 1.49 2.45 0.89
H 1.49 2.45 -0.89
C 3.43 2.64 0.00
O 4.39 1.88 0.00
N 3.56 3.97 0.00
H 2.73 4.56 0.00
C 4.85 4.61 0.00
H 5.41 4.32 0.89
C 5.66 4.22 -1.23
H 5.12 4.52 -2.13
H 6.63 4.72 -1.21
H 5.81 3.14 -1.24
C 4.71 6.13 0.00
O 3.60 6.65 0.00
N 5.85 6.83 0.00
H 6.74 6.36 0.00
C 5.85 8.28 0.00
H 4.82 8.65 0.00
H 6.36 8.65 0.89
H 6.36 8.65 -0.89
"""


@dataclass(frozen=True)
class System:
    """What moves, and how its energies are computed.

    Attributes:
        about: what it is, in words.
        method: ``"GFN2-xTB"``, or ``"EMT"``, the effective medium theory of ase.
        temperature: of the motion by default, K.
        start: makes the atoms; the argument draws random numbers.
    """

    about: str
    method: str
    temperature: float
    start: Callable[[Any], Any]


def _ethanol(_: Any) -> Any:
    return need("ase.build", "molecules").molecule("CH3CH2OH")


def _listed(table: str) -> Callable[[Any], Any]:
    def start(_: Any) -> Any:
        rows = [line.split() for line in table.strip().splitlines()]
        return need("ase", "molecules").Atoms(
            [row[0] for row in rows], [[float(x) for x in row[1:]] for row in rows]
        )

    return start


def _water(random: Any) -> Any:
    """Ten molecules near one another, each turned at random."""
    build, ase = need("ase.build", "molecules"), need("ase", "molecules")
    cluster = ase.Atoms()
    places = [(x, y, z) for x in range(2) for y in range(2) for z in range(3)][:10]
    for place in places:
        molecule = build.molecule("H2O")
        molecule.euler_rotate(*(360 * random.random_sample(3)))
        molecule.translate([2.9 * x for x in place])
        cluster += molecule
    return cluster


def _copper(_: Any) -> Any:
    return need("ase.build", "molecules").bulk("Cu", "fcc", a=3.61, cubic=True) * (2, 2, 2)


SYSTEMS = {
    "ethanol": System("ethanol, 9 atoms", "GFN2-xTB", 500.0, _ethanol),
    "aspirin": System("aspirin, 21 atoms", "GFN2-xTB", 500.0, _listed(ASPIRIN)),
    "alanine-dipeptide": System(
        "alanine dipeptide (ACE-ALA-NME), 22 atoms", "GFN2-xTB", 500.0, _listed(ALANINE_DIPEPTIDE)
    ),
    "water": System("a cluster of ten water molecules, 30 atoms", "GFN2-xTB", 250.0, _water),
    "copper": System("a crystal of copper, 32 atoms in a periodic cell, with stresses", "EMT", 600.0, _copper),
}


def system_of(name: str) -> System:
    """A system by its name.

    Raises:
        ArgumentError: an unknown name; lists the known ones.
    """
    try:
        return SYSTEMS[name]
    except KeyError:
        raise ArgumentError(f"molecules: the system {name!r} is unknown; there are {', '.join(SYSTEMS)}") from None


def calculator_of(system: System) -> Any:
    """What computes the energies and forces of a system."""
    if system.method == "EMT":
        return need("ase.calculators.emt", "energies of metals").EMT()
    return need("tblite.ase", "energies by GFN2-xTB").TBLite(method=system.method, verbosity=0)
