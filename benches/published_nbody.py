"""How far the simulator's frames are from those of the published n-body data set.

Draws all systems of the published set by NumPy's legacy generator, follows the 2,000 test systems in the order of operations of the
publication's generator (`synthetic_sim.py` of the E(n) equivariant networks: squared distances by norms and products, powers by `pow`),
all systems at once, and compares frames 30 and 40 with those that `gradewise train nbody` has put into its cache.

    GRADEWISE_DATA_CACHE=cache gradewise train nbody data.test=2000 train.steps=1
    python benches/published_nbody.py cache

Takes some minutes. Products of matrices differ in their last bit between builds of NumPy, which near-collisions amplify.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

PARTICLES, STEP, EVERY, FRAMES, SAVED = 5, 0.001, 100, (30, 40), 49
FARTHEST = 0.1 / STEP


def draw(count):
    """Charges, positions and velocities, in the order of the generator, which draws the noise of every frame even where it has no size."""
    charges, loc, vel = (np.zeros((count, *shape)) for shape in ((PARTICLES, 1), (3, PARTICLES), (3, PARTICLES)))
    for system in range(count):
        charges[system] = np.random.choice(np.array([-1.0, 0.0, 1.0]), size=(PARTICLES, 1), p=[0.5, 0, 0.5])
        loc[system] = np.random.randn(3, PARTICLES)
        velocity = np.random.randn(3, PARTICLES)
        vel[system] = velocity * 0.5 / np.sqrt((velocity**2).sum(axis=0)).reshape(1, -1)
        np.random.randn(2, SAVED, 3, PARTICLES)
    return charges, loc, vel


def follow(charges, loc, vel):
    """Positions and velocities at each of the frames, and the smallest distance of any two particles."""
    edges = np.matmul(charges, charges.transpose(0, 2, 1))
    itself = np.arange(PARTICLES)
    nearest = np.full(len(loc), np.inf)

    def force():
        turned = loc.transpose(0, 2, 1)
        norms = (turned**2).sum(axis=2)
        squared = norms[:, :, None] + norms[:, None, :] - 2 * np.matmul(turned, loc)
        with np.errstate(divide="ignore", invalid="ignore"):
            sizes = edges / np.power(squared, 3.0 / 2.0)
        sizes[:, itself, itself] = 0
        squared[:, itself, itself] = np.inf
        np.minimum(nearest, squared.min(axis=(1, 2)), out=nearest)
        total = (sizes[:, None] * (loc[:, :, :, None] - loc[:, :, None, :])).sum(axis=-1)
        return np.clip(total, -FARTHEST, FARTHEST)

    found = {}
    vel += STEP * force()
    for step in range(1, (max(FRAMES) + 1) * EVERY + 1):
        loc += STEP * vel
        if step % EVERY == 0 and step // EVERY - 1 in FRAMES:
            found[step // EVERY - 1] = (loc.copy(), vel.copy())
        vel += STEP * force()
    return found, np.sqrt(nearest)


def tensors(path):
    """The tensors of a safetensors file of f64, and its metadata."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length :]
    return {name: np.frombuffer(body[slice(*at["data_offsets"])], "<f8") for name, at in header.items()}, metadata


def main():
    cached = [tensors(path) for path in sorted(Path(sys.argv[1]).glob("nbody-*.safetensors"))]
    ours = next(found for found, metadata in cached if "seed 43, test, 2000 systems" in metadata.get("made_from", ""))
    np.random.seed(43)
    draw(10_000), draw(2_000)
    charges, loc, vel = draw(2_000)
    found, nearest = follow(charges, loc, vel)
    for name, theirs in (("loc", found[30][0]), ("vel", found[30][1]), ("target", found[40][0])):
        apart = np.abs(ours[name].reshape(theirs.shape) - theirs).reshape(len(theirs), -1).max(axis=1)
        far = apart > 1e-6
        print(
            f"{name:6}  median {np.median(apart):.1e}  beyond 1e-9 {np.sum(apart > 1e-9)}  beyond 1e-6 {np.sum(far)}"
            f"  of which the farthest approach is {nearest[far].max():.3f}"
        )


if __name__ == "__main__":
    main()
