//! Geometric-algebra transformers: under Euclidean motions in Cl(3,0,1), under Lorentz transformations in Cl(1,3).

use crate::{
    DTYPES,
    action::{Action, Group, tensor},
    common::{device, randomize, rng},
    distance, tolerance,
};
use gradewise_autograd::Tensor;
use gradewise_core::DType;
use gradewise_kernels::Array;
use gradewise_nn::{
    Placement,
    geometric::{
        AttentionSize, BlockConfig, Channels, EquiLinear, GeometricAttention, GeometricBilinear,
        GeometricTransformer, InvariantLayerNorm, Space, Streams, TokenBatch, TransformerConfig, scalar_gate,
    },
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

fn config() -> TransformerConfig {
    let attention = AttentionSize { heads: 2, channels: Channels::new(2, 3) };
    let block =
        BlockConfig { channels: Channels::new(5, 4), attention, hidden: Channels::new(3, 4), dropout: 0.0 };
    TransformerConfig { inputs: CHANNELS, outputs: Channels::new(2, 2), block, blocks: 2 }
}

/// Every layer, trained.
fn layers(space: &Space, dtype: DType, rng: &mut ChaCha8Rng) -> Vec<Layer> {
    let place = Placement::new(device(), dtype);
    let tokens = || TokenBatch::new(TOKENS.0, TOKENS.1);
    let linear = EquiLinear::init((CHANNELS, Channels::new(3, 5)), space, &place, rng).unwrap();
    let hidden = Channels::new(3, 2);
    let bilinear = GeometricBilinear::init((CHANNELS, hidden, CHANNELS), space, &place, rng).unwrap();
    let size = AttentionSize { heads: 3, channels: Channels::new(2, 2) };
    let attention = GeometricAttention::init(CHANNELS, size, space, &place, rng).unwrap();
    let whole = GeometricTransformer::init(&config(), space, &place, rng).unwrap();
    randomize(&linear, rng);
    randomize(&bilinear, rng);
    randomize(&attention, rng);
    randomize(&whole, rng);
    let norm = InvariantLayerNorm::new(space, &place).unwrap();
    let reference_space = space.clone();
    vec![
        ("linear", Box::new(move |x: &Streams| linear.forward(x).unwrap())),
        ("norm", Box::new(move |x: &Streams| norm.forward(x).unwrap())),
        ("gate", Box::new(|x: &Streams| scalar_gate(x).unwrap())),
        (
            "bilinear",
            Box::new(move |x: &Streams| {
                let reference = tokens().reference(&reference_space, x).unwrap();
                bilinear.forward(x, reference.as_ref()).unwrap()
            }),
        ),
        ("attention", Box::new(move |x: &Streams| attention.forward(x, &tokens()).unwrap())),
        ("transformer", Box::new(move |x: &Streams| whole.forward(x, &tokens()).unwrap())),
    ]
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

/// Tokens have no order, sets do not see each other, and padding is seen by nobody.
#[test]
fn tokens_are_a_set() {
    let space = Space::projective();
    let mut rng = rng(330);
    let place = Placement::new(device(), DType::F64);
    let model = GeometricTransformer::init(&config(), &space, &place, &mut rng).unwrap();
    randomize(&model, &mut rng);
    let x = streams(&space, CHANNELS, DType::F64, &mut rng);
    let tokens = TokenBatch::new(TOKENS.0, TOKENS.1);
    let values = |y: &Streams| y.multivectors.array().to_f64_vec().unwrap();
    let pick = |x: &Streams, order: &[usize]| {
        let index = gradewise_kernels::Index::new(order, x.tokens(), device()).unwrap();
        let (multivectors, scalars) =
            (x.multivectors.index_select(1, &index), x.scalars.index_select(0, &index));
        Streams::new(multivectors.unwrap(), scalars.unwrap()).unwrap()
    };
    let plain = model.forward(&x, &tokens).unwrap();
    let order = [8, 5, 9, 7, 6, 0, 3, 1, 4, 2];
    let permuted = model.forward(&pick(&x, &order), &tokens).unwrap();
    let expected = values(&pick(&plain, &order));
    assert!(distance(&values(&permuted), &expected, &expected) < 1e-12);

    // The first three of each set alone, and as what is left of a padded batch whose padding is anything.
    let kept = [0, 1, 2, 5, 6, 7];
    let short = model.forward(&pick(&x, &kept), &TokenBatch::new(2, 3)).unwrap();
    let padded = TokenBatch::padded(&[3, 3], TOKENS.1, &place).unwrap();
    let long = pick(&model.forward(&x, &padded).unwrap(), &kept);
    let expected = values(&short);
    assert!(distance(&values(&long), &expected, &expected) < 1e-12);
    assert!(distance(&values(&pick(&plain, &kept)), &expected, &expected) > 1e-3, "the others are seen");
}
