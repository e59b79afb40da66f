//! A layer of 0 channels is refused by its own name and that of the argument.

use gradewise_kernels::Device;
use gradewise_nn::Error;
use gradewise_testing::sizes::{self, layer};
use gradewise_zoo::tracks::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: &Device = &Device::Cpu;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

fn all() -> Vec<sizes::Layer<Error>> {
    let size = |channels| TrackSize { channels, rank: Rank::Three };
    let basis = || RadialBasis::new(4, 1.0).unwrap();
    let channels = [("channels", 2)];
    vec![
        layer("RadialBasis", &[("cutoff", 4)], |n| RadialBasis::new(n[0], 1.0).map(drop)),
        layer("RadialWeights", &[("outputs", 2)], move |n| {
            RadialWeights::init(&basis(), n[0], CPU, &mut rng()).map(drop)
        }),
        layer("TrackGate", &channels, move |n| TrackGate::init(size(n[0]), CPU).map(drop)),
        layer("TrackLinear", &[("inputs", 3), ("channels", 2)], move |n| {
            TrackLinear::init(n[0], size(n[1]), true, CPU, &mut rng()).map(drop)
        }),
        layer("TrackMessages", &channels, move |n| {
            TrackMessages::init(size(n[0]), false, &basis(), CPU, &mut rng()).map(drop)
        }),
        layer("TrackNorm", &channels, move |n| TrackNorm::init(size(n[0]), CPU).map(drop)),
        layer("TrackProduct", &channels, move |n| TrackProduct::init(size(n[0]), CPU, &mut rng()).map(drop)),
    ]
}

fn refused(error: &Error) -> Option<(&'static str, &'static str)> {
    match error {
        Error::Argument { operation, argument, .. } => Some((operation, argument)),
        _ => None,
    }
}

#[test]
fn a_size_of_zero_is_refused_by_name() {
    sizes::zeros_are_refused_by_name(&all(), &[], refused);
}

/// A new layer is to be added to the table.
#[test]
fn the_table_has_every_layer() {
    let exempt = ["Radial", "Rank"];
    let modules = [include_str!("../src/tracks/mod.rs")];
    sizes::every_type_is_listed(&all(), &exempt, &modules);
}
