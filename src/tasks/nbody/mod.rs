//! The n-body experiment: its data, its model, and published results.

mod rollout;

use gradewise_core::Signature;
use gradewise_nn::symmetry::{Isometry, relative_distance};
use gradewise_runner::{
    output, plots,
    prelude::*,
    task::{Compared, Comparison, Rollout, Whose},
};
use gradewise_zoo::{
    data::{
        nbody::{INPUT_FRAME, NBodyData, PARTICLES, PublishedDraws, TARGET_FRAME, Trajectories},
        potential::turned,
    },
    models::{NBody, NBodyBatch, NBodyConfig},
    train::nbody::{mean_squared_error, predict, predict_states, squared_errors},
};
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// The samples shown in `trajectories.svg`: the share of those drawn from that have a larger error.
const PANELS: [(f64, &str); 6] = [
    (0.0, "worst"),
    (0.1, "90th percentile"),
    (0.25, "75th percentile"),
    (0.5, "median"),
    (0.75, "25th percentile"),
    (1.0, "best"),
];
/// The number of test samples that these are chosen from: those whose whole paths are simulated again for the figure.
const DRAWN_FROM: usize = 60;

/// Charged particles in space.
pub struct NBodyTask;

gradewise_nn::choices! {
    /// The named sources of systems.
    pub enum Systems {
        /// Those of the published data set, drawn again from their seed
        Published = "published",
        /// Our own, simulated from `data.seed`
        Simulate = "simulate",
    }
}

/// The setting for the simulated source.
const SIMULATED: Source<Systems> = Source::Named(Systems::Simulate);
const PUBLISHED_SET: Source<Systems> = Source::Named(Systems::Published);

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NBodySource {
    /// `published`: the systems of the published data set, reproduced from their seed; `simulate`: new systems; or a folder of NumPy files
    /// in the format of the publication's generator.
    pub source: Source<Systems>,
    /// The suffix of the files in the folder, such as `_charged5_initvel1small`; empty if there is only one set.
    pub suffix: String,
    /// Seed of the simulated systems.
    pub seed: u64,
    /// Samples of each split.
    #[serde(flatten)]
    pub splits: Splits,
    /// Particles of a simulated system.
    pub particles: usize,
    /// The number of training samples from each simulated system: from frame 30 to 40, from 40 to 50, and so on. 1 is the published task; a
    /// model for rollouts needs more. Valid and test splits have only the first.
    pub moments: usize,
    /// The number of additional training samples from earlier frames of each system: from frame 20 to 30, from 10 to 20, from 0 to 10. The
    /// published files contain these frames, but the publications train only on frames 30 to 40. Not available for files.
    pub earlier: usize,
    /// Whether each training sample is also used in reversed time: from its end, with velocities negated, to its start.
    pub reversal: bool,
}

impl DataSection for NBodySource {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        self.source.validate("data.source")?;
        at_least_one(&[("data.moments", self.moments)])?;
        if self.particles < 2 {
            return refuse("data.particles", self.particles, "at least 2: messages need neighbours");
        }
        if self.source == PUBLISHED_SET {
            if self.particles != PARTICLES {
                return refuse(
                    "data.particles",
                    self.particles,
                    "5 for the published systems, or data.source=simulate",
                );
            }
            for (key, split) in
                [("data.train", Split::Train), ("data.valid", Split::Valid), ("data.test", Split::Test)]
            {
                let wanted = self.splits.of(split);
                if wanted > PublishedDraws::available(split) {
                    let expected = "at most the published 10000 train, 2000 valid and 2000 test systems, or data.source=simulate";
                    return refuse(key, wanted, expected);
                }
            }
        }
        if self.earlier > 0 && (self.moments > 1 || self.source.path().is_some() || self.earlier > EARLIER) {
            let expected = "at most 3; 0 for files, and where data.moments is not 1";
            return refuse("data.earlier", self.earlier, expected);
        }
        if self.moments > 1 && self.source.path().is_some() {
            return refuse("data.moments", self.moments, "1 for files, which hold no later frames");
        }
        Ok(())
    }

    fn train(&self) -> usize {
        self.splits.train
    }

    fn fitted(&self) -> usize {
        self.splits.train * (1 + self.earlier) * if self.reversal { 2 } else { 1 }
    }
}

