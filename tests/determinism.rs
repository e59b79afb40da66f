//! Same seed, same bits: run after run, whatever the number of threads.

mod common;

use common::{randomize, rng};
use gradewise_autograd::Tensor;
use gradewise_core::Signature;
use gradewise_kernels::{Array, DType, Device};
use gradewise_nn::{
    Module, Placement,
    layers::{CliffordLayer, Layer},
    optim::{Method, Optimizer},
};
use gradewise_zoo::models::{MvMlp, NBody, NBodyBatch, NBodyConfig};
use rand_distr::{Distribution, StandardNormal};
use rayon::ThreadPoolBuilder;

/// The result of `work` in pools of 1, 2, 3 and 8 threads, and once more in the first.
fn in_pools<R: Send>(work: impl Fn() -> R + Sync) -> Vec<(usize, R)> {
    let run = |threads| {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        (threads, pool.install(&work))
    };
    [1, 2, 3, 8, 1].map(run).into()
}

/// Exact values, so that −0 and 0, or two NaNs, are told apart as well.
fn bits(array: &Array) -> Vec<u64> {
    array.to_f64_vec().unwrap().into_iter().map(f64::to_bits).collect()
}

fn assert_all_equal(what: &str, results: &[(usize, Vec<Vec<u64>>)]) {
    let (_, first) = &results[0];
    assert!(first.iter().flatten().any(|&bits| bits != 0), "{what}: nothing but zeros");
    for (threads, result) in &results[1..] {
        assert_eq!(first.len(), result.len());
        for (index, (a, b)) in first.iter().zip(result).enumerate() {
            assert!(a == b, "{what}: result {index} differs between 1 and {threads} threads");
        }
    }
}

/// Two training steps of the paper's model: predictions, losses and every parameter.
fn train(seed: u64, dtype: DType) -> Vec<Vec<u64>> {
    const SYSTEMS: usize = 12;
    const PARTICLES: usize = 5;
    let place = Placement::new(&Device::Cpu, dtype);
    let mut rng = rng(seed);
    let model = NBody::init(&NBodyConfig::default(), &place, &mut rng).unwrap();
    let mut sample =
        |count: usize| -> Vec<f64> { (0..count).map(|_| StandardNormal.sample(&mut rng)).collect() };
    let (x, v) = (sample(SYSTEMS * 3 * PARTICLES), sample(SYSTEMS * 3 * PARTICLES));
    let charges: Vec<f64> = sample(SYSTEMS * PARTICLES).into_iter().map(f64::signum).collect();
    let batch = NBodyBatch::new((&x, &v, &charges), PARTICLES, &place).unwrap();
    let targets = batch.targets(&sample(SYSTEMS * 3 * PARTICLES)).unwrap();
    let parameters = model.named_parameters();
    let mut optimizer = Optimizer::new(Method::adam(1e-4)).unwrap();
    let mut results = Vec::new();
    for _ in 0..2 {
        let loss = model.loss(&batch, &targets).unwrap();
        results.push(bits(loss.array()));
        let gradients = loss.backward().unwrap();
        let gradients: Vec<Option<Array>> = parameters
            .iter()
            .map(|(_, parameter)| Some(gradients.get(&parameter.tensor()).unwrap().array().clone()))
            .collect();
        optimizer.step(4e-3, &parameters, &gradients).unwrap();
    }
    results.push(bits(model.forward(&batch).unwrap().array()));
    results.extend(parameters.iter().map(|(_, parameter)| bits(&parameter.array())));
    results
}

#[test]
fn training_gives_the_same_bits_on_any_number_of_threads() {
    for dtype in [DType::F64, DType::F32] {
        assert_all_equal(&format!("n-body training, {dtype}"), &in_pools(|| train(1, dtype)));
    }
    assert_ne!(train(1, DType::F64), train(2, DType::F64), "the seed matters");
}

/// Outputs and all gradients of a layer, at a size that is cut into many chunks and leaves tails.
fn layer(init: impl Fn(&Placement) -> Box<dyn Layer> + Sync, width: usize, dtype: DType) -> Vec<Vec<u64>> {
    let layer = init(&Placement::new(&Device::Cpu, dtype));
    randomize(layer.as_ref(), &mut rng(5));
    let x = Tensor::randn([8, 1003, width], dtype, &Device::Cpu, &mut rng(6)).unwrap().requires_grad();
    let y = layer.forward(&x).unwrap();
    let gradients = y.square().unwrap().mean_all().unwrap().backward().unwrap();
    let mut results = vec![bits(y.array()), bits(gradients.get(&x).unwrap().array())];
    for parameter in layer.parameters() {
        results.push(bits(gradients.get(&parameter.tensor()).unwrap().array()));
    }
    results
}

#[test]
fn gradients_of_weights_summed_over_a_large_batch_have_a_fixed_order() {
    for dtype in [DType::F64, DType::F32] {
        for full in [false, true] {
            let clifford = |place: &Placement| -> Box<dyn Layer> {
                let builder = CliffordLayer::new(19, Signature::CL3).fully_connected(full);
                Box::new(builder.init(place, &mut rng(4)).unwrap())
            };
            assert_all_equal(
                &format!("CliffordLayer, fully connected {full}, {dtype}"),
                &in_pools(|| layer(clifford, 19, dtype)),
            );
        }
        let mlp = |place: &Placement| -> Box<dyn Layer> {
            Box::new(MvMlp::init((13, 21, 1), Signature::CL3, place, &mut rng(4)).unwrap())
        };
        assert_all_equal(&format!("MvMlp, {dtype}"), &in_pools(|| layer(mlp, 13, dtype)));
    }
}
