//! The potentials that a force field can be learned from.

use super::{quadrupole::quadrupole, stillinger_weber::stillinger_weber};

gradewise_nn::choices! {
    /// A potential in closed form.
    pub enum Potential {
        /// Charges ±1 bound by springs: distances alone decide
        Charges = "charges",
        /// A quadrupole and a dipole at each particle, made by its neighbours: tensors of rank 2 decide
        Quadrupole = "quadrupole",
        /// Stillinger and Weber's potential of silicon: angles between neighbours decide
        StillingerWeber = "stillinger-weber",
    }
}

impl Potential {
    /// Energies `[systems]` and forces `[systems, 3, particles]` at positions `[systems, 3, particles]` with charges
    /// `[systems, particles]`, which the last two potentials ignore, all row-major.
    pub fn evaluate(self, particles: usize, loc: &[f64], charges: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let of_points = match self {
            Self::Charges => return super::potential(particles, loc, charges),
            Self::Quadrupole => quadrupole,
            Self::StillingerWeber => stillinger_weber,
        };
        let particles = particles.max(1);
        debug_assert_eq!(loc.len(), 3 * charges.len());
        let mut forces = vec![0.0; loc.len()];
        let mut energies = Vec::with_capacity(charges.len() / particles);
        for (loc, forces) in loc.chunks_exact(3 * particles).zip(forces.chunks_exact_mut(3 * particles)) {
            let points: Vec<[f64; 3]> =
                (0..particles).map(|i| [loc[i], loc[particles + i], loc[2 * particles + i]]).collect();
            let (energy, found) = of_points(&points);
            for (i, force) in found.into_iter().enumerate() {
                for (axis, x) in force.into_iter().enumerate() {
                    forces[axis * particles + i] = x;
                }
            }
            energies.push(energy);
        }
        (energies, forces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_nn::choice::Choice;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    /// Five points, axis by axis.
    const POINTS: [f64; 15] = [0.0, 1.1, 0.0, 0.2, -0.9, 0.0, 0.0, 1.2, 0.1, 0.5, 0.0, 0.0, 0.1, 1.3, -0.4];

    /// Values from a NumPy implementation, whose forces agree with finite differences of its energy.
    #[test]
    fn five_points_have_the_energies_and_forces_of_another_implementation() {
        let cases = [
            (
                Potential::Quadrupole,
                0.197_106_482_802,
                vec![
                    (0, [-0.066_669_4, -0.373_644_5, 0.031_930_59]),
                    (4, [-0.321_613_27, 0.109_592_93, -0.164_513_57]),
                ],
            ),
            (
                Potential::StillingerWeber,
                -3.380_526_513_3,
                vec![(0, [1.076_572_03, -1.747_174_09, 3.169_808_48])],
            ),
        ];
        for (potential, energy, known) in cases {
            let (energies, forces) = potential.evaluate(5, &POINTS, &[1.0; 5]);
            assert!((energies[0] - energy).abs() < 1e-10, "{potential}: {}", energies[0]);
            for (particle, force) in known {
                for (axis, x) in force.into_iter().enumerate() {
                    let found = forces[axis * 5 + particle];
                    assert!((found - x).abs() < 1e-8, "{potential}, {particle}: {found} {x}");
                }
            }
        }
    }

    #[test]
    fn forces_are_minus_the_slope_of_the_energy_and_neither_push_nor_turn_the_whole() {
        for &potential in Potential::ALL {
            let mut loc = POINTS;
            let charges = [1.0, -1.0, 1.0, 1.0, -1.0];
            let (_, forces) = potential.evaluate(5, &loc, &charges);
            let size = forces.iter().fold(0f64, |size, x| size.max(x.abs()));
            for index in 0..loc.len() {
                let old = loc[index];
                let mut at = |x: f64| {
                    loc[index] = x;
                    potential.evaluate(5, &loc, &charges).0[0]
                };
                let slope = (at(old + 1e-5) - at(old - 1e-5)) / 2e-5;
                at(old);
                assert!(
                    (slope + forces[index]).abs() < 1e-8 * size,
                    "{potential}: {slope} {}",
                    forces[index]
                );
            }
            for axis in 0..3 {
                let (a, b) = ((axis + 1) % 3, (axis + 2) % 3);
                let push: f64 = forces[axis * 5..][..5].iter().sum();
                let turn: f64 = (0..5)
                    .map(|i| loc[a * 5 + i] * forces[b * 5 + i] - loc[b * 5 + i] * forces[a * 5 + i])
                    .sum();
                assert!(push.abs().max(turn.abs()) < 1e-14 * size, "{potential}: {push:e} {turn:e}");
            }
        }
    }

    #[test]
    fn systems_are_evaluated_one_by_one_and_what_is_far_away_is_not_felt() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let far: Vec<f64> = (0..15)
            .map(|k| 100.0 * k as f64 + Distribution::<f64>::sample(&StandardNormal, &mut rng))
            .collect();
        for potential in [Potential::Quadrupole, Potential::StillingerWeber] {
            let both = [&POINTS[..], &far].concat();
            let (energies, forces) = potential.evaluate(5, &both, &[1.0; 10]);
            let (alone, own) = potential.evaluate(5, &POINTS, &[1.0; 5]);
            assert_eq!((energies[0], &forces[..15]), (alone[0], &own[..]));
            assert!(energies[1] == 0.0 && forces[15..].iter().all(|&x| x == 0.0));
            assert!(potential.evaluate(5, &[], &[]).0.is_empty());
        }
    }
}
