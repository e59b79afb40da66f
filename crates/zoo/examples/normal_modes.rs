//! Normal modes of a learned force field, beside those of the potential it was learned from.
//!
//! ```sh
//! gradewise train forces --dtype f64 --out forces
//! cargo run --release -p gradewise-zoo --example normal_modes -- forces/checkpoint.safetensors
//! ```
//!
//! The particles go down the slope to rest; there, the second derivatives of the energy are what springs would have. Particles have mass 1,
//! so the roots of their eigenvalues are the frequencies of small vibrations. Six are zero: shifts and turns of the whole.

use gradewise_autograd::Tensor;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{
    Error, Module, Placement, Result, checkpoint::Checkpoint, curvature::hessian, optim::MovingAverage,
};
use gradewise_zoo::{
    data::{nbody::NBodyBatch, potential::potential},
    models::{ForceField, ForceFieldConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// All alike, so that at rest they are a tetrahedron: unlike ones fall into each other.
const CHARGES: [f64; 4] = [1.0; 4];
const PARTICLES: usize = CHARGES.len();
/// Where the way down begins, `[3, particles]`.
const START: [f64; 3 * PARTICLES] = [1.0, 0.8, -0.9, -0.7, 0.6, -0.7, 0.5, -0.8, -0.2, 0.3, 0.4, -0.1];

fn main() -> Result<()> {
    let refuse = |actual: String, expected: &str| Error::Argument {
        operation: "normal_modes",
        argument: "checkpoint",
        actual,
        expected: expected.to_owned(),
    };
    let path = std::env::args().nth(1);
    let path = path.ok_or_else(|| refuse("none".to_owned(), "a file that `gradewise train forces` wrote"))?;
    let checkpoint = Checkpoint::read(path)?;
    let config: ForceFieldConfig = serde_json::from_value(checkpoint.metadata.model_config.clone())
        .map_err(|error| refuse(error.to_string(), "one of the model `forces`"))?;
    let placement = Placement::new(&Device::Cpu, DType::F64);
    let model = ForceField::init(&config, &placement, &mut ChaCha8Rng::seed_from_u64(0))?;
    let section = if MovingAverage::is_in(&checkpoint.tensors) { "ema::" } else { "" };
    model.load(&|name| {
        checkpoint.tensors.find_array(&format!("{section}{name}"), placement.dtype, &placement.device)
    })?;

    let batch = |loc: &[f64]| NBodyBatch::new((loc, &[0.0; 3 * PARTICLES], &CHARGES), PARTICLES, &placement);
    let learned = |loc: &[f64]| Ok(model.forces(&batch(loc)?, false)?.0.array().to_f64_vec()?);
    let exact = |loc: &[f64]| Ok(potential(PARTICLES, loc, &CHARGES).1);
    let (rest, exact_rest) = (relaxed(&learned)?, relaxed(&exact)?);
    let at_rest = batch(&rest)?;
    let energy = |x: &Tensor| Ok(model.energy(x, &at_rest)?.sum_all()?);
    let modes = frequencies(hessian(&at_rest.positions, energy)?);
    let exact_modes = frequencies(differences(&exact, &exact_rest)?);
    println!("mode  learned  exact");
    for (mode, (learned, exact)) in modes.iter().zip(&exact_modes).enumerate() {
        println!("{mode:>4}  {learned:7.4}  {exact:7.4}");
    }
    Ok(())
}

/// Where forces vanish, down the slope from [`START`]; each way is shorter than the stiffest of these springs would overshoot.
fn relaxed(forces: &impl Fn(&[f64]) -> Result<Vec<f64>>) -> Result<Vec<f64>> {
    const STEPS: usize = 20_000;
    let mut loc = START.to_vec();
    let mut largest = f64::INFINITY;
    for _ in 0..STEPS {
        let forces = forces(&loc)?;
        largest = forces.iter().fold(0.0, |largest, force| force.abs().max(largest));
        if largest < 1e-8 {
            return Ok(loc);
        }
        loc.iter_mut().zip(&forces).for_each(|(x, force)| *x += 0.05 * force);
    }
    Err(Error::Argument {
        operation: "normal_modes",
        argument: "start",
        actual: format!("a force of {largest:.1e} after {STEPS} steps"),
        expected: "a start from which the slope leads to rest".to_owned(),
    })
}

/// The Hessian of an energy whose forces are known, by central differences.
fn differences(forces: &impl Fn(&[f64]) -> Result<Vec<f64>>, at: &[f64]) -> Result<Vec<f64>> {
    const STEP: f64 = 1e-5;
    let mut rows = Vec::new();
    for index in 0..at.len() {
        let moved = |by: f64| {
            let mut loc = at.to_vec();
            loc[index] += by;
            forces(&loc)
        };
        rows.extend(
            moved(-STEP)?.iter().zip(moved(STEP)?).map(|(behind, ahead)| (behind - ahead) / (2.0 * STEP)),
        );
    }
    Ok(rows)
}

/// Roots of the eigenvalues of a symmetric matrix, in order; negative for those of negative eigenvalues, which no minimum has. By Jacobi's
/// rotations, each of which makes one entry beside the diagonal zero.
fn frequencies(mut matrix: Vec<f64>) -> Vec<f64> {
    let n = (matrix.len() as f64).sqrt().round() as usize;
    for _ in 0..50 {
        for row in 0..n {
            for column in 0..row {
                let beside = matrix[row * n + column];
                if beside == 0.0 {
                    continue;
                }
                let ratio = (matrix[row * n + row] - matrix[column * n + column]) / (2.0 * beside);
                let tangent = ratio.signum() / (ratio.abs() + (1.0 + ratio * ratio).sqrt());
                let cosine = (1.0 + tangent * tangent).sqrt().recip();
                let sine = tangent * cosine;
                for k in 0..n {
                    let (a, b) = (matrix[k * n + column], matrix[k * n + row]);
                    (matrix[k * n + column], matrix[k * n + row]) =
                        (cosine * a - sine * b, sine * a + cosine * b);
                }
                for k in 0..n {
                    let (a, b) = (matrix[column * n + k], matrix[row * n + k]);
                    (matrix[column * n + k], matrix[row * n + k]) =
                        (cosine * a - sine * b, sine * a + cosine * b);
                }
            }
        }
    }
    let mut values: Vec<f64> = (0..n).map(|k| matrix[k * n + k]).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.iter().map(|value| value.signum() * value.abs().sqrt()).collect()
}
