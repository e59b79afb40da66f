//! The volume of a convex hull in five dimensions, of 16 points or of 8.

use super::points::{FALLING, PAPER, Regression, adam, falling, paper};
use gradewise_runner::prelude::*;
use gradewise_zoo::{
    data::points::{HULL_DIMENSION, HULL_POINTS, PointSets, SMALL_HULL_POINTS},
    models::{HullConfig, HullKind, HullModel},
};

/// The rate and batches of Liu et al. (2024), whose rate falls in the last quarter of the steps.
const SIMPLICIAL: &[&str] = &[
    "train.schedule=cosine",
    "train.warmup_steps=2048",
    "train.decay_steps=32768",
    "train.final_lr=1e-7",
    "train.batch_size=16",
];

const GROUP: &str = "rotations and reflections";

/// Volumes of convex hulls of 16 points in 5 dimensions, O(5).
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
    const GROUP: &'static str = GROUP;
    const PRESETS: &'static [Preset] =
        &[Preset::QUICK, paper(&[PAPER]), falling(&[PAPER, FALLING, &["data.orders=1000"]])];
    const FILES: (&'static str, (usize, usize)) = ("hulls", (HULL_POINTS, HULL_DIMENSION));
    type ModelConfig = HullConfig;
    type Model = HullModel;

    fn model() -> HullConfig {
        HullConfig { kind: HullKind::Products, hidden: 32, layers: 4 }
    }

    fn check_model(config: &HullConfig) -> Result<(), ConfigError> {
        check(config)
    }

    fn train() -> Train {
        adam(2048, 128)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::hull_volumes(HULL_POINTS, samples, seed, split)
    }

    fn init(
        config: &HullConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<HullModel> {
        HullModel::init(HULL_POINTS, config, placement, rng)
    }

    fn fits(config: &HullConfig, weights: &TensorFile) -> bool {
        holds(config, weights)
    }
}

/// Volumes of convex hulls of 8 points in 5 dimensions, O(5), the setting in which networks of simplices were compared.
pub struct SmallHulls;

impl Regression for SmallHulls {
    const NAME: &'static str = "hulls8";
    const ABOUT: &'static str =
        "The volume of the convex hull of 8 points in 5 dimensions, by messages between simplices";
    const DETAILS: &'static str = "The experiment of arXiv:2402.10011 in Cl(5,0), on exact volumes. The network sees all edges and \
         triangles between the points; that of the publication sees those of the hull.";
    const EXAMPLES: &'static str = "\
gradewise train hulls8
gradewise train hulls8 --preset paper --device cuda
gradewise train hulls8 --preset products --device cuda
gradewise train hulls8 data.source=path/to/npy         hulls8_train_input.npy and so on";
    const TITLE: &'static str = "volumes of convex hulls of 8 points in 5 dimensions";
    const GROUP: &'static str = GROUP;
    const PRESETS: &'static [Preset] = &[
        Preset::QUICK,
        Preset {
            name: "paper",
            about: "the samples, batches and rate of arXiv:2402.10011",
            settings: &[PAPER, SIMPLICIAL],
        },
        Preset {
            name: "products",
            about: "the network of arXiv:2305.11141 with a falling rate, averaged weights and 1,000 orders of the points",
            settings: &[
                PAPER,
                FALLING,
                &[
                    "data.orders=1000",
                    "model.kind=products",
                    "model.hidden=32",
                    "model.layers=4",
                    "train.batch_size=128",
                ],
            ],
        },
    ];
    const FILES: (&'static str, (usize, usize)) = ("hulls8", (SMALL_HULL_POINTS, HULL_DIMENSION));
    type ModelConfig = HullConfig;
    type Model = HullModel;

    fn model() -> HullConfig {
        HullConfig { kind: HullKind::Simplices, hidden: 8, layers: 2 }
    }

    fn check_model(config: &HullConfig) -> Result<(), ConfigError> {
        check(config)
    }

    fn train() -> Train {
        adam(1024, 16)
    }

    fn sample(samples: usize, seed: u64, split: Split) -> gradewise_nn::Result<PointSets> {
        PointSets::hull_volumes(SMALL_HULL_POINTS, samples, seed, split)
    }

    fn init(
        config: &HullConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<HullModel> {
        HullModel::init(SMALL_HULL_POINTS, config, placement, rng)
    }

    fn fits(config: &HullConfig, weights: &TensorFile) -> bool {
        holds(config, weights)
    }
}

fn check(config: &HullConfig) -> Result<(), ConfigError> {
    at_least_one(&[("model.hidden", config.hidden), ("model.layers", config.layers)])
}

/// Whether the weights are those of a model of this configuration.
fn holds(config: &HullConfig, weights: &TensorFile) -> bool {
    let last = match config.kind {
        HullKind::Products | HullKind::Metric => format!("products.{}.", config.layers - 1),
        HullKind::Simplices => format!("layers.{}.", config.layers - 1),
    };
    width(weights, "embedding.weight") == Some(config.hidden)
        && has(weights, &last)
        && has(weights, "products.0.metric") == (config.kind == HullKind::Metric)
}
