//! A layer of 0 channels or heads is refused by its own name and that of the argument.

use gradewise_kernels::Device;
use gradewise_nn::Error;
use gradewise_testing::sizes::{self, layer};
use gradewise_transformers::{Channels, EquiLinear, Space, gatr, lgatr, slim};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: &Device = &Device::Cpu;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

fn all() -> Vec<sizes::Layer<Error>> {
    let ends = Channels::new(1, 1);
    vec![
        layer("EquiLinear", &[("inputs.multivectors", 2), ("outputs.multivectors", 4)], |n| {
            let channels = (Channels::new(n[0], 3), Channels::new(n[1], 5));
            EquiLinear::new(channels.0, channels.1, &Space::projective()).init(CPU, &mut rng()).map(drop)
        }),
        layer(
            "LGATr",
            &[("multivectors", 2), ("scalars", 4), ("num_heads", 2), ("mlp_ratio", 2)],
            move |n| {
                let attention = lgatr::AttentionConfig { num_heads: n[2], ..Default::default() };
                let mlp = lgatr::MlpConfig { mlp_ratio: n[3], ..Default::default() };
                let hidden = Channels::new(n[0], n[1]);
                let config =
                    lgatr::LGATrConfig { attention, mlp, ..lgatr::LGATrConfig::new(1, ends, hidden, ends) };
                lgatr::LGATr::init(&config, CPU, &mut rng()).map(drop)
            },
        ),
        layer("GATr", &[("multivectors", 2), ("scalars", 4), ("num_heads", 2)], move |n| {
            let attention = gatr::AttentionConfig { num_heads: n[2], ..Default::default() };
            let hidden = Channels::new(n[0], n[1]);
            let config = gatr::GATrConfig { attention, ..gatr::GATrConfig::new(1, ends, hidden, ends) };
            gatr::GATr::init(&config, CPU, &mut rng()).map(drop)
        }),
        layer("LGATrSlim", &[("vectors", 2), ("scalars", 4), ("num_heads", 2)], |n| {
            let ends = slim::VectorChannels::new(1, 1);
            let channels = [ends, slim::VectorChannels::new(n[0], n[1]), ends];
            let config = slim::LGATrSlimConfig::new(1, channels, n[2]);
            slim::LGATrSlim::init(&config, CPU, &mut rng()).map(drop)
        }),
    ]
}

/// Arguments of networks are those of the layers that they are made of, where the network has no name for them.
const COMPOSED: [&str; 3] = ["LGATr", "GATr", "LGATrSlim"];

fn refused(error: &Error) -> Option<(&'static str, &'static str)> {
    match error {
        Error::Argument { operation, argument, .. } => Some((operation, argument)),
        _ => None,
    }
}

#[test]
fn a_size_of_zero_is_refused_by_name() {
    sizes::zeros_are_refused_by_name(&all(), &COMPOSED, refused);
}

/// A new layer is to be added to the table.
#[test]
fn the_table_has_every_layer() {
    let exempt = [
        "Channels",
        "EquiLayerNorm",
        "FeaturePlanes",
        "GradeDropout",
        "Initialization",
        "Nonlinearity",
        "Space",
        "Streams",
        "TokenBatch",
    ];
    let modules = [include_str!("../src/lib.rs")];
    sizes::every_type_is_listed(&all(), &exempt, &modules);
}
