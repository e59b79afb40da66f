//! Potentials in closed form, their forces, and snapshots of their motion, to learn force fields from.
//!
//! Charged particles bound by springs: V = Σ_{i<j} ( q_i q_j / √(r_ij² + ε²) + ½ k r_ij² ) for particles of mass 1, in dimensionless units:
//! Plummer-softened charges, held together by springs. It is smooth everywhere, bounds the motion, and depends only on distances and
//! charges.
//!
//! [`Potential`] has two more that depend on directions: one of quadrupoles, and that of Stillinger and Weber.

mod dynamics;
mod kind;
mod langevin;
mod pairs;
mod quadrupole;
mod sets;
mod stillinger_weber;

pub use dynamics::{Motion, velocity_verlet};
pub use kind::Potential;
pub use langevin::MOST_PARTICLES;
pub use sets::{ForceData, ForceExample, turned};

/// ε of the potential.
pub const SOFTENING: f64 = 0.5;
/// k of the potential.
pub const SPRING: f64 = 0.2;

/// Energies `[systems]` and forces `[systems, 3, particles]` of charges bound by springs, at positions `[systems, 3, particles]` with
/// charges `[systems, particles]`, all row-major.
pub fn potential(particles: usize, loc: &[f64], charges: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (particles, width) = (particles.max(1), 3 * particles.max(1));
    debug_assert_eq!(loc.len(), 3 * charges.len());
    let mut forces = vec![0.0; loc.len()];
    let mut energies = Vec::with_capacity(charges.len() / particles);
    let systems = loc.chunks_exact(width).zip(charges.chunks_exact(particles));
    for ((loc, charges), forces) in systems.zip(forces.chunks_exact_mut(width)) {
        let mut energy = 0.0;
        for i in 0..particles {
            for j in 0..i {
                let difference: [f64; 3] =
                    std::array::from_fn(|axis| loc[axis * particles + i] - loc[axis * particles + j]);
                let square: f64 = difference.iter().map(|d| d * d).sum();
                let inverse = (square + SOFTENING * SOFTENING).sqrt().recip();
                let product = charges[i] * charges[j];
                energy += product * inverse + 0.5 * SPRING * square;
                let slope = product * inverse.powi(3) - SPRING;
                for (axis, difference) in difference.into_iter().enumerate() {
                    forces[axis * particles + i] += slope * difference;
                    forces[axis * particles + j] -= slope * difference;
                }
            }
        }
        energies.push(energy);
    }
    (energies, forces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    #[test]
    fn forces_are_minus_the_slope_of_the_energy_and_cancel() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut loc: Vec<f64> = (0..2 * 3 * 4).map(|_| StandardNormal.sample(&mut rng)).collect();
        let charges = [1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 0.5];
        let (_, forces) = potential(4, &loc, &charges);
        for index in 0..loc.len() {
            let old = loc[index];
            let mut at = |x: f64| {
                loc[index] = x;
                potential(4, &loc, &charges).0.iter().sum::<f64>()
            };
            let slope = (at(old + 1e-5) - at(old - 1e-5)) / 2e-5;
            at(old);
            assert!((slope + forces[index]).abs() < 1e-8, "{slope} {}", forces[index]);
        }
        for line in forces.chunks_exact(4) {
            assert!(line.iter().sum::<f64>().abs() < 1e-12, "no force of a system on itself");
        }
    }
}
