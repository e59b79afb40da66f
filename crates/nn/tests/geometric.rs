//! Geometric-algebra transformers: how many maps there are, what attention sees, gradients, mistakes.

use gradewise_autograd::{GradcheckOptions, Tensor, gradcheck, training};
use gradewise_core::{DType, Signature};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Module, Placement,
    geometric::{
        AttentionSize, BlockConfig, Channels, EquiLinear, GeometricAttention, GeometricBilinear,
        GeometricTransformer, GradeDropout, Space, Streams, TokenBatch, TransformerConfig,
    },
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(23)
}

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn random(shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    Tensor::new(Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap())
}

/// Nine linear maps of one channel in Cl(3,0,1), ten in Cl(1,3) with orientation, four in Cl(3,0): counted as the rank of what
/// the layer does to the blades, one weight at a time.
#[test]
fn every_equivariant_map_is_there_once() {
    let one = Channels::new(1, 1);
    for (space, maps) in [
        (Space::projective(), 9),
        (Space::space_time(), 10),
        (Space::new(Signature::CL3).unwrap(), 4),
        (Space::oriented(Signature::CL3).unwrap(), 8),
    ] {
        let layer = EquiLinear::init((one, one), &space, place(), &mut rng()).unwrap();
        let count: usize = layer
            .named_parameters()
            .iter()
            .filter(|(name, _)| ["weight", "factor.weight"].contains(&name.as_str()))
            .map(|(_, weight)| weight.shape().elements())
            .sum();
        assert_eq!(count, maps, "{}", space.algebra().signature());
        // No two of them do the same: the map of each blade has as many different entries as maps reach it.
        let blades = space.algebra().blade_count();
        let mut found = std::collections::BTreeSet::new();
        for blade in 0..blades {
            let mut unit = vec![0.0; blades];
            unit[blade] = 1.0;
            let x = Tensor::new(Array::from_f64(&unit, [blades, 1, 1], DType::F64, &Device::Cpu).unwrap());
            let x = Streams::new(x, Tensor::zeros([1, 1], DType::F64, &Device::Cpu).unwrap()).unwrap();
            let y = layer.forward(&x).unwrap().multivectors.array().to_f64_vec().unwrap();
            found.extend(y.iter().filter(|value| **value != 0.0).map(|value| value.abs().to_bits()));
        }
        assert_eq!(found.len(), maps, "{}", space.algebra().signature());
    }
}

/// With maps that pass points on as they are, a token attends to its nearest: weights are those of −distance².
#[test]
fn points_attend_by_their_distance() {
    let space = Space::projective();
    let one = AttentionSize { heads: 1, channels: Channels::new(1, 1) };
    let attention = GeometricAttention::init(Channels::new(1, 1), one, &space, place(), &mut rng()).unwrap();
    for (name, parameter) in attention.named_parameters() {
        let shape = parameter.shape();
        let mut values = vec![0.0; shape.elements()];
        match name.as_str() {
            // `[grades, 1, 3]`: trivectors of queries, keys and values.
            "qkv.weight" => values[3 * 3..4 * 3].fill(1.0),
            "out.weight" => values[3] = 1.0,
            _ => {}
        }
        parameter.set(Array::from_f64(&values, shape, DType::F64, &Device::Cpu).unwrap()).unwrap();
    }
    let places = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 3.0, 0.0], [-0.5, 0.5, 2.0]];
    let blade = |mask| space.algebra().blade_of_mask(mask).unwrap();
    let coordinates = [blade(0b1011), blade(0b1101), blade(0b1110)];
    let mut values = vec![0.0; 16 * places.len()];
    for (token, place) in places.iter().enumerate() {
        values[blade(0b111) * places.len() + token] = 1.0;
        for (axis, coordinate) in coordinates.iter().enumerate() {
            values[coordinate * places.len() + token] = place[axis];
        }
    }
    let x = Tensor::new(Array::from_f64(&values, [16, places.len(), 1], DType::F64, &Device::Cpu).unwrap());
    let x = Streams::new(x, Tensor::zeros([places.len(), 1], DType::F64, &Device::Cpu).unwrap()).unwrap();
    let y = attention.forward(&x, &TokenBatch::new(1, places.len())).unwrap();
    let y = y.multivectors.array().to_f64_vec().unwrap();
    // ω² of w/(w² + ε), and 8 + 5 + 1 features.
    let (omega, scale) = ((1.0f64 / 1.001).powi(2), 14f64.sqrt().recip());
    for (token, place) in places.iter().enumerate() {
        let distance = |other: &[f64; 3]| place.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        // The weights e₁₂₃ of all points are 1, and so is their product.
        let weights: Vec<f64> =
            places.iter().map(|other| (scale * (1.0 - omega * distance(other))).exp()).collect();
        let total: f64 = weights.iter().sum();
        for axis in 0..3 {
            let expected: f64 =
                weights.iter().zip(&places).map(|(weight, other)| weight * other[axis]).sum::<f64>() / total;
            let actual = y[coordinates[axis] * places.len() + token];
            assert!((actual - expected).abs() < 1e-12, "token {token}, axis {axis}: {actual} {expected}");
        }
    }
}

