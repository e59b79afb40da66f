"""Jets from a seed: what is drawn, how it is kept and written, and what a check finds. Pythia's own part is skipped where it is not there."""

import hashlib
import importlib.util
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

import gradewise as gw

np = pytest.importorskip("numpy")
h5py = pytest.importorskip("h5py")

from jet_generators import Small, particle  # noqa: E402

from gradewise.data import jets  # noqa: E402
from gradewise.data.jets import (
    Candidate,
    Card,
    File,
    Jets,
    _blocks,
    _check,
    _file,
    _momenta,
    _select,
    _shapes,
    _subjets,
)  # noqa: E402
from gradewise.data.jets.__main__ import card_of, main, parser  # noqa: E402
from gradewise.data.jets._card import BLOCKS, LARGEST_SEED, SPLITS  # noqa: E402
from gradewise.data.jets._progress import Progress, span  # noqa: E402

TESTS = Path(__file__).parent
PUBLISHED = TESTS.parents[1] / "zoo/tests/data/jets/published.h5"
KEPT = TESTS / "jets/train.h5"
CARD = Card(block=20, seed=3)


def installed(package):
    return importlib.util.find_spec(package) is not None


pythia = pytest.mark.skipif(
    not (installed("pythia8mc") and installed("fastjet")), reason="pythia8mc and fastjet are not installed"
)


@pytest.fixture(autouse=True)
def generators(monkeypatch):
    """Processes that draw find the generators of the tests."""
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), *([before] if before else [])]))


def make(folder, generator="Small", card=CARD, progress=False, **options):
    return jets.make(folder, card=card, generator=f"jet_generators:{generator}", progress=progress, **options)


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.h5")}


# Cards and seeds.


def test_no_two_blocks_share_a_seed():
    seeds = Counter()
    for seed in (0, 1, 2, LARGEST_SEED):
        for split in SPLITS:
            for label in (False, True):
                seeds.update(Card(seed=seed).seed_of(split, label, block) for block in (0, 1, 2, BLOCKS - 1))
    assert len(seeds) == 4 * 3 * 2 * 4 and max(seeds.values()) == 1
    assert min(seeds) == 1 and max(seeds) <= 900_000_000, "Pythia takes 1 to 900,000,000"
    with pytest.raises(gw.ArgumentError, match="at most 50000 blocks"):
        Card().seed_of("train", True, BLOCKS)


def test_classes_of_a_block_are_balanced_and_mixed():
    labels = [Card(seed=seed, block=100).labels_of("train", block) for seed in (0, 1) for block in (0, 1)]
    assert all(sum(block) == 50 for block in labels)
    assert len({tuple(block) for block in labels}) == 4
    changes = sum(one != other for one, other in zip(labels[0], labels[0][1:]))
    assert 30 < changes < 70, "neither sorted nor alternating"
    # The order is part of the bytes of every set that was ever drawn.
    assert "".join("01"[label] for label in Card(block=16).labels_of("train", 0)) == "1110001101101000"


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"kind": "higgs"}, "'top' and 'quark-gluon'"),
        ({"seed": -1}, "seeds are 0 to 2999"),
        ({"seed": LARGEST_SEED + 1}, "seeds are 0 to 2999"),
        ({"particles": 0}, "1 to 1000"),
        ({"block": 1}, "blocks of 1"),
        ({"radius": math.nan}, "radius is nan"),
        ({"eta": 0.0}, "eta is 0"),
        ({"pt_low": 650.0}, "not below pt_high"),
        ({"pt_hat": 600.0}, "jets would be missing"),
        ({"pythia": ("Random:seed = 1",)}, "seeds, which are ours"),
        ({"pythia": ("nothing",)}, "NAME = VALUE"),
    ],
)
def test_cards_that_make_no_sense(changes, reason):
    with pytest.raises(gw.ArgumentError, match=reason):
        Card(**changes)


def test_a_card_survives_its_record():
    card = Card.quark_gluon(seed=7, pythia=("6:m0 = 172.5",))
    assert Card.from_dict(json.loads(json.dumps(card.as_dict()))) == card
    assert (card.radius, card.pt_low, card.pt_high, card.interactions) == (0.4, 500.0, 550.0, True)


# What is taken and stored.


def jet(pt=600.0, eta=0.0, phi=3.1, quarks=((0.1, 0.0), (-0.1, 0.1), (0.0, -0.1)), top=(0.0, 0.0)):
    """Two constituents around a direction, and a top with quarks beside it."""
    constituents = [particle(0.3 * pt, eta, phi), particle(0.7 * pt, eta, phi)]
    partons = [particle(pt, eta + top[0], phi + top[1])]
    partons += [particle(pt / 3, eta + away, phi + turn) for away, turn in quarks]
    return Candidate(np.array(constituents), np.array(partons))


@pytest.mark.parametrize(
    "candidate, reason",
    [
        (jet(), ""),
        (jet(pt=550.0001), ""),
        (jet(pt=549.99), "transverse momentum"),
        (jet(pt=650.01), "transverse momentum"),
        (jet(eta=1.999), ""),
        (jet(eta=-2.001), "pseudorapidity"),
        (jet(top=(0.7, 0.3)), ""),
        (jet(top=(0.7, 0.5)), "no top within the radius"),
        # 3.1 + 0.3 is on the other side of π.
        (jet(quarks=((0.0, 0.3), (0.0, 0.0), (0.0, 0.79))), ""),
        (jet(quarks=((0.0, 0.0), (0.0, 0.0), (0.0, 0.81))), "a quark outside the radius"),
    ],
)
def test_selection(candidate, reason):
    assert _select.refusal(Card(), True, candidate) == reason
    if "quark" in reason:
        assert _select.refusal(Card(contained=False), True, candidate) == ""
    alone = Candidate(candidate.constituents, np.zeros((0, 4)))
    assert _select.refusal(Card(), False, alone) == ("" if "radius" in reason else reason)


