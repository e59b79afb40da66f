//! A potential of molecules and crystals from energies and forces.

use gradewise_core::Signature;
use gradewise_nn::symmetry::{Isometry, relative_distance};
use gradewise_runner::{output, prelude::*};
use gradewise_zoo::{
    data::atoms::{AtomOrigin, AtomSet, AtomSource, EnergyUnit, ForceUnit, Labels, LengthUnit, Units},
    models::{Potential, PotentialConfig},
};
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Energies and forces of atoms.
pub struct PotentialTask;

gradewise_nn::choices! {
    /// Frames that come with the program.
    pub enum Included {
        /// Ethanol at 500 K, by GFN2-xTB
        Ethanol = "ethanol",
    }
}

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AtomFrames {
    /// `ethanol`, which comes with the program, a file of frames, or a folder of them.
    pub source: Source<Included>,
    /// Samples of each split.
    #[serde(flatten)]
    pub splits: Splits,
    /// How far neighbours are sought, in Å; at least model.cutoff.
    pub cutoff: f64,
    /// The unit of energies in the files.
    pub energy_unit: EnergyUnit,
    /// The unit of positions and lattices.
    pub length_unit: LengthUnit,
    /// The unit of forces.
    pub force_unit: ForceUnit,
}

impl AtomFrames {
    /// The units of the files.
    pub fn units(&self) -> Units {
        Units { energy: self.energy_unit, length: self.length_unit, force: self.force_unit }
    }
}

