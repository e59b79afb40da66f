//! A program for a task of one's own: the squared area of the parallelogram of two vectors in space, learned from examples.
//!
//! ```text
//! cargo run --release -- train area
//! cargo run --release -- eval --checkpoint runs/area-1/checkpoint.safetensors
//! cargo run --release -- infer --checkpoint runs/area-1/checkpoint.safetensors --input pairs.npy --output areas.npy
//! ```

use gradewise::{
    nn::{
        Result as NnResult,
        loss::mean_squared_error,
        symmetry::{Isometry, relative_distance},
    },
    prelude::*,
    runner::{Program, prelude::*},
    zoo::data::npy::NpyArray,
};
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::{path::Path, process::ExitCode};

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
struct Pairs(Vec<[[f64; 3]; 2]>);

fn squared_area(pair: [[f64; 3]; 2]) -> f64 {
    let [a, b] = pair.map(Multivector::<Cl3, f64>::vector);
    (a ^ b).squared_norm()
}

impl Samples for Pairs {
    /// Multivectors `[8, samples, 2]`, the vectors in their blades e1, e2 and e3; squared areas `[samples, 1]`.
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn batch(&self, indices: &[usize], place: &Placement) -> NnResult<Self::Batch> {
        let vector =
            |row: usize, feature: usize| Multivector::<Cl3, f64>::vector(self.0[indices[row]][feature]);
        let y: Vec<f64> = indices.iter().map(|&index| squared_area(self.0[index])).collect();
        Ok((place.multivectors(indices.len(), 2, vector)?, place.tensor(&y, [indices.len(), 1])?))
    }
}

/// The predictions for all samples: the scalar parts of what the model makes of them.
fn all(model: &Sequential, data: &Pairs, place: &Placement) -> NnResult<Vec<f64>> {
    let mut areas = Vec::new();
    for_each_batch(data, EVALUATION_BATCH, place, |(x, _)| {
        let y = no_grad(|| model.forward(x))?.blade(Blade::SCALAR)?;
        areas.extend(y.array().to_f64_vec()?);
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
    type Data = Pairs;
    type Model = Sequential;

    fn defaults() -> TaskConfig<Self> {
        let data = DataSettings { seed: 0, splits: Splits { train: 2000, valid: 200, test: 500 } };
        let trainer = TrainerConfig { steps: 600, lr: 1e-2, ..TrainerConfig::default() };
        let train = Train { trainer, batch_size: 50, ..Train::default() };
        Config { data, model: ModelSettings { hidden: 8 }, train, runtime: Runtime::default() }
    }

    fn load(config: &DataSettings, split: Split) -> Result<Pairs> {
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        rng.set_stream(split as u64);
        let mut vector = || [(); 3].map(|()| rng.random_range(-1.0..1.0));
        Ok(Pairs((0..config.splits.of(split)).map(|_| [vector(), vector()]).collect()))
    }

    fn init(model: &ModelSettings, place: &Placement, rng: &mut ChaCha8Rng) -> NnResult<Sequential> {
        let first = SteerableProduct::fully_connected(2, model.hidden, Signature::CL3).init(place, rng)?;
        let last = SteerableProduct::fully_connected(model.hidden, 1, Signature::CL3).init(place, rng)?;
        Ok(Sequential::new().then(first).then(last))
    }

    fn loss(model: &Sequential, (x, y): &(Tensor, Tensor)) -> NnResult<Tensor> {
        mean_squared_error(&model.forward(x)?.blade(Blade::SCALAR)?, y)
    }

    fn measure(models: &[&Sequential], data: &Pairs, place: &Placement) -> NnResult<Measures> {
        let found = mean_prediction(models, |model| all(model, data, place))?;
        let truth: Vec<f64> = data.0.iter().map(|pair| squared_area(*pair)).collect();
        let squares: f64 = found.iter().zip(&truth).map(|(a, b)| (a - b).powi(2)).sum();
        let mse = Measures::new("mse", "MSE", squares / truth.len() as f64);
        Ok(mse.and("relative", "relative error", relative_distance(&found, &truth)))
    }

    /// Pairs of vectors in a .npy file `[samples, 2, 3]`.
    fn read(path: &Path, _: &TaskConfig<Self>) -> Result<Pairs> {
        let array = NpyArray::read(path)?;
        array.expect_shape(path, &[None, Some(2), Some(3)], "samples, then two vectors of x y z")?;
        Ok(Pairs(array.values.as_chunks().0.as_chunks().0.to_vec()))
    }

    fn predict(model: &Sequential, data: &Pairs, place: &Placement) -> Result<Predicted> {
        Ok(Predicted { shape: vec![data.len()], values: all(model, data, place)? })
    }

    fn asymmetry(model: &Sequential, data: &Pairs, place: &Placement, rng: &mut ChaCha8Rng) -> NnResult<f64> {
        let mut turned = data.0.clone();
        Isometry::random(Signature::CL3, 3, rng)?.apply_all(turned.as_flattened_mut().as_flattened_mut())?;
        Ok(relative_distance(&all(model, &Pairs(turned), place)?, &all(model, data, place)?))
    }
}