impl Task for NBodyTask {
    const NAME: &'static str = "nbody";
    const ABOUT: &'static str =
        "Charged particles in space: predict positions from positions, velocities and charges";
    const DETAILS: &'static str = "Simulates the data (or reads the published files), trains, and leaves a run folder: the resolved \
         configuration, metrics.jsonl, checkpoint.safetensors, loss.svg and trajectories.svg. Ctrl-C leaves a \
         checkpoint to resume from.";
    const EXAMPLES: &'static str = "\
gradewise train nbody                                  a few minutes on two cores
gradewise train nbody --preset paper --device cuda     the schedule of arXiv:2305.11141, best weights on the valid split
gradewise train nbody train.steps=60 model.layers=1    smaller
gradewise train nbody data.source=path/to/npy          the published data set
gradewise train nbody --resume runs/nbody-1            go on where a run stopped
gradewise train nbody --config runs/nbody-1/config.toml --seed 1
gradewise train nbody --device cuda --seeds 4          four runs, mean and deviation of the test error
gradewise train nbody --device cuda --seeds 4 --at-once 4
gradewise train nbody --curve 300,1000,3000            test error over the number of training samples
gradewise train nbody --device cuda --devices 2        two GPUs of this host (docs/scaling.md)
torchrun --nproc-per-node 2 --no-python gradewise train nbody --device cuda";
    const TITLE: &'static str = "n-body";
    const LOSS: &'static str = "mean squared error";
    const GROUP: &'static str = "rotations, reflections and translations";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "paper",
            about: "the schedule of arXiv:2305.11141",
            settings: &[
                LONG_RUN,
                &[
                    "train.steps=131072",
                    "train.warmup_steps=2048",
                    "train.decay_steps=32768",
                    "train.log_every=128",
                ],
            ],
        },
        Preset {
            name: "substeps",
            about: "a model of our own: the paper's layers as an integrator of eight steps, with pushes along lines",
            settings: &[
                LONG_RUN,
                &[
                    "data.reversal=true",
                    "model.hidden=8",
                    "model.layers=1",
                    "model.substeps=8",
                    "model.conjugation=true",
                    "model.pushes=true",
                    "train.steps=24576",
                    "train.warmup_steps=1024",
                    "train.ema=0.999",
                    "train.log_every=128",
                ],
            ],
        },
        Preset {
            name: "moments",
            about: "substeps, fitted to the earlier moments of the same systems, too, in larger batches",
            settings: &[
                LONG_RUN,
                &[
                    "data.reversal=true",
                    "data.earlier=3",
                    "model.hidden=8",
                    "model.layers=1",
                    "model.substeps=8",
                    "model.conjugation=true",
                    "model.pushes=true",
                    "train.batch_size=200",
                    "train.steps=32768",
                    "train.warmup_steps=1024",
                    "train.ema=0.999",
                    "train.log_every=128",
                ],
            ],
        },
        Preset {
            name: "kicks",
            about: "substeps of forces between pairs, 16 small steps in each, with corrections by messages",
            settings: &[
                LONG_RUN,
                &[
                    "data.reversal=true",
                    "model.hidden=8",
                    "model.layers=1",
                    "model.substeps=8",
                    "model.conjugation=true",
                    "model.kicks=16",
                    "model.softening=0.002",
                    "model.adaptive=true",
                    "model.paths=false",
                    "train.lr=0.003",
                    "train.steps=8192",
                    "train.warmup_steps=256",
                    "train.decay_steps=6144",
                    "train.clip_norm=0.1",
                    "train.ema=0.999",
                    "train.log_every=128",
                    "train.eval_every=512",
                ],
            ],
        },
    ];
    const ROLLOUT: Option<Rollout<Self>> = Some(rollout::rollout);
    type DataConfig = NBodySource;
    type ModelConfig = NBodyConfig;
    type Data = NBodyData;
    type Model = NBody;

    fn defaults() -> TaskConfig<Self> {
        let data = NBodySource {
            source: PUBLISHED_SET,
            suffix: String::new(),
            seed: 0,
            splits: Splits { train: 3000, valid: 2000, test: 2000 },
            particles: PARTICLES,
            moments: 1,
            earlier: 0,
            reversal: false,
        };
        let (model, train, runtime) = (NBodyConfig::default(), Train::default(), Runtime::default());
        Config { data, model, train, runtime }
    }

    fn check_model(config: &NBodyConfig) -> Result<(), ConfigError> {
        at_least_one(&[("model.hidden", config.hidden), ("model.layers", config.layers)])?;
        check(config)
    }

    fn load(config: &NBodySource, split: Split) -> Result<NBodyData> {
        if split != Split::Train {
            return single(config, split);
        }
        let forward = match (config.moments, config.earlier) {
            (1, 0) => single(config, split)?,
            (1, _) => earlier(config)?,
            _ => moments(config)?,
        };
        if !config.reversal {
            return Ok(forward);
        }
        // Each sample is followed by its reverse, so that a prefix of the samples is a prefix here, too.
        let samples = forward.len();
        let both = NBodyData::concat(&[forward.clone(), forward.reversed()?])?;
        Ok(both.select(&(0..2 * samples).map(|k| k % 2 * samples + k / 2).collect::<Vec<_>>())?)
    }

    fn init(
        config: &NBodyConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<NBody> {
        NBody::init(config, placement, rng)
    }

    fn fits(config: &NBodyConfig, weights: &TensorFile) -> bool {
        let deepest = config.layers.checked_sub(1).map(|last| format!("layers.{last}."));
        width(weights, "embedding.weight") == Some(config.hidden)
            && deepest.is_none_or(|prefix| has(weights, &prefix))
    }

    fn loss(model: &NBody, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor> {
        model.loss(&batch.batch, &batch.targets)
    }

    fn measure(models: &[&NBody], data: &NBodyData, _: &Placement) -> gradewise_nn::Result<Measures> {
        if !models.iter().all(|model| model.predicts_velocities()) {
            let loc = mean_prediction(models, |model| predict(model, data, EVALUATION_BATCH))?;
            let measures = Measures::new("mse", "MSE", mean_squared_error(&loc, data)?);
            return Ok(measures.of_samples(squared_errors(&loc, data)?));
        }
        let mut loc = mean_prediction(models, |model| {
            predict_states(model, data, EVALUATION_BATCH).map(|(loc, vel)| [loc, vel].concat())
        })?;
        let vel = loc.split_off(loc.len() / 2);
        let truth = data.target_vel().unwrap_or_default();
        let squares: f64 = vel.iter().zip(truth).map(|(p, t)| (p - t).powi(2)).sum();
        let measures = Measures::new("mse", "MSE", mean_squared_error(&loc, data)?)
            .of_samples(squared_errors(&loc, data)?);
        Ok(measures.and("velocity_mse", "MSE of velocities", squares / truth.len() as f64))
    }

    fn asymmetry(
        model: &NBody,
        data: &NBodyData,
        _: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        let data = data.select(&(0..SYMMETRY_SAMPLES.min(data.len())).collect::<Vec<_>>())?;
        let plain = predict(model, &data, EVALUATION_BATCH)?;
        let mut worst = 0f64;
        for reflections in 1..=3 {
            let isometry = Isometry::random(Signature::CL3, reflections, rng)?;
            let shift = [(); 3].map(|()| rng.random_range(-1.0..1.0));
            let start = data.moved(&isometry, shift)?;
            let moved = predict(model, &start, EVALUATION_BATCH)?;
            // Compares displacements, because positions grow with the translation and would hide errors.
            let displacements = |positions: &[f64], from: &NBodyData| -> Vec<f64> {
                positions.iter().zip(from.loc()).map(|(x, from)| x - from).collect()
            };
            // Does not validate predictions as data: diverged weights give NaN, which counts as an infinite distance.
            let expected = turned(&plain, data.particles(), &isometry, shift)?;
            let error = relative_distance(&displacements(&moved, &start), &displacements(&expected, &start));
            worst = worst.max(error);
            if model.predicts_velocities() {
                let velocities = |data: &NBodyData| predict_states(model, data, EVALUATION_BATCH);
                let expected = turned(&velocities(&data)?.1, data.particles(), &isometry, [0.0; 3])?;
                worst = worst.max(relative_distance(&velocities(&start)?.1, &expected));
            }
        }
        Ok(worst)
    }

    fn comparison(measures: &Measures, config: &TaskConfig<Self>) -> Option<Comparison> {
        // Only comparable if measured on published systems, and on about as many of them.
        let comparable = config.data.source != SIMULATED && config.data.splits.test >= COMPARABLE;
        comparable.then(|| table(measures.first().value))
    }

    fn program<'a>(
        model: &'a NBody,
        config: &TaskConfig<Self>,
        size: PredictionSize<'_>,
    ) -> Result<Option<Prediction<'a>>> {
        let particles = size.particles.unwrap_or(config.data.particles);
        if particles < 2 {
            return Err(Error::Usage(format!("--particles {particles}: messages need at least 2")));
        }
        let argument =
            |name: &str, about: &str, shape: &[usize]| (Argument::new(name, about), shape.to_vec());
        let inputs = vec![
            argument("loc", "x, y and z of all particles", &[3, particles]),
            argument("vel", "their velocities", &[3, particles]),
            argument("charges", "their charges", &[particles]),
        ];
        let output = Argument::new(
            "predicted",
            "x, y and z of all particles after the time that the model was trained for",
        );
        let run = |inputs: &[Tensor]| {
            let batch = NBodyBatch::of_system(&inputs[0], &inputs[1], &inputs[2])?;
            Ok(vec![model.forward(&batch)?])
        };
        Ok(Some(Prediction::new(inputs, vec![output], size.placement, run)?))
    }

    fn figures(
        model: &NBody,
        _: &Measures,
        config: &TaskConfig<Self>,
        _: &Placement,
        folder: &RunFolder,
    ) -> Result<Vec<&'static str>> {
        const FILE: &str = "trajectories.svg";
        let title = format!(
            "n-body: frame 40 predicted from frame 30; of {} test samples, in the plane of largest extent",
            DRAWN_FROM.min(config.data.splits.test)
        );
        let splits = Splits { test: DRAWN_FROM.min(config.data.splits.test), ..config.data.splits };
        let data = NBodySource { splits, ..config.data.clone() };
        let panels = panels(model, &trajectories(&data, Split::Test)?)?;
        plots::trajectories(&folder.file(FILE), &panels, &title)?;
        Ok(vec![FILE])
    }
}

