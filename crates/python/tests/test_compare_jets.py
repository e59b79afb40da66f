"""benches/compare_jets.py: its measures, its batches, and the script on the kept thousand jets."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "benches" / "compare_jets.py"
KEPT = Path(__file__).parent / "jets" / "train.h5"


def script():
    spec = importlib.util.spec_from_file_location("compare_jets", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def part(path, start, stop):
    """Some rows of the kept file, in its layout."""
    with h5py.File(KEPT) as kept, h5py.File(path, "w") as out:
        group = out.create_group("table")
        table = group.create_dataset("table", data=kept["table/table"][start:stop], chunks=(100,))
        for source, target in ((kept["table"], group), (kept["table/table"], table)):
            for name, value in source.attrs.items():
                target.attrs[name] = value


def test_measures_are_their_definitions():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 300).astype(bool)
    scores = np.round(rng.normal(size=300) + labels, 1)
    found = script().measures(scores, labels)
    pairs = scores[labels][:, None] - scores[~labels][None]
    assert found["auc"] == pytest.approx(np.mean((pairs > 0) + 0.5 * (pairs == 0)), abs=1e-12)
    for percent in (30, 50):
        cuts = sorted(set(scores), reverse=True)
        cut = next(cut for cut in cuts if np.mean(scores[labels] >= cut) >= percent / 100)
        passed = np.mean(scores[~labels] >= cut)
        assert found[f"rejection_{percent}"] == pytest.approx(1 / passed)
        error = np.sqrt(passed * (1 - passed) / (~labels).sum()) / passed**2
        assert found[f"rejection_{percent}_error"] == pytest.approx(error)


def test_batches_have_every_jet_and_little_padding():
    compare = script()
    momenta, labels = compare.read(KEPT, None, 200)
    assert momenta.shape == (1000, 200, 4) and set(labels) == {0, 1}
    lengths = (momenta[..., 0] > 0).sum(1)
    rows = 0
    for some, classes in compare.batches(momenta, labels, 50, "cpu", np.random.default_rng(0)):
        assert len(some) == len(classes) == 50
        rows += some.shape[0] * some.shape[1]
    assert lengths.sum() <= rows < 1.1 * lengths.sum()
    # In evaluation each jet is there once, and the transverse momentum falls.
    seen = [classes for _, classes in compare.batches(momenta, labels, 64, "cpu", None)]
    assert sum(len(classes) for classes in seen) == 1000
    assert int(sum(classes.sum() for classes in seen)) == labels.sum()
    transverse = np.hypot(momenta[..., 1], momenta[..., 2])
    assert (np.diff(transverse, axis=1) <= 0).all()


def test_the_script_trains_on_kept_jets(tmp_path):
    pytest.importorskip("lgatr")
    for name, start, stop in (("train", 0, 600), ("val", 600, 700), ("test", 700, 1000)):
        part(tmp_path / f"{name}.h5", start, stop)
    command = [sys.executable, SCRIPT, tmp_path, "--size", "small", "--seconds", "4", "--models", "slim", "--particles", "24", "--rate", "5e-3"]
    done = subprocess.run([*map(str, command), "--json", str(tmp_path / "out.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[-1].split("|")
    # Chance is 0.5 ± 0.03.
    assert row[1].strip() == "slim" and float(row[7].split("±")[0]) > 0.65, done.stdout
