//! Electromagnetic fields of moving charges on space-time of 2+1 dimensions.

use super::{Equation, Simulator, adamw};
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::fields::{
        FieldLayout, FieldSet, TimeAxis,
        charges::{self, ChargeOptions, Physics},
    },
    models::{FieldModelConfig, FieldModelKind},
};
use serde::{Deserialize, Serialize};

/// Maxwell's equations in 2+1 dimensions.
pub struct Charges;

gradewise_nn::choices! {
    /// How charges move and radiate.
    pub enum Faults {
        /// With the two faults of the published generator
        Published = "published",
        /// Without them, so that the fields obey Maxwell's equations
        Physical = "physical",
    }
}

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ChargeSource {
    /// `simulate`, or the folder of NumPy files.
    pub source: Source<Simulator>,
    /// `published` or `physical`.
    pub physics: Faults,
    /// Points along each side in the simulation; 256 as published.
    pub points: usize,
    /// Simulated points per point of the model along each side; 8 as published.
    pub factor: usize,
    /// Frames of a simulation; 256 as published.
    pub frames: usize,
    /// Input frames, and as many predicted frames; 32 as published.
    pub window: usize,
    /// Seed of the charges.
    pub seed: u64,
    /// Simulations of each split.
    #[serde(flatten)]
    pub splits: Splits,
}

impl DataSection for ChargeSource {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        self.source.validate("data.source")?;
        at_least_one(&[("data.window", self.window)])?;
        if self.points < 2 {
            return refuse("data.points", self.points, "at least 2");
        }
        if self.factor == 0 || !self.points.is_multiple_of(self.factor) {
            return refuse("data.factor", self.factor, "a divisor of data.points");
        }
        if self.frames < 2 * self.window {
            return refuse("data.frames", self.frames, "at least two windows (data.window)");
        }
        Ok(())
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

impl Equation for Charges {
    const NAME: &'static str = "maxwell2d";
    const ABOUT: &'static str = "Fields of moving charges on space-time: predict as many frames as are seen";
    const DETAILS: &'static str = "The data of arXiv:2402.14730 for Lorentz-equivariant networks: charges in a plane, their fields (E_x, E_y, cB_z) by \
         Liénard and Wiechert as bivectors of the metric −1, 1, 1 with time as the first axis of the grid. data.physics=published repeats two \
         faults of the published generator, with which the fields are no solution of Maxwell's equations.";
    const EXAMPLES: &'static str = "\
gradewise train maxwell2d                                      minutes on two cores, 4 frames of 16 × 16
gradewise train maxwell2d data.physics=published
gradewise train maxwell2d --preset published --device cuda     32 frames of 32 × 32, as arXiv:2402.14730";
    const TITLE: &'static str = "fields of moving charges";
    const GROUP: &'static str =
        "quarter turns and mirrors of the grid; of time, too, with model.change=false";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "published",
            about: "the sizes of arXiv:2402.14730: 512 simulations, 32 frames of 32 × 32, 12 channels",
            settings: &[
                LONG_RUN,
                &[
                    "data.physics=published",
                    "data.points=256",
                    "data.factor=8",
                    "data.frames=256",
                    "data.window=32",
                    "data.train=512",
                    "data.valid=256",
                    "data.test=256",
                    "model.hidden=12",
                    "model.blocks=8",
                    "model.taps=7",
                    "model.norm=false",
                    "model.change=false",
                    "model.kernel_layers=4",
                    "model.kernel_hidden=12",
                    "train.batch_size=16",
                    "train.steps=32000",
                    "train.lr=1e-3",
                    "train.warmup_steps=0",
                    "train.decay_steps=32000",
                ],
            ],
        },
    ];
    const TIME: TimeAxis = TimeAxis::Grid;
    type Source = ChargeSource;

    fn layout() -> &'static FieldLayout {
        &charges::LAYOUT
    }

    fn window(source: &ChargeSource) -> (usize, usize) {
        (source.window, source.window)
    }

    fn load(source: &ChargeSource, split: Split) -> Result<FieldSet> {
        let count = source.splits.of(split);
        let physics = match source.physics {
            Faults::Published => Physics::Published,
            Faults::Physical => Physics::Physical,
        };
        let ChargeSource { points, factor, frames, seed, .. } = *source;
        Ok(match &source.source {
            Source::Named(Simulator::Simulate) => {
                charges::load(split, count, ChargeOptions { physics, points, factor, frames, seed })?
            }
            Source::Path(folder) => FieldSet::load(&charges::LAYOUT, folder, split, count)?,
        })
    }

    fn source() -> ChargeSource {
        ChargeSource {
            source: Source::Named(Simulator::Simulate),
            physics: Faults::Physical,
            points: 64,
            factor: 4,
            frames: 32,
            window: 4,
            seed: 0,
            splits: Splits { train: 64, valid: 4, test: 16 },
        }
    }

    fn model() -> FieldModelConfig {
        FieldModelConfig {
            kind: FieldModelKind::Steerable,
            hidden: 6,
            blocks: 1,
            // The output frames are as far from the input frames as a window is long, so the receptive field in time must cover that.
            taps: 5,
            norm: true,
            modes: 4,
            kernel_layers: 2,
            kernel_hidden: 8,
            conditioned: false,
            change: true,
        }
    }

    fn train() -> Train {
        adamw(800, 3e-3, 4)
    }

    fn check_model(config: &FieldModelConfig) -> Result<(), ConfigError> {
        if config.kind == FieldModelKind::Fourier {
            let expected = "steerable, clifford or plain: the pseudoscalar of −1, 1, 1 squares to 1 and is no imaginary unit";
            return refuse("model.kind", config.kind, expected);
        }
        Ok(())
    }
}
