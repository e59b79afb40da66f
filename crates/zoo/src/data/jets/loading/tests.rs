use super::*;
use gradewise_core::Signature;
use gradewise_nn::{
    data::Split,
    symmetry::{Isometry, relative_distance},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.array().to_f64_vec().unwrap()
}

/// The arrays of a batch, filled by loops over jets and particles in double precision and rounded afterwards.
fn one_by_one(jets: &JetSets, indices: &[usize], dtype: DType) -> Vec<Array> {
    let particles = jets.padded(indices.iter().map(|&jet| jets.count(jet)).max().unwrap());
    let (count, nodes) = (indices.len(), indices.len() * particles);
    let mut features = vec![0.0; FILLED * nodes * CHANNELS];
    let (mut products, mut references) = (vec![0.0; nodes * particles], vec![0.0; 4 * count * REFERENCES]);
    let (mut particle_weights, mut neighbour_weights) = (vec![0.0; nodes], vec![0.0; nodes]);
    for (position, &jet) in indices.iter().enumerate() {
        let Resting { mass, momenta, references: axes } = Resting::of(jets, jet);
        for (channel, axis) in axes.iter().enumerate() {
            for component in 0..4 {
                references[(component * count + position) * REFERENCES + channel] = axis.0[component];
            }
        }
        for (particle, momentum) in momenta.iter().enumerate() {
            let node = position * particles + particle;
            particle_weights[node] = 1.0 / momenta.len() as f64;
            neighbour_weights[node] = 1.0 / (momenta.len() as f64 - 1.0).max(1.0);
            features[node * CHANNELS + 2] = 2.0 * momentum.0[0];
            features[node * CHANNELS + 3] = (mass / 100.0).ln();
            for axis in 0..4 {
                features[((1 + axis) * nodes + node) * CHANNELS] = momentum.0[axis];
            }
            features[(nodes + node) * CHANNELS + 1] = 1.0;
            for (other, neighbour) in momenta.iter().enumerate() {
                products[node * particles + other] = momentum.dot(neighbour).max(0.0);
            }
        }
    }
    let array =
        |values: &[f64], shape: &[usize]| Array::from_f64(values, shape, dtype, &Device::Cpu).unwrap();
    let targets: Vec<f64> =
        indices.iter().flat_map(|&jet| if jets.labels()[jet] { [0.0, 1.0] } else { [1.0, 0.0] }).collect();
    vec![
        array(&features, &[FILLED, nodes, CHANNELS]),
        array(&products, &[count, particles, particles]),
        array(&references, &[4, count, REFERENCES]),
        array(&particle_weights, &[1, nodes, 1]),
        array(&neighbour_weights, &[count, particles]),
        array(&targets, &[count, 2]),
    ]
}

#[test]
fn batches_have_the_bits_of_loops_over_jets() {
    let jets = JetSets::simulate(40, 60, 4, Split::Train).unwrap();
    let all: Vec<usize> = (0..40).rev().collect();
    for dtype in DType::ALL {
        for (jets, indices) in
            [(jets.clone(), &all[..]), (jets.clone().padded_to(8), &all[3..9]), (jets.clone(), &[7])]
        {
            let batch = jets.batch(indices, &Placement::new(&Device::Cpu, dtype)).unwrap();
            for (made, expected) in batch.tensors().into_iter().zip(one_by_one(&jets, indices, dtype)) {
                assert_eq!((made.shape(), made.dtype()), (expected.shape(), dtype));
                // Every number of these types is one of double precision.
                let bits = |array: &Array| {
                    array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect::<Vec<_>>()
                };
                assert_eq!(bits(made.array()), bits(&expected), "{dtype} {:?}", made.shape());
            }
        }
    }
}

/// Of a batch of jets of different lengths, each is what its own momenta make, padding included.
#[test]
fn momenta_make_the_batch_of_their_jet() {
    let jets = JetSets::simulate(6, 9, 2, Split::Train).unwrap();
    let (momenta, particles) = (jets.momenta(), 9);
    for jet in 0..6 {
        let place = Placement::new(&Device::Cpu, DType::F64);
        let one = jets.clone().padded_to(particles).batch(&[jet], &place).unwrap();
        assert_eq!(one.particles, particles);
        let tensor = |values: &[f64], shape: &[usize]| {
            Tensor::new(Array::from_f64(values, shape, DType::F64, &Device::Cpu).unwrap())
        };
        let there: Vec<f64> = (0..particles).map(|i| f64::from(i < jets.count(jet))).collect();
        let own = tensor(&momenta[jet * particles * 4..][..particles * 4], &[particles, 4]);
        let made = JetBatch::of_momenta(&own, &tensor(&there, &[particles]), DType::F64).unwrap();
        for (made, expected) in made.tensors().into_iter().zip(one.tensors()).take(5) {
            assert_eq!(made.shape(), expected.shape());
            let [made, expected] = [made, expected].map(|x| x.array().to_f64_vec().unwrap());
            for (a, b) in made.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} {b}");
            }
        }
    }
}

