//! Random graphs of operators, captured with fused kernels: the bits are those of the operators one by one.

mod common;
#[path = "common/graphs.rs"]
mod graphs;

use common::rng;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    self as kernels, Array, CapturedGraph, CudaDevice, DType, Device, Fusion, Result, ops,
    ops::clifford::mv_layer_norm,
};
use graphs::{Inputs, bits};

fn graph(inputs: &Inputs, seed: u64, length: usize) -> Result<Vec<Array>> {
    graphs::compute(inputs, &graphs::ALL, seed, length)
}

fn captured(
    device: &CudaDevice,
    fusion: Fusion,
    work: impl Fn() -> Result<Vec<Array>>,
) -> (Vec<Array>, CapturedGraph) {
    device.capture_with(fusion, &work).unwrap()
}

fn fused_graphs_have_the_bits_of_their_operators(device: &CudaDevice) {
    let all = Device::Cuda(device.clone());
    let most: u64 =
        std::env::var("GRADEWISE_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    let (mut launches, mut fused_launches) = (0, 0);
    for seed in 0..most {
        let dtype = DType::ALL[seed as usize % 4];
        let context = format!("{dtype}, seed {seed}");
        let inputs = Inputs::draw(seed, dtype).on(&all);
        let length = 10 + seed as usize % 50;
        let expected = graph(&inputs, seed, length).unwrap();
        let (plain, by_operator) = captured(device, Fusion::Off, || graph(&inputs, seed, length));
        by_operator.replay().unwrap();
        let (results, fused) = captured(device, Fusion::On, || graph(&inputs, seed, length));
        for replay in 0..2 {
            fused.replay().unwrap();
            for (number, (result, expected)) in bits(&results).iter().zip(bits(&expected)).enumerate() {
                let shape = results[number].shape();
                let different = result.iter().zip(&expected).position(|(a, b)| a != b);
                if let Some(at) = different {
                    let [a, b] = [result[at], expected[at]].map(f64::from_bits);
                    panic!(
                        "{context}, replay {replay}: {a:e} instead of {b:e} at {at} of result {number}, {shape}"
                    );
                }
            }
        }
        assert_eq!(bits(&plain), bits(&expected), "{context}, one by one");
        launches += by_operator.node_count().unwrap();
        fused_launches += fused.node_count().unwrap();
    }
    eprintln!("{fused_launches} launches instead of {launches}");
    // A few graphs may be all of what is not fused.
    assert!(most < 30 || 2 * fused_launches < launches, "{fused_launches} launches instead of {launches}");
}

fn scopes_have_the_bits_of_their_operators(device: &CudaDevice) {
    let all = Device::Cuda(device.clone());
    let most: u64 =
        std::env::var("GRADEWISE_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(24);
    // Other graphs than those that are captured, whose kernels are there.
    for seed in (0..most).map(|seed| seed + 1_000_000) {
        let dtype = DType::ALL[seed as usize % 4];
        let inputs = Inputs::draw(seed, dtype).on(&all);
        let length = 10 + seed as usize % 50;
        let expected = bits(&graph(&inputs, seed, length).unwrap());
        for call in 0..2 {
            let results = device.fused(|| graph(&inputs, seed, length)).unwrap();
            assert!(bits(&results) == expected, "{dtype}, seed {seed}, call {call}");
        }
    }
}

fn a_chain_is_one_kernel_and_what_nothing_reads_is_not_written(device: &CudaDevice) {
    let all = Device::Cuda(device.clone());
    let x = Array::randn([100, 12], DType::F32, &all, &mut rng(1)).unwrap();
    let chain = || {
        let squares = ops::square(&x)?;
        let root = ops::sqrt(&ops::add_scalar(&ops::sum(&squares, &[1], true)?, 1e-6)?)?;
        let lost = ops::exp(&squares)?;
        drop(ops::sin(&lost)?);
        ops::div(&x, &root)
    };
    let expected = chain().unwrap();
    let (y, graph) = device.capture_with(Fusion::On, chain).unwrap();
    graph.replay().unwrap();
    assert_eq!(bits(&[y]), bits(&[expected]));
    let (_, plain) = device.capture_with(Fusion::Off, chain).unwrap();
    assert_eq!((graph.node_count().unwrap(), plain.node_count().unwrap()), (1, 7));
}

fn arrays_that_are_overwritten_keep_their_old_values_for_what_waits(device: &CudaDevice) {
    let all = Device::Cuda(device.clone());
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0], [3], &all).unwrap();
    let other = Array::from_slice(&[10.0f32, 20.0, 30.0], [3], &all).unwrap();
    let work = || {
        let before = ops::square(&x)?;
        x.overwrite_shared(&other)?;
        Ok([before, ops::square(&x)?])
    };
    let ([before, after], graph) = device.capture_with(Fusion::On, work).unwrap();
    graph.replay().unwrap();
    assert_eq!(before.to_vec::<f32>().unwrap(), [1.0, 4.0, 9.0]);
    assert_eq!(after.to_vec::<f32>().unwrap(), [100.0, 400.0, 900.0]);
}

/// Sums over partial results wait for each other: they are read while others wait, in part, let go, and more than a launch takes.
fn sums_over_partial_results_have_the_bits_of_their_own_launches(device: &CudaDevice) {
    let all = Device::Cuda(device.clone());
    let algebra = Algebra::new(Signature::CL3).unwrap();
    for dtype in DType::ALL {
        let sizes = [(130, 28), (33, 17), (1, 1), (500, 64), (77, 3), (2000, 28)];
        let inputs: Vec<[Array; 3]> = sizes
            .iter()
            .map(|&(rows, features)| {
                let draw = |shape: &[usize], seed| Array::randn(shape, dtype, &all, &mut rng(seed)).unwrap();
                [draw(&[8, rows, features], 1), draw(&[features], 2), draw(&[8, rows, features], 3)]
            })
            .collect();
        let gain = |[x, a, grad]: &[Array; 3]| Ok(mv_layer_norm::backward(&algebra, x, a, grad)?.a);
        let work = || {
            let mut results = inputs.iter().map(gain).collect::<Result<Vec<_>>>()?;
            drop(gain(&inputs[0])?);
            let part = results[3].slice(0, 8..40)?;
            results.extend([ops::add_scalar(&results[1], 1.0)?, ops::square(&part)?]);
            results.push(ops::softmax(&gain(&inputs[4])?, 0)?);
            for input in inputs.iter().cycle().take(100) {
                results.push(gain(input)?);
            }
            Ok(results)
        };
        let expected = work().unwrap();
        let (plain, by_operator) = captured(device, Fusion::Off, work);
        by_operator.replay().unwrap();
        let (results, fused) = captured(device, Fusion::On, work);
        for _ in 0..2 {
            fused.replay().unwrap();
            assert!(bits(&results) == bits(&expected), "{dtype}");
        }
        assert!(bits(&plain) == bits(&expected), "{dtype}, one by one");
        let [many, few] = [by_operator, fused].map(|graph| graph.node_count().unwrap());
        assert!(few + 100 <= many, "{dtype}: {few} launches instead of {many}");
    }
}

gradewise_testing::main!(
    sums_over_partial_results_have_the_bits_of_their_own_launches,
    fused_graphs_have_the_bits_of_their_operators,
    scopes_have_the_bits_of_their_operators,
    a_chain_is_one_kernel_and_what_nothing_reads_is_not_written,
    arrays_that_are_overwritten_keep_their_old_values_for_what_waits,
);
