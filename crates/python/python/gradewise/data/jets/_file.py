"""The files: the layout of the published top-tagging reference data, with the record of how the jets were made.

That layout is a table ``table/table`` as pandas writes it with ``to_hdf(…, key="table", format="table")``: a row a jet, with the columns
``E_0 PX_0 PY_0 PZ_0 E_1 … truthE truthPX truthPY truthPZ`` in single precision and ``ttv`` and ``is_signal_new`` as integers. h5py writes
it here, because PyTables stores the time of writing and so never writes the same bytes twice; pandas reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import numpy as np

from gradewise._errors import DataSetError
from gradewise.data.jets._card import SPLITS, Card, written
from gradewise.data.jets._need import need

Array = Any

TABLE = "table/table"
RECORD = "gradewise"
PURPOSE = "reading and writing files of jets"
AXES = ("E", "PX", "PY", "PZ")
TRUTH = ("truthE", "truthPX", "truthPY", "truthPZ")
CLASS = "is_signal_new"
# The published names; `gradewise train lorentz` finds them.
NAMES = {"train": "train.h5", "valid": "val.h5", "test": "test.h5"}
# `ttv` tells train, test and validation apart in that order.
TTV = {"train": 0, "test": 1, "valid": 2}
# Rows of a compressed chunk, and of a read.
CHUNK = 256
# Of deflate: 1.2 kB a jet. Level 1 has 1.25 kB, in a tenth less time.
LEVEL = 4
# Jets whose hash the record has.
HASHED = 1000


def columns(particles: int) -> list[str]:
    """Names of the columns of floating-point numbers."""
    return [f"{axis}_{index}" for index in range(particles) for axis in AXES] + list(TRUTH)


@dataclass
class Jets:
    """Jets as arrays.

    Attributes:
        momenta: ``[jets, particles, 4]``, E, px, py, pz in GeV in single precision; rows of zeros after the last constituent.
        labels: ``[jets]``, 1 for signal.
        truth: ``[jets, 4]``, the top's four-momentum, or zeros.
    """

    momenta: Array
    labels: Array
    truth: Array

    def __len__(self) -> int:
        return len(self.labels)


class Digest:
    """SHA-256 of the first thousand jets: of each the four-momenta as stored, then its class as a byte."""

    def __init__(self) -> None:
        self.seen = 0
        self._hash = hashlib.sha256()

    def add(self, jets: Jets) -> None:
        for momenta, label in zip(jets.momenta[: HASHED - self.seen], jets.labels):
            self._hash.update(np.ascontiguousarray(momenta, dtype="<f4").tobytes())
            self._hash.update(bytes([int(label)]))
            self.seen += 1

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def write(path: Path, card: Card, split: str, count: int, record: dict[str, Any], blocks: Iterable[Jets]) -> str:
    """Writes the first `count` jets of `blocks`, beside the place and then into it, so that no half of a file is ever there.

    Returns:
        the hash of the first thousand jets, which the record gets, too.
    """
    h5py = need("h5py", PURPOSE)
    beside = path.with_name(f".{path.name}.partial")
    names = columns(card.particles)
    row = np.dtype([("index", "<i8"), ("values_block_0", "<f4", (len(names),)), ("values_block_1", "<i8", (2,))])
    digest = Digest()
    try:
        with h5py.File(beside, "w", libver="earliest") as file:
            # Deflate and the shuffle of bytes are built into every HDF5.
            table = file.create_group("table").create_dataset(
                "table", (count,), row, chunks=(min(CHUNK, count),), maxshape=(None,), compression=LEVEL, shuffle=True
            )
            _describe(h5py, file, names, count)
            start = 0
            for jets in _rows(blocks, count):
                digest.add(jets)
                rows = np.zeros(len(jets), dtype=row)
                rows["index"] = np.arange(start, start + len(jets))
                rows["values_block_0"][:, :-4] = jets.momenta.reshape(len(jets), -1)
                rows["values_block_0"][:, -4:] = jets.truth
                rows["values_block_1"][:, 0] = TTV[split]
                rows["values_block_1"][:, 1] = jets.labels
                table[start : start + len(jets)] = rows
                start += len(jets)
            if start != count:
                raise DataSetError(f"jets: {start} jets for {path}, expected {count}")
            file.attrs[RECORD] = np.bytes_(written({**record, "sha256": digest.hexdigest(), "hashed": digest.seen}))
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
        sync(path.parent)
    finally:
        beside.unlink(missing_ok=True)
    return digest.hexdigest()


def sync(folder: Path) -> None:
    """Makes the renaming of files in a folder last, where folders can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _rows(blocks: Iterable[Jets], count: int) -> Iterator[Jets]:
    """The first `count` jets, in groups that fill chunks, so that each is compressed once, whatever the blocks are."""
    waiting: Optional[Jets] = None
    for jets in blocks:
        if waiting is not None:
            parts = ((waiting.momenta, jets.momenta), (waiting.labels, jets.labels), (waiting.truth, jets.truth))
            jets = Jets(*(np.concatenate(pair) for pair in parts))
        jets = Jets(jets.momenta[:count], jets.labels[:count], jets.truth[:count])
        full = len(jets) if len(jets) == count else len(jets) // CHUNK * CHUNK
        if full:
            yield Jets(jets.momenta[:full], jets.labels[:full], jets.truth[:full])
            count -= full
        if count == 0:
            return
        waiting = Jets(jets.momenta[full:], jets.labels[full:], jets.truth[full:])
    if waiting is not None and len(waiting):
        yield waiting


