"""A calculator of ase for potentials that ``gradewise train potential`` trained.

::

    from ase.build import molecule
    from gradewise.ase import Calculator

    atoms = molecule("CH3CH2OH")
    atoms.calc = Calculator("runs/potential-1")
    atoms.get_potential_energy(), atoms.get_forces()

Energies are in eV, forces in eV/Å, stresses in eV/Å³. All of ase's dynamics and optimisers work with it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Optional, Union

from gradewise import _core
from gradewise._errors import ArgumentError, GradewiseError
from gradewise._runs import Run
from gradewise.data import _extra

_calculator = _extra.need("gradewise.ase", "molecules", "ase.calculators.calculator", "the calculator")
_numpy = _extra.need("gradewise.ase", "molecules", "numpy", "the calculator")

Where = Union[str, "os.PathLike[str]", Run]


def _checkpoint(of: Where) -> Path:
    """The weights of a run: the best ones if it keeps them."""
    if isinstance(of, Run):
        return of.best or of.checkpoint
    path = Path(of)
    if not path.is_dir():
        return path
    if (path / "ensemble.safetensors").exists():
        return path / "ensemble.safetensors"
    run = Run(path)
    return run.best or run.checkpoint


class Calculator(_calculator.Calculator):  # type: ignore[misc, name-defined]
    """Energies, forces and, of systems that repeat in three directions, stresses.

    Of several models, results are means, and ``results["energy_deviation"]`` and ``results["forces_deviation"]`` their standard deviations.

    Args:
        runs: the folder of a run, a run, or a file of weights; several for an ensemble.
        device: "cpu", "cuda" or "cuda:0".
        dtype: "f32" or "f64". Forces in f64 are smooth to the last digits, which optimisers and long motions like.

    Raises:
        ArgumentError: a file that is no checkpoint of a potential, or another dtype.
        DeviceError: there is no such device.
        RunError: a folder that holds no run.
    """

    implemented_properties: ClassVar[list[str]] = ["energy", "free_energy", "forces", "stress"]
    ignored_changes: ClassVar[set[str]] = {"initial_charges", "initial_magmoms"}

    def __init__(
        self, runs: Union[Where, Sequence[Where]], device: str = "cpu", dtype: str = "f64", **settings: Any
    ) -> None:
        super().__init__(**settings)
        several = list(runs) if isinstance(runs, (list, tuple)) else [runs]
        if not several:
            raise ArgumentError("gradewise.ase: no runs were given, expected at least one")
        potential: Optional[type] = getattr(_core, "Potential", None)
        if potential is None:
            raise GradewiseError("gradewise.ase: this build has the operators alone; build it with the feature `program`")
        self._potential = potential([_checkpoint(run) for run in several], device, dtype)

    @property
    def cutoff(self) -> float:
        """The distance beyond which atoms do not interact directly, in Å."""
        return self._potential.cutoff

    def calculate(
        self, atoms: Any = None, properties: Sequence[str] = ("energy",), system_changes: Sequence[str] = ()
    ) -> None:
        """Called by ase.

        Raises:
            ArgumentError: species that were not in the training frames, atoms that coincide, numbers that are not finite.
            PropertyNotImplementedError: a stress of a system that does not repeat in three directions.
        """
        super().calculate(atoms, properties, system_changes)
        atoms = self.atoms
        energy, forces, stress, deviations = self._potential.evaluate(
            atoms.get_atomic_numbers().tolist(),
            atoms.get_positions().tolist(),
            _numpy.asarray(atoms.cell).tolist(),
            atoms.pbc.tolist(),
        )
        self.results = {
            "energy": energy,
            "free_energy": energy,
            "forces": _numpy.array(forces).reshape(-1, 3),
        }
        if stress is not None:
            whole = _numpy.array(stress)
            self.results["stress"] = whole[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
        elif "stress" in properties:
            raise _calculator.PropertyNotImplementedError(
                "gradewise.ase: there is a stress only of systems that repeat in three directions"
            )
        if deviations is not None:
            self.results["energy_deviation"] = deviations[0]
            self.results["forces_deviation"] = _numpy.array(deviations[1]).reshape(-1, 3)
