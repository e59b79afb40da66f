//! The weighted product of 32 blades by the kernels with four lanes per feature (csrc/clifford/product/four_lanes.cuh), against the CPU in double
//! precision.

mod common;
#[path = "common/products.rs"]
mod products;

use gradewise_core::Signature;
use gradewise_kernels::{DType, Device};
use products::{Case, DTYPES, usable};

const FAMILY: &str = "four_lanes";
const CL41: Signature = Signature::new(4, 1, 0);
const CL5: Signature = Signature::new(5, 0, 0);

/// Rows and features: one row and fewer rows than blocks, tails of rows that are worked on at a time, warps with idle lanes, more turns
/// than stages, and two to eight slices of a cluster, also with idle lanes.
const SIZES: [(usize, usize); 10] = [
    (1, 32),
    (7, 40),
    (5, 48),
    (333, 96),
    (1500, 64),
    (700, 128),
    (291, 104),
    (150, 136),
    (77, 264),
    (35, 1024),
];

fn agrees_with_double_precision(device: &Device) {
    for signature in [CL41, CL5] {
        for size in SIZES {
            for dtype in DTYPES {
                let case = Case::new(FAMILY, signature, size, dtype, device);
                case.agrees(&format!("{signature} {size:?} {dtype}"), [true; 2]);
            }
        }
    }
}

/// A warp has eight features, of which a row of f32 may leave out the last four.
fn features_may_end_within_a_warp(device: &Device) {
    for size in [(3, 36), (1701, 36), (50, 100), (21, 132)] {
        Case::new(FAMILY, CL5, size, DType::F32, device).agrees(&format!("{size:?}"), [true; 2]);
    }
}

fn the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out(device: &Device) {
    for (size, dtype) in [((600, 128), DType::F32), ((101, 264), DType::BF16), ((900, 48), DType::F16)] {
        Case::new(FAMILY, CL41, size, dtype, device).leaves_out_any_gradient();
    }
}

fn what_is_not_a_number_stays_in_its_row(device: &Device) {
    for dtype in DTYPES {
        Case::new(FAMILY, CL5, (300, 64), dtype, device).keeps_nan_in_its_row(133);
    }
}

gradewise_testing::main!(if usable;
    agrees_with_double_precision,
    features_may_end_within_a_warp,
    the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out,
    what_is_not_a_number_stays_in_its_row,
);
