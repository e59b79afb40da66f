//! Charges of a simulation, drawn in the order of the published generator.

use super::field::{Charge, ELEMENTARY, LIGHT, Motion};
use crate::data::numpy::RandomState;

/// Charges in units of the elementary charge.
const CHARGES: [f64; 6] = [3.0, 2.0, 1.0, -1.0, -2.0, -3.0];
/// The speed of which all other speeds are fractions.
const TOP_SPEED: f64 = 0.5 * LIGHT;
/// Drift speed as a fraction of [`TOP_SPEED`], and the fraction of the drift that differs between charges.
const DRIFTS: f64 = 0.4;
const RELATIVE: f64 = 0.4;
/// A factor that reduces the drifts.
const SLOWED: f64 = 0.5;

/// Three or four oscillating and five to seven orbiting charges, within 0.3·`half_side` of the centre along each axis and at least
/// 0.1·`half_side` apart.
pub(super) fn charges(random: &mut RandomState, half_side: f64) -> Vec<Charge> {
    let oscillating = 3 + random.below_or_at(1) as usize;
    let orbiting = 5 + random.below_or_at(2) as usize;
    let count = oscillating + orbiting;
    let charges: Vec<f64> =
        (0..count).map(|_| CHARGES[random.below_or_at(5) as usize] * ELEMENTARY).collect();
    let mut origins: Vec<[f64; 2]> = Vec::with_capacity(count);
    while origins.len() < count {
        let drawn: [f64; 3] = std::array::from_fn(|_| 0.3 * half_side * (2.0 * random.uniform() - 1.0));
        let origin = [drawn[0], drawn[1]];
        let apart = |other: &[f64; 2]| (origin[0] - other[0]).hypot(origin[1] - other[1]);
        if origins.iter().all(|other| apart(other) >= 0.1 * half_side) {
            origins.push(origin);
        }
    }
    let common = unit_vectors(random, 1)[0].map(|x| TOP_SPEED * DRIFTS * (1.0 - RELATIVE) * x);
    let drifts: Vec<[f64; 2]> = unit_vectors(random, count)
        .into_iter()
        .map(|own| [0, 1].map(|axis| SLOWED * (common[axis] + TOP_SPEED * DRIFTS * RELATIVE * own[axis])))
        .collect();
    let directions = unit_vectors(random, oscillating);
    let mut between = |low: f64, high: f64, count: usize| -> Vec<f64> {
        (0..count).map(|_| low + (high - low) * random.uniform()).collect()
    };
    let speed = (1.0 - DRIFTS) * TOP_SPEED;
    let amplitudes = between(0.02 * half_side, 0.04 * half_side, oscillating);
    let fastest = speed / (0.04 * half_side);
    let frequencies = between(0.67 * fastest, fastest, oscillating);
    let radii = between(0.025 * half_side, 0.05 * half_side, orbiting);
    let fastest = speed / (0.05 * half_side);
    let turns = between(0.75 * fastest, fastest, orbiting);
    let motion = |index: usize| match index.checked_sub(oscillating) {
        None => Motion::Oscillating {
            direction: directions[index],
            amplitude: amplitudes[index],
            frequency: frequencies[index],
        },
        Some(orbit) => Motion::Orbiting { radius: radii[orbit], frequency: turns[orbit] },
    };
    let charge = |index: usize| Charge {
        charge: charges[index],
        origin: origins[index],
        drift: drifts[index],
        motion: motion(index),
    };
    (0..count).map(charge).collect()
}

/// Directions in the plane, from normal vectors in space whose third component is drawn and dropped.
fn unit_vectors(random: &mut RandomState, count: usize) -> Vec<[f64; 2]> {
    let mut draw = |_| {
        let [x, y, _]: [f64; 3] = std::array::from_fn(|_| random.normal());
        let length = x.hypot(y);
        [x / length, y / length]
    };
    (0..count).map(&mut draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_are_apart_and_slower_than_light() {
        let mut random = RandomState::new(7);
        for _ in 0..50 {
            let half_side = 50e-9;
            let charges = charges(&mut random, half_side);
            let orbits =
                charges.iter().filter(|charge| matches!(charge.motion, Motion::Orbiting { .. })).count();
            assert!((5..=7).contains(&orbits) && (3..=4).contains(&(charges.len() - orbits)));
            for (index, charge) in charges.iter().enumerate() {
                let apart = |other: &Charge| {
                    (charge.origin[0] - other.origin[0]).hypot(charge.origin[1] - other.origin[1])
                };
                assert!(charges[..index].iter().all(|other| apart(other) >= 0.1 * half_side));
                let drift = charge.drift[0].hypot(charge.drift[1]);
                assert!((0.019..=0.1001).contains(&(drift / LIGHT)), "{}", drift / LIGHT);
                let own = match charge.motion {
                    Motion::Oscillating { amplitude, frequency, .. } => amplitude * frequency,
                    Motion::Orbiting { radius, frequency } => radius * frequency,
                };
                assert!((0.1..=0.3001).contains(&(own / LIGHT)), "{}", own / LIGHT);
            }
        }
    }
}
