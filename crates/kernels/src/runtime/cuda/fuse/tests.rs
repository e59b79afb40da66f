//! Generated kernels on the host: random graphs are captured, and computed in scopes, on a stand-in for the driver, their kernels compiled by
//! the host's C++ compiler and run by the stand-in, and the results compared with those of the operators of the CPU.

use crate::{
    self as kernels, Array, DType, Device, Index, Result, ops,
    runtime::cuda::{
        capture::{Fusion, Recorded},
        generated::tests::Host,
    },
};
use std::sync::{Mutex, PoisonError};

#[path = "../../../../tests/common/graphs.rs"]
#[allow(clippy::duplicate_mod, reason = "tests of devices and of the host, which know nothing of each other")]
mod graphs;

use graphs::{Inputs, Operators};

/// Graphs of one capture, whose kernels are compiled together.
const GRAPHS: u64 = 400;

/// Graphs of one scope.
const GRAPHS_OF_A_SCOPE: u64 = 120;

/// The stand-in protects each block of memory by itself, and a process may have some 65,000 mappings: one test with so many arrays at a time.
static MANY_ARRAYS: Mutex<()> = Mutex::new(());

/// Functions whose results change little with small errors of their arguments.
const OPERATORS: Operators = Operators {
    unary: &[
        ops::neg,
        ops::abs,
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
        |x| ops::pow_scalar(&ops::add_scalar(&ops::square(x)?, 0.5)?, -1.0),
        |x| ops::pow_scalar(&ops::add_scalar(&ops::square(x)?, 0.5)?, -1.5),
        |x| ops::pow_scalar(x, 2.0),
    ],
    binary: &[ops::add, ops::sub, ops::mul, ops::max, ops::min, |x, y| {
        ops::div(x, &ops::add_scalar(&ops::square(y)?, 1.0)?)
    }],
    // Chosen by a constant, where a result near zero would choose one way here and another way there.
    ternary: &[
        |x, y, _| ops::select(&Array::ones([], x.dtype(), &x.device())?, x, y),
        |x, y, z| ops::select(&Array::zeros([], x.dtype(), &x.device())?, x, &ops::mul(y, z)?),
        |x, _, _| x.copy(),
    ],
    longest_sum: 16,
    most_elements: 3_000,
};

/// Captures what `work` does, in as many attempts as it takes to have all kernels. `None` without a C++ compiler.
fn captured<R>(host: &mut Host, mut work: impl FnMut() -> Result<R>) -> Option<R> {
    loop {
        match host.device.clone().record(Fusion::On, &mut work).unwrap() {
            Recorded::Graph(results, graph) => {
                graph.replay().unwrap();
                host.device.synchronize().unwrap();
                return Some(results);
            }
            Recorded::Missing(missing) => {
                let codes: Vec<_> = missing.codes.iter().collect();
                if !host.compile(&codes) {
                    return None;
                }
            }
        }
    }
}

/// What `work` computes in a scope, once all of its kernels are compiled. `None` without a C++ compiler.
fn scoped<R>(host: &mut Host, mut work: impl FnMut() -> Result<R>) -> Option<R> {
    loop {
        let (results, missing) = host.device.clone().fused_now(&mut work).unwrap();
        if missing.is_empty() {
            return Some(results);
        }
        let codes: Vec<_> = missing.codes.iter().collect();
        if !host.compile(&codes) {
            return None;
        }
    }
}

/// Where operators wait.
#[derive(Clone, Copy)]
enum In {
    Capture,
    Scope,
}

impl In {
    fn run<R>(self, host: &mut Host, work: impl FnMut() -> Result<R>) -> Option<R> {
        match self {
            Self::Capture => captured(host, work),
            Self::Scope => scoped(host, work),
        }
    }
}

