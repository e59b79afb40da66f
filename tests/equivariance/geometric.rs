//! Geometric-algebra transformers: under Euclidean motions in Cl(3,0,1), under Lorentz transformations in Cl(1,3).

use crate::{
    DTYPES,
    action::{Action, Group, tensor},
    common::{device, randomize, rng},
    distance, tolerance,
};
use gradewise_autograd::Tensor;
use gradewise_core::{DType, Signature};
use gradewise_kernels::Array;
use gradewise_nn::Placement;
use gradewise_transformers::{
    Channels, EquiLayerNorm, EquiLinear, FeaturePlanes, Nonlinearity, Space, Streams, TokenBatch,
    gatr::{self, GATr, GATrConfig, JoinReference},
    lgatr::{self, LGATr, LGATrConfig},
    slim::{LGATrSlim, LGATrSlimConfig, VectorChannels, VectorStreams},
};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const CHANNELS: Channels = Channels::new(4, 3);
const TOKENS: (usize, usize) = (2, 5);

fn random(shape: &[usize], dtype: DType, rng: &mut ChaCha8Rng) -> Tensor {
    Tensor::new(Array::randn(shape, dtype, device(), rng).unwrap())
}

/// Multivectors of every grade beside points, in space; multivectors with time-like vectors, in space-time.
fn streams(space: &Space, channels: Channels, dtype: DType, rng: &mut ChaCha8Rng) -> Streams {
    let blades = space.algebra().blade_count();
    let tokens = TOKENS.0 * TOKENS.1;
    let mut values: Vec<f64> =
        (0..blades * tokens * channels.multivectors).map(|_| StandardNormal.sample(rng)).collect();
    if space.has_points() {
        // Weights away from zero, as those of points are: the distances divide by them.
        let weight = space.algebra().blade_of_mask(0b111).unwrap();
        let plane = tokens * channels.multivectors;
        for value in &mut values[weight * plane..(weight + 1) * plane] {
            *value += value.signum();
        }
    }
    let multivectors = tensor(&values, &[blades, tokens, channels.multivectors], dtype);
    Streams::new(multivectors, random(&[tokens, channels.scalars], dtype, rng)).unwrap()
}

fn moved(x: &Streams, action: &Action) -> Streams {
    Streams::new(action.apply(&x.multivectors), x.scalars.clone()).unwrap()
}

/// Errors of both streams of `f` under `action`.
fn errors(f: &dyn Fn(&Streams) -> Streams, x: &Streams, action: &Action) -> [f64; 2] {
    let values = |tensor: &Tensor| tensor.array().to_f64_vec().unwrap();
    let (plain, turned) = (f(x), f(&moved(x, action)));
    let (multivectors, scalars) = (values(&plain.multivectors), values(&plain.scalars));
    [
        distance(&values(&turned.multivectors), &action.apply_values(&multivectors), &multivectors),
        distance(&values(&turned.scalars), &scalars, &scalars),
    ]
}