#[test]
fn gradients_of_the_whole_are_right() {
    for space in [Space::projective(), Space::space_time()] {
        let mut rng = rng();
        let block = BlockConfig {
            channels: Channels::new(2, 2),
            attention: AttentionSize { heads: 2, channels: Channels::new(1, 2) },
            hidden: Channels::new(2, 2),
            dropout: 0.0,
        };
        let config =
            TransformerConfig { inputs: Channels::new(2, 1), outputs: Channels::new(1, 2), block, blocks: 1 };
        let model = GeometricTransformer::init(&config, &space, place(), &mut rng).unwrap();
        let tokens = TokenBatch::padded(&[3, 2], 3, place()).unwrap();
        let (x, scalars) = (random(&[16, 6, 2], &mut rng), random(&[6, 1], &mut rng));
        let run = |x: &Tensor, scalars: &Tensor| -> gradewise_autograd::Result<Tensor> {
            let y = model.forward(&Streams::new(x.clone(), scalars.clone()).unwrap(), &tokens).unwrap();
            y.multivectors.square()?.sum_all()?.add(&y.scalars.square()?.sum_all()?)
        };
        let options = GradcheckOptions { samples: 24, ..GradcheckOptions::default() };
        gradcheck(|inputs| run(&inputs[0], &inputs[1]), &[&x, &scalars], &options).unwrap();

        // And those of every parameter, one element each.
        let gradients = run(&x, &scalars).unwrap().backward().unwrap();
        let analytic: Vec<(String, Vec<f64>)> = model
            .named_parameters()
            .into_iter()
            .map(|(name, parameter)| {
                let gradient =
                    gradients.get(&parameter.tensor()).unwrap_or_else(|error| panic!("{name}: {error}"));
                (name, gradient.array().to_f64_vec().unwrap())
            })
            .collect();
        for (index, ((name, analytic), parameter)) in analytic.iter().zip(model.parameters()).enumerate() {
            let (values, shape) = (parameter.array().to_f64_vec().unwrap(), parameter.shape());
            let element = (7 * index + 3) % values.len();
            let at = |step: f64| {
                let mut values = values.clone();
                values[element] += step;
                parameter
                    .set(Array::from_f64(&values, shape.clone(), DType::F64, &Device::Cpu).unwrap())
                    .unwrap();
                run(&x, &scalars).unwrap().array().to_f64_vec().unwrap()[0]
            };
            let numeric = (at(1e-5) - at(-1e-5)) / 2e-5;
            at(0.0);
            let error = (numeric - analytic[element]).abs();
            assert!(
                error <= 1e-5 * (1.0 + numeric.abs()),
                "{name} [{element}]: {} {numeric}",
                analytic[element]
            );
        }
    }
}

/// Blades of one grade are dropped together, and a run repeats.
#[test]
fn dropout_drops_grades() {
    let space = Space::projective();
    let x = Tensor::new(Array::full([16, 40, 3], 1.0, DType::F64, &Device::Cpu).unwrap());
    let x =
        Streams::new(x, Tensor::new(Array::full([40, 2], 1.0, DType::F64, &Device::Cpu).unwrap())).unwrap();
    let layer = GradeDropout::new(&space, 0.25, 5, &Device::Cpu).unwrap();
    let drop = || training(3, || layer.forward(&x).unwrap());
    let (first, second) = (drop(), drop());
    let values = first.multivectors.array().to_f64_vec().unwrap();
    assert_eq!(values, second.multivectors.array().to_f64_vec().unwrap());
    let plane = 40 * 3;
    let mut dropped = 0;
    for grade in 0..5 {
        let blades = space.algebra().blades_of_grade(grade);
        for at in 0..plane {
            let of_grade: Vec<f64> = blades.clone().map(|blade| values[blade * plane + at]).collect();
            assert!(
                of_grade.iter().all(|value| *value == of_grade[0]),
                "grade {grade} at {at}: {of_grade:?}"
            );
            assert!(of_grade[0] == 0.0 || (of_grade[0] - 4.0 / 3.0).abs() < 1e-12);
            dropped += usize::from(of_grade[0] == 0.0);
        }
    }
    let share = dropped as f64 / (5 * plane) as f64;
    assert!((0.18..0.32).contains(&share), "{share}");
    assert_eq!(layer.forward(&x).unwrap().multivectors.array().to_f64_vec().unwrap(), vec![1.0; 16 * plane]);
}

#[test]
fn mistakes_are_named() {
    let (space, mut rng) = (Space::projective(), rng());
    let message = |result: gradewise_nn::Result<Streams>| result.unwrap_err().to_string();
    let channels = Channels::new(2, 2);
    let x = Streams::new(random(&[16, 6, 2], &mut rng), random(&[6, 2], &mut rng)).unwrap();
    assert!(Streams::new(random(&[16, 6, 2], &mut rng), random(&[5, 2], &mut rng)).is_err());
    let bilinear =
        GeometricBilinear::init((channels, channels, channels), &space, place(), &mut rng).unwrap();
    assert!(message(bilinear.forward(&x, None)).contains("reference"));
    let size = AttentionSize { heads: 2, channels: Channels::new(1, 1) };
    let attention = GeometricAttention::init(channels, size, &space, place(), &mut rng).unwrap();
    assert!(message(attention.forward(&x, &TokenBatch::new(2, 4))).contains("2 sets of 4"));
    let none = AttentionSize { heads: 0, channels };
    assert!(GeometricAttention::init(channels, none, &space, place(), &mut rng).is_err());
    assert!(TokenBatch::padded(&[7], 6, place()).is_err());
    assert!(Space::new(Signature::new(1, 0, 2)).unwrap_err().to_string().contains("null"));
    assert!(Space::oriented(Signature::PGA3).is_err());
}
