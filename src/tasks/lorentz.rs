//! Jet tagging in the space-time algebra.

use super::{
    Batch, EVALUATION_BATCH, Measures, Preset, SYMMETRY_SAMPLES, Task, TaskConfig, has, mean_prediction,
    width,
};
use crate::{
    config::{Config, ConfigError, DataSection, Runtime, Section, Train, at_least_one, refuse},
    error::Result,
};
use gradewise_autograd::{Tensor, no_grad};
use gradewise_core::Signature;
use gradewise_nn::{
    Placement,
    checkpoint::TensorFile,
    data::{Split, jets::JetSets},
    metrics::Ranking,
    models::{JetTagger, JetTaggerConfig},
    symmetry::{Isometry, relative_distance},
    train::for_each_batch,
};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Three-prong against one-prong jets.
pub struct Lorentz;

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JetSource {
    /// `simulate`, or a folder of HDF5 or NumPy files.
    pub source: String,
    /// Seed of the simulated jets.
    pub seed: u64,
    /// Number of jets to fit.
    pub train: usize,
    /// Number of jets to watch.
    pub valid: usize,
    /// Number of jets to report.
    pub test: usize,
    /// Particles kept of each jet, those of largest transverse momentum.
    pub particles: usize,
}

impl Section for JetSource {
    fn validate(&self) -> Result<(), ConfigError> {
        at_least_one(&[("data.train", self.train), ("data.valid", self.valid), ("data.test", self.test)])?;
        if self.particles < 2 {
            return refuse("data.particles", self.particles, "at least 2: messages need neighbours");
        }
        Ok(())
    }
}

impl DataSection for JetSource {
    fn train(&self) -> usize {
        self.train
    }
}

impl Section for JetTaggerConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let Self { hidden, layers, units } = *self;
        at_least_one(&[("model.hidden", hidden), ("model.layers", layers), ("model.units", units)])
    }
}

impl Task for Lorentz {
    const NAME: &'static str = "lorentz";
    const TITLE: &'static str = "three-prong against one-prong jets";
    const LOSS: &'static str = "cross-entropy";
    const DECIDES: &'static str = "cross_entropy";
    const GROUP: &'static str = "boosts, rotations and reflections of space and time";
    const PRESETS: &'static [Preset] = &[
        Preset { name: "quick", about: "a few minutes on two cores", settings: &[] },
        Preset {
            name: "full",
            about: "more particles, jets and steps",
            settings: &[
                "data.train=100000",
                "data.valid=10000",
                "data.test=40000",
                "data.particles=16",
                "model.hidden=12",
                "train.steps=16384",
                "train.batch_size=64",
                "train.select=best",
                "train.log_every=64",
                "train.eval_every=1024",
                "train.checkpoint_every=4096",
            ],
        },
    ];
    type DataConfig = JetSource;
    type ModelConfig = JetTaggerConfig;
    type Data = JetSets;
    type Model = JetTagger;

    fn defaults() -> TaskConfig<Self> {
        let data = JetSource {
            source: "simulate".to_owned(),
            seed: 0,
            train: 20000,
            valid: 2000,
            test: 10000,
            particles: 12,
        };
        let train = Train {
            steps: 2048,
            batch_size: 32,
            lr: 2e-3,
            weight_decay: 1e-2,
            optimizer: "adamw".to_owned(),
            clip_norm: 5.0,
            eval_every: 256,
            checkpoint_every: 512,
            ..Train::default()
        };
        let model = JetTaggerConfig { hidden: 8, layers: 2, units: 64 };
        Config { data, model, train, runtime: Runtime::default() }
    }

    fn load(config: &JetSource, split: Split) -> Result<JetSets> {
        let jets = match split {
            Split::Train => config.train,
            Split::Valid => config.valid,
            Split::Test => config.test,
        };
        if config.source == "simulate" {
            return Ok(JetSets::simulate(jets, config.particles, config.seed, split)?);
        }
        Ok(JetSets::load(Path::new(&config.source), split, config.particles, jets)?)
    }

    fn init(
        config: &JetTaggerConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<JetTagger> {
        JetTagger::init(config, placement, rng)
    }

    fn fits(config: &JetTaggerConfig, weights: &TensorFile) -> bool {
        width(weights, "embedding.weight") == Some(config.hidden)
            && has(weights, &format!("layers.{}.", config.layers - 1))
            && width(weights, "classifier.0.weight") == Some(config.units)
    }

    fn loss(model: &JetTagger, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor> {
        model.loss(batch)
    }

    fn measure(
        models: &[&JetTagger],
        data: &JetSets,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures> {
        let scores = mean_prediction(models, |model| scores(model, data, placement))?;
        let labels = data.labels();
        let count = labels.len() as f64;
        // −log σ(±score), without overflow.
        let entropy = |(score, label): (&f64, &bool)| {
            let margin = if *label { *score } else { -score };
            (-margin.abs()).exp().ln_1p() - margin.min(0.0)
        };
        let correct = scores.iter().zip(labels).filter(|(score, label)| (**score > 0.0) == **label).count();
        let ranking = Ranking::new(&scores, labels);
        Ok(Measures::new(
            "cross_entropy",
            "cross-entropy",
            scores.iter().zip(labels).map(entropy).sum::<f64>() / count,
        )
        .and("accuracy", "accuracy", correct as f64 / count)
        .and("auc", "AUC", ranking.auc())
        .and("rejection_50", "background rejection at 50% signal efficiency", ranking.rejection(0.5))
        .and("rejection_30", "background rejection at 30% signal efficiency", ranking.rejection(0.3)))
    }

    fn asymmetry(
        model: &JetTagger,
        data: &JetSets,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        let data = data.clone().take(SYMMETRY_SAMPLES);
        let plain = scores(model, &data, placement)?;
        let mut worst = 0f64;
        for reflections in 1..=4 {
            let isometry = Isometry::random(Signature::STA, reflections, rng)?;
            let moved = scores(model, &data.clone().moved(&isometry)?, placement)?;
            worst = worst.max(relative_distance(&moved, &plain));
        }
        Ok(worst)
    }
}

/// The logarithm of the odds of three prongs, of each jet.
fn scores(model: &JetTagger, data: &JetSets, placement: &Placement) -> gradewise_nn::Result<Vec<f64>> {
    let mut scores = Vec::with_capacity(data.labels().len());
    for_each_batch(data, EVALUATION_BATCH, placement, |batch| {
        let logits = no_grad(|| model.forward(batch))?.array().to_f64_vec()?;
        scores.extend(logits.chunks_exact(2).map(|logits| logits[1] - logits[0]));
        Ok(())
    })?;
    Ok(scores)
}
