//! Layers: how many maps there are, what attention sees, what dropout drops.

use gradewise_autograd::{Tensor, training};
use gradewise_core::{DType, Signature};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{Module, Placement};
use gradewise_transformers::{
    Channels, EquiLinear, FeaturePlanes, GradeDropout, Initialization, Space, Streams, TokenBatch,
    gatr::{AttentionConfig, SelfAttention},
};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(23)
}

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn tensor(values: &[f64], shape: &[usize]) -> Tensor {
    place().tensor(values, shape).unwrap()
}

/// Nine linear maps of one channel in Cl(3,0,1), ten in Cl(1,3) with orientation, five without, four in Cl(3,0): counted as the different
/// entries of what the layer does to the blades.
#[test]
fn every_equivariant_map_is_there_once() {
    let one = Channels::new(1, 0);
    for (space, maps) in [
        (Space::projective(), 9),
        (Space::space_time(), 10),
        (Space::new(Signature::STA).unwrap(), 5),
        (Space::new(Signature::CL3).unwrap(), 4),
        (Space::oriented(Signature::CL3).unwrap(), 8),
    ] {
        let layer = EquiLinear::new(one, one, &space).bias(false).init(place(), &mut rng()).unwrap();
        let parameters = layer.named_parameters();
        let count = parameters.iter().map(|(_, weight)| weight.shape().elements()).sum::<usize>();
        assert_eq!((count, space.map_count()), (maps, maps), "{}", space.algebra().signature());
        // No two of them do the same: the map of each blade has as many different entries as maps reach it.
        let blades = space.algebra().blade_count();
        let mut found = std::collections::BTreeSet::new();
        for blade in 0..blades {
            let mut unit = vec![0.0; blades];
            unit[blade] = 1.0;
            let x = Streams::new(tensor(&unit, &[blades, 1, 1]), tensor(&[], &[1, 0])).unwrap();
            let y = layer.forward(&FeaturePlanes::new(&space, &x).unwrap()).unwrap();
            let y = y.streams(&space).unwrap().multivectors.array().to_f64_vec().unwrap();
            found.extend(y.iter().filter(|value| **value != 0.0).map(|value| value.abs().to_bits()));
        }
        assert_eq!(found.len(), maps, "{}", space.algebra().signature());
    }
}

/// Uniform, with the published bounds.
#[test]
fn initial_values_are_those_of_the_published_packages() {
    let (from, to) = (Channels::new(50, 32), Channels::new(20, 30));
    for (space, first, bias) in [(Space::space_time(), 100f64, 82f64), (Space::projective(), 50.0, 82.0)] {
        let map = EquiLinear::new(from, to, &space).initialization(Initialization::AlmostUnitScalar);
        let map = map.init(place(), &mut rng()).unwrap();
        let values = |wanted: &str| {
            let parameters = map.named_parameters();
            let (_, parameter) = parameters.iter().find(|(name, _)| name == wanted).unwrap();
            parameter.array().to_f64_vec().unwrap()
        };
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |most: f64, x| most.max(x.abs()));
        let near = |found: f64, bound: f64| found <= bound && found > 0.95 * bound;
        let (weight, maps) = (values("weight"), space.map_count());
        let of_map = |map: usize| most(&mut weight.iter().skip(map).step_by(maps).copied());
        // Multivectors have half of the deviation; scalars and multivectors share the variance of scalar parts in space-time.
        assert!(near(of_map(0), 0.5 / first.sqrt()), "{}", of_map(0));
        let second = if space.has_points() { 2.0 } else { 1.0 };
        assert!(near(of_map(1), 0.5 * second / 50f64.sqrt()), "{}", of_map(1));
        assert!(near(most(&mut values("s2mvs.weight").into_iter()), 0.5 / 64f64.sqrt()));
        let around_one = most(&mut values("s2mvs.bias").into_iter().map(|x| x - 1.0));
        assert!(around_one <= 1.0 / bias.sqrt() && around_one > 0.7 / bias.sqrt(), "{around_one}");
        let mixed = if space.is_oriented() { 2.0 } else { 1.0 };
        assert!(near(most(&mut values("mvs2s.weight").into_iter()), 1.0 / (mixed * 100f64).sqrt()));
        assert!(near(most(&mut values("s2s.weight").into_iter()), 1.0 / 64f64.sqrt()));
    }
}

/// With maps that pass points on as they are, a token attends to its nearest: weights are those of −distance².
#[test]
fn points_attend_by_their_distance() {
    let (space, one) = (Space::projective(), Channels::new(1, 1));
    let config = AttentionConfig { num_heads: 1, increase_hidden_channels: 1, ..AttentionConfig::default() };
    let attention =
        SelfAttention::init((one, Channels::new(0, 0)), &config, None, place(), &mut rng()).unwrap();
    for (name, parameter) in attention.named_parameters() {
        let shape = parameter.shape();
        let mut values = vec![0.0; shape.elements()];
        // Of grade 3 there are four blades, and the map of each grade has norm 1.
        if name.ends_with("linear.weight") {
            values[3] = 2.0;
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
    let x = tensor(&values, &[16, places.len(), 1]);
    let x = Streams::new(x, tensor(&[0.0; 4], &[places.len(), 1])).unwrap();
    let x = FeaturePlanes::new(&space, &x).unwrap();
    let y = attention.forward(&x, None, &TokenBatch::new(1, places.len())).unwrap();
    let y = y.streams(&space).unwrap().multivectors.array().to_f64_vec().unwrap();
    // Weights w/(w² + ε) of both points; seven features of inner products, five of distances and four scalars.
    let (omega, scale) = ((1.0f64 / 1.001).powi(2), 16f64.sqrt().recip());
    for (token, place) in places.iter().enumerate() {
        let distance = |other: &[f64; 3]| place.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        let weights: Vec<f64> =
            places.iter().map(|other| (-scale * omega.powi(2) * distance(other)).exp()).collect();
        let total: f64 = weights.iter().sum();
        for axis in 0..3 {
            let expected: f64 =
                weights.iter().zip(&places).map(|(weight, other)| weight * other[axis]).sum::<f64>() / total;
            let actual = y[coordinates[axis] * places.len() + token];
            assert!((actual - expected).abs() < 1e-12, "token {token}, axis {axis}: {actual} {expected}");
        }
    }
}

/// Blades of one grade are dropped together, and a run repeats.
#[test]
fn dropout_drops_grades() {
    let space = Space::projective();
    let (x, scalars) = (tensor(&[1.0; 16 * 40 * 3], &[16, 40, 3]), tensor(&[1.0; 80], &[40, 2]));
    let x = FeaturePlanes::new(&space, &Streams::new(x, scalars).unwrap()).unwrap();
    let layer = GradeDropout::new(&space, 0.25, 5).unwrap();
    let values = |y: &FeaturePlanes| {
        let y = y.streams(&space).unwrap();
        [y.multivectors, y.scalars].map(|part| part.array().to_f64_vec().unwrap())
    };
    let drop = || values(&training(3, || layer.forward(&x).unwrap()));
    let [first, scalars] = drop();
    assert_eq!([first.clone(), scalars.clone()], drop());
    let plane = 40 * 3;
    let mut dropped = 0;
    for grade in 0..5 {
        let blades = space.algebra().blades_of_grade(grade);
        for at in 0..plane {
            let of_grade: Vec<f64> = blades.clone().map(|blade| first[blade * plane + at]).collect();
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
    assert!(scalars.contains(&0.0) && scalars.iter().any(|&value| value > 1.3));
    assert_eq!(values(&layer.forward(&x).unwrap())[0], vec![1.0; 16 * plane]);
}