/// Checks the settings of a particle model.
pub fn check(config: &NBodyConfig) -> Result<(), ConfigError> {
    const KEYS: [&str; 6] = [
        "model.pushes",
        "model.kicks",
        "model.corrections",
        "model.softening",
        "model.duration",
        "model.robust",
    ];
    let Some((name, actual, expected)) = config.fault() else { return Ok(()) };
    let key = KEYS.into_iter().find(|key| key.ends_with(name)).unwrap_or("model");
    refuse(key, actual, expected)
}

/// One sample, from the published frames, for each system of a split.
fn single(config: &NBodySource, split: Split) -> Result<NBodyData> {
    if config.source == PUBLISHED_SET {
        return Ok(NBodyData::published(split, config.splits.of(split))?);
    }
    Ok(NBodyData::from_trajectories(&trajectories(config, split)?)?)
}

/// The number of non-overlapping samples from earlier frames.
const EARLIER: usize = INPUT_FRAME / (TARGET_FRAME - INPUT_FRAME);

/// Samples from the frames of the task and from earlier ones, ordered by system, so that a prefix covers fewer systems.
fn earlier(config: &NBodySource) -> Result<NBodyData> {
    const APART: usize = TARGET_FRAME - INPUT_FRAME;
    let motion = trajectories(config, Split::Train)?;
    let (systems, moments) = (motion.systems(), 1 + config.earlier);
    let at =
        |back: usize| NBodyData::between(&motion, INPUT_FRAME - APART * back, TARGET_FRAME - APART * back);
    let all = NBodyData::concat(&(0..moments).map(at).collect::<Result<Vec<_>, _>>()?)?;
    let order: Vec<usize> = (0..moments * systems).map(|k| k % moments * systems + k / moments).collect();
    Ok(all.select(&order)?)
}

