//! Biases and attention against their definitions, by loops over pairs of particles.

use super::super::attention::{PairAttention, Pairs};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, DType, Device};
use gradewise_nn::{Module, Placement, symmetry::relative_distance};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

fn random(shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    Tensor::new(Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap())
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.array().to_f64_vec().unwrap()
}

/// The parameters of a module by their names, after all, biases too, are drawn anew.
fn drawn(module: &impl Module, rng: &mut ChaCha8Rng) -> HashMap<String, Vec<f64>> {
    let parameters = module.unique_parameters().unwrap();
    for (_, parameter) in &parameters {
        let shape = parameter.shape();
        parameter.set(Array::randn(shape, DType::F64, &Device::Cpu, rng).unwrap()).unwrap();
    }
    parameters.into_iter().map(|(name, parameter)| (name, parameter.array().to_f64_vec().unwrap())).collect()
}

/// `x·weight`, `[rows, in]` to `[rows, out]`, and the bias if there is one.
fn linear(p: &HashMap<String, Vec<f64>>, name: &str, x: &[f64], [inputs, outputs]: [usize; 2]) -> Vec<f64> {
    let (weight, bias) = (&p[&format!("{name}.weight")], p.get(&format!("{name}.bias")));
    let row = |x: &[f64]| -> Vec<f64> {
        let sum = |out: usize| (0..inputs).map(|k| x[k] * weight[k * outputs + out]).sum::<f64>();
        (0..outputs).map(|out| sum(out) + bias.map_or(0.0, |bias| bias[out])).collect()
    };
    x.chunks_exact(inputs).flat_map(row).collect()
}

fn pairs_of(first: usize, second: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..first).flat_map(move |a| (0..second).map(move |b| (a, b)))
}

#[test]
fn biases_are_of_the_perceptron_of_each_pair() {
    let [jets, particles, units, heads] = [2, 3, 5, 4];
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let pairs = Pairs::init(units, heads, &place(), &mut rng).unwrap();
    let p = drawn(&pairs, &mut rng);
    let products = random(&[jets, particles, particles], &mut rng).square().unwrap();
    let energies = random(&[jets, particles, 1], &mut rng);
    let there = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0];
    let given = Array::from_f64(&there, [jets, 1, 1, particles], DType::F64, &Device::Cpu).unwrap();
    let biases = pairs.forward(&products, &energies, &Tensor::new(given)).unwrap();
    assert_eq!(biases.shape().dims(), [jets, heads, particles, particles]);
    let (products, energies) = (numbers(&products), numbers(&energies));
    let mut expected = Vec::new();
    for (jet, head) in pairs_of(jets, heads) {
        for (i, j) in pairs_of(particles, particles) {
            let of = |particle: usize| jet * particles + particle;
            let logarithm = 0.25 * (products[of(i) * particles + j] + 1e-6).ln() + 1.5;
            let [receiver, sender] = [i, j].map(|particle| 0.5 * energies[of(particle)] + 2.0);
            let hidden = linear(&p, "product", &[logarithm], [1, units]).into_iter();
            let hidden = hidden.zip(linear(&p, "receiver", &[receiver], [1, units]));
            let hidden = hidden.zip(linear(&p, "sender", &[sender], [1, units]));
            let hidden: Vec<f64> =
                hidden.map(|((a, b), c)| a + b + c).map(|x| x / (1.0 + (-x).exp())).collect();
            let bias = linear(&p, "out", &hidden, [units, heads])[head];
            expected.push(if there[of(j)] > 0.0 { bias } else { bias - 1e4 });
        }
    }
    assert!(relative_distance(&numbers(&biases), &expected) < 1e-13);
}

#[test]
fn attention_weighs_by_products_of_vectors_and_scalars_and_by_biases() {
    let [jets, particles, vectors_of, scalars_of, input, heads] = [2, 3, 5, 7, 9, 2];
    // Of a head: 3 vectors and 4 scalars.
    let (of_v, of_s, nodes) = (3, 4, jets * particles);
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let attention = PairAttention::init((vectors_of, scalars_of, input), heads, &place(), &mut rng).unwrap();
    let p = drawn(&attention, &mut rng);
    let (inputs, vectors) = (random(&[nodes, input], &mut rng), random(&[4, nodes, vectors_of], &mut rng));
    let bias = random(&[jets, heads, particles, particles], &mut rng);
    let found = attention.forward(&inputs, &vectors, &bias, (jets, particles)).unwrap();
    let (inputs, vectors, bias) = (numbers(&inputs), numbers(&vectors), numbers(&bias));
    let s = linear(&p, "scalars_in", &inputs, [input, 3 * heads * of_s]);
    let v = linear(&p, "vectors_in", &vectors, [vectors_of, 3 * heads * of_v]);
    let scalar =
        |node: usize, group: usize, head: usize, k: usize| s[((node * 3 + group) * heads + head) * of_s + k];
    let vector = |axis: usize, node: usize, group: usize, head: usize, k: usize| {
        v[(((axis * nodes + node) * 3 + group) * heads + head) * of_v + k]
    };
    let (mut scalars, mut sums) = (vec![0.0; nodes * heads * of_s], vec![0.0; 4 * nodes * heads * of_v]);
    for (node, head) in pairs_of(nodes, heads) {
        let (jet, i) = (node / particles, node % particles);
        let logit = |j: usize| {
            let other = jet * particles + j;
            let of_scalars: f64 =
                (0..of_s).map(|k| scalar(node, 0, head, k) * scalar(other, 1, head, k)).sum();
            let component = |axis: usize| -> f64 {
                (0..of_v).map(|k| vector(axis, node, 0, head, k) * vector(axis, other, 1, head, k)).sum()
            };
            let of_vectors = component(0) - component(1) - component(2) - component(3);
            let bias = bias[((jet * heads + head) * particles + i) * particles + j];
            (of_scalars + of_vectors) / (of_s as f64).sqrt() + bias
        };
        let weights: Vec<f64> = (0..particles).map(|j| logit(j).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (j, weight) in weights.iter().map(|weight| weight / total).enumerate() {
            let other = jet * particles + j;
            for k in 0..of_s {
                scalars[(node * heads + head) * of_s + k] += weight * scalar(other, 2, head, k);
            }
            for (axis, k) in pairs_of(4, of_v) {
                sums[((axis * nodes + node) * heads + head) * of_v + k] +=
                    weight * vector(axis, other, 2, head, k);
            }
        }
    }
    let scalars = linear(&p, "scalars_out", &scalars, [heads * of_s, scalars_of]);
    let vectors = linear(&p, "vectors_out", &sums, [heads * of_v, vectors_of]);
    assert!(relative_distance(&numbers(&found.scalars), &scalars) < 1e-12);
    assert!(relative_distance(&numbers(&found.vectors), &vectors) < 1e-12);
}
