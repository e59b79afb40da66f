"""Frames of molecules from a seed, and potentials as calculators of ase. What takes ase or tblite is skipped where they are not there."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gradewise as gw

np = pytest.importorskip("numpy")

from gradewise.data import molecules  # noqa: E402
from gradewise.data.molecules import Card, draw, write  # noqa: E402
from gradewise.data.molecules.__main__ import main  # noqa: E402
from gradewise.data.molecules._systems import SYSTEMS  # noqa: E402


def installed(*packages):
    return all(importlib.util.find_spec(package) is not None for package in packages)


with_ase = pytest.mark.skipif(not installed("ase"), reason="ase is not installed")
with_tblite = pytest.mark.skipif(not installed("ase", "tblite"), reason="ase and tblite are not installed")


def python(script):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(gw.__file__).parents[1]), *sys.path])}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)


def test_cards_refuse_what_cannot_be_drawn():
    for change in ({"system": "ethanl"}, {"frames": 0}, {"every": 0}, {"temperature": -1.0}, {"step": float("nan")}):
        with pytest.raises(gw.ArgumentError, match="molecules: .*"):
            Card(**change)
    assert Card(system="water").temperature == SYSTEMS["water"].temperature != Card().temperature


def test_missing_packages_are_named_with_the_remedy():
    for blocked, script in (
        ("ase", "from gradewise.data.molecules import draw; draw()"),
        ("numpy", "import gradewise.data.molecules"),
        ("ase", "import gradewise.ase"),
    ):
        ended = python(f"import sys; sys.modules[{blocked!r}] = None\n{script}")
        assert "MissingPackageError" in ended.stderr and f"takes the package {blocked} " in ended.stderr, ended.stderr
        assert "pip install --only-binary :all: 'gradewise[molecules]'" in ended.stderr
    ended = python("import sys, gradewise.data.molecules; print([m for m in ('ase', 'tblite') if m in sys.modules])")
    assert ended.stdout.strip() == "[]", "nothing is imported before it is used"


@with_ase
def test_a_crystal_is_drawn_from_its_seed_and_written_as_ase_reads_it(tmp_path):
    card = Card(system="copper", frames=3, every=4, equilibration=5, seed=2)
    frames = draw(card)
    assert np.array_equal(frames.positions, draw(card).positions), "the same bits"
    assert not np.array_equal(frames.positions, draw(Card(**{**vars(card), "seed": 3})).positions)
    write(frames, tmp_path / "copper.xyz")
    from ase.io import read

    for at, atoms in enumerate(read(tmp_path / "copper.xyz", ":")):
        assert np.array_equal(atoms.positions, frames.positions[at]) and atoms.pbc.all()
        assert atoms.get_potential_energy() == frames.energies[at]
        assert np.array_equal(atoms.get_forces(), frames.forces[at])
        assert np.allclose(atoms.get_stress(voigt=False), frames.stresses[at], atol=1e-15)
    with pytest.raises(gw.ArgumentError, match="no place for a cell"):
        write(frames, tmp_path / "copper.npz")
    with pytest.raises(gw.ArgumentError, match="must end in"):
        write(frames, tmp_path / "copper.cif")
    assert [path.name for path in tmp_path.iterdir()] == ["copper.xyz"], "nothing is left beside it"


@with_ase
def test_a_system_that_comes_apart_is_no_data_set(tmp_path, capsys):
    words = [str(tmp_path / "hot.xyz"), "--system", "copper", "--frames", "50", "--temperature", "60000", "--quiet"]
    assert main(words) == 2
    assert "came apart" in capsys.readouterr().err and not (tmp_path / "hot.xyz").exists()


@with_tblite
@pytest.mark.parametrize(("system", "atoms"), [("ethanol", 9), ("aspirin", 21), ("alanine-dipeptide", 22), ("water", 30)])
def test_molecules_are_drawn_whole(system, atoms):
    frames = draw(Card(system=system, frames=2, every=2, equilibration=2))
    assert frames.numbers.shape == (atoms,) and frames.forces.shape == (2, atoms, 3) and frames.cell is None
    # No net force acts on a molecule alone.
    assert np.abs(frames.forces.sum(axis=1)).max() < 1e-6 * np.abs(frames.forces).max() + 1e-8
    distances = np.linalg.norm(frames.positions[-1][:, None] - frames.positions[-1], axis=-1) + 9 * np.eye(atoms)
    nearest = distances.min(axis=0)
    assert (nearest > 0.85).all() and (nearest < 1.7).all(), "every atom is bound"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A potential of copper, trained for a moment on frames with stresses."""
    if not installed("ase"):
        pytest.skip("ase is not installed")
    folder = tmp_path_factory.mktemp("copper")
    frames = draw(Card(system="copper", frames=80, every=5, equilibration=50))
    write(frames, folder / "copper.xyz")
    return gw.train(
        "potential",
        out=folder / "run",
        dtype="f64",
        progress=False,
        data={"source": str(folder / "copper.xyz"), "train": 30, "valid": 6, "test": 6, "cutoff": 4.0},
        model={"hidden": 4, "layers": 1, "cutoff": 4.0},
        train={"steps": 60, "batch_size": 2},
    ), frames


