//! A layer of 0 features, channels or taps is refused by its own name and that of the argument.

use gradewise_core::{OrderedMetric, Signature};
use gradewise_kernels::Device;
use gradewise_nn::{Error, fields::*, layers::*};
use gradewise_testing::sizes::{self, layer};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CL3: Signature = Signature::CL3;
const CPU: &Device = &Device::Cpu;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

fn layers() -> Vec<sizes::Layer<Error>> {
    vec![
        layer("CliffordLayer", &[("features", 2)], |n| {
            CliffordLayer::new(n[0], CL3).init(CPU, &mut rng()).map(drop)
        }),
        layer("Embedding", &[("entries", 3), ("features", 2)], |n| {
            Embedding::new(n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        layer("LayerNorm", &[("features", 2)], |n| LayerNorm::new(n[0]).init(CPU).map(drop)),
        layer("Linear", &[("inputs", 2), ("outputs", 3)], |n| {
            Linear::new(n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        layer("MetricProduct", &[("features", 2)], |n| {
            MetricProduct::init(n[0], CL3, CPU, &mut rng()).map(drop)
        }),
        layer("MvBlock", &[("inputs", 2), ("outputs", 3)], |n| {
            MvBlock::new(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
        layer("MvLayerNorm", &[("features", 2)], |n| MvLayerNorm::new(n[0], CL3).init(CPU).map(drop)),
        layer("MvLinear", &[("inputs", 2), ("outputs", 3)], |n| {
            MvLinear::new(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
        layer("MvNormalization", &[("features", 2)], |n| MvNormalization::new(n[0], CL3).init(CPU).map(drop)),
        layer("MvSilu", &[("features", 2)], |n| MvSilu::new(n[0], CL3).init(CPU).map(drop)),
        layer("RmsNorm", &[("features", 2)], |n| RmsNorm::new(n[0]).init(CPU).map(drop)),
        layer("SelfAttention", &[("features", 4), ("heads", 2)], |n| {
            SelfAttention::new(n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        layer("SteerableProduct", &[("features", 2), ("outputs", 3)], |n| {
            SteerableProduct::fully_connected(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
        layer("TracelessProduct", &[("inputs", 2), ("features", 3)], |n| {
            TracelessProduct::new(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
    ]
}

fn fields() -> Vec<sizes::Layer<Error>> {
    let plane = || OrderedMetric::new(&[1, 1]).unwrap();
    let network = [("inputs", 1), ("outputs", 1), ("hidden", 4)];
    vec![
        layer("CliffordBatchNorm", &[("blades", 4), ("channels", 2)], |n| {
            CliffordBatchNorm::new(n[0], n[1]).init(CPU).map(drop)
        }),
        layer("CliffordConv", &[("inputs", 2), ("outputs", 3), ("taps", 3), ("groups", 1)], move |n| {
            CliffordConv::new(&plane(), n[0], n[1], &[n[2]; 2]).groups(n[3]).init(CPU, &mut rng()).map(drop)
        }),
        layer("CliffordGroupNorm", &[("blades", 4), ("channels", 2), ("channels_per_group", 1)], |n| {
            CliffordGroupNorm::new(n[0], n[1], n[2]).init(CPU).map(drop)
        }),
        layer("CliffordLinear", &[("inputs", 2), ("outputs", 3)], move |n| {
            CliffordLinear::new(&plane(), n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        layer("CliffordResNet", &network, |n| {
            let config =
                CliffordResNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            CliffordResNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        layer("CliffordSpectralConv", &[("inputs", 2), ("outputs", 3)], move |n| {
            CliffordSpectralConv::new(&plane(), n[0], n[1], &[2, 2]).init(CPU, &mut rng()).map(drop)
        }),
        layer("FieldNet", &network, |n| {
            let config = FieldNetConfig {
                inputs: n[0],
                outputs: n[1],
                hidden: n[2],
                norm: None,
                ..Default::default()
            };
            FieldNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        layer("G3Conv", &[("inputs", 2), ("outputs", 3), ("taps", 3), ("stride", 1)], |n| {
            G3Conv::new(n[0], n[1], n[2]).stride(n[3]).init(CPU, &mut rng()).map(drop)
        }),
        layer("G3Gate", &[("channels", 2)], |n| G3Gate::init(n[0], CPU, &mut rng()).map(drop)),
        layer("G3GroupNorm", &[("blades", 3), ("channels", 2), ("groups", 1)], |n| {
            G3GroupNorm::init(n[0], n[1], n[2], None, CPU).map(drop)
        }),
        layer("G3ResNet", &network, |n| {
            let config = G3ResNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            G3ResNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        layer("G3UNet", &network, |n| {
            let config = G3UNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            G3UNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        layer("MvAct", &[("channels", 2)], |n| MvAct::new(n[0], &[0, 1]).init(CPU, &mut rng()).map(drop)),
        layer("PgaConjugateLinear", &[("inputs", 2), ("outputs", 3)], |n| {
            PgaConjugateLinear::new(n[0], n[1], &[0, 1]).init(CPU, &mut rng()).map(drop)
        }),
        layer(
            "PlainResNet",
            &[("inputs", 1), ("outputs", 1), ("hidden", 4), ("components", 3), ("axes", 2)],
            |n| {
                let &[inputs, outputs, hidden, components, axes] = n else { unreachable!("five sizes") };
                let config = PlainResNetConfig {
                    inputs,
                    outputs,
                    hidden,
                    components,
                    axes,
                    taps: 3,
                    blocks: 1,
                    norm: true,
                };
                PlainResNet::init(&config, CPU, &mut rng()).map(drop)
            },
        ),
        layer(
            "SteerableConv",
            &[("inputs", 2), ("outputs", 3), ("size", 3), ("layers", 2), ("hidden", 4), ("stride", 1)],
            move |n| {
                let conv = SteerableConv::new(&plane(), n[0], n[1], n[2]).network(n[3], n[4]).stride(n[5]);
                conv.init(CPU, &mut rng()).map(drop)
            },
        ),
        layer("SteerableResNet", &network, |n| {
            let config =
                SteerableResNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            SteerableResNet::init(&config, CPU, &mut rng()).map(drop)
        }),
    ]
}

fn all() -> Vec<sizes::Layer<Error>> {
    [layers(), fields()].into_iter().flatten().collect()
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
    let exempt = [
        "Activation",
        "Bias",
        "BiasOrder",
        "ConvolutionOptions",
        "Dropout",
        "DynLayer",
        "FieldBias",
        "FieldBlock",
        "GateArgument",
        "GridIsometry",
        "Padding",
        "Pairing",
        "Sequential",
        "Side",
        "SpectralOptions",
        "SteerablePadding",
        "Whitening",
    ];
    let modules = [include_str!("../src/layers/mod.rs"), include_str!("../src/fields/mod.rs")];
    sizes::every_type_is_listed(&all(), &exempt, &modules);
}
