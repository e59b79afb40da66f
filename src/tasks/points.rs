//! The regressions on sets of points: signed volumes, convex hulls, an O(5)-invariant function.

use super::{
    Batch, EVALUATION_BATCH, Measures, Preset, SYMMETRY_SAMPLES, Task, TaskConfig, has, mean_prediction,
    width,
};
use crate::{
    config::{Config, ConfigError, DataSection, Runtime, Section, Train, at_least_one},
    error::Result,
};
use gradewise_autograd::{Tensor, no_grad};
use gradewise_core::Signature;
use gradewise_nn::{
    Placement,
    checkpoint::TensorFile,
    data::{
        Split,
        points::{HULL_DIMENSION, HULL_POINTS, O5_MEAN, O5_STANDARD_DEVIATION, PointSets},
    },
    layers::Layer,
    loss,
    models::{HullVolume, O5Config, O5Regression, PerceptronConfig, SignedVolume},
    symmetry::{Isometry, relative_distance},
    train::for_each_batch,
};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointData {
    /// `sample`, or the folder of the published NumPy files.
    pub source: String,
    /// Seed of the samples.
    pub seed: u64,
    /// Number of samples to fit.
    pub train: usize,
    /// Number of samples to watch.
    pub valid: usize,
    /// Number of samples to report.
    pub test: usize,
}

impl Section for PointData {
    fn validate(&self) -> Result<(), ConfigError> {
        at_least_one(&[("data.train", self.train), ("data.valid", self.valid), ("data.test", self.test)])
    }
}

impl DataSection for PointData {
    fn train(&self) -> usize {
        self.train
    }
}

impl Section for PerceptronConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        at_least_one(&[("model.hidden", self.hidden), ("model.layers", self.layers)])
    }
}

impl Section for O5Config {
    fn validate(&self) -> Result<(), ConfigError> {
        at_least_one(&[("model.hidden", self.hidden)])
    }
}

