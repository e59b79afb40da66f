//! An O(5)-invariant function of two vectors.

use super::points::{FALLING, PAPER, Regression, adam, falling, paper};
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::points::{O5_MEAN, O5_STANDARD_DEVIATION, PointSets},
    models::{O5Config, O5Regression},
};

/// The O(5)-invariant function of two vectors.
pub struct O5;

impl Regression for O5 {
    const NAME: &'static str = "o5";
    const ABOUT: &'static str = "An O(5)-invariant function of two vectors: sin|x| - |y|^3/2 + x.y/(|x||y|)";
    const DETAILS: &'static str = "The regression of arXiv:2104.09459 and arXiv:2305.11141 in Cl(5,0).";
    const EXAMPLES: &'static str = "\
gradewise train o5
gradewise train o5 --preset paper --device cuda
gradewise train o5 --curve 100,1000,10000,50000 --seeds 3";
    const TITLE: &'static str = "an O(5)-invariant function of two vectors";
    const GROUP: &'static str = "rotations and reflections";
    const PRESETS: &'static [Preset] = &[
        Preset { name: "quick", about: "a minute on two cores", ..Preset::QUICK },
        paper(&[PAPER, &["data.train=50000"]]),
        falling(&[PAPER, FALLING, &["data.train=50000"]]),
    ];
    const UNORDERED: bool = false;
    const FILES: (&'static str, (usize, usize)) = ("o5", (2, 5));
    type ModelConfig = O5Config;
    type Model = O5Regression;

    fn model() -> O5Config {
        O5Config { hidden: 580 }
    }

    fn check_model(config: &O5Config) -> Result<(), ConfigError> {
        at_least_one(&[("model.hidden", config.hidden)])
    }

    fn train() -> Train {
        adam(8192, 32)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::o5_regression(samples, seed, split)
    }

    fn init(
        config: &O5Config,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<O5Regression> {
        O5Regression::init(config, (O5_MEAN, O5_STANDARD_DEVIATION), placement, rng)
    }

    fn fits(config: &O5Config, weights: &TensorFile) -> bool {
        width(weights, "readout.0.weight") == Some(config.hidden)
    }
}
