//! A force field learned only from forces, and its dynamics.

use gradewise_core::Signature;
use gradewise_nn::symmetry::{Isometry, relative_distance};
use gradewise_runner::{output, plots, prelude::*};
use gradewise_zoo::{
    data::potential::{ForceData, MOST_PARTICLES, Motion, Potential, turned, velocity_verlet},
    models::{ForceField, ForceFieldConfig, ForceFieldKind},
};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// The number of systems whose motion is simulated.
const FOLLOWED: usize = 16;
/// Time step of the simulated motion.
const TIME_STEP: f64 = 0.02;

/// Charged particles bound by springs.
pub struct Forces;

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ForceSource {
    /// The potential that gives the forces.
    pub potential: Potential,
    /// Seed of the systems.
    pub seed: u64,
    /// Samples of each split.
    #[serde(flatten)]
    pub splits: Splits,
    /// Particles of a system.
    pub particles: usize,
    /// Steps of the simulated motion in energy.svg.
    pub follow: usize,
}

impl DataSection for ForceSource {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        if self.particles < 2 {
            return refuse("data.particles", self.particles, "at least 2: there are no forces on one");
        }
        if self.potential != Potential::Charges && self.particles > MOST_PARTICLES {
            let expected =
                format!("at most {MOST_PARTICLES}, which trajectories of {} start with", self.potential);
            return refuse("data.particles", self.particles, &expected);
        }
        Ok(())
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

impl Task for Forces {
    const NAME: &'static str = "forces";
    const ABOUT: &'static str =
        "A force field: an energy learned from forces alone, whose dynamics conserves it";
    const DETAILS: &'static str = "Charged particles bound by springs, or another potential in closed form (data.potential). The loss is on the gradient of the energy, so \
         training needs second derivatives of the network. energy.svg shows the energies along the motion under \
         the learned forces.";
    const EXAMPLES: &'static str = "\
gradewise train forces
gradewise train forces --preset full
gradewise train forces data.particles=6 model.layers=1
gradewise train forces --preset quadrupole                     features with tensors of rank 2
gradewise train forces --preset quadrupole model.kind=vectors  the same model without them
gradewise train forces --preset silicon";
    const TITLE: &'static str = "forces of charged particles bound by springs";
    const LOSS: &'static str = "mean squared error of forces";
    const GROUP: &'static str = "rotations, reflections and translations";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "full",
            about: "a wider model and more steps",
            settings: &[
                LONG_RUN,
                &["data.train=10000", "model.hidden=16", "train.steps=16384", "train.batch_size=64"],
            ],
        },
        Preset {
            name: "quadrupole",
            about: "16 particles with quadrupoles, and one round of messages with tensors of rank 2",
            settings: &[&["data.potential=quadrupole"], SNAPSHOTS],
        },
        Preset {
            name: "silicon",
            about: "16 particles of Stillinger and Weber's silicon, and one round of messages with tensors of rank 2",
            settings: &[&["data.potential=stillinger-weber", "model.cutoff=1.8"], SNAPSHOTS],
        },
    ];
    type DataConfig = ForceSource;
    type ModelConfig = ForceFieldConfig;
    type Data = ForceData;
    type Model = ForceField;

    fn defaults() -> TaskConfig<Self> {
        let splits = Splits { train: 3000, valid: 200, test: 1000 };
        let data = ForceSource { potential: Potential::Charges, seed: 0, splits, particles: 4, follow: 2000 };
        let train = Train {
            trainer: TrainerConfig {
                steps: 2048,
                weight_decay: 0.0,
                clip_norm: Some(10.0),
                ..TrainerConfig::default()
            },
            batch_size: 32,
            eval_every: 256,
            checkpoint_every: 512,
            ..Train::default()
        };
        let model = ForceFieldConfig::default();
        Config { data, model, train, runtime: Runtime::default() }
    }

    fn check_model(config: &ForceFieldConfig) -> Result<(), ConfigError> {
        at_least_one(&[
            ("model.hidden", config.hidden),
            ("model.layers", config.layers),
            ("model.radial", config.radial),
        ])?;
        if !(config.cutoff > 0.0 && config.cutoff.is_finite()) {
            return refuse("model.cutoff", config.cutoff, "a distance above 0");
        }
        Ok(())
    }

    fn load(config: &ForceSource, split: Split) -> Result<ForceData> {
        let systems = config.splits.of(split);
        Ok(ForceData::sample(config.potential, systems, config.particles, config.seed, split)?)
    }

    fn init(
        config: &ForceFieldConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<ForceField> {
        ForceField::init(config, placement, rng)
    }

    fn fits(config: &ForceFieldConfig, weights: &TensorFile) -> bool {
        width(weights, "embedding.weight") == Some(config.hidden)
            && has(weights, &format!("layers.{}.", config.layers - 1))
            && has(weights, "layers.0.edge.") == (config.kind == ForceFieldKind::Messages)
            && has(weights, "layers.0.join.tensors") == (config.kind == ForceFieldKind::Tensors)
    }

    fn loss(model: &ForceField, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor> {
        model.loss(&batch.batch, &batch.forces)
    }

    fn measure(
        models: &[&ForceField],
        data: &ForceData,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures> {
        let mut forces = mean_prediction(models, |model| {
            predict(model, data, placement).map(|(forces, energies)| [forces, energies].concat())
        })?;
        let energies = forces.split_off(data.force().len());
        let squares: f64 = forces.iter().zip(data.force()).map(|(p, t)| (p - t).powi(2)).sum();
        let size: f64 = data.force().iter().map(|force| force * force).sum();
        let spread = up_to_constants(data, &energies);
        let distance: f64 = forces.iter().zip(data.force()).map(|(p, t)| (p - t).abs()).sum();
        Ok(Measures::new("mse", "MSE of forces", squares / forces.len() as f64)
            .and("relative", "relative error of forces", (squares / size).sqrt())
            .and("force_mae", "MAE of a component of a force", distance / forces.len() as f64)
            .and("cosine", "cosine between forces", mean_cosine(data, &forces))
            .and("energy_mae", "MAE of energies, up to a constant for each charge", spread))
    }

    fn asymmetry(
        model: &ForceField,
        data: &ForceData,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        let data = data.clone().take(SYMMETRY_SAMPLES);
        let (forces, energies) = predict(model, &data, placement)?;
        let mut worst = 0f64;
        for reflections in 1..=3 {
            let isometry = Isometry::random(Signature::CL3, reflections, rng)?;
            let shift = [(); 3].map(|()| rng.random_range(-1.0..1.0));
            let moved = predict(model, &data.moved(&isometry, shift)?, placement)?;
            let expected = turned(&forces, data.particles(), &isometry, [0.0; 3])?;
            worst =
                worst.max(relative_distance(&moved.0, &expected)).max(relative_distance(&moved.1, &energies));
        }
        Ok(worst)
    }

    fn figures(
        model: &ForceField,
        _: &Measures,
        config: &TaskConfig<Self>,
        placement: &Placement,
        folder: &RunFolder,
    ) -> Result<Vec<&'static str>> {
        let splits = Splits { test: FOLLOWED, ..config.data.splits };
        let source = ForceSource { splits, ..config.data.clone() };
        let start = Self::load(&source, Split::Test)?;
        let steps = config.data.follow;
        let learned = follow(&start, steps, |data| predict(model, data, placement))?;
        let exact = follow(&start, steps, |data| Ok((data.force().to_vec(), data.energy().to_vec())))?;
        let line = |label: &str, values: &[f64]| plots::Line {
            label: label.to_owned(),
            points: values.iter().enumerate().map(|(step, &e)| (step as f64 * TIME_STEP, e)).collect(),
        };
        let lines = [
            line("learned forces: learned energy", &learned.own),
            line("learned forces: exact energy", &learned.exact),
            line("exact forces: exact energy", &exact.exact),
        ];
        let title = format!("change of the total energy along the motion, rms over {FOLLOWED} test systems");
        plots::lines(
            &folder.file("energy.svg"),
            &lines,
            &title,
            ("time", "energy, in units of the potential's spread"),
        )?;
        if let Some(step) = learned.left {
            output::note(&format!(
                "dynamics: under the learned forces a system leaves the finite numbers in step {step} of {steps}"
            ));
        }
        let largest = |values: &[f64]| values.iter().fold(0f64, |largest, value| largest.max(*value));
        let record = json!({
            "systems": FOLLOWED,
            "steps": steps,
            "left_finite_numbers_in_step": learned.left,
            "time_step": TIME_STEP,
            "learned_energy_change": {"largest": largest(&learned.own), "last": learned.own.last()},
            "exact_energy_change": {"largest": largest(&learned.exact), "last": learned.exact.last()},
            "exact_dynamics": {"largest": largest(&exact.exact), "last": exact.exact.last()},
            "unit": "standard deviation of the potential energy over the systems",
        });
        output::write_json(&folder.file("dynamics.json"), &record)?;
        output::note(&format!(
            "dynamics: along {} steps the learned energy changes by at most {:.1e}, the exact one by {:.1e} (with exact forces {:.1e})",
            steps,
            largest(&learned.own),
            largest(&learned.exact),
            largest(&exact.exact)
        ));
        Ok(vec!["energy.svg", "dynamics.json"])
    }
}

/// Settings for snapshots of a trajectory, and a model with a neighbour cutoff.
const SNAPSHOTS: &[&str] = &[
    "data.particles=16",
    "data.train=1000",
    "data.valid=1000",
    "data.test=10000",
    "data.follow=200",
    "model.kind=tensors",
    "model.hidden=16",
    "model.layers=1",
    "train.batch_size=8",
    "train.steps=4096",
    "train.select=best",
];

/// Mean over particles of the cosine of the angle between the predicted and the exact force; 0 if one of them vanishes.
fn mean_cosine(data: &ForceData, forces: &[f64]) -> f64 {
    let particles = data.particles();
    let systems = forces.chunks_exact(3 * particles).zip(data.force().chunks_exact(3 * particles));
    let cosines = systems.flat_map(|(predicted, exact)| {
        (0..particles).map(move |particle| {
            let of = |system: &[f64]| [0, 1, 2].map(|axis| system[axis * particles + particle]);
            let (a, b) = (of(predicted), of(exact));
            let dot = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let size = (dot(a, a) * dot(b, b)).sqrt();
            if size > 0.0 { dot(a, b) / size } else { 0.0 }
        })
    });
    cosines.sum::<f64>() / (data.len() * particles) as f64
}

/// Mean absolute error of energies. Forces do not determine the relative energies of systems with different charges, so the mean difference
/// is subtracted for each total charge.
fn up_to_constants(data: &ForceData, energies: &[f64]) -> f64 {
    let mut groups: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    let charges = data.charges().chunks_exact(data.particles());
    for ((charges, predicted), energy) in charges.zip(energies).zip(data.energy()) {
        let total = charges.iter().sum::<f64>().round() as i64;
        groups.entry(total).or_default().push(predicted - energy);
    }
    let deviations = groups.values().flat_map(|differences| {
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        differences.iter().map(move |difference| (difference - mean).abs())
    });
    deviations.sum::<f64>() / energies.len() as f64
}

/// Root mean square over systems of the change of the total energy since the start, step by step, in units of the standard deviation
/// of the potential energy.
struct Energies {
    /// Change of the energy whose negative gradient the forces are.
    own: Vec<f64>,
    /// Change of the energy in closed form.
    exact: Vec<f64>,
    /// The step in which positions or velocities became infinite or NaN, if they did; both lists end before it.
    left: Option<usize>,
}

/// Simulates systems under forces that belong to an energy.
fn follow(
    start: &ForceData,
    steps: usize,
    field: impl Fn(&ForceData) -> gradewise_nn::Result<(Vec<f64>, Vec<f64>)>,
) -> gradewise_nn::Result<Energies> {
    let (particles, charges) = (start.particles(), start.charges());
    let count = start.len() as f64;
    let mean = start.energy().iter().sum::<f64>() / count;
    let spread = (start.energy().iter().map(|e| (e - mean).powi(2)).sum::<f64>() / count).sqrt();
    let state = |loc: &[f64]| {
        let motion = Motion { loc: loc.to_vec(), vel: vec![0.0; loc.len()] };
        ForceData::new(start.potential(), particles, motion, charges.to_vec())
    };
    let exact = |loc: &[f64]| start.potential().evaluate(particles, loc, charges).0;
    let potential_energies = std::cell::RefCell::new(Vec::new());
    let mut first: Option<[Vec<f64>; 2]> = None;
    let mut energies = Energies { own: Vec::new(), exact: Vec::new(), left: None };
    velocity_verlet(
        &mut start.motion().clone(),
        (steps, TIME_STEP),
        |loc| {
            // Learned forces may drive particles to infinity; that is an outcome to report, not invalid data.
            if !loc.iter().all(|x| x.is_finite()) {
                return Ok(vec![f64::NAN; loc.len()]);
            }
            let (forces, energies) = field(&state(loc)?)?;
            *potential_energies.borrow_mut() = energies;
            Ok(forces)
        },
        |step, motion| {
            if energies.left.is_some() || !motion.loc.iter().chain(&motion.vel).all(|x| x.is_finite()) {
                energies.left.get_or_insert(step);
                return Ok(());
            }
            let kinetic = motion.kinetic(particles);
            let total = |potential: &[f64]| -> Vec<f64> {
                kinetic.iter().zip(potential).map(|(k, p)| k + p).collect()
            };
            let now = [total(&potential_energies.borrow()), total(&exact(&motion.loc))];
            let first = first.get_or_insert_with(|| now.clone());
            let change = |now: &[f64], first: &[f64]| {
                let squares: f64 = now.iter().zip(first).map(|(a, b)| (a - b).powi(2)).sum();
                (squares / count).sqrt() / spread
            };
            energies.own.push(change(&now[0], &first[0]));
            energies.exact.push(change(&now[1], &first[1]));
            Ok(())
        },
    )?;
    Ok(energies)
}

/// Forces `[systems, 3, particles]` and energies `[systems]`.
fn predict(
    model: &ForceField,
    data: &ForceData,
    placement: &Placement,
) -> gradewise_nn::Result<(Vec<f64>, Vec<f64>)> {
    let (mut forces, mut energies) = (Vec::new(), Vec::new());
    for_each_batch(data, EVALUATION_BATCH, placement, |example| {
        let (slope, energy) = model.forces(&example.batch, false)?;
        let (slope, energy) = (example.batch.by_system(&slope)?, energy.array().to_f64_vec()?);
        forces.extend(slope);
        energies.extend(energy);
        Ok(())
    })?;
    Ok((forces, energies))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_that_forces_cannot_know_are_no_error() {
        let data = ForceData::simulate(40, 3, 1, Split::Test).unwrap();
        let total = |system: usize| data.charges()[3 * system..][..3].iter().sum::<f64>();
        let shifted: Vec<f64> =
            data.energy().iter().enumerate().map(|(system, energy)| energy + 7.0 * total(system)).collect();
        assert!(up_to_constants(&data, &shifted) < 1e-12);
        let scaled: Vec<f64> = data.energy().iter().map(|energy| 1.1 * energy).collect();
        assert!(up_to_constants(&data, &scaled) > 1e-2);
    }

    #[test]
    fn senseless_values_are_named() {
        for (assignment, part) in [
            ("data.potential=quadrupol", "did you mean `quadrupole`?"),
            ("data.particles=28", "at most 27, which trajectories of quadrupole"),
            ("model.kind=tensor", "did you mean `tensors`?"),
            ("model.cutoff=0", "above 0"),
            ("model.radial=0", "at least 1"),
        ] {
            let mut resolver = gradewise_runner::task::resolver::<Forces>(Some("quadrupole")).unwrap();
            resolver.assignment(assignment).unwrap();
            let message = gradewise_runner::task::resolve::<Forces>(&resolver).unwrap_err().to_string();
            let key = assignment.split('=').next().unwrap();
            assert!(message.contains(part) && message.contains(key), "{message}");
        }
    }

    #[test]
    fn cosines_are_of_angles_between_forces() {
        let data = ForceData::simulate(3, 4, 1, Split::Test).unwrap();
        let scaled: Vec<f64> = data.force().iter().map(|x| 3.0 * x).collect();
        assert!((mean_cosine(&data, &scaled) - 1.0).abs() < 1e-12);
        let opposite: Vec<f64> = data.force().iter().map(|x| -x).collect();
        assert!((mean_cosine(&data, &opposite) + 1.0).abs() < 1e-12);
        assert_eq!(mean_cosine(&data, &vec![0.0; scaled.len()]), 0.0);
    }

    #[test]
    fn the_exact_field_conserves_energy_up_to_the_integrator() {
        let start = ForceData::simulate(5, 3, 2, Split::Test).unwrap();
        let exact = |data: &ForceData| Ok((data.force().to_vec(), data.energy().to_vec()));
        let energies = follow(&start, 300, exact).unwrap();
        assert_eq!((energies.own.len(), energies.own[0], energies.left), (301, 0.0, None));
        let worst = |values: &[f64]| values.iter().fold(0f64, |worst, value| worst.max(*value));
        assert!(worst(&energies.own) > 0.0 && worst(&energies.own) < 5e-3, "{}", worst(&energies.own));
        // A diverging motion is not an error: it is simulated as long as it is finite.
        let wild = |data: &ForceData| {
            Ok((data.motion().loc.iter().map(|x| 1e150 * x).collect(), data.energy().to_vec()))
        };
        let far = follow(&start, 300, wild).unwrap();
        let left = far.left.unwrap();
        assert!((1..300).contains(&left) && far.own.len() == left, "{left} {}", far.own.len());
        // Forces that are not the gradient of the energy do not conserve it.
        let wrong =
            |data: &ForceData| Ok((data.force().iter().map(|f| 1.2 * f).collect(), data.energy().to_vec()));
        assert!(worst(&follow(&start, 300, wrong).unwrap().own) > 20.0 * worst(&energies.own));
    }
}
