//! Jet tagging in the space-time algebra.

mod measures;

use gradewise_core::{DType, Signature};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    data::for_each_group,
    symmetry::{Isometry, relative_distance},
};
use gradewise_runner::prelude::*;
use gradewise_transformers::Channels;
use gradewise_zoo::{
    data::jets::{JetBatch, JetSets},
    models::{JetKind, JetTagger, JetTaggerConfig, Reference},
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
    /// Batches are padded to a multiple of so many particles; on a GPU each number of particles is recorded once.
    #[serde(default = "one")]
    pub multiple: usize,
}

// The default for configurations written before there was the setting.
const fn one() -> usize {
    1
}

/// The largest `data.multiple`: more particles than jets have.
const MOST_PADDED: usize = 1024;

impl DataSection for JetSource {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        self.source.validate("data.source")?;
        if self.particles < 2 {
            return refuse("data.particles", self.particles, "at least 2: messages need neighbours");
        }
        if !(1..=MOST_PADDED).contains(&self.multiple) {
            return refuse("data.multiple", self.multiple, &format!("1 to {MOST_PADDED}"));
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
         Measures are accuracy, AUC, and one over the background that passes at 50% and 30% signal efficiency, with their standard \
         errors, and calibration; an ensemble has the mean of its models' probabilities.";
    const EXAMPLES: &'static str = "\
gradewise train lorentz
gradewise train lorentz --preset full --device cuda
gradewise train lorentz model.kind=lgatr                    the published L-GATr; slim for L-GATr-slim
gradewise train lorentz --preset pairs data.source=top-jets  a small transformer that sees pairs of particles
gradewise train lorentz data.source=path/to/top-tagging data.train=1211000 data.particles=32    train.h5, val.h5, test.h5";
    const TITLE: &'static str = "three-prong against one-prong jets";
    const LOSS: &'static str = "cross-entropy";
    const DECIDES: &'static str = "cross_entropy";
    const GROUP: &'static str = "boosts, rotations and (but of lgatr) reflections of space and time, as far as they keep model.reference";
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
        Preset {
            name: "pairs",
            about: "a small transformer that sees pairs, for jets from files",
            settings: &[&[
                "model.kind=pairs",
                "model.hidden=8",
                "model.scalars=32",
                "model.layers=3",
                "model.units=16",
                "data.particles=128",
                // 16 shapes of batches at most; as long as their longest jet they would be 100, and a GPU keeps the recordings of 32.
                "data.multiple=8",
                "train.batch_size=64",
                "train.lr=3e-3",
                "train.clip_norm=1",
            ]],
        },
        Preset {
            name: "trigger",
            about: "pairs with about 1,000 parameters and 16 particles, for export --to c",
            settings: &[&[
                "model.kind=pairs",
                "model.hidden=2",
                "model.scalars=8",
                "model.layers=1",
                "model.heads=2",
                "model.units=8",
                "data.particles=16",
                "train.batch_size=64",
                "train.lr=3e-3",
                "train.clip_norm=1",
            ]],
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
            multiple: 1,
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
            reference: Reference::None,
        };
        Config { data, model, train, runtime: Runtime::default() }
    }