def _pickled(strings: Iterable[str]) -> bytes:
    """A list of strings in the text protocol of pickles, as PyTables stores it."""
    items = "".join(f"V{string}\np{index}\na" for index, string in enumerate(strings, 1))
    return f"(lp0\n{items}.".encode()


def _describe(h5py: Any, file: Any, names: list[str], count: int) -> None:
    """The attributes by which PyTables and pandas know their own."""
    both = ["ttv", CLASS]

    def attributes(target: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            # PyTables tells text from pickles by the character set.
            if isinstance(value, str):
                kind = h5py.string_dtype("utf-8", max(len(value), 1))
                target.attrs.create(name, value.encode() if value else h5py.Empty(kind), dtype=kind)
            else:
                target.attrs[name] = value

    group = {"CLASS": "GROUP", "TITLE": "", "VERSION": "1.0"}
    attributes(file, {**group, "PYTABLES_FORMAT_VERSION": "2.1"})
    every = b"".join(b"V" + name.encode() + b"\np%d\na" % index for index, name in enumerate([*names, *both], 2))
    attributes(
        file["table"],
        {
            **group,
            "pandas_type": "frame_table",
            "pandas_version": "0.15.2",
            "table_type": "appendable_frame",
            "encoding": "UTF-8",
            "errors": "strict",
            "levels": np.int64(1),
            "nan_rep": np.bytes_(b"N."),
            "data_columns": np.bytes_(b"(lp0\n."),
            "index_cols": np.bytes_(b"(lp0\n(I0\nVindex\np1\ntp2\na."),
            "values_cols": np.bytes_(_pickled(["values_block_0", "values_block_1"])),
            "non_index_axes": np.bytes_(b"(lp0\n(I1\n(lp1\n" + every + b"tp%d\na." % (len(names) + 4)),
            "info": np.bytes_(b"(dp0\nI1\n(dp1\nVnames\np2\n(lp3\nNasVtype\np4\nVIndex\np5\nssVindex\np6\n(dp7\ns."),
        },
    )
    attributes(
        file[TABLE],
        {
            "CLASS": "TABLE",
            "TITLE": "",
            "VERSION": "2.7",
            "FIELD_0_NAME": "index",
            "FIELD_1_NAME": "values_block_0",
            "FIELD_2_NAME": "values_block_1",
            "FIELD_0_FILL": np.int64(0),
            "FIELD_1_FILL": np.float32(0),
            "FIELD_2_FILL": np.int64(0),
            "NROWS": np.int64(count),
            "index_kind": "integer",
            "values_block_0_dtype": "float32",
            "values_block_0_kind": np.bytes_(_pickled(names)),
            "values_block_0_meta": np.bytes_(b"N."),
            "values_block_1_dtype": "int64",
            "values_block_1_kind": np.bytes_(_pickled(both)),
            "values_block_1_meta": np.bytes_(b"N."),
        },
    )


class File:
    """A file of jets, open for reading: one of ours, or one that pandas wrote with the same columns in two blocks."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        h5py = need("h5py", PURPOSE)
        if not self.path.is_file():
            raise DataSetError(f"jets: there is no file {self.path}")
        try:
            self._file = h5py.File(self.path, "r")
        except OSError as error:
            raise DataSetError(f"jets: {self.path} is no HDF5 file, or is cut short: {error}") from error
        try:
            self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> None:
        record = self._file.attrs.get(RECORD)
        # What made the jets; None for files of others.
        self.record: Optional[dict[str, Any]] = None
        if record is not None:
            try:
                self.record = json.loads(bytes(record))
            except ValueError as error:
                raise self._unusable(f"its record is damaged: {error}") from error
        table = self._file.get(TABLE)
        if table is None or getattr(table, "dtype", None) is None or not table.dtype.names:
            raise self._unusable(f"it holds no table {TABLE}")
        self._table = table
        self._places: dict[str, tuple[str, int]] = {}
        for member in table.dtype.names:
            kind = table.attrs.get(f"{member}_kind", b"")
            names = _strings(kind.encode() if isinstance(kind, str) else bytes(kind))
            several = bool(table.dtype[member].shape)
            for place, name in enumerate(names if names is not None else [member]):
                self._places[name] = (member, place if several else -1)
        self.particles = 0
        while f"E_{self.particles}" in self._places:
            self.particles += 1
        wanted = [*columns(self.particles)[:-4], CLASS]
        absent = [name for name in wanted if name not in self._places]
        if self.particles == 0 or absent:
            raise self._unusable(f"its table has no column {absent[0] if absent else 'E_0'}")

    def _unusable(self, reason: str) -> DataSetError:
        return DataSetError(f"jets: {self.path} cannot be used: {reason}")

    def __len__(self) -> int:
        return int(self._table.shape[0])

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, start: int, stop: int) -> Jets:
        """The jets of these rows."""
        try:
            rows = self._table[start:stop]
        except OSError as error:
            raise self._unusable(f"rows {start} to {stop} cannot be read: {error}") from error

        def column(name: str) -> Array:
            member, place = self._places[name]
            return rows[member] if place < 0 else rows[member][:, place]

        def several(names: list[str]) -> Array:
            member, first = self._places[names[0]]
            # As they mostly lie; one at a time takes longer.
            if first >= 0 and [self._places[name] for name in names] == [
                (member, first + i) for i in range(len(names))
            ]:
                return rows[member][:, first : first + len(names)]
            return np.stack([column(name) for name in names], axis=1)

        momenta = several(columns(self.particles)[:-4])
        truth = several(list(TRUTH)) if TRUTH[0] in self._places else np.zeros((len(rows), 4), dtype="<f4")
        return Jets(momenta.reshape(len(rows), self.particles, 4), column(CLASS), truth)

    def blocks(self, limit: Optional[int] = None) -> Iterator[tuple[int, Jets]]:
        """The jets of the file from the first on, some at a time, with the number of the first of them."""
        end = len(self) if limit is None else min(limit, len(self))
        for start in range(0, end, 4 * CHUNK):
            yield start, self.read(start, min(start + 4 * CHUNK, end))


def _strings(pickle: bytes) -> Optional[list[str]]:
    """The strings of a list in the text protocol, of Python 2 or 3; None for anything else. Nothing is unpickled."""
    try:
        text = pickle.decode().rstrip("\0")
    except UnicodeDecodeError:
        return None
    if not (text.startswith("(l") and text.endswith(".")):
        return None
    strings = []
    for line in text[:-1].split("\n"):
        # APPEND stands before the next opcode.
        line = line.lstrip("a")
        if line.startswith("V"):
            strings.append(line[1:])
        elif line.startswith("S") and len(line) >= 3:
            strings.append(line[2:-1])
    return strings


def record_of(
    card: Card, split: str, count: int, versions: dict[str, str], settings: dict[str, list[str]]
) -> dict[str, Any]:
    """What a file says about how its jets were made, but for their hash."""
    assert split in SPLITS
    return {
        "format": 1,
        "card": card.as_dict(),
        "split": split,
        "jets": count,
        "classes": list(card.classes()),
        "versions": versions,
        "settings": settings,
    }