/// A regression from points to a number that motions leave alone, or turn over with the orientation.
pub trait Regression: 'static {
    const NAME: &'static str;
    const TITLE: &'static str;
    const GROUP: &'static str;
    const PRESETS: &'static [Preset];
    /// Names of the published files, points of a sample, and dimensions.
    const FILES: (&'static str, (usize, usize));
    /// Whether reflections change the sign of the target.
    const PSEUDOSCALAR: bool = false;
    type ModelConfig: Section;
    type Model: Layer;

    fn model() -> Self::ModelConfig;
    fn train() -> Train;
    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets>;
    fn init(
        config: &Self::ModelConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<Self::Model>;
    fn fits(config: &Self::ModelConfig, weights: &TensorFile) -> bool;
}

impl<R: Regression> Task for R {
    const NAME: &'static str = R::NAME;
    const TITLE: &'static str = R::TITLE;
    const LOSS: &'static str = "mean squared error";
    const GROUP: &'static str = R::GROUP;
    const PRESETS: &'static [Preset] = R::PRESETS;
    type DataConfig = PointData;
    type ModelConfig = R::ModelConfig;
    type Data = PointSets;
    type Model = R::Model;

    fn defaults() -> TaskConfig<Self> {
        let data = PointData { source: "sample".to_owned(), seed: 0, train: 16384, valid: 2048, test: 16384 };
        Config { data, model: R::model(), train: R::train(), runtime: Runtime::default() }
    }

    fn load(config: &PointData, split: Split) -> Result<PointSets> {
        let samples = match split {
            Split::Train => config.train,
            Split::Valid => config.valid,
            Split::Test => config.test,
        };
        if config.source == "sample" {
            return Ok(R::sample(samples, config.seed, split)?);
        }
        let (name, shape) = R::FILES;
        Ok(PointSets::load(Path::new(&config.source), name, split, shape)?.take(samples))
    }

    fn init(
        config: &Self::ModelConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<Self::Model> {
        R::init(config, placement, rng)
    }

    fn fits(config: &Self::ModelConfig, weights: &TensorFile) -> bool {
        R::fits(config, weights)
    }

    fn loss(model: &Self::Model, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor> {
        loss::mean_squared_error(&model.forward(&batch.points)?, &batch.target)
    }

    fn measure(
        models: &[&Self::Model],
        data: &PointSets,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures> {
        let predictions = mean_prediction(models, |model| predict(model, data, placement))?;
        let count = predictions.len() as f64;
        let errors = || predictions.iter().zip(data.target()).map(|(p, t)| (p - t).abs());
        let mse = errors().map(|error| error * error).sum::<f64>() / count;
        Ok(Measures::new("mse", "MSE", mse).and("mae", "MAE", errors().sum::<f64>() / count))
    }

    fn asymmetry(
        model: &Self::Model,
        data: &PointSets,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        let data = data.clone().take(SYMMETRY_SAMPLES);
        let plain = predict(model, &data, placement)?;
        let dimension = data.dimension();
        let signature = Signature::new(dimension as u8, 0, 0);
        let mut worst = 0f64;
        for reflections in 1..=dimension {
            let isometry = Isometry::random(signature, reflections, rng)?;
            let sign = if R::PSEUDOSCALAR { isometry.determinant() } else { 1.0 };
            let expected: Vec<f64> = plain.iter().map(|value| sign * value).collect();
            let moved = predict(model, &data.clone().moved(&isometry)?, placement)?;
            worst = worst.max(relative_distance(&moved, &expected));
        }
        Ok(worst)
    }
}

/// One number for each sample.
fn predict(model: &impl Layer, data: &PointSets, placement: &Placement) -> gradewise_nn::Result<Vec<f64>> {
    let mut predictions = Vec::with_capacity(data.target().len());
    for_each_batch(data, EVALUATION_BATCH, placement, |batch| {
        let values = no_grad(|| model.forward(&batch.points))?;
        predictions.extend(values.array().to_f64_vec()?);
        Ok(())
    })?;
    Ok(predictions)
}

/// The optimiser of these experiments: Adam at a constant rate of 0.001.
fn adam(steps: u64, batch_size: usize) -> Train {
    Train {
        steps,
        batch_size,
        lr: 1e-3,
        weight_decay: 0.0,
        eval_every: steps / 16,
        checkpoint_every: steps / 4,
        ..Train::default()
    }
}

/// Signed volumes in space, O(3).
pub struct Volumes;

impl Regression for Volumes {
    const NAME: &'static str = "volumes";
    const TITLE: &'static str = "signed volumes of three vectors";
    const GROUP: &'static str = "rotations and reflections";
    const PRESETS: &'static [Preset] = &[
        Preset { name: "quick", about: "a minute on two cores", settings: &[] },
        Preset {
            name: "paper",
            about: "the schedule of arXiv:2305.11141",
            settings: &[
                "data.train=65536",
                "data.valid=16384",
                "train.steps=131072",
                "train.schedule=constant",
                "train.warmup_steps=0",
                "train.select=best",
                "train.log_every=256",
                "train.eval_every=1024",
                "train.checkpoint_every=16384",
            ],
        },
    ];
    const FILES: (&'static str, (usize, usize)) = ("o3", (3, 3));
    const PSEUDOSCALAR: bool = true;
    type ModelConfig = PerceptronConfig;
    type Model = SignedVolume;

    fn model() -> PerceptronConfig {
        PerceptronConfig { hidden: 96, layers: 4 }
    }

    fn train() -> Train {
        adam(4096, 128)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::signed_volumes(samples, seed, split)
    }

    fn init(
        config: &PerceptronConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<SignedVolume> {
        SignedVolume::init(config, placement, rng)
    }

    fn fits(config: &PerceptronConfig, weights: &TensorFile) -> bool {
        width(weights, "0.weight") == Some(config.hidden)
            && has(weights, &format!("{}.weight", config.layers))
    }
}

/// Volumes of convex hulls in 5 dimensions, O(5).
pub struct Hulls;

impl Regression for Hulls {
    const NAME: &'static str = "hulls";
    const TITLE: &'static str = "volumes of convex hulls of 16 points in 5 dimensions";
    const GROUP: &'static str = "rotations and reflections";
    const PRESETS: &'static [Preset] = &[
        Preset { name: "quick", about: "a few minutes on two cores", settings: &[] },
        Preset {
            name: "paper",
            about: "the schedule of arXiv:2305.11141",
            settings: &[
                "data.valid=16384",
                "train.steps=131072",
                "train.schedule=constant",
                "train.warmup_steps=0",
                "train.select=best",
                "train.log_every=256",
                "train.eval_every=1024",
                "train.checkpoint_every=16384",
            ],
        },
    ];
    const FILES: (&'static str, (usize, usize)) = ("hulls", (HULL_POINTS, HULL_DIMENSION));
    type ModelConfig = PerceptronConfig;
    type Model = HullVolume;

    fn model() -> PerceptronConfig {
        PerceptronConfig { hidden: 32, layers: 4 }
    }

    fn train() -> Train {
        adam(2048, 128)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::hull_volumes(samples, seed, split)
    }

    fn init(
        config: &PerceptronConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<HullVolume> {
        HullVolume::init(HULL_POINTS, config, placement, rng)
    }

    fn fits(config: &PerceptronConfig, weights: &TensorFile) -> bool {
        width(weights, "embedding.weight") == Some(config.hidden)
            && has(weights, &format!("products.{}.", config.layers - 1))
    }
}

/// The O(5)-invariant function of two vectors.
pub struct O5;

impl Regression for O5 {
    const NAME: &'static str = "o5";
    const TITLE: &'static str = "an O(5)-invariant function of two vectors";
    const GROUP: &'static str = "rotations and reflections";
    const PRESETS: &'static [Preset] = &[
        Preset { name: "quick", about: "a minute on two cores", settings: &[] },
        Preset {
            name: "paper",
            about: "the schedule of arXiv:2305.11141",
            settings: &[
                "data.train=50000",
                "data.valid=16384",
                "train.steps=131072",
                "train.schedule=constant",
                "train.warmup_steps=0",
                "train.select=best",
                "train.log_every=256",
                "train.eval_every=1024",
                "train.checkpoint_every=16384",
            ],
        },
    ];
    const FILES: (&'static str, (usize, usize)) = ("o5", (2, 5));
    type ModelConfig = O5Config;
    type Model = O5Regression;

    fn model() -> O5Config {
        O5Config { hidden: 580 }
    }

    fn train() -> Train {
        adam(8192, 32)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::o5_regression(samples, seed, split)
    }

    fn init(
        config: &O5Config,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<O5Regression> {
        O5Regression::init(config, (O5_MEAN, O5_STANDARD_DEVIATION), placement, rng)
    }

    fn fits(config: &O5Config, weights: &TensorFile) -> bool {
        width(weights, "readout.0.weight") == Some(config.hidden)
    }
}