/// Samples from several frames of simulated systems.
fn moments(config: &NBodySource) -> Result<NBodyData> {
    const APART: usize = TARGET_FRAME - INPUT_FRAME;
    let (moments, systems) = (config.moments, config.splits.train.div_ceil(config.moments));
    let frames = TARGET_FRAME + 1 + APART * (moments - 1);
    let motion = if config.source == PUBLISHED_SET {
        Trajectories::published(Split::Train, systems, frames)?
    } else {
        Trajectories::simulate(config.particles, systems, frames, config.seed, Split::Train)?
    };
    let at = |moment: usize| {
        NBodyData::between(&motion, INPUT_FRAME + APART * moment, TARGET_FRAME + APART * moment)
    };
    let all = NBodyData::concat(&(0..moments).map(at).collect::<Result<Vec<_>, _>>()?)?;
    // Ordered by system, so that a prefix covers fewer systems.
    let order: Vec<usize> = (0..config.splits.train).map(|k| k % moments * systems + k / moments).collect();
    Ok(all.select(&order)?)
}

/// Published mean squared errors on the test split, and their standard deviations where they are published.
const PUBLISHED: [(&str, f64, Option<f64>); 8] = [
    ("SE(3)-Transformer", 0.0244, None),
    ("TFN", 0.0155, None),
    ("NMP", 0.0107, None),
    ("Radial Field", 0.0104, None),
    ("EGNN", 0.0070, None),
    ("SEGNN", 0.0043, None),
    ("CGENN", 0.0039, Some(0.0001)),
    ("Multivector Neurons", 0.0035, None),
];

