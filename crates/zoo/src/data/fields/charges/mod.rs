//! Fields of moving charges on space-time of 2+1 dimensions, as Zhdanov et al. 2024 (arXiv:2402.14730) made them with PyCharge: charges
//! move in the plane z = 0, where E_x, E_y and cB_z are recorded.

mod draws;
mod field;

pub use field::{Charge, Motion, Physics};

use super::{FieldLayout, FieldSet, resize::resized};
use crate::data::{cache, numpy::RandomState};
use gradewise_nn::{Error, Result, data::Split};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// The field F = E_x e01 + E_y e02 + cB_z e12 in the metric −1, 1, 1, with time as the first axis: boosts mix its components.
pub static LAYOUT: FieldLayout = FieldLayout {
    name: "maxwell2d",
    files: &[("fields", 0..3)],
    quantities: &[("electric", "E MSE", 0..2), ("magnetic", "cB MSE", 2..3)],
    space_axes: 2,
    metric: &[-1, 1, 1],
    first_blade: 4,
    blades: &[(0, 1.0), (1, 1.0), (2, 1.0)],
    scale: 1.0,
};

/// Half the side of the recorded square, m.
const HALF_SIDE: f64 = 50e-9;
/// Time between frames, s.
const FRAME_TIME: f64 = 16.0 * std::f64::consts::PI / 7.5e16 / 256.0;
/// Fields of at least this norm are divided by their norm, weaker ones by this value, V/m.
const NORMALISED_FROM: f64 = 1e7;
/// Simulations whose values have at least this standard deviation are discarded: a charge is too close to a point of the grid.
const WIDEST: f64 = 20.0;
/// The most simulations in a row that may be discarded.
const MOST_REFUSED: usize = 1000;

/// Settings of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChargeOptions {
    /// Whether the faults of the published generator are repeated.
    pub physics: Physics,
    /// Points along each side at which fields are computed; 256 as published.
    pub points: usize,
    /// Computed points per recorded point along each side; 8 as published.
    pub factor: usize,
    /// Frames of a simulation; 256 as published.
    pub frames: usize,
    /// Seed of the draws. The published draws are not seeded.
    pub seed: u64,
}

impl ChargeOptions {
    /// The published sizes: 256 frames of 256 × 256 points, of which each 8 × 8 make one recorded point.
    pub const fn published(physics: Physics) -> Self {
        Self { physics, points: 256, factor: 8, frames: 256, seed: 0 }
    }
}

/// Simulations of a split, each of which depends only on the options and its index. The result is stored in the [cache].
///
/// # Errors
/// [`Error::Argument`] for fewer than 2 points or a factor that does not divide them.
pub fn load(split: Split, simulations: usize, options: ChargeOptions) -> Result<FieldSet> {
    let ChargeOptions { points, factor, frames, seed, physics } = options;
    if points < 2 || factor == 0 || !points.is_multiple_of(factor) {
        return Err(Error::Argument {
            operation: "fields of charges",
            argument: "points and factor",
            actual: format!("{points} and {factor}"),
            expected: "at least 2 points along each side, and a divisor of them".to_owned(),
        });
    }
    let key = format!(
        "charges, {split}, {simulations} simulations, {points} points, factor {factor}, {frames} frames, seed {seed}, {physics:?}"
    );
    let values = cache::single_array(LAYOUT.name, &key, || {
        let all = (0..simulations).into_par_iter().map(|index| simulate(split, index, options));
        Ok(all.collect::<Result<Vec<Vec<f32>>>>()?.concat())
    })?;
    FieldSet::new(&LAYOUT, (simulations, frames), &[points / factor; 2], values)
}

/// A simulation `[frames, x, y, components]`; simulations with too large a standard deviation are drawn again.
fn simulate(split: Split, index: usize, options: ChargeOptions) -> Result<Vec<f32>> {
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    rng.set_stream(((split as u64 + 1) << 56) | index as u64);
    let mut random = RandomState::new(rng.next_u32());
    for _ in 0..MOST_REFUSED {
        let charges = draws::charges(&mut random, HALF_SIDE);
        let frames = record(&charges, options);
        let count = frames.len().max(1) as f64;
        let mean = frames.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
        let variance = frames.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count;
        // The comparison also rejects values that are not finite.
        if variance.sqrt() < WIDEST {
            return Ok(frames);
        }
    }
    Err(Error::Argument {
        operation: "fields of charges",
        argument: "points",
        actual: options.points.to_string(),
        expected: format!(
            "a grid on which one of {MOST_REFUSED} draws has a standard deviation below {WIDEST}"
        ),
    })
}

