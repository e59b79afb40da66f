"""Four-momenta (E, px, py, pz) along the last axis, in GeV."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def pt(momenta: Array) -> Array:
    return np.sqrt(momenta[..., 1] ** 2 + momenta[..., 2] ** 2)


def eta(momenta: Array) -> Array:
    """Pseudorapidity; 0 for what stands still."""
    transverse = pt(momenta)
    return np.arcsinh(np.divide(momenta[..., 3], transverse, out=np.zeros_like(transverse), where=transverse > 0))


def rapidity(momenta: Array) -> Array:
    """Rapidity, from the transverse mass, which loses no digits at large momenta; 0 for what stands still."""
    # The mass is lost in single precision for most constituents; that of a pion or a photon makes no difference here.
    squared = np.maximum(momenta[..., 0] ** 2 - (momenta[..., 1:] ** 2).sum(axis=-1), 0.0)
    transverse = np.sqrt(squared + momenta[..., 1] ** 2 + momenta[..., 2] ** 2)
    return np.arcsinh(np.divide(momenta[..., 3], transverse, out=np.zeros_like(transverse), where=transverse > 0))


def phi(momenta: Array) -> Array:
    return np.arctan2(momenta[..., 2], momenta[..., 1])


def mass(momenta: Array) -> Array:
    """Mass; 0 where rounding makes its square negative."""
    return np.sqrt(np.maximum(momenta[..., 0] ** 2 - (momenta[..., 1:] ** 2).sum(axis=-1), 0.0))


def turn(angle: Array) -> Array:
    """An angle between -π and π."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def distance(one: Array, other: Array) -> Array:
    """ΔR in pseudorapidity and azimuth."""
    return np.hypot(eta(one) - eta(other), turn(phi(one) - phi(other)))


def rounded(momenta: Array) -> Array:
    """Single precision, with energies rounded up where they would come out below the length of the momentum.

    A pion of 300 GeV has less mass than the last digit of its energy. Rounded to the nearest, half of such four-momenta are spacelike.
    """
    single = momenta.astype("<f4")
    wide = single.astype("f8")
    below = wide[..., 0] ** 2 < (wide[..., 1:] ** 2).sum(axis=-1)
    while below.any():
        single[..., 0] = np.where(below, np.nextafter(single[..., 0], np.float32(np.inf)), single[..., 0])
        wide = single.astype("f8")
        below = wide[..., 0] ** 2 < (wide[..., 1:] ** 2).sum(axis=-1)
    return single
