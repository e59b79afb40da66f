//! Values that wait, beside those that operators compute at once.

use super::{
    host::plan::{self, Group, Next},
    is_recording,
};
use crate::{self as kernels, Array, DType, Device, Error, Result, array::Storage, ops};
use half::bf16;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

#[path = "../../../tests/common/graphs.rs"]
#[allow(clippy::duplicate_mod, reason = "tests of devices and of the host, which know nothing of each other")]
mod graphs;

use graphs::{Inputs, Operators, bits};

const OPERATORS: Operators = Operators { most_elements: 3_000, ..graphs::ALL };

fn randn(shape: &[usize], seed: u64) -> Array {
    Array::randn(shape, DType::F32, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

/// The group that computes an array that waits.
fn group(array: &Array) -> Group {
    let Storage::Cpu(host) = &array.storage else { unreachable!("on the host") };
    match plan::next(host) {
        Next::Group(group) => group,
        Next::Before(_) => panic!("something has to be computed before"),
        Next::Nothing => panic!("it does not wait"),
    }
}

/// The operations of a group, and which of their values are written.
fn members(group: &Group) -> Vec<(&'static str, bool)> {
    group.members.iter().map(|member| (member.value.operation, member.is_written)).collect()
}

#[test]
fn random_graphs_have_the_bits_of_their_operators() {
    for seed in 0..2_000 {
        let dtype = [DType::F32, DType::F64][seed as usize % 2];
        let inputs = Inputs::draw(seed, dtype);
        let length = 5 + seed as usize % 40;
        let graph = || graphs::compute(&inputs, &OPERATORS, seed, length);
        let (expected, results) = (graph().unwrap(), Device::Cpu.fused(graph).unwrap());
        assert!(results.iter().all(|result| !result.waits_on_host()), "{dtype}, seed {seed}");
        for (number, (result, expected)) in bits(&results).iter().zip(bits(&expected)).enumerate() {
            if let Some(at) = result.iter().zip(&expected).position(|(a, b)| a != b) {
                let [a, b] = [result[at], expected[at]].map(f64::from_bits);
                let shape = results[number].shape();
                panic!("{dtype}, seed {seed}: {a:e} instead of {b:e} at {at} of result {number}, {shape}");
            }
        }
    }
}

#[test]
fn a_normalisation_by_hand_is_one_group_and_writes_what_is_held() {
    let x = randn(&[300, 12], 1);
    Device::Cpu
        .fused(|| {
            let sum = ops::add_scalar(&x, 1.0)?;
            let centred = ops::sub(&sum, &ops::mean(&sum, &[1], true)?)?;
            drop(sum);
            let variance = ops::mean(&ops::square(&centred)?, &[1], true)?;
            let y = ops::mul(&centred, &ops::rsqrt(&ops::add_scalar(&variance, 1e-5)?)?)?;
            let lost = ops::exp(&y)?;
            let group = group(&y);
            let written = ["sub", "mul"];
            assert_eq!(group.rows, 300);
            for (operation, is_written) in members(&group) {
                // `lost` and `variance` are other values' holders.
                assert_eq!(
                    is_written,
                    written.contains(&operation) || operation == "mean" && is_written,
                    "{operation}"
                );
            }
            let names: Vec<_> = members(&group).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["add_scalar", "mean", "sub", "square", "mean", "add_scalar", "rsqrt", "mul"]);
            drop(group);
            y.as_slice::<f32>()?;
            assert!(!centred.waits_on_host() && !variance.waits_on_host() && lost.waits_on_host());
            Ok::<_, Error>(())
        })
        .unwrap();
}

#[test]
fn what_nothing_reads_is_not_computed_and_what_is_held_is() {
    let x = randn(&[50], 2);
    let (kept, view) = Device::Cpu
        .fused(|| {
            drop(ops::exp(&x)?);
            let kept = ops::sin(&ops::cos(&x)?)?;
            let view = ops::square(&kept)?.reshape([10, 5])?.transpose(0, 1)?;
            assert!(kept.waits_on_host() && view.waits_on_host());
            Ok::<_, Error>((kept, view))
        })
        .unwrap();
    assert!(!kept.waits_on_host() && !view.waits_on_host() && !is_recording());
    assert!(kept.is_unique(), "nothing but the caller holds what has been computed");
    let expected = ops::sin(&ops::cos(&x).unwrap()).unwrap();
    let squares = ops::square(&expected).unwrap().reshape([10, 5]).unwrap().transpose(0, 1).unwrap();
    assert_eq!(bits(&[kept, view]), bits(&[expected, squares]));
}

#[test]
fn values_that_are_read_by_columns_are_computed_before() {
    let x = randn(&[40, 30], 3);
    let graph = || {
        let y = ops::exp(&x)?;
        let columns = ops::sum(&y, &[0], false)?;
        let turned = ops::square(&y.transpose(0, 1)?)?;
        ops::add(&turned, &columns.reshape([30, 1])?)
    };
    let result = Device::Cpu.fused(|| {
        let result = graph()?;
        let Storage::Cpu(host) = &result.storage else { unreachable!("on the host") };
        assert!(matches!(plan::next(host), Next::Group(_)), "the sum over rows computed its operand");
        Ok::<_, Error>(result)
    });
    assert_eq!(bits(&[result.unwrap()]), bits(&[graph().unwrap()]));
    let turned = |x: &Array| ops::neg(&ops::exp(x)?.transpose(0, 1)?);
    let result = Device::Cpu.fused(|| {
        let result = turned(&x)?;
        let Storage::Cpu(host) = &result.storage else { unreachable!("on the host") };
        assert!(matches!(plan::next(host), Next::Before(_)));
        Ok::<_, Error>(result)
    });
    assert_eq!(bits(&[result.unwrap()]), bits(&[turned(&x).unwrap()]));
}

#[test]
fn rows_that_do_not_fit_the_cache_are_computed_one_operator_at_a_time() {
    let columns = 2 * plan::MOST_IN_A_ROW / size_of::<f32>();
    let x = randn(&[2, columns], 4);
    let graph = || ops::square(&ops::pad(&ops::neg(&x)?, 1, 1, columns + 2)?);
    let result = Device::Cpu.fused(|| {
        let result = graph()?;
        assert!(!matches!(plan::next(host(&result)), Next::Group(group) if group.members.len() > 2));
        Ok::<_, Error>(result)
    });
    assert_eq!(bits(&[result.unwrap()]), bits(&[graph().unwrap()]));
}

fn host(array: &Array) -> &std::sync::Arc<super::Host> {
    let Storage::Cpu(host) = &array.storage else { unreachable!("on the host") };
    host
}

#[test]
fn arrays_that_are_written_in_place_keep_their_old_values_for_what_waits() {
    let mut x = Array::from_slice(&[1.0f32, 2.0, 3.0], [3], &Device::Cpu).unwrap();
    let mut results = Device::Cpu
        .fused(|| {
            let before = ops::square(&x)?;
            x.as_mut_slice::<f32>()?[0] = 10.0;
            let mut sum = ops::neg(&x)?;
            ops::add_assign(&mut sum, &before)?;
            sum.as_mut_slice::<f32>()?[2] = 0.5;
            Ok::<_, Error>([before, sum])
        })
        .unwrap();
    assert_eq!(results[0].to_vec::<f32>().unwrap(), [1.0, 4.0, 9.0]);
    assert_eq!(results[1].to_vec::<f32>().unwrap(), [-9.0, 2.0, 0.5]);
    let address = results[1].address();
    results[1].as_mut_slice::<f32>().unwrap()[0] = 1.0;
    assert_eq!(results[1].address(), address, "written in place");
}

#[test]
fn sixteen_bit_arrays_are_moved_and_converted_exactly() {
    let x = randn(&[30, 7], 5);
    let subnormal = ops::add_scalar(&ops::mul_scalar(&x, 0.0).unwrap(), 1e-39).unwrap();
    let values = ops::select(
        &ops::less(&x, &Array::zeros([], DType::F32, &Device::Cpu).unwrap()).unwrap(),
        &x,
        &subnormal,
    );
    let values = values.unwrap();
    let given = Array::from_slice(&[bf16::from_bits(1); 210], [30, 7], &Device::Cpu).unwrap();
    for dtype in [DType::F16, DType::BF16] {
        let graph = || -> Result<Vec<Array>> {
            let narrow = values.cast(dtype)?;
            let turned = narrow.slice(1, 2..6)?.reshape([30, 2, 2])?.transpose(1, 2)?.contiguous()?;
            let joined = ops::concat(&[&narrow, &turned.reshape([30, 4])?, &narrow.slice(1, 0..0)?], 1)?;
            let padded = ops::pad(&joined, 0, 1, 33)?;
            Ok(vec![
                ops::neg(&padded.cast(DType::F64)?)?,
                joined,
                turned,
                given.cast(DType::F64)?,
                given.cast(dtype)?,
            ])
        };
        let (expected, results) = (graph().unwrap(), Device::Cpu.fused(graph).unwrap());
        assert_eq!(bits(&results), bits(&expected), "{dtype}");
        assert!(results[3].to_f64_vec().unwrap().iter().all(|&value| value > 0.0), "subnormal numbers stay");
    }
}

#[test]
fn what_fails_or_panics_ends_its_scope_and_its_values_can_be_computed_later() {
    let x = randn(&[64], 6);
    let mut kept = None;
    let failed = Device::Cpu.fused(|| {
        kept = Some(ops::square(&x)?);
        ops::matmul(&x, &x, true, true)?;
        Ok::<_, Error>(())
    });
    assert!(failed.is_err() && !is_recording());
    let caught = std::panic::catch_unwind(|| Device::Cpu.fused(|| -> Result<()> { panic!("of a closure") }));
    assert!(caught.is_err() && !is_recording());
    let kept = kept.unwrap();
    assert!(kept.waits_on_host());
    // Whichever threads come first.
    let read = || bits(std::slice::from_ref(&kept));
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let expected = bits(&[ops::square(&x).unwrap()]);
    assert!(all.iter().all(|bits| *bits == expected));
}

#[test]
fn long_chains_and_many_values_are_computed_on_the_way() {
    let x = randn(&[5], 7);
    let chain = || {
        let (mut y, mut all) = (x.clone(), Vec::new());
        for step in 0..3_000 {
            y = ops::add_scalar(&y, 0.5)?;
            if step < 1_500 {
                all.push(ops::mul_scalar(&x, f64::from(step))?);
            }
        }
        all.push(y);
        Ok::<_, Error>(all)
    };
    let (results, expected) = (Device::Cpu.fused(chain).unwrap(), chain().unwrap());
    assert_eq!(bits(&results), bits(&expected));
}