def test_selection_of_quarks_and_gluons():
    card = Card.quark_gluon()
    near, far = particle(520.0, 0.3, 0.0), particle(520.0, 0.5, 0.0)
    constituents = np.array([particle(520.0, 0.0, 0.0)])
    assert _select.refusal(card, True, Candidate(constituents, np.array([near]))) == ""
    assert _select.refusal(card, False, Candidate(constituents, np.array([far]))) == "no parton within the radius"


@pytest.mark.parametrize(
    "candidate, reason",
    [
        (Candidate(np.zeros((0, 4)), np.zeros((4, 4))), "at least one"),
        (Candidate(np.zeros((5, 3)), np.zeros((4, 4))), r"\(5, 3\)"),
        (Candidate(np.full((5, 4), np.inf), np.zeros((4, 4))), "NaN or infinity"),
        (Candidate(jet().constituents, jet().partons[:2]), "2 partons for a top jet; expected are 4"),
    ],
)
def test_faults_of_generators(candidate, reason):
    with pytest.raises(gw.DataSetError, match=reason):
        _select.refusal(Card(), True, candidate)


def test_stored_constituents_are_ordered_cut_and_never_spacelike():
    numbers = np.random.default_rng(0)
    momentum = numbers.normal(size=(3000, 3)) * 10.0 ** numbers.uniform(-2, 3, (3000, 1))
    energy = np.sqrt((momentum**2).sum(axis=1) + 0.13957**2)
    momenta = np.concatenate([energy[:, None], momentum], axis=1)
    nearest = momenta.astype("f4").astype("f8")
    assert (nearest[:, 0] ** 2 < (nearest[:, 1:] ** 2).sum(axis=1)).any(), "the numbers exercise the rounding"
    for count in (1, 200, 1000):
        stored = _select.stored(Card(particles=count), True, Candidate(momenta, jet().partons))
        wide = stored.constituents.astype("f8")
        assert wide.shape == (count, 4) and stored.constituents.dtype == np.float32
        assert (wide[:, 0] ** 2 >= (wide[:, 1:] ** 2).sum(axis=1)).all()
        pt = _momenta.pt(wide)
        assert (pt[1:] <= pt[:-1]).all() and pt[0] == pytest.approx(_momenta.pt(momenta).max(), rel=1e-6)
        assert np.allclose(stored.truth, jet().partons[0], rtol=1e-6)
    assert np.abs(_momenta.rounded(momenta) / momenta - 1)[:, 0].max() < 2e-7


# Drawing with processes.


def test_bytes_do_not_depend_on_processes_and_begin_larger_sets(tmp_path):
    make(tmp_path / "one", train=70, valid=30, test=10, processes=1)
    make(tmp_path / "three", train=70, valid=30, test=10, processes=3)
    one = bytes_of(tmp_path / "one")
    assert sorted(one) == ["test.h5", "train.h5", "val.h5"] and one == bytes_of(tmp_path / "three")
    assert not (tmp_path / "one" / "blocks").exists(), "blocks are removed"

    make(tmp_path / "more", train=110, processes=2)
    with File(tmp_path / "one/train.h5") as small, File(tmp_path / "more/train.h5") as large:
        few, many = small.read(0, 70), large.read(0, 70)
        assert len(small) == 70 and len(large) == 110
        assert all(np.array_equal(getattr(few, name), getattr(many, name)) for name in ("momenta", "labels", "truth"))
        assert len({momenta.tobytes() for momenta in large.read(0, 110).momenta}) == 110, "no jet twice"
    make(tmp_path / "other", card=Card(block=20, seed=4), train=70)
    with File(tmp_path / "other/train.h5") as other, File(tmp_path / "one/val.h5") as valid:
        jets_of = lambda file, count: {momenta.tobytes() for momenta in file.read(0, count).momenta}  # noqa: E731
        first = {momenta.tobytes() for momenta in few.momenta}
        assert not first & jets_of(other, 70) and not first & jets_of(valid, 30)


def test_record(tmp_path):
    make(tmp_path, train=50)
    with File(tmp_path / "train.h5") as file:
        record, block = file.record, file.read(0, 50)
    assert record["card"] == CARD.as_dict() and record["split"] == "train" and record["jets"] == 50
    assert record["versions"] == {"small": "1", "gradewise": gw.__version__}
    assert record["settings"] == {"QCD": ["prongs = 1"], "top": ["prongs = 3"]} and record["classes"] == ["QCD", "top"]
    # 50 jets are of three blocks of 20.
    assert record["candidates"]["QCD"]["taken"] == record["candidates"]["top"]["taken"] == 30
    assert sum(record["candidates"]["QCD"].values()) > 30, "others were passed over"
    text = hashlib.sha256()
    for momenta, label in zip(block.momenta, block.labels):
        text.update(momenta.astype("<f4").tobytes() + bytes([label]))
    assert record["sha256"] == text.hexdigest() and record["hashed"] == 50


