//! A layer of 0 features, channels or taps is refused by its own name and that of the argument. Its outputs would be empty or constant,
//! and nothing downstream would say why.

use gradewise_core::{OrderedMetric, Signature};
use gradewise_kernels::Device;
use gradewise_nn::{Error, Result, fields::*, geometric::*, layers::*, tracks::*};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CL3: Signature = Signature::CL3;
const CPU: &Device = &Device::Cpu;

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

/// Makes a layer of these sizes.
type Make = Box<dyn Fn(&[usize]) -> Result<()>>;

/// A layer, the names of its sizes, sizes that it accepts, and its constructor.
struct Case {
    layer: &'static str,
    sizes: Vec<(&'static str, usize)>,
    make: Make,
}

fn case(
    layer: &'static str,
    sizes: &[(&'static str, usize)],
    make: impl Fn(&[usize]) -> Result<()> + 'static,
) -> Case {
    Case { layer, sizes: sizes.to_vec(), make: Box::new(make) }
}

fn layers() -> Vec<Case> {
    vec![
        case("CliffordLayer", &[("features", 2)], |n| {
            CliffordLayer::new(n[0], CL3).init(CPU, &mut rng()).map(drop)
        }),
        case("Embedding", &[("entries", 3), ("features", 2)], |n| {
            Embedding::new(n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        case("LayerNorm", &[("features", 2)], |n| LayerNorm::new(n[0]).init(CPU).map(drop)),
        case("Linear", &[("inputs", 2), ("outputs", 3)], |n| {
            Linear::new(n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        case("MetricProduct", &[("features", 2)], |n| {
            MetricProduct::init(n[0], CL3, CPU, &mut rng()).map(drop)
        }),
        case("MvBlock", &[("inputs", 2), ("outputs", 3)], |n| {
            MvBlock::new(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
        case("MvLayerNorm", &[("features", 2)], |n| MvLayerNorm::new(n[0], CL3).init(CPU).map(drop)),
        case("MvLinear", &[("inputs", 2), ("outputs", 3)], |n| {
            MvLinear::new(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
        case("MvNormalization", &[("features", 2)], |n| MvNormalization::new(n[0], CL3).init(CPU).map(drop)),
        case("MvSilu", &[("features", 2)], |n| MvSilu::new(n[0], CL3).init(CPU).map(drop)),
        case("RmsNorm", &[("features", 2)], |n| RmsNorm::new(n[0]).init(CPU).map(drop)),
        case("SelfAttention", &[("features", 4), ("heads", 2)], |n| {
            SelfAttention::new(n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        case("SteerableProduct", &[("features", 2), ("outputs", 3)], |n| {
            SteerableProduct::fully_connected(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
        case("TracelessProduct", &[("inputs", 2), ("features", 3)], |n| {
            TracelessProduct::new(n[0], n[1], CL3).init(CPU, &mut rng()).map(drop)
        }),
    ]
}

fn fields() -> Vec<Case> {
    let plane = || OrderedMetric::new(&[1, 1]).unwrap();
    let network = [("inputs", 1), ("outputs", 1), ("hidden", 4)];
    vec![
        case("CliffordBatchNorm", &[("blades", 4), ("channels", 2)], |n| {
            CliffordBatchNorm::new(n[0], n[1]).init(CPU).map(drop)
        }),
        case("CliffordConv", &[("inputs", 2), ("outputs", 3), ("taps", 3), ("groups", 1)], move |n| {
            CliffordConv::new(&plane(), n[0], n[1], &[n[2]; 2]).groups(n[3]).init(CPU, &mut rng()).map(drop)
        }),
        case("CliffordGroupNorm", &[("blades", 4), ("channels", 2), ("channels_per_group", 1)], |n| {
            CliffordGroupNorm::new(n[0], n[1], n[2]).init(CPU).map(drop)
        }),
        case("CliffordLinear", &[("inputs", 2), ("outputs", 3)], move |n| {
            CliffordLinear::new(&plane(), n[0], n[1]).init(CPU, &mut rng()).map(drop)
        }),
        case("CliffordResNet", &network, |n| {
            let config =
                CliffordResNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            CliffordResNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        case("CliffordSpectralConv", &[("inputs", 2), ("outputs", 3)], move |n| {
            CliffordSpectralConv::new(&plane(), n[0], n[1], &[2, 2]).init(CPU, &mut rng()).map(drop)
        }),
        case("FieldNet", &network, |n| {
            let config = FieldNetConfig {
                inputs: n[0],
                outputs: n[1],
                hidden: n[2],
                norm: None,
                ..Default::default()
            };
            FieldNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        case("G3Conv", &[("inputs", 2), ("outputs", 3), ("taps", 3), ("stride", 1)], |n| {
            G3Conv::new(n[0], n[1], n[2]).stride(n[3]).init(CPU, &mut rng()).map(drop)
        }),
        case("G3Gate", &[("channels", 2)], |n| G3Gate::init(n[0], CPU, &mut rng()).map(drop)),
        case("G3GroupNorm", &[("blades", 3), ("channels", 2), ("groups", 1)], |n| {
            G3GroupNorm::init(n[0], n[1], n[2], None, CPU).map(drop)
        }),
        case("G3ResNet", &network, |n| {
            let config = G3ResNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            G3ResNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        case("G3UNet", &network, |n| {
            let config = G3UNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            G3UNet::init(&config, CPU, &mut rng()).map(drop)
        }),
        case("MvAct", &[("channels", 2)], |n| MvAct::new(n[0], &[0, 1]).init(CPU, &mut rng()).map(drop)),
        case("PgaConjugateLinear", &[("inputs", 2), ("outputs", 3)], |n| {
            PgaConjugateLinear::new(n[0], n[1], &[0, 1]).init(CPU, &mut rng()).map(drop)
        }),
        case(
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
        case(
            "SteerableConv",
            &[("inputs", 2), ("outputs", 3), ("size", 3), ("layers", 2), ("hidden", 4), ("stride", 1)],
            move |n| {
                let conv = SteerableConv::new(&plane(), n[0], n[1], n[2]).network(n[3], n[4]).stride(n[5]);
                conv.init(CPU, &mut rng()).map(drop)
            },
        ),
        case("SteerableResNet", &network, |n| {
            let config =
                SteerableResNetConfig { inputs: n[0], outputs: n[1], hidden: n[2], ..Default::default() };
            SteerableResNet::init(&config, CPU, &mut rng()).map(drop)
        }),
    ]
}

fn geometric() -> Vec<Case> {
    let ends = Channels::new(1, 1);
    vec![
        case("EquiLinear", &[("inputs.multivectors", 2), ("outputs.multivectors", 4)], |n| {
            let channels = (Channels::new(n[0], 3), Channels::new(n[1], 5));
            EquiLinear::new(channels.0, channels.1, &Space::projective()).init(CPU, &mut rng()).map(drop)
        }),
        case("LGATr", &[("multivectors", 2), ("scalars", 4), ("num_heads", 2), ("mlp_ratio", 2)], move |n| {
            let attention = lgatr::AttentionConfig { num_heads: n[2], ..Default::default() };
            let mlp = lgatr::MlpConfig { mlp_ratio: n[3], ..Default::default() };
            let hidden = Channels::new(n[0], n[1]);
            let config =
                lgatr::LGATrConfig { attention, mlp, ..lgatr::LGATrConfig::new(1, ends, hidden, ends) };
            lgatr::LGATr::init(&config, CPU, &mut rng()).map(drop)
        }),
        case("GATr", &[("multivectors", 2), ("scalars", 4), ("num_heads", 2)], move |n| {
            let attention = gatr::AttentionConfig { num_heads: n[2], ..Default::default() };
            let hidden = Channels::new(n[0], n[1]);
            let config = gatr::GATrConfig { attention, ..gatr::GATrConfig::new(1, ends, hidden, ends) };
            gatr::GATr::init(&config, CPU, &mut rng()).map(drop)
        }),
        case("LGATrSlim", &[("vectors", 2), ("scalars", 4), ("num_heads", 2)], |n| {
            let ends = slim::VectorChannels::new(1, 1);
            let channels = [ends, slim::VectorChannels::new(n[0], n[1]), ends];
            let config = slim::LGATrSlimConfig::new(1, channels, n[2]);
            slim::LGATrSlim::init(&config, CPU, &mut rng()).map(drop)
        }),
    ]
}

fn tracks() -> Vec<Case> {
    let size = |channels| TrackSize { channels, rank: Rank::Three };
    let basis = || RadialBasis::new(4, 1.0).unwrap();
    let channels = [("channels", 2)];
    vec![
        case("RadialBasis", &[("cutoff", 4)], |n| RadialBasis::new(n[0], 1.0).map(drop)),
        case("RadialWeights", &[("outputs", 2)], move |n| {
            RadialWeights::init(&basis(), n[0], CPU, &mut rng()).map(drop)
        }),
        case("TrackGate", &channels, move |n| TrackGate::init(size(n[0]), CPU).map(drop)),
        case("TrackLinear", &[("inputs", 3), ("channels", 2)], move |n| {
            TrackLinear::init(n[0], size(n[1]), true, CPU, &mut rng()).map(drop)
        }),
        case("TrackMessages", &channels, move |n| {
            TrackMessages::init(size(n[0]), false, &basis(), CPU, &mut rng()).map(drop)
        }),
        case("TrackNorm", &channels, move |n| TrackNorm::init(size(n[0]), CPU).map(drop)),
        case("TrackProduct", &channels, move |n| TrackProduct::init(size(n[0]), CPU, &mut rng()).map(drop)),
    ]
}

fn all() -> Vec<Case> {
    [layers(), fields(), geometric(), tracks()].into_iter().flatten().collect()
}

/// Arguments of networks are those of the layers that they are made of, where the network has no name for them.
const COMPOSED: [&str; 3] = ["LGATr", "GATr", "LGATrSlim"];

#[test]
fn a_size_of_zero_is_refused_by_name() {
    for Case { layer, sizes, make } in all() {
        let whole: Vec<usize> = sizes.iter().map(|&(_, size)| size).collect();
        make(&whole).unwrap_or_else(|error| panic!("{layer} of {sizes:?}: {error}"));
        for (position, &(name, _)) in sizes.iter().enumerate() {
            let mut zero = whole.clone();
            zero[position] = 0;
            match make(&zero) {
                Err(Error::Argument { operation, argument, .. }) => {
                    let composed = COMPOSED.contains(&layer);
                    assert!(composed || operation == layer, "{layer}, {name}: named {operation}");
                    let general = ["config", "multipliers", "size"].contains(&argument);
                    assert!(composed || general || argument == name, "{layer}: {argument} instead of {name}");
                }
                Err(error) => panic!("{layer}, {name}: {error}"),
                Ok(()) => panic!("{layer} accepts 0 {name}"),
            }
        }
    }
}

/// A new layer is to be added to the table.
#[test]
fn the_table_has_every_layer() {
    // Without sizes of their own: settings, functions of tensors, and what other layers are made of.
    let exempt = [
        "Activation",
        "BiasOrder",
        "Dropout",
        "DynLayer",
        "FieldBias",
        "FieldBlock",
        "GateArgument",
        "GradeDropout",
        "GridIsometry",
        "EquiLayerNorm",
        "FeaturePlanes",
        "Initialization",
        "Nonlinearity",
        "Radial",
        "Rank",
        "Sequential",
        "Space",
        "TokenBatch",
        "Bias",
        "ConvolutionOptions",
        "Padding",
        "Pairing",
        "Side",
        "SpectralOptions",
        "SteerablePadding",
        "Whitening",
    ];
    let table: Vec<&str> = all().iter().map(|case| case.layer).collect();
    let modules = [
        include_str!("../src/layers/mod.rs"),
        include_str!("../src/fields/mod.rs"),
        include_str!("../src/geometric/mod.rs"),
        include_str!("../src/tracks/mod.rs"),
    ];
    for statement in
        modules.iter().flat_map(|module| module.split(';')).filter(|text| text.contains("pub use "))
    {
        let names = statement.rsplit("::").next().unwrap_or_default();
        for name in names.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            let is_type = name.starts_with(char::is_uppercase)
                && !name.ends_with("Builder")
                && !name.ends_with("Config");
            assert!(
                !is_type || exempt.contains(&name) || table.contains(&name),
                "{name} is missing in the table"
            );
        }
    }
}