/// The minimum number of test systems for a comparison with published errors, which are on 2,000.
const COMPARABLE: usize = 1000;

/// The trajectories of one split: simulated, or read from the published files.
///
/// # Errors
/// Files that are missing or unusable.
pub fn trajectories(config: &NBodySource, split: Split) -> Result<Trajectories> {
    let wanted = config.splits.of(split);
    let suffix = (!config.suffix.is_empty()).then_some(config.suffix.as_str());
    let frames = TARGET_FRAME + 1;
    let all = match &config.source {
        Source::Named(Systems::Published) => return Ok(Trajectories::published(split, wanted, frames)?),
        Source::Named(Systems::Simulate) => {
            return Ok(Trajectories::simulate(config.particles, wanted, frames, config.seed, split)?);
        }
        Source::Path(folder) => Trajectories::load(folder, split, suffix)?,
    };
    if all.systems() < wanted {
        output::note(&format!(
            "data: {} has {} of the {wanted} {split} samples asked for",
            config.source,
            all.systems()
        ));
    }
    let count = wanted.min(all.systems());
    Ok(all.take(count)?)
}

/// The published table with `ours` inserted; a single line if `ours` is far from all of them.
fn table(ours: f64) -> Comparison {
    let [worst, best] = [f64::max, f64::min]
        .map(|which| PUBLISHED.iter().map(|(_, error, _)| *error).reduce(which).unwrap_or(f64::NAN));
    // NaN counts as far.
    let is_far = ours.is_nan() || ours >= 10.0 * worst;
    let published = |&(name, error, deviation): &(&str, f64, Option<f64>)| Compared {
        deviation,
        ..Compared::new(name, Whose::Published, vec![error])
    };
    let mut rows: Vec<Compared> = PUBLISHED.iter().map(published).collect();
    let place = rows.iter().position(|row| row.values[0] < ours).unwrap_or(rows.len());
    rows.insert(if is_far { 0 } else { place }, Compared::new("this run", Whose::Ours, vec![ours]));
    let instead = format!("published   {worst} to {best}; a longer run comes nearer (--preset paper)");
    Comparison { title: "test MSE".to_owned(), columns: Vec::new(), rows, instead: is_far.then_some(instead) }
}

/// The position of a particle among positions `[systems, 3, particles]`.
pub fn position(values: &[f64], particles: usize, system: usize, particle: usize) -> [f64; 3] {
    std::array::from_fn(|axis| values[(system * 3 + axis) * particles + particle])
}