def test_a_killed_run_goes_on_with_its_blocks(tmp_path, monkeypatch):
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("GENERATOR_NOTES", str(notes))
    folder = tmp_path / "jets"
    words = ["make", str(folder), "--train", "200", "--block", "20", "--seed", "3", "--processes", "2", "--quiet"]
    root = str(Path(gw.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "gradewise.data.jets", *words, "--generator", "jet_generators:Slow"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ["PYTHONPATH"]])},
    )
    blocks = folder / "blocks"
    for _ in range(600):
        if len(list(blocks.glob("train-*.block"))) >= 2:
            break
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.05)
    # A second one keeps away from the folder.
    with pytest.raises(gw.DataSetError, match="another process draws jets"):
        make(folder, "Slow", train=200)
    process.kill()
    process.wait()
    assert not (folder / "train.h5").exists()
    whole = {path: path.stat().st_mtime_ns for path in blocks.glob("train-*.block")}
    assert 2 <= len(whole) < 10
    drawing = [int(path.name) for path in notes.iterdir()]
    for _ in range(200):
        if not any(alive(number) for number in drawing):
            break
        time.sleep(0.05)
    assert drawing and not any(alive(number) for number in drawing), "who draws ends with who asked"

    said = []
    make(folder, "Slow", train=200, processes=2, keep_blocks=True, progress=said.append)
    assert any(line.startswith("train: ") and "are there already" in line for line in said), said
    assert {path: path.stat().st_mtime_ns for path in whole} == whole, "they are not drawn again"
    # But for the generator's name all is the same.
    make(tmp_path / "undisturbed", train=200, processes=1)
    assert bytes_of(folder) == bytes_of(tmp_path / "undisturbed")
    assert not list(folder.rglob("*.partial"))


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_ctrl_c_keeps_blocks(tmp_path, monkeypatch):
    monkeypatch.setenv("GENERATOR_NOTES", str(tmp_path))
    folder = tmp_path / "jets"
    root = str(Path(gw.__file__).parents[1])
    words = ["make", str(folder), "--train", "2000", "--block", "20", "--processes", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gradewise.data.jets", *words, "--generator", "jet_generators:Slow"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ["PYTHONPATH"]])},
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not list((folder / "blocks").glob("train-*.block")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "the same command goes on from there" in err and "Traceback" not in err
    assert list((folder / "blocks").glob("train-*.block"))


def test_damaged_blocks_are_drawn_again_and_foreign_ones_refused(tmp_path, monkeypatch):
    make(tmp_path, train=60, keep_blocks=True)
    before = bytes_of(tmp_path)
    (tmp_path / "train.h5").unlink()
    block = tmp_path / "blocks/train-00001.block"
    content = block.read_bytes()
    for damaged in (content[: len(content) // 2], b"", content[:200] + bytes(100) + content[300:]):
        block.write_bytes(damaged)
        make(tmp_path, train=60, keep_blocks=True)
        assert bytes_of(tmp_path) == before and block.read_bytes() != damaged
        (tmp_path / "train.h5").unlink()

    kept = {path.name: path.read_bytes() for path in (tmp_path / "blocks").glob("*.block")}
    with pytest.raises(gw.DataSetError, match="other settings .*eta: 2.0, 1.5; seed: 3, 4.*delete"):
        make(tmp_path, card=Card(block=20, seed=4, eta=1.5), train=60)
    monkeypatch.setenv("SMALL_VERSION", "2")
    with pytest.raises(gw.DataSetError, match="other versions .*small: '1', '2'"):
        make(tmp_path, train=60)
    assert {path.name: path.read_bytes() for path in (tmp_path / "blocks").glob("*.block")} == kept


def test_only_files_of_ours_are_removed(tmp_path):
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks/mine.txt").write_text("mine")
    left = tmp_path / "blocks/.train-00000.block.17.partial"
    left.write_text("half of a block")
    make(tmp_path, train=20)
    assert [path.name for path in (tmp_path / "blocks").iterdir()] == ["mine.txt"]


def test_files_are_not_overwritten(tmp_path):
    said = []
    make(tmp_path, train=40)
    before = (tmp_path / "train.h5").stat().st_mtime_ns
    make(tmp_path, train=40, test=20, progress=said.append)
    assert (tmp_path / "train.h5").stat().st_mtime_ns == before and (tmp_path / "test.h5").is_file()
    assert "20 of 20 jets" in "\n".join(said), "what is there is not drawn again"
    with pytest.raises(gw.DataSetError, match="is another file .*jets: 40, 60.*Nothing was changed"):
        make(tmp_path, train=60)
    (tmp_path / "val.h5").write_text("mine")
    with pytest.raises(gw.DataSetError, match="no HDF5 file"):
        make(tmp_path, valid=60)
    assert (tmp_path / "val.h5").read_text() == "mine"


def test_a_process_that_crashes_is_named_and_blocks_stay(tmp_path):
    with pytest.raises(
        gw.DataSetError, match=r"block \('train', 2\) ended by SIGSEGV.*Run the command again"
    ) as caught:
        make(tmp_path, "Crashes", train=100, processes=1)
    assert "out of luck" in str(caught.value), "what it said last"
    assert len(list((tmp_path / "blocks").glob("train-*.block"))) == 2 and not (tmp_path / "train.h5").exists()
    make(tmp_path, train=100, processes=1)
    assert len(bytes_of(tmp_path)) == 1


def test_errors_of_generators_come_through(tmp_path):
    with pytest.raises(gw.DataSetError, match="a generator gave a jet with NaN"):
        make(tmp_path, "NotFinite", train=20)
    with pytest.raises(gw.ArgumentError, match="no generator 'jet_generators:None_such'"):
        make(tmp_path, "None_such", train=20)


@pytest.mark.parametrize(
    "options, reason",
    [
        ({}, "no jets were asked for"),
        ({"train": -1}, "-1 jets for train"),
        ({"train": 5, "processes": 0}, "0 processes"),
    ],
)
def test_requests_that_make_no_sense(tmp_path, options, reason):
    with pytest.raises(gw.ArgumentError, match=reason):
        make(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_progress_of_a_log():
    now, said = [0.0], []
    with Progress(said.append, clock=lambda: now[0]) as progress:
        progress.begin(1000)
        for _ in range(10):
            now[0] += 10
            progress.drawn(100)
    assert said[0] == "300 of 1000 jets (30%), 10.0 jets/s, 1 min 10 s left"
    assert said[-1] == "1000 of 1000 jets (100%), 10.0 jets/s" and len(said) == 4
    assert (span(59.4), span(61), span(3 * 3600 + 120)) == ("59 s", "1 min 01 s", "3 h 02 min")


def test_progress_of_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal, now = Terminal(), [0.0]
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress(True, clock=lambda: now[0]) as progress:
        progress.begin(100)
        for _ in range(2):
            now[0] += 1
            progress.drawn(50)
        progress.line("writing")
    lines = terminal.getvalue().split("\n")
    assert lines[0].count("\r\x1b[2K") == 2 and "100 of 100" in lines[0], "one line that changes"
    assert lines[1:] == ["writing", ""]


# Files.


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the project is not checked out around the tests")
def test_layout_is_that_of_pandas(tmp_path):
    make(tmp_path, card=CARD, train=20)
    with h5py.File(tmp_path / "train.h5") as ours, h5py.File(PUBLISHED) as theirs:
        assert ours["table/table"].dtype == theirs["table/table"].dtype
        for name in ("/", "table", "table/table"):
            one, other = ours[name].attrs, theirs[name].attrs
            # Size and index, which PyTables made of the other file's rows, and the record.
            own = {"NROWS", "info", "pandas_version", "gradewise"}
            optional = {"data_col_nan_rep", "mi_level_nan_rep"}
            assert set(one) - own == set(other) - own - optional
            for key in set(one) - own:
                assert str(one[key]) == str(other[key]), key
                kinds = [attributes.get_id(key).get_type() for attributes in (one, other)]
                assert kinds[0].get_class() == kinds[1].get_class(), key
                if kinds[0].get_class() == h5py.h5t.STRING:
                    assert kinds[0].get_cset() == kinds[1].get_cset(), key


def test_pandas_reads_it(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("tables")
    make(tmp_path, train=40)
    table = pandas.read_hdf(tmp_path / "train.h5", key="table")
    with File(tmp_path / "train.h5") as file:
        there = file.read(0, 40)
    assert table.shape == (40, 806) and list(table.index) == list(range(40))
    assert np.array_equal(table[_file.columns(200)[:-4]].to_numpy().reshape(40, 200, 4), there.momenta)
    assert np.array_equal(table[list(_file.TRUTH)].to_numpy(), there.truth)
    assert np.array_equal(table["is_signal_new"], there.labels) and (table["ttv"] == 0).all()
    assert pandas.read_hdf(tmp_path / "train.h5", key="table", start=10, stop=12).shape == (2, 806)
    truth = table[table.is_signal_new == 1].iloc[0]
    assert math.hypot(truth["truthPX"], truth["truthPY"]) == pytest.approx(600, abs=150)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the project is not checked out around the tests")
def test_files_of_others(tmp_path):
    """Whose numbers follow formulas (scripts/make-jet-fixtures.py). h5py has no blosc, which is refused by name."""
    columns = TESTS.parents[1] / "zoo/tests/data/jets/columns.h5"
    with File(columns) as file:
        there = file.read(0, len(file))
        assert file.particles == 12 and file.record is None and len(file) == 24
    assert there.momenta[5, 1, 1] == 64 - 4 + 5 and list(there.labels) == [int(7 * i % 3 == 0) for i in range(24)]
    with File(PUBLISHED) as file, pytest.raises(gw.DataSetError, match="rows 0 to 24 cannot be read"):
        file.read(0, 24)
    with pytest.raises(gw.DataSetError, match="no table table/table"):
        File(TESTS.parents[1] / "zoo/tests/data/jets/arrays.h5")


def test_foreign_and_truncated_files(tmp_path):
    with pytest.raises(gw.DataSetError, match="there is no file"):
        jets.check(tmp_path / "none.h5")
    make(tmp_path, train=400, card=Card(block=200))
    content = (tmp_path / "train.h5").read_bytes()
    for size in (0, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "short.h5").write_bytes(content[:size])
        with pytest.raises(gw.DataSetError, match="cut short"):
            jets.check(tmp_path / "short.h5")
    with h5py.File(tmp_path / "columns.h5", "w") as file:
        file["table/table"] = np.zeros(
            3, dtype=[("E_0", "f4"), ("PX_0", "f4"), ("PY_0", "f4"), ("is_signal_new", "i8")]
        )
    with pytest.raises(gw.DataSetError, match="no column PZ_0"):
        jets.check(tmp_path / "columns.h5")
    # Ruined within: the sum of a deflated chunk does not agree.
    ruined = bytearray(content)
    middle = len(content) * 3 // 4
    ruined[middle : middle + 64] = bytes(64)
    (tmp_path / "ruined.h5").write_bytes(ruined)
    with pytest.raises(gw.DataSetError, match="cannot be read"):
        jets.check(tmp_path / "ruined.h5")


def test_nothing_is_left_of_a_file_that_fails(tmp_path):
    block = Jets(np.zeros((5, 200, 4), "f4"), np.zeros(5), np.zeros((5, 4), "f4"))
    with pytest.raises(gw.DataSetError, match="5 jets for .*expected 6"):
        _file.write(tmp_path / "train.h5", CARD, "train", 6, {}, [block])
    assert not list(tmp_path.iterdir())


# The check.


def altered(source, target, change, record=None):
    """A copy of a file of ours with other jets, and with its own hash unless a record is given."""
    with File(source) as file:
        block, card = file.read(0, len(file)), Card.from_dict(file.record["card"])
        about = dict(file.record)
    block = Jets(block.momenta.copy(), block.labels.copy(), block.truth)
    change(block)
    _file.write(target, card, about["split"], len(block), about, [block])
    if record is not None:
        with h5py.File(target, "r+") as file:
            written = json.loads(bytes(file.attrs["gradewise"]))
            file.attrs["gradewise"] = np.bytes_(json.dumps({**written, **record}))
    return target


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        make(folder, card=Card(block=100), train=300)
    return folder / "train.h5"


def swap(block):
    block.momenta[3, [0, 1]] = block.momenta[3, [1, 0]]


def gap(block):
    block.momenta[4, 1] = 0


def spacelike(block):
    block.momenta[5, 0, 0] *= 0.9


def negative(block):
    block.momenta[5, 0, 0] *= -1


def not_finite(block):
    block.momenta[17, 1, 2] = np.nan


def empty(block):
    block.momenta[7] = 0


def mev(block):
    block.momenta *= 1000


def labels(block):
    block.labels[9] = 2


def by_class(block):
    order = np.argsort(block.labels, kind="stable")
    block.labels[:], block.momenta[:] = block.labels[order], block.momenta[order]


def forward(block):
    block.momenta[11, :, 3] += 20 * block.momenta[11, :, 0]
    block.momenta[11, :, 0] *= 30


@pytest.mark.parametrize(
    "change, fault",
    [
        (swap, "1 constituents with more transverse momentum than the one before; the first: jet 3, particle 0"),
        (gap, "constituents after a row of zeros; the first: jet 4"),
        (spacelike, "1 spacelike constituents, with less energy than momentum; the first: jet 5, particle 0"),
        (negative, "1 constituents with negative energy; the first: jet 5, particle 0"),
        (not_finite, "1 numbers that are NaN or infinite; the first: jet 17, particle 1"),
        (empty, "1 jets without constituents; the first: jet 7"),
        (mev, "that looks like MeV; divide by 1000"),
        (labels, "1 classes other than 0 and 1; the first: jet 9"),
        (by_class, "its first 64 jets are of class 0: it is sorted"),
        (forward, "1 jets outside the card's pseudorapidities; the first: jet 11"),
    ],
)
def test_faults_are_found_with_their_place(sound, tmp_path, change, fault):
    report = jets.check(altered(sound, tmp_path / "file.h5", change))
    assert any(fault in sentence for sentence in report.faults), report.faults
    assert not report.sound and f"fault: {report.faults[0]}" in str(report)
    assert main(["check", str(tmp_path / "file.h5")]) == 1


def test_a_sound_file(sound, tmp_path, capsys):
    report = jets.check(sound, figure=tmp_path / "spectra.svg")
    assert report.faults == [] and report.jets == 300
    values = {(row.quantity, row.group): row.value for row in report.rows}
    with File(sound) as file:
        block = file.read(0, 300)
    sums = block.momenta.astype("f8").sum(axis=1)
    tops = np.asarray(block.labels) == 1
    assert values["mean mass, GeV", "top"] == pytest.approx(_momenta.mass(sums)[tops].mean())
    assert values["mean number of constituents", "QCD"] == (block.momenta[~tops, :, 0] > 0).sum() / 150
    each = [_subjets.tau(momenta, 0.8) for momenta in block.momenta[tops]]
    assert values["mean tau32", "top"] == pytest.approx(np.mean([tau[2] / tau[1] for tau in each]))
    assert values["mean tau32", "top"] < values["mean tau32", "QCD"], "three prongs and one"
    svg = xml.parse(tmp_path / "spectra.svg").getroot()
    assert svg.tag.endswith("svg") and len([e for e in svg if e.tag.endswith("g")]) == 9
    text = [element.text for element in svg.iter() if element.tag.endswith("text")]
    assert "m(t)" in text and "tau32" in text and "train.h5: 300 jets" in text
    assert main(["check", str(sound), "--json", "--jets", "100"]) in (0, 1)
    printed = json.loads(capsys.readouterr().out)
    assert printed["sha256"] == report.sha256 and printed["jets"] == 300


def test_jets_other_than_their_record(sound, tmp_path):
    def nudge(block):
        block.momenta[0, 0, 0] = np.nextafter(block.momenta[0, 0, 0], np.float32(np.inf))

    with File(sound) as file:
        record = file.record
    path = altered(sound, tmp_path / "file.h5", nudge, {"sha256": record["sha256"], "jets": 299})
    report = jets.check(path)
    assert ["differs" in fault for fault in report.faults] == [
        True,
        False,
    ] and "record is of 299 jets" in report.faults[1]


def test_jets_of_one_particle_are_noted(sound, tmp_path):
    def one(block):
        block.momenta[2, 1:] = 0

    report = jets.check(altered(sound, tmp_path / "file.h5", one))
    assert any(note.startswith("1 jets have one constituent") for note in report.notes)


def test_known_values_decide(monkeypatch, sound):
    monkeypatch.setattr(
        _check, "known", lambda record, quantity, group: (1.0, 0.01, "here") if "tau32" in quantity else None
    )
    report = jets.check(sound)
    off = {row.quantity for row in report.rows if not row.sound and row.source == "here"}
    assert "mean tau32" in off and not report.sound and "OFF, here" in str(report)


def test_documented_hashes_decide(monkeypatch, sound, tmp_path):
    report = jets.check(sound)
    assert any("no hash is documented" in note for note in report.notes)
    make(tmp_path, card=Card(block=500), train=1000)
    sha256 = jets.check(tmp_path / "train.h5", jets=50).sha256
    monkeypatch.setattr(_check, "hash_of", lambda record: sha256)
    assert any("the documented one" in note for note in jets.check(tmp_path / "train.h5", jets=50).notes)
    monkeypatch.setattr(_check, "hash_of", lambda record: "0" * 64)
    assert any("draws other jets" in fault for fault in jets.check(tmp_path / "train.h5", jets=50).faults)


# Prongs and statistics.


def test_prongs_by_hand():
    three = np.array([particle(200, 0.3, 0.0), particle(100, 0.0, 3.1), particle(50, 0.0, -3.1)])
    # The two that lie across π are 0.0832 apart, and the harder of them has the axis.
    apart = 2 * math.pi - 6.2
    one, two, three_prongs = _subjets.tau(three, 1.0)
    assert three_prongs == pytest.approx(0, abs=1e-6) and two == pytest.approx(50 * apart / 350, rel=1e-4)
    assert one == pytest.approx((100 * math.hypot(0.3, 3.1) + 50 * math.hypot(0.3, 3.1)) / 350, rel=1e-4)
    assert _subjets.tau(three[:1], 0.8) == pytest.approx([0, 0, 0], abs=1e-6)
    assert _subjets.tau(np.zeros((4, 4)), 0.8) == pytest.approx([0, 0, 0])
    padded = np.concatenate([three, np.zeros((5, 4))])
    assert _subjets.tau(padded, 1.0) == pytest.approx([one, two, three_prongs])
    assert math.isnan(_shapes.least_pair(three[:2]))
    pairs = [_momenta.mass(three[a] + three[b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    assert _shapes.least_pair(three) == pytest.approx(min(pairs))


def test_prongs_turn_with_the_jet():
    candidate = next(Small(Card()).candidates(True, 5))
    before = _subjets.tau(candidate.constituents, 0.8)
    angle = 2.5
    turned = candidate.constituents.copy()
    turned[:, 1] = math.cos(angle) * candidate.constituents[:, 1] - math.sin(angle) * candidate.constituents[:, 2]
    turned[:, 2] = math.sin(angle) * candidate.constituents[:, 1] + math.cos(angle) * candidate.constituents[:, 2]
    boost = 0.7
    turned[:, 0] = math.cosh(boost) * candidate.constituents[:, 0] + math.sinh(boost) * candidate.constituents[:, 3]
    turned[:, 3] = math.sinh(boost) * candidate.constituents[:, 0] + math.cosh(boost) * candidate.constituents[:, 3]
    assert _subjets.tau(turned, 0.8) == pytest.approx(before, rel=1e-6)


def test_axes_are_those_of_fastjet():
    fastjet = pytest.importorskip("fastjet")
    definition = fastjet.JetDefinition(fastjet.kt_algorithm, 999.0, fastjet.WTA_pt_scheme)
    for candidate in islice(Small(Card()).candidates(True, 11), 30):
        momenta = candidate.constituents
        rapidity, phi = _momenta.rapidity(momenta), _momenta.phi(momenta)
        found = _subjets.axes(_momenta.pt(momenta), rapidity, phi, 3)
        inputs = [fastjet.PseudoJet(*momentum, energy) for energy, *momentum in momenta.tolist()]
        clusters = fastjet.ClusterSequence(inputs, definition)
        for count in (1, 2, 3):
            theirs = sorted((axis.rap(), axis.phi_std()) for axis in clusters.exclusive_jets(count))
            ours = sorted((rapidity[index], phi[index]) for index in found[count])
            assert np.allclose(ours, theirs, atol=1e-7)


def test_areas_and_peaks():
    assert _shapes.area(np.array([1.0, 2.0]), np.array([3.0, 4.0]))[0] == 1.0
    assert _shapes.area(np.array([1.0, 2.0, 2.0]), np.array([2.0]))[0] == pytest.approx((1 + 0.5 + 0.5) / 3)
    numbers = np.random.default_rng(1)
    values = np.concatenate([numbers.normal(80, 5, 4000), numbers.uniform(0, 200, 2000)])
    middle, error = _shapes.peak(values)
    assert middle == pytest.approx(80, abs=2) and 0 < error < 1


# The command line.


def test_every_setting_of_a_card_is_an_option():
    words = ["make", "folder", "--seed", "5", "--energy", "13000", "--interactions", "--no-hadrons", "--no-contained"]
    words += ["--radius", "1", "--pt-low", "500", "--pt-high", "700", "--eta", "1.5", "--particles", "50"]
    words += ["--pt-hat", "300", "--block", "10", "--pythia", "6:m0 = 172.5"]
    card = card_of(parser().parse_args(words))
    different = {name for name, value in card.as_dict().items() if value != Card().as_dict()[name]}
    assert different == set(Card().as_dict()) - {"kind"}
    assert card_of(parser().parse_args(["make", "folder"])) == Card()
    assert card_of(parser().parse_args(["make", "folder", "--kind", "quark-gluon"])) == Card.quark_gluon()


def test_commands(tmp_path, capsys):
    folder = tmp_path / "jets"
    words = ["make", str(folder), "--train", "20", "--block", "20", "--generator", "jet_generators:Small"]
    assert main(words) == 0
    assert "20 of 20 jets (100%)" in capsys.readouterr().err and (folder / "train.h5").is_file()
    assert main([*words[:2], "--test", "20", "--quiet", *words[4:]]) == 0
    assert capsys.readouterr().err == ""
    assert main(["make", str(folder)]) == 2 and "no jets were asked for" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.h5")]) == 2
    with pytest.raises(SystemExit) as caught:
        main(["make", "--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0 and "goes on where it was" in text
    assert all(f"--{name.replace('_', '-')}" in text for name in Card().as_dict())


def test_missing_packages_say_how_to_get_them(tmp_path, monkeypatch, capsys):
    from importlib import metadata

    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    with monkeypatch.context() as patch:
        patch.setattr(metadata, "version", nothing)
        with pytest.raises(
            gw.MissingPackageError, match="(?s)takes the package pythia8mc.*gradewise\\[jets\\]"
        ) as caught:
            jets.make(tmp_path / "jets", train=10)
        assert isinstance(caught.value, ImportError) and caught.value.name == "pythia8mc"
        assert main(["make", str(tmp_path / "jets"), "--train", "10"]) == 1
        assert "pip install --only-binary :all:" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(gw.MissingPackageError, match="takes the package h5py"):
        make(tmp_path / "jets", train=10)
    assert not (tmp_path / "jets").exists(), "nothing is drawn in vain"
    script = "import sys; sys.modules['numpy'] = None\nimport gradewise.data.jets"
    root = str(Path(gw.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True
    )
    assert "MissingPackageError" in ended.stderr and "takes the package numpy" in ended.stderr


def test_importing_imports_no_package_of_the_extra():
    script = (
        "import sys, gradewise.data.jets\n"
        "print([m for m in ('h5py', 'pythia8mc', 'fastjet', 'awkward', 'torch') if m in sys.modules])"
    )
    root = str(Path(gw.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == "[]"


def test_what_is_public_is_described():
    for name in jets.__all__:
        assert getattr(jets, name).__doc__, name
    assert (Path(gw.__file__).parent / "py.typed").exists()


# The program.


def programs():
    root = TESTS.parents[2]
    beside = Path(sys.executable).with_name("gradewise")
    named = os.environ.get("GRADEWISE_PROGRAM")
    places = [named, root / "target/release/gradewise", beside, shutil.which("gradewise")]
    return next((str(place) for place in places if place and Path(place).is_file()), None)


def test_the_program_trains_on_it(tmp_path):
    program = programs()
    if program is None:
        pytest.skip("there is no program gradewise; GRADEWISE_PROGRAM names one")
    make(tmp_path / "jets", train=120, valid=40, test=40)
    words = [program, "train", "lorentz", "--out", str(tmp_path / "run"), f"data.source={tmp_path / 'jets'}"]
    words += ["data.train=120", "data.valid=40", "data.test=40", "train.steps=2", "runtime.device=cpu"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert "120 train, 40 valid, 40 test samples" in ended.stdout + ended.stderr and "test accuracy" in ended.stdout
    assert "left out" not in ended.stderr, "all jets have a mass"


# Jets that are kept, and Pythia's.


def test_kept_jets(tmp_path):
    """A thousand jets of Pythia, drawn once; whoever has the versions of their record draws the same bytes."""
    report = jets.check(KEPT)
    assert report.sound, str(report)
    assert any("the hash is the documented one" in note for note in report.notes), report.notes
    assert report.jets == 1000 and report.record["versions"]["pythia8mc"] and report.record["card"] == Card().as_dict()
    values = {(row.quantity, row.group): row for row in report.rows}
    assert values["peak of the mass, GeV", "top"].value == pytest.approx(173, abs=5)
    assert values["peak of the least mass of two prongs, GeV", "top"].value == pytest.approx(80.4, abs=5)
    assert values["AUC of tau32 alone", "both"].value > 0.85
    assert values["mean number of constituents", "QCD"].known is not None, "there are documented numbers"


def test_documented_numbers_are_of_their_settings_alone():
    from gradewise.data.jets._known import SETS, hash_of, known

    with File(KEPT) as file:
        record = file.record
    quantity = "mean tau32", "top"
    assert hash_of(record) == record["sha256"]
    value, error, source = known(record, *quantity)
    assert 0.4 < value < 0.6 and error < 0.01 and "8.317.2" in source

    def changed(**changes):
        return {**record, "card": {**record["card"], **changes}}

    assert known(changed(seed=9), *quantity) == (value, error, source) and hash_of(changed(seed=9)) is None
    other = changed(interactions=True)
    assert hash_of(other) not in (None, record["sha256"]) and known(other, *quantity)[0] != value
    assert known(changed(radius=1.0), *quantity) is None and hash_of(changed(radius=1.0)) is None
    assert hash_of({**record, "versions": {**record["versions"], "fastjet": "3.4.0"}}) is None
    assert hash_of({**record, "split": "test"}) is None and known(None, *quantity) is None
    assert {(there.card.kind, there.card.interactions) for there in SETS} == {
        ("top", False),
        ("top", True),
        ("quark-gluon", True),
    }


def test_kept_jets_are_tops_with_their_quarks_inside():
    with File(KEPT) as file:
        block = file.read(0, 1000)
    tops = np.asarray(block.labels) == 1
    truth = block.truth.astype("f8")
    assert tops.sum() == 500 and (truth[~tops] == 0).all()
    axis = block.momenta.astype("f8").sum(axis=1)
    assert (_momenta.distance(truth[tops], axis[tops]) < 0.8).all()
    assert np.median(np.abs(_momenta.mass(truth[tops]) - 173)) < 2, "single precision and the width of the top"


FEW = Card(block=10, seed=1)


def drawn(card, split="train", block=0):
    from gradewise.data.jets._pythia import Pythia

    return _blocks.draw(Pythia(card), card, split, block)


@pythia
def test_pythia_draws_the_same_twice_and_in_other_processes(tmp_path):
    first, _ = drawn(FEW)
    jets.make(tmp_path, train=20, card=FEW, processes=2, progress=False)
    with File(tmp_path / "train.h5") as file:
        there = file.read(0, 10)
        record = file.record
    for (label, one), momenta, truth, known in zip(first, there.momenta, there.truth, there.labels):
        assert label == known and np.array_equal(one.constituents, momenta[: len(one.constituents)])
        assert not momenta[len(one.constituents) :].any() and np.array_equal(one.truth, truth)
    assert set(record["versions"]) == {"gradewise", "pythia8mc", "fastjet"}
    assert "PartonLevel:MPI = off" in record["settings"]["top"]
    assert jets.check(tmp_path / "train.h5").faults == []


@pythia
def test_pythia_draws_the_kept_jets():
    with File(KEPT) as file:
        record, there = file.record, file.read(0, 1000)
    from importlib import metadata

    for name in ("pythia8mc", "fastjet"):
        if metadata.version(name) != record["versions"][name]:
            pytest.skip(f"the kept jets are of {name} {record['versions'][name]}")
    from gradewise.data.jets._pythia import Pythia

    card = Card.from_dict(record["card"])
    for label in (False, True):
        source = Pythia(card).candidates(label, card.seed_of("train", label, 0))
        taken = list(islice(_select.selected(card, label, source, Counter()), 5))
        places = np.flatnonzero(np.asarray(there.labels) == label)[:5]
        for one, place in zip(taken, places):
            assert np.array_equal(one.constituents, there.momenta[place, : len(one.constituents)])


@pythia
def test_settings_of_pythia_are_obeyed():
    def mean(card):
        taken, _ = drawn(card)
        return np.mean([len(one.constituents) for _, one in taken])

    plain = mean(FEW)
    assert mean(Card(block=10, seed=1, hadrons=False)) < 0.7 * plain, "partons are fewer"
    assert mean(Card(block=10, seed=1, interactions=True)) > plain, "more collides"
    with pytest.raises(gw.DataSetError, match="does not take the setting 'No:such = thing'"):
        drawn(Card(block=10, pythia=("No:such = thing",)))


def test_pythia_without_its_files_says_where_they_belong(monkeypatch):
    from types import SimpleNamespace

    from gradewise.data.jets._pythia import Pythia

    lost = SimpleNamespace(Pythia=lambda *_: SimpleNamespace(readString=lambda _: False))
    monkeypatch.setitem(sys.modules, "pythia8mc", lost)
    with pytest.raises(gw.DataSetError, match="PYTHIA8DATA"):
        next(Pythia(Card()).candidates(True, 1))


@pythia
def test_looking_at_partons_first_loses_no_jets():
    """Hadrons of all collisions against hadrons of those whose partons promise a jet, from the same seed."""
    import pythia8mc

    from gradewise.data.jets._pythia import Finder, Pythia

    card = Card(interactions=False)
    generator = pythia8mc.Pythia("", False)
    for line in ["Print:quiet = on", "Random:setSeed = on", "Random:seed = 5", *Pythia(card).settings(True)]:
        assert generator.readString(line)
    assert generator.init()
    finder, found, lost, skipped = Finder(card, pythia8mc), 0, 0, 0
    for _ in range(600):
        assert generator.next()
        promising = finder.promises(generator.event)
        assert generator.forceHadronLevel()
        count = len(list(finder.jets(generator.event)))
        found, lost, skipped = found + count, lost + count * (not promising), skipped + (not promising)
    assert found > 60 and lost <= 1 and skipped > 200, (found, lost, skipped)


@pythia
def test_quarks_are_narrower_than_gluons():
    card = Card.quark_gluon(block=60, interactions=False)
    taken, candidates = drawn(card)
    counts = {
        label: np.mean([len(one.constituents) for kind, one in taken if kind == label]) for label in (False, True)
    }
    assert counts[True] < 0.85 * counts[False], "gluons radiate more"
    assert candidates["quark"]["taken"] == candidates["gluon"]["taken"] == 30


@pythia
def test_a_quark_outside_is_what_contained_leaves_out():
    def passed_over(contained):
        return drawn(Card(block=40, seed=2, contained=contained))[1]["top"]

    assert passed_over(True)["a quark outside the radius"] > 2
    assert "a quark outside the radius" not in passed_over(False)