    fn check_model(config: &JetTaggerConfig) -> Result<(), ConfigError> {
        let JetTaggerConfig { kind, hidden, layers, units, scalars, heads, reference } = *config;
        if reference != Reference::None && kind != JetKind::Pairs {
            return refuse(
                "model.reference",
                reference,
                "none, or model.kind=pairs: the other models see no directions",
            );
        }
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
        }?
        .padded_to(config.multiple))
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
            JetKind::Pairs => {
                width(weights, "embedding.weight") == Some(config.scalars)
                    && width(weights, "vectors.weight") == Some(config.hidden)
                    && width(weights, "pairs.out.weight") == config.layers.checked_mul(config.heads)
                    && width(weights, "classifier.0.weight") == Some(config.units)
                    && last("blocks")
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
        let each = models
            .iter()
            .map(|model| scores(model, data, placement))
            .collect::<gradewise_nn::Result<Vec<_>>>()?;
        measures::measures(&measures::mean_log_odds(&each), data.labels())
    }

    fn program<'a>(
        model: &'a JetTagger,
        config: &TaskConfig<Self>,
        size: PredictionSize<'_>,
    ) -> Result<Option<Prediction<'a>>> {
        let particles = size.particles.unwrap_or(config.data.particles);
        if particles < 2 {
            return Err(Error::Usage(format!("--particles {particles}: a jet has at least 2")));
        }
        let dtype = size.placement.dtype;
        // As they come from files; rest frames are computed in double precision.
        let inputs = vec![
            (
                Argument::new("momenta", "E, px, py, pz of each particle, in GeV, in any order"),
                vec![particles, 4],
            ),
            (
                Argument::count(
                    "count",
                    format!("the number of particles, 2 to {particles}; rows after them are not read as any"),
                ),
                vec![particles],
            ),
        ];
        let output = Argument::new("probability", "that of three prongs");
        let run = move |inputs: &[Tensor]| {
            let [momenta, there] = [0, 1].map(|input| inputs[input].cast(DType::F64));
            let batch = JetBatch::of_momenta(&momenta?, &there?, dtype)?;
            Ok(vec![model.forward(&batch)?.softmax(1)?.slice(1, 1..2)?])
        };
        // Of different lengths, so that a model which lists the particles that are there is refused.
        let examples = [(particles, 0), (2.max(particles / 2), 1)];
        let examples = examples.map(|(count, seed)| example(particles, count, seed, size.placement));
        let [first, second] = examples;
        let prediction =
            Prediction::new(inputs, vec![output], size.placement, run)?.examples([first?, second?]);
        Ok(Some(
            prediction.about(format!("The {particles} particles of largest transverse momentum are seen.")),
        ))
    }

    fn figures(
        _: &JetTagger,
        measures: &Measures,
        config: &TaskConfig<Self>,
        _: &Placement,
        folder: &RunFolder,
    ) -> Result<Vec<&'static str>> {
        let jets = match config.data.source {
            Source::Named(_) => "toy jets",
            Source::Path(_) => "jets",
        };
        measures::figures(measures, &format!("{jets}, {} particles at most", config.data.particles), folder)
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
            let fixed = model.reference().fixed();
            let isometry = Isometry::random_fixing(Signature::STA, fixed, reflections, rng)?;
            let moved = scores(model, &data.clone().moved(&isometry)?, placement)?;
            worst = worst.max(relative_distance(&moved, &plain));
        }
        Ok(worst)
    }
}

/// The inputs of a prediction for a jet of the generator, of which at most `count` particles are there.
fn example(
    particles: usize,
    count: usize,
    seed: u64,
    placement: &Placement,
) -> gradewise_nn::Result<Vec<Tensor>> {
    let jets = JetSets::simulate(1, particles, seed, Split::Train)?;
    let there: Vec<f64> =
        (0..particles).map(|particle| f64::from(particle < jets.count(0).min(count))).collect();
    let tensor = |values: &[f64], shape: &[usize]| -> gradewise_nn::Result<Tensor> {
        Ok(Tensor::new(Array::from_f64(values, shape, placement.dtype, &Device::Cpu)?))
    };
    Ok(vec![tensor(&jets.momenta(), &[particles, 4])?, tensor(&there, &[particles])?])
}

/// The most pairs of particles that are evaluated together.
const EVALUATED_PAIRS: usize = EVALUATION_BATCH * 256;

/// The log odds of three prongs, for each jet.
fn scores(model: &JetTagger, data: &JetSets, placement: &Placement) -> gradewise_nn::Result<Vec<f64>> {
    let mut scores = vec![0.0; data.labels().len()];
    let groups = data.groups(EVALUATION_BATCH, EVALUATED_PAIRS);
    for_each_group(data, groups, placement, |jets, batch| {
        let logits = no_grad(|| model.forward(batch))?.array().to_f64_vec()?;
        for (&jet, logits) in jets.iter().zip(logits.chunks_exact(2)) {
            scores[jet] = logits[1] - logits[0];
        }
        Ok(())
    })?;
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_for_models_that_see_them() {
        let config = |kind, reference| JetTaggerConfig { kind, reference, ..Lorentz::defaults().model };
        for kind in [JetKind::Messages, JetKind::LGATr, JetKind::Slim] {
            let message = Lorentz::check_model(&config(kind, Reference::Beam)).unwrap_err().to_string();
            assert!(message.contains("model.reference") && message.contains("model.kind=pairs"), "{message}");
        }
        assert!(Lorentz::check_model(&config(JetKind::Pairs, Reference::Beam)).is_ok());
    }

    /// The symmetry that is reported is that of the group that is left.
    #[test]
    fn asymmetry_is_that_under_the_remaining_group() {
        let config = JetTaggerConfig {
            kind: JetKind::Pairs,
            reference: Reference::TimeBeam,
            hidden: 4,
            units: 8,
            ..Lorentz::defaults().model
        };
        let place = Placement::new(&gradewise_kernels::Device::Cpu, gradewise_kernels::DType::F64);
        let mut rng = rand::SeedableRng::seed_from_u64(1);
        let model = JetTagger::init(&config, &place, &mut rng).unwrap();
        let data = JetSets::simulate(20, 12, 0, Split::Test).unwrap();
        let found = Lorentz::asymmetry(&model, &data, &place, &mut rng).unwrap();
        assert!(found < 1e-9, "{found:e}");
    }
}