fn record(charges: &[Charge], options: ChargeOptions) -> Vec<f32> {
    let ChargeOptions { physics, points, factor, frames, .. } = options;
    let coordinate = |index: usize| HALF_SIDE * (2.0 * index as f64 / (points - 1) as f64 - 1.0);
    // Delays of the two previous frames: their linear extrapolation is a close initial guess, so few steps are needed.
    let mut delays = vec![[0.0; 2]; points * points * charges.len()];
    let mut recorded = Vec::new();
    for frame in 0..frames {
        let time = frame as f64 * FRAME_TIME;
        let mut fields = Vec::with_capacity(points * points * 3);
        for (at, delays) in delays.chunks_exact_mut(charges.len()).enumerate() {
            let point = [coordinate(at / points), coordinate(at % points)];
            let mut field = [0.0; 3];
            for (charge, delay) in charges.iter().zip(delays) {
                let [before, last] = *delay;
                let guess = if frame > 1 { 2.0 * last - before } else { last };
                let found = charge.retarded_time(point, time, time - guess, physics);
                let Some(retarded) = found else { return vec![f32::NAN] };
                *delay = [last, time - retarded];
                let own = charge.field_from(point, retarded, physics);
                (0..3).for_each(|component| field[component] += own[component]);
            }
            fields.extend(normalised(field));
        }
        let fields = resized(&fields, &[points; 2], 3, factor);
        recorded.extend(fields.iter().map(|&value| value as f32));
    }
    recorded
}

/// log₁₀‖F‖·F/max(‖F‖, 10⁷ V/m) with ‖F‖² = |E² − (cB)²|, which is Lorentz-invariant.
fn normalised(field: [f64; 3]) -> [f64; 3] {
    let [x, y, b] = field;
    let norm = (x * x + y * y - b * b).abs().sqrt();
    let factor = norm.log10() / norm.max(NORMALISED_FROM);
    field.map(|value| factor * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> ChargeOptions {
        ChargeOptions { physics: Physics::Physical, points: 16, factor: 2, frames: 3, seed: 1 }
    }

    #[test]
    fn fields_are_normalised_by_what_observers_agree_on() {
        let [x, y, b] = normalised([3e8, 0.0, 0.0]);
        assert!((x - 3e8f64.log10()).abs() < 1e-12 && y == 0.0 && b == 0.0);
        // Weak fields are not scaled to unit norm.
        let [x, ..] = normalised([1e3, 0.0, 0.0]);
        assert!((x - 3.0 * 1e3 / 1e7).abs() < 1e-12);
        let [x, _, b] = normalised([5e8, 0.0, 3e8]);
        assert!((x - 4e8f64.log10() * 1.25).abs() < 1e-12 && (b / x - 0.6).abs() < 1e-14);
    }

    #[test]
    fn simulations_depend_on_their_index_alone() {
        let of =
            |options| (0..2).map(|index| simulate(Split::Test, index, options).unwrap()).collect::<Vec<_>>();
        let first = of(options());
        assert_eq!(first[0].len(), 3 * 8 * 8 * 3);
        assert_eq!(of(options()), first);
        assert_ne!(first[0], first[1]);
        assert_ne!(of(ChargeOptions { seed: 2, ..options() }), first);
        // The same charges, moved as published.
        assert_ne!(of(ChargeOptions { physics: Physics::Published, ..options() }), first);
        assert!(first.iter().flatten().all(|value| value.is_finite()));
        assert!(load(Split::Test, 1, ChargeOptions { factor: 3, ..options() }).is_err());
    }

    /// The delays of previous frames are only initial guesses and do not change the result.
    #[test]
    fn recorded_frames_are_the_fields_of_their_times() {
        let charges = draws::charges(&mut RandomState::new(3), HALF_SIDE);
        let options = ChargeOptions { factor: 1, points: 5, ..options() };
        let recorded = record(&charges, options);
        let (time, point) = (2.0 * FRAME_TIME, [-0.5 * HALF_SIDE, HALF_SIDE]);
        let mut field = [0.0; 3];
        for charge in &charges {
            let own = charge.field(point, time, Physics::Physical).unwrap();
            (0..3).for_each(|component| field[component] += own[component]);
        }
        let at = ((2 * 5 + 1) * 5 + 4) * 3;
        for (actual, expected) in recorded[at..at + 3].iter().zip(normalised(field)) {
            assert!(
                (f64::from(*actual) - expected).abs() < 1e-6 * expected.abs().max(1.0),
                "{actual} {expected}"
            );
        }
    }
}
