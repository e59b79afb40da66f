"""Frames of molecular dynamics at a temperature."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from gradewise._errors import ArgumentError, DataSetError
from gradewise.data.molecules._need import need, version
from gradewise.data.molecules._systems import calculator_of, system_of

# How far the energy of an atom may be from that of the relaxed system, eV: beyond it the system came apart.
BROKEN = 1.0


@dataclass(frozen=True)
class Card:
    """The settings of a trajectory, which with the versions of the packages decide every bit of it.

    Attributes:
        system: ``"ethanol"``, ``"aspirin"``, ``"alanine-dipeptide"``, ``"water"`` or ``"copper"``.
        frames: how many are kept.
        seed: of starting velocities and of the thermostat.
        temperature: K; 0 for that which is usual for the system.
        step: the time step, fs.
        every: steps from one frame to the next.
        equilibration: steps before the first frame.
        friction: of the Langevin thermostat, 1/fs.
    """

    system: str = "ethanol"
    frames: int = 500
    seed: int = 0
    temperature: float = 0.0
    step: float = 0.5
    every: int = 50
    equilibration: int = 2000
    friction: float = 0.01

    def __post_init__(self) -> None:
        system = system_of(self.system)
        if self.temperature == 0:
            object.__setattr__(self, "temperature", system.temperature)
        for name, least in (("frames", 1), ("every", 1), ("equilibration", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ArgumentError(f"molecules: {name} is {getattr(self, name)}, expected at least {least}")
        for name in ("temperature", "step", "friction"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ArgumentError(f"molecules: {name} is {getattr(self, name)}, expected a number above 0")


@dataclass(frozen=True)
class Frames:
    """A trajectory.

    Attributes:
        numbers: atomic numbers, ``[atoms]``.
        positions: ``[frames, atoms, 3]``, Å.
        energies: ``[frames]``, eV.
        forces: ``[frames, atoms, 3]``, eV/Å.
        cell: the vectors of the cell as rows, Å; None for a molecule.
        stresses: ``[frames, 3, 3]``, eV/Å³; None for a molecule.
        about: the card, the method and the versions.
    """

    numbers: NDArray[np.int64]
    positions: NDArray[np.float64]
    energies: NDArray[np.float64]
    forces: NDArray[np.float64]
    cell: Optional[NDArray[np.float64]]
    stresses: Optional[NDArray[np.float64]]
    about: dict[str, Any]


def draw(card: Card = Card(), progress: Optional[Callable[[int], None]] = None) -> Frames:
    """Relaxes a system and draws frames of its motion, by a Langevin thermostat.

    Args:
        card: what to draw.
        progress: is called with the number of frames so far.

    Raises:
        MissingPackageError: ase or tblite is not there; the text has the command that installs them.
        DataSetError: energies do not converge, or the system came apart.
    """
    system = system_of(card.system)
    # One thread: sums have one order, hence the same bits on every machine; small molecules are faster so, too.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    kept = list(_motion(card, progress))
    positions, energies, forces, stresses, numbers, cell = (list(part) for part in zip(*kept))
    packages = ["ase", "numpy"] if system.method == "EMT" else ["ase", "numpy", "tblite"]
    return Frames(
        numbers=numbers[0],
        positions=np.array(positions),
        energies=np.array(energies),
        forces=np.array(forces),
        cell=cell[0],
        stresses=None if stresses[0] is None else np.array(stresses),
        about={
            "card": asdict(card),
            "method": system.method,
            "versions": {package: version(package, "molecules") for package in packages},
        },
    )


def _motion(card: Card, progress: Optional[Callable[[int], None]]) -> Iterator[tuple[Any, ...]]:
    system = system_of(card.system)
    units = need("ase.units", "molecules")
    langevin = need("ase.md.langevin", "molecules").Langevin
    # NumPy's legacy generator, whose stream is frozen.
    random = np.random.RandomState(card.seed)
    atoms = system.start(random)
    atoms.calc = calculator_of(system)
    try:
        need("ase.optimize", "molecules").BFGS(atoms, logfile=None).run(fmax=0.05, steps=300)
        least = atoms.get_potential_energy() / len(atoms)
        deviation = np.sqrt(card.temperature * units.kB * atoms.get_masses())
        atoms.set_momenta(deviation[:, None] * random.standard_normal((len(atoms), 3)))
        motion = langevin(
            atoms,
            card.step * units.fs,
            temperature_K=card.temperature,
            friction=card.friction / units.fs,
            rng=random,
            fixcm=False,
        )
        motion.run(card.equilibration)
        for frame in range(card.frames):
            motion.run(card.every)
            energy = atoms.get_potential_energy()
            if not abs(energy / len(atoms) - least) < BROKEN:
                raise DataSetError(
                    f"molecules: in frame {frame} the energy of {system.about} is {energy:.2f} eV, {energy / len(atoms) - least:.2f} eV "
                    f"an atom from the relaxed one: it came apart; lower temperature ({card.temperature} K) or step ({card.step} fs)"
                )
            periodic = bool(atoms.pbc.all())
            yield (
                atoms.get_positions(),
                energy,
                atoms.get_forces(),
                atoms.get_stress(voigt=False) if periodic else None,
                atoms.get_atomic_numbers(),
                np.array(atoms.cell) if periodic else None,
            )
            if progress:
                progress(frame + 1)
    except (RuntimeError, ArithmeticError) as error:
        raise DataSetError(f"molecules: {system.about} by {system.method} failed: {error}") from error
