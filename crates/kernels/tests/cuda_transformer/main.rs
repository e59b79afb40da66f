//! The steps of geometric-algebra transformers on feature planes, on a GPU.

#[path = "../common/mod.rs"]
mod common;
mod equi_linear;
mod heads;
mod norms;

use common::tolerance;
use equi_linear::{
    few_rows_take_one_launch_forward_and_three_backward, many_rows_go_by_tiles,
    maps_agree_with_double_precision,
};
use gradewise_kernels::{Array, DType, Device};
use heads::heads_agree_with_double_precision;
use norms::{channel_norms_agree_with_double_precision, joint_norms_agree_with_double_precision};

/// Asserts that results repeat and agree with double precision, those of `reference`.
fn check(what: &str, found: &[Option<Array>], again: &[Option<Array>], reference: &[Option<Array>]) {
    let dtype = found.iter().flatten().next().map_or(DType::F64, Array::dtype);
    check_to(what, found, again, reference, 4.0 * tolerance(dtype));
}

/// The same, to a bound of the relative error.
fn check_to(
    what: &str,
    found: &[Option<Array>],
    again: &[Option<Array>],
    reference: &[Option<Array>],
    bound: f64,
) {
    for (number, ((found, again), expected)) in found.iter().zip(again).zip(reference).enumerate() {
        let (Some(found), Some(again), Some(expected)) = (found, again, expected) else {
            assert!(found.is_none() && expected.is_none(), "{what}, result {number}");
            continue;
        };
        assert_eq!(found.shape(), expected.shape(), "{what}, result {number}");
        let bits = |array: &Array| array.to_f64_vec().unwrap();
        assert_eq!(bits(found), bits(again), "{what}, result {number}: the same bits each time");
        let wide = found.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
        let error = wide.relative_error(expected).unwrap();
        assert!(error <= bound, "{what}, result {number}: {error:e}");
    }
}

gradewise_testing::main!(
    maps_agree_with_double_precision,
    few_rows_take_one_launch_forward_and_three_backward,
    many_rows_go_by_tiles,
    channel_norms_agree_with_double_precision,
    joint_norms_agree_with_double_precision,
    heads_agree_with_double_precision,
);