/// Panels of predicted and true motion, from the sample with the largest error to that with the smallest.
///
/// # Errors
/// Trajectories that lack the frames of the task; from the device.
fn panels(model: &NBody, trajectories: &Trajectories) -> gradewise_nn::Result<Vec<plots::Panel>> {
    let data = NBodyData::from_trajectories(trajectories)?;
    let predictions = predict(model, &data, EVALUATION_BATCH)?;
    let errors = squared_errors(&predictions, &data)?;
    let frames = (INPUT_FRAME..=TARGET_FRAME)
        .map(|frame| trajectories.loc_at(frame))
        .collect::<Result<Vec<_>, _>>()?;
    let particles = data.particles();
    let panel = |(system, name): (usize, &str)| plots::Panel {
        title: format!("{name}: sample {system}, MSE {:.1e}", errors[system]),
        error: errors[system],
        particles: (0..particles)
            .map(|particle| plots::Particle {
                charge: data.charges()[system * particles + particle],
                path: frames.iter().map(|frame| position(frame, particles, system, particle)).collect(),
                predicted: position(&predictions, particles, system, particle),
            })
            .collect(),
    };
    Ok(chosen(&errors).into_iter().map(panel).collect())
}

/// The samples of the panels, each once, with their names.
fn chosen(errors: &[f64]) -> Vec<(usize, &'static str)> {
    let mut order: Vec<usize> = (0..errors.len()).collect();
    order.sort_by(|&a, &b| errors[b].total_cmp(&errors[a]));
    let mut chosen: Vec<(usize, &str)> = Vec::new();
    for (share, name) in PANELS {
        let place = (share * order.len().saturating_sub(1) as f64).round() as usize;
        let Some(&system) = order.get(place) else { break };
        if chosen.iter().all(|&(other, _)| other != system) {
            chosen.push((system, name));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_runner::{config::Resolver, task::resolve};

    #[test]
    fn only_runs_of_the_published_task_are_compared() {
        let text = |setting: &str| {
            let mut resolver = Resolver::new(&NBodyTask::defaults()).unwrap();
            let config = resolve::<NBodyTask>(resolver.assignment(setting).unwrap()).unwrap();
            NBodyTask::comparison(&Measures::new("mse", "MSE", 0.008), &config)
        };
        assert!(text("train.seed=1").unwrap().to_string().contains("> this run"));
        assert_eq!((text("data.source=simulate"), text("data.test=8")), (None, None));
    }

    #[test]
    fn the_table_has_this_run_in_its_place() {
        for far in [0.5, f64::NAN] {
            let line = table(far).to_string();
            assert!(line.lines().count() == 1 && line.contains("0.0244 to 0.0035"), "{line}");
        }
        for (ours, before, after) in [(0.05, 0, 8), (0.0080, 4, 4), (0.0001, 8, 0)] {
            let table = table(ours).to_string();
            let rows: Vec<&str> = table.lines().skip(1).collect();
            assert_eq!(rows.len(), 9);
            assert_eq!(rows.iter().position(|row| row.starts_with('>')), Some(before));
            assert_eq!(rows.len() - 1 - before, after);
        }
    }

    #[test]
    fn panels_go_from_the_worst_sample_to_the_best() {
        let errors: Vec<f64> = (0..60).map(|k| f64::from((k * 7) % 60)).collect();
        let ranks: Vec<f64> = chosen(&errors).iter().map(|&(system, _)| errors[system]).collect();
        assert_eq!(ranks, [59.0, 53.0, 44.0, 29.0, 15.0, 0.0]);
        let few = chosen(&[1.0, 3.0]);
        assert_eq!(few, [(1, "worst"), (0, "median")]);
        assert_eq!(chosen(&[]), []);
    }

    #[test]
    fn the_schedule_follows_the_steps_unless_it_is_set() {
        let schedule = |assignments: &[&str]| {
            let mut resolver = Resolver::new(&NBodyTask::defaults()).unwrap();
            for assignment in assignments {
                resolver.assignment(assignment).unwrap();
            }
            resolve::<NBodyTask>(&resolver)
                .map(|config| (config.train.trainer.warmup_steps, config.train.trainer.decay_steps))
        };
        assert_eq!(schedule(&[]).unwrap(), (100, 2500));
        assert_eq!(schedule(&["train.steps=60"]).unwrap(), (1, 39));
        assert_eq!(schedule(&["train.steps=1"]).unwrap(), (0, 1));
        assert_eq!(schedule(&["train.warmup_steps=7", "train.steps=60"]).unwrap(), (7, 39));
        assert!(schedule(&["train.warmup_steps=61", "train.steps=60"]).is_err());
    }

    #[test]
    fn samples_are_fitted_backwards_too_on_request() {
        let source = |reversal, train| {
            let data = NBodyTask::defaults().data;
            NBodySource { splits: Splits { train, valid: 4, ..data.splits }, reversal, ..data }
        };
        let load = |reversal, train| NBodyTask::load(&source(reversal, train), Split::Train).unwrap();
        let (forward, both, fewer) = (load(false, 3), load(true, 3), load(true, 2));
        assert_eq!((forward.len(), both.len(), source(true, 3).fitted()), (3, 6, 6));
        let picked = |data: &NBodyData, k: &[usize]| data.select(k).unwrap();
        assert_eq!(picked(&both, &[0, 2, 4]).loc(), forward.loc());
        assert_eq!(picked(&both, &[1, 3, 5]).loc(), forward.target());
        assert_eq!(picked(&both, &[1, 3, 5]).target(), forward.loc());
        assert_eq!(picked(&both, &[0, 1, 2, 3]).vel(), fewer.vel());
        assert_eq!(NBodyTask::load(&source(true, 3), Split::Valid).unwrap().len(), 4);
    }

    #[test]
    fn earlier_moments_of_the_same_systems_are_fitted_on_request() {
        let source = |earlier, train| {
            let data = NBodyTask::defaults().data;
            NBodySource { splits: Splits { train, ..data.splits }, earlier, ..data }
        };
        let load = |earlier, train| NBodyTask::load(&source(earlier, train), Split::Train).unwrap();
        let (one, all, fewer) = (load(0, 3), load(3, 3), load(3, 2));
        assert_eq!((all.len(), source(3, 3).fitted()), (12, 12));
        let picked = |data: &NBodyData, k: &[usize]| data.select(k).unwrap();
        assert_eq!(picked(&all, &[0, 4, 8]), one);
        assert_eq!(picked(&all, &(0..8).collect::<Vec<_>>()), fewer);
        // Each ends where the one after it begins.
        assert_eq!(picked(&all, &[1, 5, 9]).target(), one.loc());
        assert_eq!(picked(&all, &[3, 7, 11]).target(), picked(&all, &[2, 6, 10]).loc());
    }

    #[test]
    fn senseless_values_are_named() {
        for (assignment, part) in [
            ("train.batch_size=0", "at least 1"),
            ("train.batch_size=3001", "data.train = 3000"),
            ("train.lr=nan", "greater than 0"),
            ("train.lr=-1", "greater than 0"),
            ("train.ema=1.0", "less than 1"),
            ("data.particles=3", "data.source=simulate"),
            ("data.earlier=4", "at most 3"),
            ("model.kicks=8", "where substeps"),
            ("model.corrections=false", "true where kicks"),
            ("model.robust=-1", "greater than 0"),
            ("data.train=10001", "data.source=simulate"),
            ("train.warmup_steps=5000", "train.steps"),
            ("train.optimizer=lion", "`lion`, expected one of adam, adamw, sgd"),
            ("train.optimizer=adamm", "did you mean `adam`?"),
            ("train.schedule=cosin", "did you mean `cosine`?"),
            ("train.select=bset", "did you mean `best`?"),
            ("runtime.compute=fast", "`fast`, expected one of exact, tf32"),
            ("runtime.dtype=f3", "did you mean `f32`?"),
            ("runtime.precision=fp8", "one of full, bf16, f16"),
            ("runtime.strategy=pipeline", "data-parallel, the only one there is"),
            ("runtime.backends.sgp=cpu", "expected one of reference, cuda"),
            ("runtime.autocast.softmax=f16", "expected one of 16-bit, f32, widest, first"),
        ] {
            let mut resolver = Resolver::new(&NBodyTask::defaults()).unwrap();
            // Together with a valid setting, which must not be blamed.
            resolver.assignment("train.patience=3").unwrap().assignment(assignment).unwrap();
            let message = resolve::<NBodyTask>(&resolver).unwrap_err().to_string();
            let key = assignment.split('=').next().unwrap();
            assert!(message.contains(part) && message.contains(key), "{message}");
        }
    }
}
