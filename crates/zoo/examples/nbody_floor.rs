//! How far below a rotation-equivariant model of the charged n-body data can come.
//!
//! The simulator clamps each component of a force, which has an effect near collisions and is no operation that turns with the scene: the
//! same system in another orientation ends elsewhere. What an equivariant model predicts for all orientations of a system is one
//! prediction, turned, so that its expected error is at least the variance of the ends over orientations, turned back. That is estimated
//! here by running the simulator itself in random orientations.
//!
//! ```sh
//! cargo run --release -p gradewise-zoo --example nbody_floor -- 32
//! ```

use gradewise_nn::{Error, Result, data::Split};
use gradewise_zoo::data::{
    nbody::{INPUT_FRAME, NBodyData, PublishedDraws, Simulation, TARGET_FRAME},
    numpy::RandomState,
};

fn main() -> Result<()> {
    let given = std::env::args().nth(1);
    let orientations: usize = given.as_deref().and_then(|text| text.parse().ok()).unwrap_or(32);
    if orientations < 2 {
        return Err(Error::Argument {
            operation: "nbody_floor",
            argument: "orientations",
            actual: orientations.to_string(),
            expected: "at least 2, for a variance".to_owned(),
        });
    }
    for split in [Split::Valid, Split::Test] {
        let data = NBodyData::published(split, PublishedDraws::available(split))?;
        let variances = variances(&data, orientations)?;
        let count = variances.len() as f64;
        let mean = variances.iter().sum::<f64>() / count;
        let squares: f64 = variances.iter().map(|variance| (variance - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let touched = variances.iter().filter(|variance| **variance > 1e-6).count();
        println!(
            "{split}: {mean:.5} ± {error:.5} over {orientations} orientations of {count} systems, of which {touched} are above 1e-6"
        );
    }
    Ok(())
}

/// The variance of the ends of each system over orientations, the mean over its coordinates.
fn variances(data: &NBodyData, orientations: usize) -> Result<Vec<f64>> {
    let (particles, width) = (data.particles(), 3 * data.particles());
    let mut random = RandomState::new(0);
    let (mut sums, mut squares) = (vec![0.0; data.loc().len()], vec![0.0; data.loc().len()]);
    for _ in 0..orientations {
        let rotations = random.rotations(data.len());
        let turned = |values: &[f64], back: bool| -> Vec<f64> {
            let mut out = vec![0.0; values.len()];
            for ((out, system), r) in
                out.chunks_exact_mut(width).zip(values.chunks_exact(width)).zip(&rotations)
            {
                for (k, out) in out.iter_mut().enumerate() {
                    let (axis, particle) = (k / particles, k % particles);
                    let entry = |from: usize| if back { r[from][axis] } else { r[axis][from] };
                    *out = (0..3).map(|from| entry(from) * system[from * particles + particle]).sum();
                }
            }
            out
        };
        let (loc, vel) = (turned(data.loc(), false), turned(data.vel(), false));
        let mut simulation = Simulation::new(particles, &loc, &vel, data.charges())?;
        simulation.advance(TARGET_FRAME - INPUT_FRAME);
        for ((sum, square), x) in sums.iter_mut().zip(&mut squares).zip(turned(&simulation.loc(), true)) {
            *sum += x;
            *square += x * x;
        }
    }
    let count = orientations as f64;
    let variance = |(sum, square): (&f64, &f64)| (square - sum * sum / count).max(0.0) / (count - 1.0);
    let each: Vec<f64> = sums.iter().zip(&squares).map(variance).collect();
    Ok(each.chunks_exact(width).map(|system| system.iter().sum::<f64>() / width as f64).collect())
}
