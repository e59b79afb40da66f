"""N-subjettiness: how well a jet is described by N prongs.

τ_N = Σ pT min_A ΔR(i, A) / (Σ pT R) with the exponent 1 (Thaler and Van Tilburg, arXiv:1011.2268). The axes A are those of exclusive kT with the
direction of the harder of two particles for their sum ("winner takes all"), not moved afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradewise.data.jets import _momenta as kinematics

Array = Any


def axes(transverse: Array, rapidity: Array, azimuth: Array, largest: int) -> dict[int, list[int]]:
    """For N = `largest` down to 1, the particles whose directions the axes have; fewer than N if there are fewer particles."""
    count = len(transverse)
    weight = np.array(transverse, dtype="f8")
    # The particle whose direction a cluster has.
    winner = np.arange(count)
    squared = (rapidity[:, None] - rapidity) ** 2 + kinematics.turn(azimuth[:, None] - azimuth) ** 2
    # Of clusters a and b: min(pT_a², pT_b²) ΔR².
    distances = np.minimum.outer(weight, weight) ** 2 * squared
    np.fill_diagonal(distances, np.inf)
    alive = np.ones(count, dtype=bool)
    found = {n: list(range(count)) for n in range(min(count, largest), largest + 1)} if count <= largest else {}
    for left in range(count - 1, 0, -1):
        one, other = divmod(int(distances.argmin()), count)
        if weight[other] > weight[one]:
            winner[one] = winner[other]
        weight[one] += weight[other]
        alive[other] = False
        distances[other, :] = distances[:, other] = np.inf
        row = np.minimum(weight[one], weight) ** 2 * squared[winner[one], winner]
        row[~alive] = np.inf
        row[one] = np.inf
        distances[one, :] = distances[:, one] = row
        if left <= largest:
            found[left] = [int(winner[index]) for index in np.flatnonzero(alive)]
    return found


def tau(momenta: Array, radius: float, largest: int = 3) -> Array:
    """τ_1 to τ_largest ``[largest]`` of a jet ``[particles, 4]``; rows without transverse momentum are padding."""
    momenta = np.asarray(momenta, dtype="f8")
    transverse = kinematics.pt(momenta)
    momenta, transverse = momenta[transverse > 0], transverse[transverse > 0]
    if len(momenta) == 0:
        return np.zeros(largest)
    rapidity, azimuth = kinematics.rapidity(momenta), kinematics.phi(momenta)
    found = axes(transverse, rapidity, azimuth, largest)
    values = []
    for n in range(1, largest + 1):
        directions = found[n]
        separations = np.hypot(
            rapidity[:, None] - rapidity[directions], kinematics.turn(azimuth[:, None] - azimuth[directions])
        )
        values.append((transverse * separations.min(axis=1)).sum() / (transverse.sum() * radius))
    return np.array(values)
