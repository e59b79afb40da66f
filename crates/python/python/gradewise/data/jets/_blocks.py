"""Blocks of jets: drawn one at a time by any process, kept in files of their own until all are there."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Optional

import numpy as np

from gradewise._errors import DataSetError
from gradewise.data.jets._card import Card, differences, written
from gradewise.data.jets._file import Jets
from gradewise.data.jets._select import Generator, selected

# The folder beside the files of a data set in which blocks wait.
FOLDER = "blocks"
# Bytes of the hash that ends a block.
DIGEST = 32


def path_of(folder: Path, split: str, block: int) -> Path:
    return folder / FOLDER / f"{split}-{block:05d}.block"


def remove(folder: Path, patterns: Iterable[str]) -> None:
    """Removes files among the blocks by their names."""
    for pattern in patterns:
        for path in (folder / FOLDER).glob(pattern):
            path.unlink(missing_ok=True)


def draw(
    generator: Generator, card: Card, split: str, block: int, tell: Callable[[int], None] = lambda _: None
) -> tuple[list[Any], dict[str, dict[str, int]]]:
    """The jets of a block in their order, and for each class how many candidates were taken, and why others were passed over.

    Args:
        tell: is called with 1 for every jet.
    """
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    labels = card.labels_of(split, block)
    sources = {
        signal: selected(card, signal, generator.candidates(signal, card.seed_of(split, signal, block)), counts[signal])
        for signal in counts
    }
    # One class after the other, so that one generator lives at a time.
    drawn: dict[bool, list[Any]] = {False: [], True: []}
    for signal, source in sources.items():
        for _ in range(labels.count(signal)):
            drawn[signal].append(next(source))
            tell(1)
        source.close()
    for jets in drawn.values():
        jets.reverse()
    names = card.classes()
    return [(label, drawn[label].pop()) for label in labels], {names[c]: dict(counts[c]) for c in counts}


def save(path: Path, jets: list[Any], about: dict[str, Any]) -> None:
    """Writes a block beside its place and then into it: arrays as NumPy zips them, then the SHA-256 of that."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        momenta=np.concatenate([jet.constituents for _, jet in jets]),
        counts=np.array([len(jet.constituents) for _, jet in jets], dtype="<u4"),
        truth=np.stack([jet.truth for _, jet in jets]),
        labels=np.array([label for label, _ in jets], dtype="u1"),
        about=np.frombuffer(written(about).encode(), dtype="u1"),
    )
    content = buffer.getvalue()
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.write(hashlib.sha256(content).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: Path, card: Card, about: dict[str, Any]) -> Optional[tuple[Jets, dict[str, Any]]]:
    """A kept block and what it says about itself; None if it is damaged, and must be drawn again.

    Raises:
        DataSetError: it is whole, but of other settings or versions.
    """
    try:
        bytes_ = path.read_bytes()
    except OSError:
        return None
    # What is not whole is not parsed: NumPy fails in many ways at damaged files.
    content, digest = bytes_[:-DIGEST], bytes_[-DIGEST:]
    if hashlib.sha256(content).digest() != digest:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        found = json.loads(file["about"].tobytes())
        momenta, counts, truth, labels = (file[name] for name in ("momenta", "counts", "truth", "labels"))
    for part in ("card", "versions"):
        differing = differences(found.get(part, {}), about[part])
        if differing:
            raise DataSetError(
                f"jets: {path} was drawn with other {'settings' if part == 'card' else 'versions'} (kept, asked for): {differing}. "
                f"Use those, take another folder, or delete {path.parent}"
            )
    padded = np.zeros((len(counts), card.particles, 4), dtype="<f4")
    padded[np.arange(card.particles) < counts[:, None]] = momenta
    return Jets(padded, labels, truth), found
