//! Random graphs of operators, captured with fused kernels: the bits are those of the operators one by one.

mod common;

use common::{rng, view};
use gradewise_kernels::{Array, CapturedGraph, CudaDevice, DType, Device, Fusion, Index, Result, ops};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// What a graph starts from: arrays, and lists of the ends of edges.
struct Inputs {
    arrays: Vec<Array>,
    receivers: Index,
    senders: Index,
}

const SHAPES: [&[usize]; 9] =
    [&[], &[1], &[7], &[3, 5, 4], &[1, 5, 4], &[3, 1, 1], &[3, 12, 4], &[2, 33, 1], &[4, 40, 65]];

/// Nodes and edges of graphs, along axis 1.
const NODES: usize = 5;
const EDGES: usize = 12;

fn inputs(device: &Device, dtype: DType, rng: &mut ChaCha8Rng) -> Inputs {
    let arrays = SHAPES.iter().map(|shape| view(shape, dtype, device, rng).tested).collect();
    let mut ends = || {
        let nodes: Vec<usize> = (0..EDGES).map(|_| rng.random_range(0..NODES)).collect();
        Index::new(&nodes, NODES, device).unwrap()
    };
    Inputs { arrays, receivers: ends(), senders: ends() }
}

fn one<'a, T>(rng: &mut ChaCha8Rng, all: &'a [T]) -> &'a T {
    &all[rng.random_range(0..all.len())]
}

/// A number of operators, the same ones for the same seed, and the arrays that are kept of their results.
fn graph(inputs: &Inputs, seed: u64, length: usize) -> Result<Vec<Array>> {
    let mut rng = rng(seed);
    let mut known = inputs.arrays.clone();
    let unary: [fn(&Array) -> Result<Array>; 18] = [
        ops::neg,
        ops::abs,
        ops::sign,
        ops::exp,
        ops::sqrt,
        ops::recip,
        ops::square,
        ops::sin,
        ops::cos,
        ops::tanh,
        ops::erf,
        ops::sigmoid,
        ops::silu,
        ops::gelu,
        ops::silu_derivative,
        ops::gelu_derivative,
        ops::relu,
        ops::not_finite,
    ];
    let binary: [fn(&Array, &Array) -> Result<Array>; 10] = [
        ops::add,
        ops::sub,
        ops::mul,
        ops::div,
        ops::max,
        ops::min,
        ops::equal,
        ops::greater,
        ops::less_equal,
        ops::mul,
    ];
    for _ in 0..length {
        let x = one(&mut rng, &known).clone();
        let same_or_scalar: Vec<&Array> = known
            .iter()
            .filter(|y| y.dtype() == x.dtype() && (y.dims() == x.dims() || y.elements() == 1))
            .collect();
        let y = (*one(&mut rng, &same_or_scalar)).clone();
        let z = (*one(&mut rng, &same_or_scalar)).clone();
        let rank = x.rank();
        let axis = if rank > 0 { rng.random_range(0..rank) } else { 0 };
        let made = match rng.random_range(0..22) {
            0..4 => one(&mut rng, &unary)(&x)?,
            4..8 => one(&mut rng, &binary)(&x, &y)?,
            8 => ops::mul_scalar(&x, rng.random_range(-2.0..2.0))?,
            9 => ops::pow_scalar(&x, *one(&mut rng, &[2.0, -1.0, 3.0, 0.5, -0.5]))?,
            10 => ops::select(&y, &x, &z)?,
            11 => {
                let x = x.broadcast_to(x.shape().broadcast(y.shape(), "test")?)?;
                let terms: Vec<&Array> =
                    [&x, &y, &z].into_iter().filter(|term| term.dims() == x.dims()).collect();
                ops::add_n(&terms)?
            }
            12 => {
                let dtype = *one(&mut rng, &DType::ALL);
                let there = if dtype == x.dtype() { x.clone() } else { x.cast(dtype)? };
                there.cast(x.dtype())?
            }
            13 if rank > 0 => ops::sum(&x, &[axis], rng.random_bool(0.5))?,
            14 if rank > 1 => {
                let other = rng.random_range(0..rank);
                let turned = x.transpose(axis, other)?;
                if rng.random_bool(0.5) { turned.contiguous()? } else { turned }
            }
            15 if rank > 0 && x.dims()[axis] > 1 => {
                let start = rng.random_range(0..x.dims()[axis] - 1);
                x.slice(axis, start..x.dims()[axis])?
            }
            16 if rank > 0 => {
                let fits = |y: &&Array| {
                    let others = |a: &Array| {
                        a.dims()
                            .iter()
                            .enumerate()
                            .filter(|&(at, _)| at != axis)
                            .map(|(_, &size)| size)
                            .collect::<Vec<_>>()
                    };
                    y.dtype() == x.dtype() && y.rank() == rank && others(y) == others(&x)
                };
                let parts: Vec<&Array> = known.iter().filter(fits).take(3).collect();
                ops::concat(&parts, axis)?
            }
            17 if rank == 3 && x.dims()[1] == NODES => {
                if rng.random_bool(0.5) {
                    ops::edge_difference(&x, None, &inputs.receivers, &inputs.senders)?
                } else {
                    ops::index_select(&x, 1, &inputs.receivers)?
                }
            }
            18 if rank == 3 && x.dims()[1] == EDGES => {
                if rng.random_bool(0.5) {
                    ops::net_inflow(&x, &inputs.receivers, &inputs.senders)?
                } else {
                    ops::segment_sum(&x, 1, &inputs.senders)?
                }
            }
            // Kernels that know no more than addresses.
            19 if rank > 0 && x.elements() < 10_000 => ops::softmax(&x, axis)?,
            20 => {
                let mut sum = x.copy()?;
                ops::add_assign(&mut sum, &y.broadcast_to(x.shape()).unwrap_or(x.clone()))?;
                sum
            }
            21 => Array::full(x.shape().clone(), 0.75, x.dtype(), &x.device())?,
            _ => ops::add(&x, &z)?,
        };
        // Most results are gone before the graph ends.
        if known.len() > SHAPES.len() && rng.random_bool(0.4) {
            let gone = rng.random_range(SHAPES.len()..known.len());
            known.remove(gone);
        }
        if made.elements() < 200_000 {
            known.push(made);
        }
    }
    Ok(known.split_off(SHAPES.len()))
}

/// The bits of all elements; one kind of NaN.
fn bits(arrays: &[Array]) -> Vec<Vec<u64>> {
    let number = |value: f64| if value.is_nan() { u64::MAX } else { value.to_bits() };
    arrays.iter().map(|array| array.to_f64_vec().unwrap().into_iter().map(number).collect()).collect()
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
        let inputs = inputs(&all, dtype, &mut rng(seed));
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

gradewise_testing::main!(
    fused_graphs_have_the_bits_of_their_operators,
    a_chain_is_one_kernel_and_what_nothing_reads_is_not_written,
    arrays_that_are_overwritten_keep_their_old_values_for_what_waits,
);
