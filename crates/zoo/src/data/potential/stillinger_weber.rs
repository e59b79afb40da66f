//! The potential of Stillinger and Weber (1985, doi:10.1103/PhysRevB.31.5262) for silicon, in its reduced units.

use super::pairs::{add_at, difference, dot, scaled};

/// Beyond this distance particles do not interact: `a` of the publication.
const CUTOFF: f64 = 1.8;
const A: f64 = 7.049_556_277;
const B: f64 = 0.602_224_558_4;
const LAMBDA: f64 = 21.0;
const GAMMA: f64 = 1.2;

/// A pair from the side of one particle: distance, unit vector to the other particle, e^(γ/(r − a)).
struct Pair {
    other: usize,
    distance: f64,
    n: [f64; 3],
    decay: f64,
}

/// The energy of a system at `points`, and its forces.
///
/// E = Σ_{i<j} A (B r⁻⁴ − 1) e^(1/(r − a)) + λ Σ_i Σ_{j<k} (cos θ_jik + ⅓)² e^(γ/(r_ij − a) + γ/(r_ik − a)) below r = a.
pub(super) fn stillinger_weber(points: &[[f64; 3]]) -> (f64, Vec<[f64; 3]>) {
    let (mut energy, mut forces) = (0.0, vec![[0.0; 3]; points.len()]);
    for (i, &point) in points.iter().enumerate() {
        let pairs: Vec<Pair> = (0..points.len())
            .filter(|&j| j != i)
            .filter_map(|j| pair(j, difference(points[j], point)))
            .collect();
        for (first, near) in pairs.iter().enumerate() {
            if near.other > i {
                let beyond = near.distance - CUTOFF;
                let (bare, decay) = (B * near.distance.powi(-4) - 1.0, beyond.recip().exp());
                energy += A * bare * decay;
                let slope = A * decay * (-4.0 * B * near.distance.powi(-5) - bare / (beyond * beyond));
                add_at(&mut forces, i, scaled(slope, near.n));
                add_at(&mut forces, near.other, scaled(-slope, near.n));
            }
            for far in &pairs[first + 1..] {
                let cosine = dot(near.n, far.n);
                let (decay, bent) = (near.decay * far.decay, cosine + 1.0 / 3.0);
                let term = LAMBDA * bent * bent * decay;
                energy += term;
                for (own, other) in [(near, far), (far, near)] {
                    let beyond = own.distance - CUTOFF;
                    let turn = 2.0 * LAMBDA * decay * bent / own.distance;
                    let derivative: [f64; 3] = std::array::from_fn(|axis| {
                        -GAMMA / (beyond * beyond) * term * own.n[axis]
                            + turn * (other.n[axis] - cosine * own.n[axis])
                    });
                    add_at(&mut forces, i, derivative);
                    add_at(&mut forces, own.other, scaled(-1.0, derivative));
                }
            }
        }
    }
    (energy, forces)
}

fn pair(other: usize, difference: [f64; 3]) -> Option<Pair> {
    let square = dot(difference, difference);
    if square >= CUTOFF * CUTOFF {
        return None;
    }
    let distance = square.sqrt();
    let decay = (GAMMA / (distance - CUTOFF)).exp();
    Some(Pair { other, distance, n: scaled(distance.recip(), difference), decay })
}
