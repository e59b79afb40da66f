"""Fits the two polynomials of the f32 error function (crates/kernels/src/simd/math.rs). Needs NumPy and SciPy.

erf(x) = x·p(x²) for |x| ≤ 1 and sign(x)·(1 − exp(−q(|x|))) up to 4, beyond which erf rounds to ±1. Both are minimax
fits in the error that matters (relative for p, absolute for the resulting erf), by Lawson's reweighting.
"""
import numpy as np
from scipy.special import erf, erfc


def lawson(f, weight, low, high, degree, rounds=60):
    x = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(np.pi * (np.arange(4000) + 0.5) / 4000)
    y, scale, powers = f(x), weight(x), np.vander(x, degree + 1, increasing=True)
    lawson_weight = np.ones_like(x)
    for _ in range(rounds):
        s = np.sqrt(lawson_weight) * scale
        coefficients = np.linalg.lstsq(powers * s[:, None], y * s, rcond=None)[0]
        error = np.abs((powers @ coefficients - y) * scale)
        lawson_weight *= (error / error.max()) ** 0.7 + 1e-12
        lawson_weight /= lawson_weight.sum()
    return coefficients, error.max()


small = lambda t: erf(np.sqrt(t)) / np.sqrt(t)
for name, (c, e) in {
    "p": lawson(small, lambda t: 1 / small(t), 1e-12, 1.0, 6),
    "q": lawson(lambda x: -np.log(erfc(x)), erfc, 0.95, 4.0, 7),
}.items():
    print(name, f"error {e:.1e}", [float(f"{v:.9g}") for v in c])
