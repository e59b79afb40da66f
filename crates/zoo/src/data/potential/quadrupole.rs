//! A potential that models of distances and vectors alone cannot express: neighbours induce a quadrupole and a dipole at each particle.

use super::pairs::{add_at, difference, dot, scaled};

/// Beyond this distance particles do not interact.
pub(super) const CUTOFF: f64 = 3.0;
/// Strength of the repulsion r⁻⁶.
const REPULSION: f64 = 0.05;
/// Coefficients of Q:Q, tr Q³ and pᵀQp.
const QUADRATIC: f64 = 1.0;
const CUBIC: f64 = 1.5;
const MIXED: f64 = 0.8;

/// A pair from the side of one particle: unit vector to the other particle, weight w(r) and w'(r), repulsion φ(r) and φ'(r).
struct Pair {
    other: usize,
    distance: f64,
    n: [f64; 3],
    weight: [f64; 2],
    repulsion: [f64; 2],
}

/// The energy of a system at `points`, and its forces.
///
/// With g(r) = (1 − r²/9)³, w = e⁻ʳg and φ = r⁻⁶g below r = 3: Q_i = Σ_j w (n⊗n − I/3), p_i = Σ_j w n,
/// E = 0.05 Σ_{i<j} φ + Σ_i (½ Q:Q + ½ tr Q³ + 0.4 pᵀQp).
pub(super) fn quadrupole(points: &[[f64; 3]]) -> (f64, Vec<[f64; 3]>) {
    let (mut energy, mut forces) = (0.0, vec![[0.0; 3]; points.len()]);
    for (i, &point) in points.iter().enumerate() {
        let pairs: Vec<Pair> = (0..points.len())
            .filter(|&j| j != i)
            .filter_map(|j| pair(j, difference(points[j], point)))
            .collect();
        let (mut q, mut p) = ([[0.0; 3]; 3], [0.0; 3]);
        for Pair { n, weight: [w, _], repulsion: [repulsion, _], .. } in &pairs {
            for (a, row) in q.iter_mut().enumerate() {
                for (b, entry) in row.iter_mut().enumerate() {
                    *entry += w * (n[a] * n[b] - if a == b { 1.0 / 3.0 } else { 0.0 });
                }
                p[a] += w * n[a];
            }
            // Half, because the pair is counted from both of its particles.
            energy += 0.5 * REPULSION * repulsion;
        }
        let square: [[f64; 3]; 3] =
            std::array::from_fn(|a| std::array::from_fn(|b| (0..3).map(|k| q[a][k] * q[k][b]).sum()));
        let squared: f64 = (0..3).map(|a| square[a][a]).sum();
        let cube: f64 = (0..9).map(|k| square[k / 3][k % 3] * q[k / 3][k % 3]).sum();
        let image = q.map(|row| dot(row, p));
        energy += 0.5 * QUADRATIC * squared + CUBIC / 3.0 * cube + 0.5 * MIXED * dot(p, image);
        // Derivatives of the energy of this particle with respect to Q (traceless) and to p.
        let g: [[f64; 3]; 3] = std::array::from_fn(|a| {
            std::array::from_fn(|b| {
                let trace = if a == b { 1.0 / 3.0 } else { 0.0 };
                QUADRATIC * q[a][b]
                    + CUBIC * (square[a][b] - trace * squared)
                    + 0.5 * MIXED * (p[a] * p[b] - trace * dot(p, p))
            })
        });
        let h = scaled(MIXED, image);
        for Pair { other, distance, n, weight: [w, slope], repulsion: [_, steep] } in pairs {
            let gn = g.map(|row| dot(row, n));
            let (ngn, nh) = (dot(n, gn), dot(n, h));
            let along = slope * (ngn + nh) + 0.5 * REPULSION * steep;
            let derivative: [f64; 3] = std::array::from_fn(|a| {
                along * n[a] + 2.0 * w / distance * (gn[a] - ngn * n[a]) + w / distance * (h[a] - nh * n[a])
            });
            add_at(&mut forces, i, derivative);
            add_at(&mut forces, other, scaled(-1.0, derivative));
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
    let inside = 1.0 - square / (CUTOFF * CUTOFF);
    let (g, g_slope) = (inside.powi(3), -6.0 * inside * inside * distance / (CUTOFF * CUTOFF));
    let (decay, power) = ((-distance).exp(), distance.powi(-6));
    Some(Pair {
        other,
        distance,
        n: scaled(distance.recip(), difference),
        weight: [decay * g, decay * (g_slope - g)],
        repulsion: [power * g, power * (g_slope - 6.0 * g / distance)],
    })
}
