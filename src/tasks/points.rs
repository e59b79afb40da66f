//! The regressions on sets of points: signed volumes, convex hulls, an O(5)-invariant function.

use gradewise_autograd::concat;
use gradewise_core::Signature;
use gradewise_nn::{
    layers::Layer,
    loss,
    symmetry::{Isometry, relative_distance},
};
use gradewise_runner::{config::Section, prelude::*};
use gradewise_zoo::{data::points::PointSets, models::PerceptronConfig};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

gradewise_nn::choices! {
    /// The named sources of samples.
    pub enum Sampler {
        /// Drawn from the seed
        Sample = "sample",
    }
}

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PointData {
    /// `sample`, or the folder of the published NumPy files.
    pub source: Source<Sampler>,
    /// Seed of the samples.
    pub seed: u64,
    /// The number of orders of its points in which each sample is used for training; 1 for the original order alone. Networks that are not
    /// permutation invariant can learn the invariance from this augmentation.
    pub orders: usize,
    /// Samples of each split.
    #[serde(flatten)]
    pub splits: Splits,
}

impl DataSection for PointData {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        at_least_one(&[("data.orders", self.orders)])?;
        self.source.validate("data.source")
    }

    fn train(&self) -> usize {
        self.splits.train
    }

    fn fitted(&self) -> usize {
        self.splits.train * self.orders
    }
}

/// Checks a perceptron's settings.
pub fn check_perceptron(config: &PerceptronConfig) -> Result<(), ConfigError> {
    at_least_one(&[("model.hidden", config.hidden), ("model.layers", config.layers)])
}

/// A regression from points to an invariant scalar, or to a pseudoscalar.
pub trait Regression: 'static {
    const NAME: &'static str;
    const ABOUT: &'static str;
    const DETAILS: &'static str;
    const EXAMPLES: &'static str;
    const TITLE: &'static str;
    const GROUP: &'static str;
    const PRESETS: &'static [Preset];
    /// Names of the published files, points of a sample, and dimensions.
    const FILES: (&'static str, (usize, usize));
    /// Whether the target does not depend on the order of the points, except for the sign of a pseudoscalar.
    const UNORDERED: bool = true;
    /// Whether reflections, and odd permutations of the points, change the sign of the target.
    const PSEUDOSCALAR: bool = false;
    type ModelConfig: Section;
    type Model: Layer;

    fn model() -> Self::ModelConfig;
    fn check_model(config: &Self::ModelConfig) -> Result<(), ConfigError>;
    fn train() -> Train;
    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets>;
    fn init(
        config: &Self::ModelConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<Self::Model>;
    fn fits(config: &Self::ModelConfig, weights: &TensorFile) -> bool;
}

/// The task of a regression.
pub struct Points<R>(PhantomData<R>);

impl<R: Regression> Task for Points<R> {
    const NAME: &'static str = R::NAME;
    const ABOUT: &'static str = R::ABOUT;
    const DETAILS: &'static str = R::DETAILS;
    const EXAMPLES: &'static str = R::EXAMPLES;
    const TITLE: &'static str = R::TITLE;
    const LOSS: &'static str = "mean squared error";
    const GROUP: &'static str = R::GROUP;
    const PRESETS: &'static [Preset] = R::PRESETS;
    type DataConfig = PointData;
    type ModelConfig = R::ModelConfig;
    type Data = PointSets;
    type Model = R::Model;

    fn defaults() -> TaskConfig<Self> {
        let splits = Splits { train: 16384, valid: 2048, test: 16384 };
        let data = PointData { source: Source::Named(Sampler::Sample), seed: 0, orders: 1, splits };
        Config { data, model: R::model(), train: R::train(), runtime: Runtime::default() }
    }

    fn check_model(config: &R::ModelConfig) -> Result<(), ConfigError> {
        R::check_model(config)
    }

    fn load(config: &PointData, split: Split) -> Result<PointSets> {
        let samples = config.splits.of(split);
        let (name, shape) = R::FILES;
        let sets = match &config.source {
            Source::Named(Sampler::Sample) => R::sample(samples, config.seed, split)?,
            Source::Path(folder) => PointSets::load(folder, name, split, shape)?.take(samples),
        };
        if split != Split::Train || config.orders == 1 {
            return Ok(sets);
        }
        if !R::UNORDERED {
            return Err(ConfigError::Value {
                key: "data.orders",
                actual: config.orders.to_string(),
                expected: format!("1: the points of `{}` play different parts", R::NAME),
            }
            .into());
        }
        Ok(sets.in_orders(config.orders, config.seed, R::PSEUDOSCALAR))
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
        let measures = Measures::new("mse", "MSE", mse).and("mae", "MAE", errors().sum::<f64>() / count);
        Ok(measures.of_samples(errors().map(|error| error * error).collect()))
    }

    fn program<'a>(
        model: &'a Self::Model,
        _: &TaskConfig<Self>,
        size: PredictionSize<'_>,
    ) -> Result<Option<Prediction<'a>>> {
        let (_, (points, dimension)) = R::FILES;
        if let Some(other) = size.particles.filter(|&particles| particles != points) {
            return Err(Error::Usage(format!(
                "--particles {other}: samples of `{}` have {points} points",
                R::NAME
            )));
        }
        let input = Argument::new("points", "the coordinates of each point");
        let output = Argument::new("prediction", R::ABOUT);
        let run = move |inputs: &[Tensor]| {
            let like = &inputs[0];
            let zeros = |blades: usize| Tensor::zeros([blades, 1, points], like.dtype(), &like.device());
            let vectors = like.transpose(0, 1)?.reshape([dimension, 1, points])?;
            let rest = zeros((1 << dimension) - 1 - dimension)?;
            Ok(vec![model.forward(&concat(&[&zeros(1)?, &vectors, &rest], 0)?)?])
        };
        Ok(Some(Prediction::new(vec![(input, vec![points, dimension])], vec![output], size.placement, run)?))
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
pub fn adam(steps: u64, batch_size: usize) -> Train {
    Train {
        trainer: TrainerConfig { steps, lr: 1e-3, weight_decay: 0.0, ..TrainerConfig::default() },
        batch_size,
        eval_every: steps / 16,
        checkpoint_every: steps / 4,
        ..Train::default()
    }
}

/// The schedule of the publication.
pub const PAPER: &[&str] = &[
    "data.valid=16384",
    "train.steps=131072",
    "train.schedule=constant",
    "train.warmup_steps=0",
    "train.select=best",
    "train.log_every=256",
    "train.eval_every=1024",
    "train.checkpoint_every=16384",
];

/// [`PAPER`] with a cosine decay of the learning rate and averaged weights, both of which reduce the noise of the last steps.
pub const FALLING: &[&str] = &[
    "train.schedule=cosine",
    "train.warmup_steps=1024",
    "train.decay_steps=130048",
    "train.final_lr=1e-8",
    "train.ema=0.999",
];

/// [`PAPER`] and [`FALLING`], changed by these settings.
pub const fn falling(settings: &'static [&'static [&'static str]]) -> Preset {
    Preset {
        name: "falling",
        about: "the paper's samples, model and steps, with a falling rate, averaged weights and more orders of the points",
        settings,
    }
}

/// [`PAPER`], changed by these settings.
pub const fn paper(settings: &'static [&'static [&'static str]]) -> Preset {
    Preset { name: "paper", about: "the schedule of arXiv:2305.11141", settings }
}
