//! Electromagnetic fields in space.

use super::{Equation, Simulator, adamw};
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::fields::{FieldLayout, FieldSet, TimeAxis, maxwell},
    models::{FieldModelConfig, FieldModelKind},
};
use serde::{Deserialize, Serialize};

/// Maxwell's equations in space.
pub struct Maxwell;

/// `[data]`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MaxwellSource {
    /// `simulate`, or the folder of NumPy files.
    pub source: Source<Simulator>,
    /// Cells along each side of the box; the middle half is recorded. 64 as published.
    pub cells: usize,
    /// Trajectories of each split: the first ones of the published sets.
    #[serde(flatten)]
    pub splits: Splits,
}

impl DataSection for MaxwellSource {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()?;
        self.source.validate("data.source")?;
        if self.cells < 24 || !self.cells.is_multiple_of(4) {
            return refuse("data.cells", self.cells, "a multiple of 4, at least 24");
        }
        for (key, split) in
            [("data.train", Split::Train), ("data.valid", Split::Valid), ("data.test", Split::Test)]
        {
            if self.splits.of(split) > maxwell::available(split) {
                let expected = "at most the published 6400 train, 1600 valid and 1600 test trajectories";
                return refuse(key, self.splits.of(split), expected);
            }
        }
        Ok(())
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

impl Equation for Maxwell {
    const NAME: &'static str = "maxwell";
    const ABOUT: &'static str = "Electromagnetic fields in space: predict E and H from four earlier frames";
    const DETAILS: &'static str = "The Maxwell data of PDEArena (arXiv:2209.04934), simulated from their seeds by Yee's scheme, as multivectors of \
         Cl(3,0): E is the vector, H the bivector, both times ten. fields.svg and rollout.svg show the middle plane.";
    const EXAMPLES: &'static str = "\
gradewise train maxwell                                      minutes on two cores, 12 × 12 × 12
gradewise train maxwell model.kind=fourier model.modes=4     Clifford Fourier layers
gradewise train maxwell --preset published --device cuda     32 × 32 × 32, as arXiv:2402.14730
gradewise train maxwell data.source=FOLDER                   maxwell_{train,valid,test}_{d_field,h_field}.npy";
    const TITLE: &'static str = "electromagnetic fields in space";
    const GROUP: &'static str = "quarter turns and mirrors of the grid";
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "published",
            about: "the sizes of arXiv:2402.14730: 64 trajectories on 32 × 32 × 32 cells, 12 channels",
            settings: &[
                LONG_RUN,
                &[
                    "data.cells=64",
                    "data.train=64",
                    "data.valid=32",
                    "data.test=32",
                    "model.hidden=12",
                    "model.blocks=8",
                    "model.taps=7",
                    "model.kernel_layers=4",
                    "model.kernel_hidden=12",
                    "train.batch_size=2",
                    "train.steps=32000",
                    "train.lr=1e-3",
                    "train.warmup_steps=0",
                    "train.decay_steps=32000",
                ],
            ],
        },
    ];
    const TIME: TimeAxis = TimeAxis::Channels;
    type Source = MaxwellSource;

    fn layout() -> &'static FieldLayout {
        &maxwell::LAYOUT
    }

    fn window(_: &MaxwellSource) -> (usize, usize) {
        (4, 1)
    }

    fn load(source: &MaxwellSource, split: Split) -> Result<FieldSet> {
        let count = source.splits.of(split);
        Ok(match &source.source {
            Source::Named(Simulator::Simulate) => maxwell::load(split, count, source.cells)?,
            Source::Path(folder) => FieldSet::load(&maxwell::LAYOUT, folder, split, count)?,
        })
    }

    fn source() -> MaxwellSource {
        let splits = Splits { train: 32, valid: 4, test: 16 };
        MaxwellSource { source: Source::Named(Simulator::Simulate), cells: 24, splits }
    }

    fn model() -> FieldModelConfig {
        FieldModelConfig {
            kind: FieldModelKind::Steerable,
            hidden: 6,
            blocks: 1,
            taps: 3,
            norm: true,
            modes: 4,
            kernel_layers: 2,
            kernel_hidden: 8,
            conditioned: false,
            change: false,
        }
    }

    fn train() -> Train {
        adamw(800, 3e-3, 4)
    }
}