#[test]
fn scalars_of_a_batch_do_not_change_under_boosts_and_vectors_turn() {
    let jets = JetSets::simulate(5, 8, 1, Split::Valid).unwrap();
    let place = Placement::new(&Device::Cpu, DType::F64);
    let isometry = Isometry::random(Signature::STA, 4, &mut ChaCha8Rng::seed_from_u64(4)).unwrap();
    let moved = jets.clone().moved(&isometry).unwrap().batch(&[4, 1, 1], &place).unwrap();
    let plain = jets.batch(&[4, 1, 1], &place).unwrap();
    let error = relative_distance(&values(&moved.products), &values(&plain.products));
    assert!(error < 1e-9, "{error:e}");
    let (a, b) = (values(&moved.features), values(&plain.features));
    let lane = 24 * CHANNELS;
    assert!(relative_distance(&a[..2 * lane], &b[..2 * lane]) < 1e-9, "scalars and energies");
    let (a, b) = (&a[2 * lane..5 * lane], &b[2 * lane..5 * lane]);
    let norm = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>();
    assert!(relative_distance(a, b) > 0.1 && (norm(a) / norm(b) - 1.0).abs() < 1e-9, "vectors turn");
    let weights = values(&plain.particle_weights);
    assert!(weights.chunks_exact(8).all(|jet| (jet.iter().sum::<f64>() - 1.0).abs() < 1e-12));
    assert!(values(&plain.neighbour_weights).iter().all(|weight| weight.is_finite()));
}

/// The sum of the momenta is the jet at rest, products are those of the momenta, and axes keep their products with them.
#[test]
fn the_rest_frame_is_one() {
    let jets = JetSets::simulate(4, 9, 5, Split::Test).unwrap();
    for jet in 0..4 {
        let Resting { mass, momenta, references } = Resting::of(&jets, jet);
        let total = momenta.iter().fold(FourMomentum([0.0; 4]), |sum, p| sum.plus(p));
        let error = relative_distance(&total.0, &[1.0, 0.0, 0.0, 0.0]);
        assert!(error < 1e-12, "{error:e}");
        for (a, moved) in jets.jet(jet).zip(&momenta) {
            for (b, other) in jets.jet(jet).zip(&momenta) {
                assert!((a.dot(&b) / mass.powi(2) - moved.dot(other)).abs() < 1e-12);
            }
            assert!((a.0[0] / mass - references[0].dot(moved)).abs() < 1e-11 * a.0[0] / mass);
            assert!((a.0[3] / mass + references[1].dot(moved)).abs() < 1e-11 * a.0[0] / mass);
        }
    }
}

#[test]
fn batches_are_as_long_as_their_longest_jet() {
    let jets = JetSets::simulate(40, 60, 3, Split::Train).unwrap();
    let place = Placement::new(&Device::Cpu, DType::F32);
    let counts: Vec<usize> = (0..40).map(|jet| jets.count(jet)).collect();
    assert_eq!(jets.lengths().unwrap(), counts.iter().map(|&count| count as u32).collect::<Vec<_>>());
    let shortest = (0..40).min_by_key(|&jet| counts[jet]).unwrap();
    for indices in [vec![shortest], (0..40).collect()] {
        let batch = jets.batch(&indices, &place).unwrap();
        let longest = indices.iter().map(|&jet| counts[jet]).max().unwrap();
        assert_eq!((batch.particles, batch.jets), (longest, indices.len()));
        assert_eq!(batch.products.shape().dims(), [indices.len(), longest, longest]);
        let there = values(&batch.particle_weights).iter().filter(|&&weight| weight > 0.0).count();
        assert_eq!(there, indices.iter().map(|&jet| counts[jet]).sum::<usize>());
        assert_eq!(batch.edges().unwrap().receivers.len(), indices.len() * longest * (longest - 1));
    }
    let batch = jets.clone().padded_to(16).batch(&[shortest], &place).unwrap();
    assert_eq!(batch.particles, counts[shortest].next_multiple_of(16));
    assert_eq!(jets.padded_to(64).batch(&[shortest], &place).unwrap().particles, 60, "no jet has more");
}

#[test]
fn multivectors_are_the_features_and_zeros() {
    let jets = JetSets::simulate(3, 8, 1, Split::Valid).unwrap();
    let batch = jets.batch(&[0, 2], &Placement::new(&Device::Cpu, DType::F64)).unwrap();
    let (features, all) = (values(&batch.features), values(&batch.multivectors().unwrap()));
    assert_eq!(all.len(), 16 * 2 * batch.particles * CHANNELS);
    let (filled, above) = all.split_at(features.len());
    assert!(filled == features && above.iter().all(|&number| number == 0.0));
}
