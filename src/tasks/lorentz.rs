//! Jet tagging in the space-time algebra.

use gradewise_core::Signature;
use gradewise_nn::{
    geometric::Channels,
    metrics::Ranking,
    symmetry::{Isometry, relative_distance},
};
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::jets::JetSets,
    models::{JetKind, JetTagger, JetTaggerConfig},
};
use serde::{Deserialize, Serialize};

/// Three-prong against one-prong jets.
pub struct Lorentz;

gradewise_nn::choices! {
    /// The named sources of jets.
    pub enum Generator {
        /// A small generator of decay chains
        Simulate = "simulate",
    }
}

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JetSource {
    /// `simulate`, or a folder of HDF5 or NumPy files.
    pub source: Source<Generator>,
    /// Seed of the simulated jets.
    pub seed: u64,
    /// Samples of each split.
    #[serde(flatten)]
    pub splits: Splits,
    /// Particles kept of each jet, those of largest transverse momentum.
    pub particles: usize,
}

impl DataSection for JetSource {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        self.source.validate("data.source")?;
        if self.particles < 2 {
            return refuse("data.particles", self.particles, "at least 2: messages need neighbours");
        }
        Ok(())
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

impl Task for Lorentz {
    const NAME: &'static str = "lorentz";
    const ABOUT: &'static str = "Jets with three prongs against jets with one, in the space-time algebra Cl(1,3): invariant under boosts";
    const DETAILS: &'static str = "Events come from a small generator of decay chains, which is no simulation of a collider: see docs/data.md. \
         Measures are accuracy, AUC, and one over the background that passes at 50% and 30% signal efficiency.";
    const EXAMPLES: &'static str = "\
gradewise train lorentz
gradewise train lorentz --preset full --device cuda
gradewise train lorentz model.kind=lgatr                    the published L-GATr; slim for L-GATr-slim
gradewise train lorentz data.source=path/to/top-tagging data.train=1211000 data.particles=32    train.h5, val.h5, test.h5";
    const TITLE: &'static str = "three-prong against one-prong jets";
    const LOSS: &'static str = "cross-entropy";
    const DECIDES: &'static str = "cross_entropy";
    const GROUP: &'static str = "boosts, rotations and (but of lgatr) reflections of space and time";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "full",
            about: "more particles, jets and steps",
            settings: &[
                LONG_RUN,
                &[
                    "data.train=100000",
                    "data.valid=10000",
                    "data.test=40000",
                    "data.particles=16",
                    "model.hidden=12",
                    "train.steps=16384",
                    "train.batch_size=64",
                ],
            ],
        },
    ];
    type DataConfig = JetSource;
    type ModelConfig = JetTaggerConfig;
    type Data = JetSets;
    type Model = JetTagger;

    fn defaults() -> TaskConfig<Self> {
        let data = JetSource {
            source: Source::Named(Generator::Simulate),
            seed: 0,
            splits: Splits { train: 20000, valid: 2000, test: 10000 },
            particles: 12,
        };
        let train = Train {
            trainer: TrainerConfig {
                steps: 2048,
                lr: 2e-3,
                weight_decay: 1e-2,
                optimizer: OptimizerKind::AdamW,
                clip_norm: Some(5.0),
                ..TrainerConfig::default()
            },
            batch_size: 32,
            eval_every: 256,
            checkpoint_every: 512,
            ..Train::default()
        };
        let model = JetTaggerConfig {
            kind: JetKind::Messages,
            hidden: 8,
            layers: 2,
            units: 64,
            scalars: 16,
            heads: 4,
        };
        Config { data, model, train, runtime: Runtime::default() }
    }

    fn check_model(config: &JetTaggerConfig) -> Result<(), ConfigError> {
        let JetTaggerConfig { kind: _, hidden, layers, units, scalars, heads } = *config;
        at_least_one(&[
            ("model.hidden", hidden),
            ("model.layers", layers),
            ("model.units", units),
            ("model.scalars", scalars),
            ("model.heads", heads),
        ])
    }

    fn load(config: &JetSource, split: Split) -> Result<JetSets> {
        let jets = config.splits.of(split);
        Ok(match &config.source {
            Source::Named(Generator::Simulate) => {
                JetSets::simulate(jets, config.particles, config.seed, split)
            }
            Source::Path(folder) => JetSets::load(folder, split, config.particles, jets),
        }?)
    }

    fn init(
        config: &JetTaggerConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<JetTagger> {
        JetTagger::init(config, placement, rng)
    }

    fn fits(config: &JetTaggerConfig, weights: &TensorFile) -> bool {
        let shape = |name: &str| weights.get(name).map(|tensor| tensor.shape().to_vec()).unwrap_or_default();
        let first = |name: &str| shape(name).first().copied();
        let last = |prefix: &str| has(weights, &format!("{prefix}.{}.", config.layers - 1));
        match config.kind {
            JetKind::Messages => {
                width(weights, "embedding.weight") == Some(config.hidden)
                    && last("layers")
                    && width(weights, "classifier.0.weight") == Some(config.units)
            }
            JetKind::LGATr => {
                let hidden = Channels::new(config.hidden, config.scalars);
                let of_head = config.lgatr().attention.of_head(hidden).ok();
                let together = of_head.and_then(|of_head| config.heads.checked_mul(of_head.multivectors));
                first("net.linear_in.weight") == Some(config.hidden)
                    && first("net.linear_in.mvs2s.weight") == Some(config.scalars)
                    && shape("net.blocks.0.attention.out_linear.weight").get(1).copied() == together
                    && last("net.blocks")
            }
            JetKind::Slim => {
                let together = config.heads.checked_mul((config.hidden / config.heads.max(1)).max(1));
                first("net.linear_in.weight_v") == Some(config.hidden)
                    && first("net.linear_in.linear_s.weight") == Some(config.scalars)
                    && width(weights, "net.blocks.0.attention.linear_out.weight_v") == together
                    && last("net.blocks")
            }
        }
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
            if reflections % 2 == 1 && !model.admits_reflections() {
                continue;
            }
            let isometry = Isometry::random(Signature::STA, reflections, rng)?;
            let moved = scores(model, &data.clone().moved(&isometry)?, placement)?;
            worst = worst.max(relative_distance(&moved, &plain));
        }
        Ok(worst)
    }
}

/// The log odds of three prongs, for each jet.
fn scores(model: &JetTagger, data: &JetSets, placement: &Placement) -> gradewise_nn::Result<Vec<f64>> {
    let mut scores = Vec::with_capacity(data.labels().len());
    for_each_batch(data, EVALUATION_BATCH, placement, |batch| {
        let logits = no_grad(|| model.forward(batch))?.array().to_f64_vec()?;
        scores.extend(logits.chunks_exact(2).map(|logits| logits[1] - logits[0]));
        Ok(())
    })?;
    Ok(scores)
}
