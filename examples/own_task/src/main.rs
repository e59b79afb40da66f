//! A program for a task of one's own: the squared area of the parallelogram of two vectors in space, learned from examples.
//!
//! ```text
//! cargo run --release -- train area
//! cargo run --release -- eval --checkpoint runs/area-1/checkpoint.safetensors
//! ```

use gradewise::{
    core::Signature,
    nn::{
        Result as NnResult,
        layers::{Layer, Sequential, SteerableProduct},
        loss::mean_squared_error,
        symmetry::{Isometry, relative_distance},
    },
    runner::{Program, prelude::*},
};
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

fn main() -> ExitCode {
    Program::new().about("Learns the areas of parallelograms").task::<Area>().main()
}

/// `[data]`: the keys are settings such as `data.seed`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct DataSettings {
    seed: u64,
    /// `data.train`, `data.valid`, `data.test`
    #[serde(flatten)]
    splits: Splits,
}

impl DataSection for DataSettings {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

/// `[model]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct ModelSettings {
    /// Multivectors between the layers.
    hidden: usize,
}

/// The two vectors of each sample.
struct Parallelograms(Vec<[[f64; 3]; 2]>);

fn squared_area([a, b]: [[f64; 3]; 2]) -> f64 {
    let dot = |x: [f64; 3], y: [f64; 3]| x[0] * y[0] + x[1] * y[1] + x[2] * y[2];
    dot(a, a) * dot(b, b) - dot(a, b).powi(2)
}

impl Samples for Parallelograms {
    /// Multivectors `[8, samples, 2]`, the vectors in their blades e1, e2 and e3; squared areas `[1, samples, 1]`.
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn batch(&self, indices: &[usize], place: &Placement) -> NnResult<Self::Batch> {
        let (count, mut x) = (indices.len(), vec![0.0; 8 * indices.len() * 2]);
        for (row, &index) in indices.iter().enumerate() {
            for (feature, vector) in self.0[index].iter().enumerate() {
                for (axis, component) in vector.iter().enumerate() {
                    x[((1 + axis) * count + row) * 2 + feature] = *component;
                }
            }
        }
        let y: Vec<f64> = indices.iter().map(|&index| squared_area(self.0[index])).collect();
        Ok((place.tensor(&x, [8, count, 2])?, place.tensor(&y, [1, count, 1])?))
    }
}

/// What a model predicts: the scalar part of its output, `[1, samples, 1]`.
fn predict(model: &Sequential, x: &Tensor) -> NnResult<Tensor> {
    Ok(model.forward(x)?.slice(0, 0..1)?)
}

/// The predictions for all samples.
fn all(model: &Sequential, data: &Parallelograms, place: &Placement) -> NnResult<Vec<f64>> {
    let mut areas = Vec::new();
    for_each_batch(data, EVALUATION_BATCH, place, |(x, _)| {
        areas.extend(no_grad(|| predict(model, x))?.array().to_f64_vec()?);
        Ok(())
    })?;
    Ok(areas)
}

struct Area;

impl Task for Area {
    const NAME: &'static str = "area";
    const ABOUT: &'static str = "The squared area of the parallelogram of two vectors";
    const GROUP: &'static str = "rotations and reflections";
    type DataConfig = DataSettings;
    type ModelConfig = ModelSettings;
    type Data = Parallelograms;
    type Model = Sequential;

    fn defaults() -> TaskConfig<Self> {
        let data = DataSettings { seed: 0, splits: Splits { train: 2000, valid: 200, test: 500 } };
        let trainer = TrainerConfig { steps: 600, lr: 1e-2, ..TrainerConfig::default() };
        let train = Train { trainer, batch_size: 50, ..Train::default() };
        Config { data, model: ModelSettings { hidden: 8 }, train, runtime: Runtime::default() }
    }

    fn load(config: &DataSettings, split: Split) -> Result<Parallelograms> {
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        rng.set_stream(split as u64);
        let mut vector = || [(); 3].map(|()| rng.random_range(-1.0..1.0));
        Ok(Parallelograms((0..config.splits.of(split)).map(|_| [vector(), vector()]).collect()))
    }

    fn init(model: &ModelSettings, place: &Placement, rng: &mut ChaCha8Rng) -> NnResult<Sequential> {
        let first = SteerableProduct::fully_connected(2, model.hidden, Signature::CL3).init(place, rng)?;
        let last = SteerableProduct::fully_connected(model.hidden, 1, Signature::CL3).init(place, rng)?;
        Ok(Sequential::new().then(first).then(last))
    }

    fn loss(model: &Sequential, (x, y): &(Tensor, Tensor)) -> NnResult<Tensor> {
        mean_squared_error(&predict(model, x)?, y)
    }

    fn measure(models: &[&Sequential], data: &Parallelograms, place: &Placement) -> NnResult<Measures> {
        let found = mean_prediction(models, |model| all(model, data, place))?;
        let truth: Vec<f64> = data.0.iter().map(|pair| squared_area(*pair)).collect();
        let squares: f64 = found.iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum();
        let mse = Measures::new("mse", "MSE", squares / truth.len() as f64);
        Ok(mse.and("relative", "relative error", relative_distance(&found, &truth)))
    }

    fn asymmetry(
        model: &Sequential,
        data: &Parallelograms,
        place: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> NnResult<f64> {
        let mut turned = data.0.clone();
        Isometry::random(Signature::CL3, 3, rng)?.apply_all(turned.as_flattened_mut().as_flattened_mut())?;
        Ok(relative_distance(&all(model, &Parallelograms(turned), place)?, &all(model, data, place)?))
    }
}