fn agree(place: In, dtype: DType, tolerance: f64) {
    let _alone = MANY_ARRAYS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut host = Host::new();
    let device = Device::Cuda(host.device.clone());
    let graphs = match place {
        In::Capture => GRAPHS,
        In::Scope => GRAPHS_OF_A_SCOPE,
    };
    let inputs: Vec<Inputs> = (0..graphs).map(|seed| Inputs::draw(seed, dtype)).collect();
    let there: Vec<Inputs> = inputs.iter().map(|inputs| inputs.on(&device)).collect();
    let graph =
        |inputs: &Inputs, seed: u64| graphs::compute(inputs, &OPERATORS, seed, 5 + seed as usize % 35);
    let all = place.run(&mut host, || {
        there.iter().zip(0..).map(|(inputs, seed)| graph(inputs, seed)).collect::<Result<Vec<_>>>()
    });
    let Some(all) = all else { return };
    for ((results, inputs), seed) in all.iter().zip(&inputs).zip(0..) {
        let expected = graph(inputs, seed).unwrap();
        assert_eq!(results.len(), expected.len());
        for (number, (result, expected)) in results.iter().zip(&expected).enumerate() {
            assert_eq!(result.shape(), expected.shape(), "result {number} of seed {seed}");
            let (a, b) = (result.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
            let norm = b.iter().map(|b| b * b).sum::<f64>().sqrt();
            let error = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            // Sums of what nearly cancels have the errors of their terms.
            let same = error <= tolerance * (norm + 1e-3) || (!norm.is_finite() && a == b) || norm == error;
            assert!(
                same,
                "{dtype}, result {number} of seed {seed}, {}: {error:e} of {norm:e}",
                result.shape()
            );
        }
    }
}

#[test]
fn generated_kernels_compute_what_the_operators_of_the_cpu_do() {
    agree(In::Capture, DType::F64, 1e-9);
    agree(In::Capture, DType::F32, 1e-3);
}

#[test]
fn scopes_compute_what_the_operators_of_the_cpu_do() {
    agree(In::Scope, DType::F64, 1e-9);
    agree(In::Scope, DType::F32, 1e-3);
}

#[test]
fn a_scope_computes_what_its_host_reads_and_all_that_is_held() {
    let mut host = Host::new();
    let device = Device::Cuda(host.device.clone());
    let x = Array::from_slice(&[1.0f64, -2.0, 3.0, 0.5], [4], &device).unwrap();
    let work = || -> Result<_> {
        let squares = ops::square(&x)?;
        // Read before the scope ends, and again by what waits after it.
        let seen = ops::add_scalar(&squares, 1.0)?.to_vec::<f64>()?;
        Ok((ops::mul(&squares, &x)?, squares, seen))
    };
    let Some((cubes, squares, seen)) = scoped(&mut host, work) else { return };
    assert_eq!(seen, [2.0, 5.0, 10.0, 1.25]);
    assert_eq!(squares.to_vec::<f64>().unwrap(), [1.0, 4.0, 9.0, 0.25]);
    assert_eq!(cubes.to_vec::<f64>().unwrap(), [1.0, -8.0, 27.0, 0.125]);
}

#[test]
fn work_that_fails_or_panics_leaves_no_scope_behind() {
    let host = Host::new();
    let device = Device::Cuda(host.device.clone());
    let x = Array::from_slice(&[3.0f64, 4.0], [2], &device).unwrap();
    let fails = || {
        host.device
            .fused_now(|| ops::square(&x).and_then(|_| Array::zeros([0], DType::F64, &device)?.reshape([3])))
    };
    assert!(fails().is_err() && !host.device.records());
    let panics = || host.device.fused_now(|| -> Result<()> { panic!("on purpose") });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert!(!host.device.records());
    assert_eq!(x.to_vec::<f64>().unwrap(), [3.0, 4.0]);
}

#[test]
fn what_nothing_holds_is_not_written_and_a_chain_is_one_kernel() {
    let mut host = Host::new();
    let device = Device::Cuda(host.device.clone());
    let x = Array::from_slice(&[1.0f64, -2.0, 3.0, 0.5], [2, 2], &device).unwrap();
    let before = host.fake.stat("launches");
    let results = captured(&mut host, || {
        let squares = ops::square(&x)?;
        drop(ops::exp(&squares)?);
        let norms = ops::sqrt(&ops::sum(&squares, &[1], true)?)?;
        ops::div(&x, &norms)
    });
    let Some(y) = results else { return };
    assert_eq!(host.fake.stat("launches") - before, 1);
    let norms = [5f64.sqrt(), 9.25f64.sqrt()];
    assert_eq!(y.to_vec::<f64>().unwrap(), [1.0 / norms[0], -2.0 / norms[0], 3.0 / norms[1], 0.5 / norms[1]]);
}

#[test]
fn steps_of_an_integrator_over_independent_systems_share_launches() {
    const SYSTEMS: usize = 32;
    let mut host = Host::new();
    let device = Device::Cuda(host.device.clone());
    // Four bodies in each system, all pairs.
    let pairs = |of: fn((usize, usize)) -> usize| -> Vec<usize> {
        let pair = move |system: usize| {
            (0..16).filter(|n| n / 4 != n % 4).map(move |n| system * 4 + of((n / 4, n % 4)))
        };
        (0..SYSTEMS).flat_map(pair).collect()
    };
    let lists = [pairs(|(to, _)| to), pairs(|(_, from)| from)];
    let start: Vec<f64> = (0..3 * SYSTEMS * 4).map(|n| (n as f64 * 0.7).sin() * 2.0).collect();
    let run = |device: &Device| {
        let [to, from] = lists.each_ref().map(|list| Index::new(list, SYSTEMS * 4, device).unwrap());
        let x = Array::from_slice(&start, [3, SYSTEMS * 4, 1], device).unwrap();
        move || -> Result<Array> {
            let mut x = x.clone();
            let mut v = ops::mul_scalar(&x, 0.0)?;
            for _ in 0..30 {
                let distance = ops::edge_difference(&x, None, &to, &from)?;
                let squares = ops::add_scalar(&ops::sum(&ops::square(&distance)?, &[0], true)?, 0.1)?;
                let pull = ops::mul(&ops::pow_scalar(&squares, -1.5)?, &distance)?;
                v = ops::add(&v, &ops::mul_scalar(&ops::segment_sum(&pull, 1, &to)?, -0.01)?)?;
                x = ops::add(&x, &ops::mul_scalar(&v, 0.1)?)?;
            }
            Ok(x)
        }
    };
    let work = run(&device);
    let before = host.fake.stat("launches");
    let Some(x) = captured(&mut host, work) else { return };
    let launches = host.fake.stat("launches") - before;
    assert!(launches <= 2, "{launches} launches");
    let expected = run(&Device::Cpu)().unwrap().to_f64_vec().unwrap();
    for (a, b) in x.to_f64_vec().unwrap().iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()), "{a} instead of {b}");
    }
}
