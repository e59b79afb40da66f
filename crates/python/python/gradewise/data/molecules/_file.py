"""Files of frames, which ``gradewise train potential`` reads."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any, Union

import numpy as np

from gradewise._errors import ArgumentError
from gradewise.data.molecules._draw import Frames

# Symbols of the elements that the systems have.
SYMBOLS = {1: "H", 6: "C", 7: "N", 8: "O", 29: "Cu"}


def write(frames: Frames, path: Union[str, "os.PathLike[str]"], single: bool = False) -> None:
    """Writes frames beside their place, and then into it: extended XYZ (``.xyz``, ``.extxyz``) or, of molecules, the arrays of MD22
    (``.npz``: ``z``, ``R``, ``E``, ``F``, in eV and Å; read them with ``data.energy_unit=eV``).

    Args:
        frames: what :func:`draw` returned.
        path: the file; it is replaced if it is there.
        single: positions and forces of ``.npz`` in single precision.

    Raises:
        ArgumentError: another ending; a crystal as ``.npz``, which has no place for its cell.
        OSError: it cannot be written.
    """
    path = Path(path)
    if path.suffix in (".xyz", ".extxyz"):
        content = _text(frames).encode()
    elif path.suffix == ".npz" and frames.cell is None:
        content = _archive(frames, np.dtype("<f4" if single else "<f8"))
    elif path.suffix == ".npz":
        raise ArgumentError(f"molecules: {path}: .npz has no place for a cell; write .xyz")
    else:
        raise ArgumentError(f"molecules: {path}: the name must end in .xyz, .extxyz or .npz")
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _archive(frames: Frames, dtype: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        z=frames.numbers.astype("u1"),
        R=frames.positions.astype(dtype),
        E=frames.energies.astype("<f8"),
        F=frames.forces.astype(dtype),
        about=np.frombuffer(json.dumps(frames.about).encode(), dtype="u1"),
    )
    return buffer.getvalue()


def _text(frames: Frames) -> str:
    def row(values: Any) -> str:
        return " ".join(repr(float(x)) for x in np.ravel(values))

    lines = []
    for at, (positions, energy, forces) in enumerate(zip(frames.positions, frames.energies, frames.forces)):
        lines.append(str(len(frames.numbers)))
        words = ["Properties=species:S:1:pos:R:3:forces:R:3", f"energy={float(energy)!r}"]
        if frames.cell is not None and frames.stresses is not None:
            words = [f'Lattice="{row(frames.cell)}"', *words, f'stress="{row(frames.stresses[at])}"', 'pbc="T T T"']
        else:
            words.append('pbc="F F F"')
        lines.append(" ".join(words))
        lines += [
            f"{SYMBOLS[int(number)]} {row(position)} {row(force)}"
            for number, position, force in zip(frames.numbers, positions, forces)
        ]
    return "\n".join(lines) + "\n"
