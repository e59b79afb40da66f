//! Smoke in a box.

use super::{Equation, Simulator, adamw};
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::fields::{FieldLayout, FieldSet, TimeAxis, smoke},
    models::{FieldModelConfig, FieldModelKind},
};
use serde::{Deserialize, Serialize};

/// Incompressible Navier–Stokes in the plane.
pub struct NavierStokes;

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SmokeSource {
    /// `simulate`, or the folder of NumPy files.
    pub source: Source<Simulator>,
    /// Cells along each side in the simulation; 128 as published.
    pub cells: usize,
    /// Simulated cells per cell of the model along each side.
    pub factor: usize,
    /// Trajectories of each split: the first ones of the published sets.
    #[serde(flatten)]
    pub splits: Splits,
}

impl DataSection for SmokeSource {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        self.source.validate("data.source")?;
        if self.cells < 8 {
            return refuse("data.cells", self.cells, "at least 8");
        }
        if self.factor == 0 || !self.cells.is_multiple_of(self.factor) {
            return refuse("data.factor", self.factor, "a divisor of data.cells");
        }
        for (key, split) in
            [("data.train", Split::Train), ("data.valid", Split::Valid), ("data.test", Split::Test)]
        {
            if self.splits.of(split) > smoke::available(split) {
                let expected = "at most the published 5200 train, 1300 valid and 1300 test trajectories";
                return refuse(key, self.splits.of(split), expected);
            }
        }
        Ok(())
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

impl Equation for NavierStokes {
    const NAME: &'static str = "navier-stokes";
    const ABOUT: &'static str =
        "Smoke that rises in a box: predict smoke and velocity from four earlier frames";
    const DETAILS: &'static str = "The Navier–Stokes data of PDEArena (arXiv:2209.15616), simulated from their seeds, as multivectors of Cl(2,0): smoke \
         is the scalar, velocity the vector. One-step errors are mean squares over components and space; SMSE sums over \
         components; the rollout error is summed over 5 steps on the model's own predictions. fields.svg and rollout.svg show them.";
    const EXAMPLES: &'static str = "\
gradewise train navier-stokes                                      minutes on two cores, 32 × 32
gradewise train navier-stokes model.kind=plain                     ordinary convolutions of as many parameters
gradewise train navier-stokes model.kind=steerable                 commutes with quarter turns and mirrors
gradewise train navier-stokes --preset published --device cuda     64 × 64, as arXiv:2402.14730
gradewise train navier-stokes data.source=FOLDER                   navier-stokes_{train,valid,test}_{u,vx,vy}.npy";
    const TITLE: &'static str = "smoke in a box";
    const GROUP: &'static str = "quarter turns and mirrors of the grid";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "published",
            about: "the sizes of arXiv:2402.14730: 64 trajectories on 64 × 64 cells, 48 channels, 1,000 epochs of one window of each",
            settings: &[
                LONG_RUN,
                &[
                    "data.cells=128",
                    "data.train=64",
                    "data.valid=64",
                    "data.test=64",
                    "model.kind=steerable",
                    "model.hidden=48",
                    "model.blocks=8",
                    "model.taps=7",
                    "model.kernel_layers=4",
                    "model.kernel_hidden=12",
                    "train.steps=8000",
                    "train.lr=1e-3",
                    "train.warmup_steps=0",
                    "train.decay_steps=8000",
                ],
            ],
        },
    ];
    const TIME: TimeAxis = TimeAxis::Channels;
    type Source = SmokeSource;

    fn layout() -> &'static FieldLayout {
        &smoke::LAYOUT
    }

    fn window(_: &SmokeSource) -> (usize, usize) {
        (4, 1)
    }

    fn load(source: &SmokeSource, split: Split) -> Result<FieldSet> {
        let count = source.splits.of(split);
        let set = match &source.source {
            Source::Named(Simulator::Simulate) => smoke::load(split, count, source.cells)?,
            Source::Path(folder) => FieldSet::load(&smoke::LAYOUT, folder, split, count)?,
        };
        Ok(set.coarser(source.factor)?)
    }

    fn source() -> SmokeSource {
        let splits = Splits { train: 32, valid: 4, test: 16 };
        SmokeSource { source: Source::Named(Simulator::Simulate), cells: 64, factor: 2, splits }
    }

    fn model() -> FieldModelConfig {
        FieldModelConfig {
            kind: FieldModelKind::Clifford,
            hidden: 8,
            blocks: 2,
            taps: 5,
            norm: true,
            modes: 8,
            kernel_layers: 2,
            kernel_hidden: 8,
            conditioned: false,
            change: false,
        }
    }

    fn train() -> Train {
        adamw(1500, 3e-3, 8)
    }
}
