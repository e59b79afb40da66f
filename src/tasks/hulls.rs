//! The volume of a convex hull in five dimensions.

use super::points::{FALLING, PAPER, Regression, adam, falling, paper};
use gradewise_nn::{
    data::points::{HULL_DIMENSION, HULL_POINTS, PointSets},
    models::{HullConfig, HullKind, HullModel},
};
use gradewise_runner::prelude::*;

/// Volumes of convex hulls in 5 dimensions, O(5).
pub struct Hulls;

impl Regression for Hulls {
    const NAME: &'static str = "hulls";
    const ABOUT: &'static str =
        "The volume of the convex hull of 16 points in 5 dimensions: a scalar of O(5)";
    const DETAILS: &'static str = "The experiment of arXiv:2305.11141 in Cl(5,0), on exact volumes.";
    const EXAMPLES: &'static str = "\
gradewise train hulls
gradewise train hulls --preset paper --device cuda
gradewise train hulls --preset falling --device cuda
gradewise train hulls --curve 256,1024,4096,16384
gradewise train hulls model.kind=simplices model.hidden=8 model.layers=2 train.batch_size=8 --device cuda
gradewise train hulls model.kind=metric                products in a metric that is learned, which are not equivariant
gradewise train hulls data.source=path/to/npy          hulls_train_input.npy and so on";
    const TITLE: &'static str = "volumes of convex hulls of 16 points in 5 dimensions";
    const GROUP: &'static str = "rotations and reflections";
    const PRESETS: &'static [Preset] =
        &[Preset::QUICK, paper(&[PAPER]), falling(&[PAPER, FALLING, &["data.orders=1000"]])];
    const FILES: (&'static str, (usize, usize)) = ("hulls", (HULL_POINTS, HULL_DIMENSION));
    type ModelConfig = HullConfig;
    type Model = HullModel;

    fn model() -> HullConfig {
        HullConfig { kind: HullKind::Products, hidden: 32, layers: 4 }
    }

    fn check_model(config: &HullConfig) -> Result<(), ConfigError> {
        at_least_one(&[("model.hidden", config.hidden), ("model.layers", config.layers)])
    }

    fn train() -> Train {
        adam(2048, 128)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::hull_volumes(samples, seed, split)
    }

    fn init(
        config: &HullConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<HullModel> {
        HullModel::init(HULL_POINTS, config, placement, rng)
    }

    fn fits(config: &HullConfig, weights: &TensorFile) -> bool {
        width(weights, "embedding.weight") == Some(config.hidden)
            && has(
                weights,
                &match config.kind {
                    HullKind::Products | HullKind::Metric => format!("products.{}.", config.layers - 1),
                    HullKind::Simplices => format!("layers.{}.", config.layers - 1),
                },
            )
            && has(weights, "products.0.metric") == (config.kind == HullKind::Metric)
    }
}