impl DataSection for AtomFrames {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        self.source.validate("data.source")?;
        require_cutoff("data.cutoff", self.cutoff)
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

fn require_cutoff(key: &'static str, cutoff: f64) -> Result<(), ConfigError> {
    if cutoff > 0.0 && cutoff.is_finite() {
        return Ok(());
    }
    refuse(key, cutoff, "a distance above 0, in Å")
}

impl Task for PotentialTask {
    const NAME: &'static str = "potential";
    const ABOUT: &'static str = "A potential of molecules and crystals, from energies and forces in files";
    const DETAILS: &'static str = "Frames are read from extended XYZ or .npz of the rMD17, MD17 and MD22 kinds, in units that data.energy_unit, \
         data.length_unit and data.force_unit name, and are checked against each other. Forces and stresses are exact derivatives of the \
         energy. `gradewise infer` writes energies and forces of other frames.";
    const EXAMPLES: &'static str = "\
gradewise train potential
gradewise train potential --data ethanol.xyz --preset long data.train=800
gradewise train potential --data rmd17_aspirin.npz --preset full --device cuda
gradewise train potential --data water/ data.energy_unit=hartree data.force_unit=hartree/bohr data.train=500
gradewise infer --checkpoint runs/potential-1/checkpoint.safetensors --input new.xyz --output predicted.xyz";
    const TITLE: &'static str = "potential of molecules and crystals";
    const LOSS: &'static str = "weighted squared errors over the mean square of forces";
    const DECIDES: &'static str = "force_mae";
    const GROUP: &'static str = "rotations, reflections and permutations of atoms";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "long",
            about: "ten times the steps of the default, half an hour on two cores",
            settings: &[LONG_RUN, &["train.steps=20480", "train.ema=0.999"]],
        },
        Preset {
            name: "full",
            about: "1,000 frames of --data and a wider model, for a GPU",
            settings: &[
                LONG_RUN,
                &[
                    "data.train=1000",
                    "data.valid=100",
                    "data.test=200",
                    "model.hidden=64",
                    "train.steps=100000",
                    "train.ema=0.999",
                ],
            ],
        },
        Preset {
            name: "vectors",
            about: "the default without tensors of rank 2",
            settings: &[&["model.rank=1"]],
        },
        Preset {
            name: "octupoles",
            about: "the default with tensors of rank 3, too",
            settings: &[&["model.rank=3"]],
        },
    ];
    const OPTIONS: &'static [TrainOption] = &[TrainOption {
        name: "data",
        value: "PATH",
        setting: "data.source",
        help: "A file of frames (.xyz, .extxyz, .npz), or a folder [default: ethanol, which comes with the program]",
    }];
    const CHANGEABLE: &'static [&'static str] = &["energy_weight", "stress_weight"];
    type DataConfig = AtomFrames;
    type ModelConfig = PotentialConfig;
    type Data = AtomSet;
    type Model = Potential;

    fn defaults() -> TaskConfig<Self> {
        let model = PotentialConfig::default();
        let data = AtomFrames {
            source: Source::Named(Included::Ethanol),
            splits: Splits { train: 300, valid: 50, test: 50 },
            cutoff: model.cutoff,
            energy_unit: EnergyUnit::Format,
            length_unit: LengthUnit::Angstrom,
            force_unit: ForceUnit::Derived,
        };
        let train = Train {
            trainer: TrainerConfig {
                steps: 2048,
                lr: 3e-3,
                weight_decay: 0.0,
                clip_norm: Some(10.0),
                ema: Some(0.99),
                ..TrainerConfig::default()
            },
            batch_size: 5,
            eval_every: 256,
            checkpoint_every: 512,
            ..Train::default()
        };
        Config { data, model, train, runtime: Runtime::default() }
    }

    fn check_model(config: &PotentialConfig) -> Result<(), ConfigError> {
        at_least_one(&[
            ("model.hidden", config.hidden),
            ("model.layers", config.layers),
            ("model.radial", config.radial),
        ])?;
        for (key, weight) in
            [("model.energy_weight", config.energy_weight), ("model.stress_weight", config.stress_weight)]
        {
            if !(weight >= 0.0 && weight.is_finite()) {
                return refuse(key, weight, "at least 0");
            }
        }
        require_cutoff("model.cutoff", config.cutoff)
    }

    fn load(config: &AtomFrames, split: Split) -> Result<AtomSet> {
        let Splits { train, valid, test } = config.splits;
        let origin = match &config.source {
            Source::Named(Included::Ethanol) => AtomOrigin::Ethanol,
            Source::Path(path) => AtomOrigin::Path(path.clone()),
        };
        let source =
            AtomSource { origin, units: config.units(), counts: [train, valid, test], cutoff: config.cutoff };
        let found = AtomSet::load(&source, split)?;
        output::note(&format!("{split}: {}", found.about()));
        Ok(found)
    }

    fn init(
        config: &PotentialConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<Potential> {
        Potential::init(config, placement, rng)
    }

    fn calibrate(model: &Potential, training: &AtomSet) -> gradewise_nn::Result<()> {
        model.calibrate(training)
    }

    fn fits(config: &PotentialConfig, weights: &TensorFile) -> bool {
        width(weights, "embedding.weight") == Some(config.hidden)
            && has(weights, &format!("layers.{}.", config.layers - 1))
            && has(weights, "layers.0.join.tensors") == config.rank.has_tensors()
            && has(weights, "layers.0.join.octupoles") == config.rank.has_octupoles()
    }

    fn loss(model: &Potential, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor> {
        model.loss(batch)
    }

    fn measure(
        models: &[&Potential],
        data: &AtomSet,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures> {
        let predicted = mean_prediction(models, |model| {
            Ok(model.predict(data, placement)?.iter().flat_map(Labels::numbers).collect())
        })?;
        let [mut forces, mut energies, mut of_atoms, mut stresses] = [(); 4].map(|()| Errors::default());
        let mut rest = &predicted[..];
        for frame in data.frames().iter().map(|one| &one.frame) {
            let own = Labels::take(frame, &mut rest);
            let error = own.energy - frame.energy.unwrap_or(f64::NAN);
            energies.add(error);
            of_atoms.add(error / frame.len() as f64);
            let exact = frame.forces.iter().flatten().flatten();
            own.forces.as_flattened().iter().zip(exact).for_each(|(p, t)| forces.add(p - t));
            let exact = frame.stress.iter().flatten().flatten();
            own.stress.iter().flatten().flatten().zip(exact).for_each(|(p, t)| stresses.add(p - t));
        }
        let measures = Measures::new("force_mae", "MAE of forces (meV/Å)", forces.mean())
            .and("force_rmse", "RMSE of forces (meV/Å)", forces.root())
            .and("energy_mae", "MAE of energies (meV)", energies.mean())
            .and("energy_mae_atom", "MAE of energies (meV/atom)", of_atoms.mean());
        Ok(match stresses.count {
            0 => measures,
            _ => measures.and("stress_mae", "MAE of stresses (meV/Å³)", stresses.mean()),
        })
    }

    fn asymmetry(
        model: &Potential,
        data: &AtomSet,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        let data = data.clone().take(SYMMETRY_SAMPLES);
        let predicted = data.clone().labelled(model.predict(&data, placement)?);
        let mut worst = 0f64;
        for reflections in 1..=3 {
            let isometry = Isometry::random(Signature::CL3, reflections, rng)?;
            let shift = [(); 3].map(|()| rng.random_range(-1.0..1.0));
            let expected = predicted.moved(&isometry, shift)?;
            let found = model.predict(&expected, placement)?;
            for (one, found) in expected.frames().iter().zip(found) {
                let (Some(labels), reference) = (one.frame.labels(), model.reference_energy(&one.frame)?)
                else {
                    continue;
                };
                // Reference energies, which no motion changes, would hide changes of the learned part.
                let learned = |labels: &Labels| {
                    let mut numbers = labels.numbers();
                    numbers[0] -= reference;
                    numbers
                };
                worst = worst.max(relative_distance(&learned(&found), &learned(&labels)));
            }
        }
        Ok(worst)
    }
}

/// Absolute and squared errors.
#[derive(Default)]
struct Errors {
    count: usize,
    absolute: f64,
    square: f64,
}

impl Errors {
    /// In eV; kept in meV.
    fn add(&mut self, error: f64) {
        let error = 1000.0 * error;
        self.count += 1;
        self.absolute += error.abs();
        self.square += error * error;
    }

    fn mean(&self) -> f64 {
        self.absolute / self.count as f64
    }

    fn root(&self) -> f64 {
        (self.square / self.count as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::Device;
    use gradewise_runner::task::{model_of, resolve, resolver};

    /// As `profile`, `memory`, `bisect` and the search for a batch that fits begin.
    #[test]
    fn models_without_a_checkpoint_are_calibrated_as_training_calibrates_them() {
        let config = resolve::<PotentialTask>(&resolver::<PotentialTask>(None).unwrap()).unwrap();
        let training = PotentialTask::load(&config.data, Split::Train).unwrap();
        let model =
            model_of::<PotentialTask>(None, &config, &training, &Placement::from(&Device::Cpu)).unwrap();
        let error = model.require_species(&[92]).unwrap_err().to_string();
        assert!(error.contains("H, C and O"), "{error}");
    }
}
