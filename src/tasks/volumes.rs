//! The signed volume of three vectors in space.

use super::points::{FALLING, PAPER, Regression, adam, check_perceptron, falling, paper};
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::points::PointSets,
    models::{PerceptronConfig, SignedVolume},
};

/// Signed volumes in space, O(3).
pub struct Volumes;

impl Regression for Volumes {
    const NAME: &'static str = "volumes";
    const ABOUT: &'static str = "The signed volume of three vectors in space: a pseudoscalar of O(3)";
    const DETAILS: &'static str =
        "The first experiment of arXiv:2305.11141: fully connected geometric products in Cl(3,0).";
    const EXAMPLES: &'static str = "\
gradewise train volumes
gradewise train volumes --preset paper --device cuda
gradewise train volumes --curve 1024,4096,16384,65536 --seeds 3
gradewise train volumes data.source=path/to/npy        o3_train_input.npy and so on";
    const TITLE: &'static str = "signed volumes of three vectors";
    const GROUP: &'static str = "rotations and reflections";
    const PRESETS: &'static [Preset] = &[
        Preset { name: "quick", about: "a minute on two cores", ..Preset::QUICK },
        paper(&[PAPER, &["data.train=65536"]]),
        falling(&[PAPER, FALLING, &["data.train=65536", "data.orders=6"]]),
    ];
    const FILES: (&'static str, (usize, usize)) = ("o3", (3, 3));
    const PSEUDOSCALAR: bool = true;
    type ModelConfig = PerceptronConfig;
    type Model = SignedVolume;

    fn model() -> PerceptronConfig {
        PerceptronConfig { hidden: 96, layers: 4 }
    }

    fn check_model(config: &PerceptronConfig) -> Result<(), ConfigError> {
        check_perceptron(config)
    }

    fn train() -> Train {
        adam(4096, 128)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::signed_volumes(samples, seed, split)
    }

    fn init(
        config: &PerceptronConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<SignedVolume> {
        SignedVolume::init(config, placement, rng)
    }

    fn fits(config: &PerceptronConfig, weights: &TensorFile) -> bool {
        width(weights, "0.weight") == Some(config.hidden)
            && has(weights, &format!("{}.weight", config.layers))
    }
}
