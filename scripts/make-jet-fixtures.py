#!/usr/bin/env python3
"""Writes crates/zoo/tests/data/jets: small HDF5 files as pandas, PyTables and h5py write them.

    pip install pandas tables h5py && scripts/make-jet-fixtures.py

The numbers follow formulas that crates/zoo/src/data/jets/files.rs and crates/zoo/src/data/hdf5/tests.rs repeat.
"""

import pathlib

import h5py
import numpy as np
import pandas as pd
import tables

FOLDER = pathlib.Path(__file__).parent.parent / "crates/zoo/tests/data/jets"
JETS = 24


def momenta(stored):
    """[jets, stored, 4] with 3 to 12 particles of falling transverse momentum, then zeros; and the labels."""
    jets = np.zeros((JETS, stored, 4))
    for jet in range(JETS):
        for particle in range(min(3 + jet % 10, stored)):
            px, py, pz = 64 - 4 * particle + jet, particle % 3 - 1, particle - jet / 2
            jets[jet, particle] = np.sqrt(px**2 + py**2 + pz**2 + 0.02), px, py, pz
    return jets.astype("f4"), np.array([7 * jet % 3 == 0 for jet in range(JETS)], dtype="i8")


def frame(stored):
    """The columns of the published top-tagging files."""
    jets, labels = momenta(stored)
    names = [f"{part}_{particle}" for particle in range(stored) for part in ("E", "PX", "PY", "PZ")]
    data = pd.DataFrame(jets.reshape(JETS, -1), columns=names)
    truth = pd.DataFrame(np.zeros((JETS, 4), dtype="f4"), columns=["truthE", "truthPX", "truthPY", "truthPZ"])
    last = pd.DataFrame({"ttv": np.zeros(JETS, dtype="i8"), "is_signal_new": labels})
    return pd.concat([data, truth, last], axis=1)


def table(name, stored, **options):
    frame(stored).to_hdf(FOLDER / name, key="table", mode="w", format="table", **options)


def arrays(name, dtype, chunks=None, **options):
    """The arrays of files prepared for LorentzNet, particles in reverse and two beams before them."""
    jets, labels = momenta(12)
    stored = np.zeros((JETS, 14, 4), dtype=dtype)
    stored[:, :2] = [[1.4142135, 0, 0, 1], [1.4142135, 0, 0, -1]]
    stored[:, 2:] = jets[:, ::-1]
    with h5py.File(FOLDER / name, "w") as file:
        file.create_dataset("Pmu", data=stored, chunks=chunks, **options)
        file.create_dataset("is_signal", data=labels.astype("u1"), **options)
        file.create_dataset("Nobj", data=(jets[..., 0] > 0).sum(axis=1))


def codecs():
    """Every compressor over element sizes, lengths and blocks: values i² mod 251, and noise that does not shrink."""
    noise = np.random.default_rng(0).integers(0, 256, 5000).astype("u1")
    with tables.open_file(FOLDER / "codecs.h5", "w") as file:
        for codec in ("blosclz", "lz4", "zlib", "zstd"):
            for dtype in ("i2", "f4", "f8"):
                for mode in ("plain", "shuffle", "bits"):
                    filters = tables.Filters(
                        complevel=5, complib=f"blosc:{codec}", shuffle=mode == "shuffle", bitshuffle=mode == "bits"
                    )
                    values = (np.arange(20_001, dtype="i8") ** 2 % 251).astype(dtype)
                    file.create_carray("/", f"{codec}_{dtype}_{mode}", obj=values, filters=filters, chunkshape=(9_000,))
        filters = tables.Filters(complevel=1, complib="blosc", shuffle=True)
        # Several blocks to a chunk, the last of them shorter.
        for dtype in ("i2", "f4"):
            values = (np.arange(90_001, dtype="i8") ** 2 % 251).astype(dtype)
            file.create_carray("/", f"blocks_{dtype}", obj=values, filters=filters, chunkshape=(90_000,))
        file.create_carray("/", "noise", obj=noise, filters=filters, chunkshape=(5000,))
        file.create_carray("/", "noise_deflated", obj=noise, chunkshape=(5000,), filters=tables.Filters(5, "zlib"))


FOLDER.mkdir(parents=True, exist_ok=True)
table("published.h5", 200, complib="blosc", complevel=5)
table("columns.h5", 12, complib="zlib", complevel=5, data_columns=["is_signal_new"])
table("bzip2.h5", 3, complib="bzip2", complevel=5)
frame(3).to_hdf(FOLDER / "fixed.h5", key="table", mode="w", format="fixed")
arrays("arrays.h5", "f8", chunks=(10, 5, 4), compression="gzip", shuffle=True)
arrays("contiguous.h5", "f4")
codecs()