def test_the_calculator_has_the_forces_and_the_stress_of_its_energy(run):
    from ase import Atoms
    from gradewise.ase import Calculator

    run, frames = run
    assert {"test_force_mae", "test_energy_mae", "test_stress_mae"} <= set(run.result)
    atoms = Atoms(frames.numbers, frames.positions[0], cell=frames.cell, pbc=True, calculator=Calculator(run))
    forces, stress = atoms.get_forces(), atoms.get_stress(voigt=False)
    assert np.abs(forces).max() > 1e-3
    for atom, axis in ((0, 0), (5, 1), (31, 2)):
        energies = []
        for h in (1e-4, -1e-4):
            moved = atoms.copy()
            moved.calc = atoms.calc
            moved.positions[atom, axis] += h
            energies.append(moved.get_potential_energy())
        slope = (energies[0] - energies[1]) / 2e-4
        assert abs(slope + forces[atom, axis]) < 1e-6
    energies = []
    for h in (1e-5, -1e-5):
        strained = atoms.copy()
        strained.calc = atoms.calc
        strained.set_cell(np.array(atoms.cell) @ (np.eye(3) + h * np.diag([1.0, 0.0, 0.0])), scale_atoms=True)
        energies.append(strained.get_potential_energy())
    assert abs((energies[0] - energies[1]) / 2e-5 / atoms.get_volume() - stress[0, 0]) < 1e-7


def test_runs_folders_files_and_ensembles_are_opened(run):
    from ase import Atoms
    from ase.calculators.calculator import PropertyNotImplementedError
    from gradewise.ase import Calculator

    run, frames = run
    atoms = Atoms(frames.numbers, frames.positions[0], cell=frames.cell, pbc=True)

    def energy(where, **options):
        atoms.calc = Calculator(where, **options)
        return atoms.get_potential_energy()

    expected = energy(run)
    assert energy(str(run.folder)) == energy(run.checkpoint) == expected
    assert energy([run, run]) == expected and atoms.calc.results["energy_deviation"] == 0
    assert atoms.calc.results["forces_deviation"].shape == (32, 3) and atoms.calc.cutoff == 4.0
    assert energy(run, dtype="f32") == pytest.approx(expected, abs=1e-3)
    slab = Atoms(frames.numbers, frames.positions[0], cell=frames.cell, pbc=[True, True, False])
    slab.calc = Calculator(run)
    assert np.isfinite(slab.get_potential_energy())
    with pytest.raises(PropertyNotImplementedError):
        slab.get_stress()
    for wrong, error, part in (
        ([], gw.ArgumentError, "no runs"),
        (run.folder / "config.toml", gw.ArgumentError, "config.toml"),
        (run.folder.parent, gw.RunError, "holds no run"),
    ):
        with pytest.raises(error, match=part):
            Calculator(wrong)
    with pytest.raises(gw.ArgumentError, match="f32 or f64"):
        Calculator(run, dtype="bf16")
    gold = Atoms("Au2", [[0, 0, 0], [0, 0, 2.5]], calculator=Calculator(run))
    with pytest.raises(gw.ArgumentError, match="Au"):
        gold.get_forces()


def test_a_motion_without_a_thermostat_keeps_its_energy(run):
    from ase import Atoms, units
    from ase.md.verlet import VelocityVerlet
    from gradewise.ase import Calculator

    run, frames = run
    atoms = Atoms(frames.numbers, frames.positions[0], cell=frames.cell, pbc=True, calculator=Calculator(run))
    random = np.random.RandomState(1)
    atoms.set_momenta(np.sqrt(300 * units.kB * atoms.get_masses())[:, None] * random.standard_normal((32, 3)))
    energies = []
    motion = VelocityVerlet(atoms, 1.0 * units.fs)
    motion.attach(lambda: energies.append(atoms.get_total_energy()))
    kinetic = atoms.get_kinetic_energy()
    motion.run(60)
    assert np.ptp(energies) < 0.02 * kinetic, energies


def test_the_module_lists_what_it_has():
    assert set(molecules.__all__) == {"Card", "Frames", "draw", "write"}