type Layer = (&'static str, Box<dyn Fn(&Streams) -> Streams>);

const HIDDEN: Channels = Channels::new(5, 4);
const OUTPUTS: Channels = Channels::new(2, 2);

fn of_space_time(multi_query: bool) -> LGATrConfig {
    let attention = lgatr::AttentionConfig { num_heads: 2, multi_query, head_scale: true, attn_ratio: 2 };
    let mlp = lgatr::MlpConfig { mlp_ratio: 2, nonlinearity: Nonlinearity::Silu, num_layers_mlp: 3 };
    LGATrConfig {
        attention,
        mlp,
        reinsert_mv_channels: vec![1],
        ..LGATrConfig::new(2, CHANNELS, HIDDEN, OUTPUTS)
    }
}

fn of_points(multi_query: bool) -> GATrConfig {
    let attention = gatr::AttentionConfig { num_heads: 2, multi_query, ..gatr::AttentionConfig::default() };
    let reinsert_mv_channels = vec![0, 3];
    GATrConfig { attention, reinsert_mv_channels, ..GATrConfig::new(2, CHANNELS, HIDDEN, OUTPUTS) }
}

/// Layers and the network of the space, trained.
fn layers(space: &Space, dtype: DType, rng: &mut ChaCha8Rng) -> Vec<Layer> {
    let place = Placement::new(device(), dtype);
    let tokens = || TokenBatch::new(TOKENS.0, TOKENS.1);
    let linear = EquiLinear::new(CHANNELS, Channels::new(3, 5), space).init(&place, rng).unwrap();
    let norm = EquiLayerNorm::new(CHANNELS, space).elementwise_affine(true).init(&place).unwrap();
    let whole = LGATr::init_in(space, &of_space_time(false), &place, rng).unwrap();
    randomize(&linear, rng);
    randomize(&norm, rng);
    randomize(&whole, rng);
    let (of_linear, of_norm) = (space.clone(), space.clone());
    let mut layers: Vec<Layer> = vec![
        (
            "linear",
            Box::new(move |x: &Streams| {
                let x = FeaturePlanes::new(&of_linear, x).unwrap();
                linear.forward(&x).unwrap().streams(&of_linear).unwrap()
            }),
        ),
        (
            "norm",
            Box::new(move |x: &Streams| {
                let x = FeaturePlanes::new(&of_norm, x).unwrap();
                norm.forward(&x).unwrap().streams(&of_norm).unwrap()
            }),
        ),
        ("LGATr", Box::new(move |x: &Streams| whole.forward(x, &tokens()).unwrap())),
    ];
    if space.has_points() {
        for multi_query in [false, true] {
            let whole = GATr::init(&of_points(multi_query), &place, rng).unwrap();
            randomize(&whole, rng);
            let run = move |x: &Streams| whole.forward(x, &tokens(), JoinReference::Data).unwrap();
            layers.push((if multi_query { "GATr, shared keys" } else { "GATr" }, Box::new(run)));
        }
    } else {
        let whole = LGATr::init_in(space, &of_space_time(true), &place, rng).unwrap();
        randomize(&whole, rng);
        layers.push(("shared keys", Box::new(move |x: &Streams| whole.forward(x, &tokens()).unwrap())));
    }
    layers
}

/// Sharp softmaxes and products of products lose some digits more than single layers.
fn bound(dtype: DType) -> f64 {
    10.0 * tolerance(dtype)
}

#[test]
fn projective_layers_commute_with_motions_and_reflections_of_space() {
    let space = Space::projective();
    for dtype in DTYPES {
        let mut rng = rng(300);
        let x = streams(&space, CHANNELS, dtype, &mut rng);
        let actions = Action::reflections(space.algebra(), Group::Pin, &mut rng);
        for (name, layer) in layers(&space, dtype, &mut rng) {
            for action in &actions {
                let errors = errors(&layer, &x, action);
                let worst = errors.into_iter().fold(0.0, f64::max);
                assert!(worst <= bound(dtype), "{name}, {dtype}, {}: {errors:?}", action.name);
            }
        }
    }
}

#[test]
fn layers_of_space_time_commute_with_proper_lorentz_transformations() {
    let space = Space::space_time();
    for dtype in DTYPES {
        let mut rng = rng(310);
        let x = streams(&space, CHANNELS, dtype, &mut rng);
        let layers = layers(&space, dtype, &mut rng);
        for (plane, angle) in [((0, 1), 0.5), ((0, 3), -0.4), ((1, 2), 1.2), ((2, 3), -2.0)] {
            let action = Action::rotor(space.algebra(), plane, angle);
            for (name, layer) in &layers {
                let errors = errors(layer, &x, &action);
                let worst = errors.into_iter().fold(0.0, f64::max);
                assert!(worst <= bound(dtype), "{name}, {dtype}, {}: {errors:?}", action.name);
            }
        }
    }
}

/// Which is what they see orientation for, and the proof that the tests above can fail.
#[test]
fn the_pseudoscalar_sees_orientation() {
    let space = Space::space_time();
    let mut rng = rng(320);
    let x = streams(&space, CHANNELS, DType::F64, &mut rng);
    let layers = layers(&space, DType::F64, &mut rng);
    let reflections = Action::reflections(space.algebra(), Group::Compact, &mut rng);
    let odd = reflections.iter().find(|action| action.name.starts_with('1')).unwrap();
    let (_, linear) = layers.iter().find(|(name, _)| *name == "linear").unwrap();
    assert!(errors(linear, &x, odd)[0] > 1e-2);
}

/// The whole group where a model does not see orientation: L-GATr without its subgroup, in space-time and in other spaces, and the slim one.
#[test]
fn networks_without_orientation_commute_with_reflections() {
    let spaces = [Signature::STA, Signature::CL3, Signature::new(2, 1, 0)];
    for (number, signature) in (0u64..).zip(spaces) {
        let space = Space::new(signature).unwrap();
        for dtype in DTYPES {
            let mut rng = rng(340 + number);
            let place = Placement::new(device(), dtype);
            let model = LGATr::init_in(&space, &of_space_time(false), &place, &mut rng).unwrap();
            randomize(&model, &mut rng);
            let run = |x: &Streams| model.forward(x, &TokenBatch::new(TOKENS.0, TOKENS.1)).unwrap();
            let x = streams(&space, CHANNELS, dtype, &mut rng);
            for action in Action::reflections(space.algebra(), Group::Compact, &mut rng) {
                let errors = errors(&run, &x, &action);
                let worst = errors.into_iter().fold(0.0, f64::max);
                assert!(worst <= bound(dtype), "{signature}, {dtype}, {}: {errors:?}", action.name);
            }
        }
    }
}

#[test]
fn vectors_commute_with_lorentz_transformations() {
    let space = Space::space_time();
    let (inputs, hidden) = (VectorChannels::new(4, 3), VectorChannels::new(5, 6));
    let config = LGATrSlimConfig::new(2, [inputs, hidden, VectorChannels::new(2, 2)], 2);
    for dtype in DTYPES {
        let mut rng = rng(350);
        let model = LGATrSlim::init(&config, Placement::new(device(), dtype), &mut rng).unwrap();
        randomize(&model, &mut rng);
        // Multivectors of vectors alone, so that actions are those of multivectors.
        let run = |x: &Streams| {
            let vectors = x.multivectors.slice(0, 1..5).unwrap();
            let x = VectorStreams::new(vectors, x.scalars.clone()).unwrap();
            let y = model.forward(&x, &TokenBatch::new(TOKENS.0, TOKENS.1)).unwrap();
            let zeros = |blades: usize| Tensor::zeros([blades, x.tokens(), 2], dtype, device()).unwrap();
            let all = gradewise_autograd::concat(&[&zeros(1), &y.vectors, &zeros(11)], 0).unwrap();
            Streams::new(all, y.scalars).unwrap()
        };
        let x = streams(&space, CHANNELS, dtype, &mut rng);
        let mut actions = Action::reflections(space.algebra(), Group::Compact, &mut rng);
        for (plane, angle) in [((0, 1), 0.5), ((0, 3), -0.4), ((1, 2), 1.2)] {
            actions.push(Action::rotor(space.algebra(), plane, angle));
        }
        for action in actions {
            let errors = errors(&run, &x, &action);
            let worst = errors.into_iter().fold(0.0, f64::max);
            assert!(worst <= bound(dtype), "{dtype}, {}: {errors:?}", action.name);
        }
    }
}

/// Tokens have no order, sets do not see each other, and padding is seen by nobody.
#[test]
fn tokens_are_a_set() {
    let space = Space::projective();
    let mut rng = rng(330);
    let place = Placement::new(device(), DType::F64);
    let network = GATr::init(&of_points(true), &place, &mut rng).unwrap();
    randomize(&network, &mut rng);
    let run = |x: &Streams, tokens: &TokenBatch| network.forward(x, tokens, JoinReference::Data).unwrap();
    let x = streams(&space, CHANNELS, DType::F64, &mut rng);
    let tokens = TokenBatch::new(TOKENS.0, TOKENS.1);
    let values = |y: &Streams| y.multivectors.array().to_f64_vec().unwrap();
    let pick = |x: &Streams, order: &[usize]| {
        let index = gradewise_kernels::Index::new(order, x.tokens(), device()).unwrap();
        let (multivectors, scalars) =
            (x.multivectors.index_select(1, &index), x.scalars.index_select(0, &index));
        Streams::new(multivectors.unwrap(), scalars.unwrap()).unwrap()
    };
    let plain = run(&x, &tokens);
    let order = [8, 5, 9, 7, 6, 0, 3, 1, 4, 2];
    let permuted = run(&pick(&x, &order), &tokens);
    let expected = values(&pick(&plain, &order));
    assert!(distance(&values(&permuted), &expected, &expected) < 1e-12);

    // The first three of each set alone, and as what is left of a padded batch whose padding is anything.
    let kept = [0, 1, 2, 5, 6, 7];
    let short = run(&pick(&x, &kept), &TokenBatch::new(2, 3));
    let padded = TokenBatch::padded(&[3, 3], TOKENS.1, &place).unwrap();
    let long = pick(&run(&x, &padded), &kept);
    let expected = values(&short);
    assert!(distance(&values(&long), &expected, &expected) < 1e-12);
    assert!(distance(&values(&pick(&plain, &kept)), &expected, &expected) > 1e-3, "the others are seen");
}
