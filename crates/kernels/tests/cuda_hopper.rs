//! The weighted product by the kernels for sm_90a (csrc/clifford/product/sm90_persistent.cuh), against the CPU in double precision.

mod common;
#[path = "common/products.rs"]
mod products;

use common::tolerance;
use gradewise_core::Signature;
use gradewise_kernels::{DType, Device, ops::clifford::sgp::Needs};
use products::{Case, DTYPES, close, usable};

const FAMILY: &str = "sm90";

/// Rows and features: one row and fewer rows than blocks, tails of rows that are worked on at a time, idle threads, more turns than stages,
/// and two to eight slices of a cluster, also with idle threads.
const SIZES: [(usize, usize); 12] = [
    (1, 32),
    (7, 40),
    (333, 96),
    (2500, 64),
    (1003, 200),
    (600, 512),
    (1111, 520),
    (300, 1024),
    (77, 1032),
    (150, 2048),
    (41, 2072),
    (35, 4096),
];

fn agrees_with_double_precision(device: &Device) {
    for signature in [Signature::CL3, Signature::CL2, Signature::new(1, 3, 0), Signature::new(3, 0, 1)] {
        for (rows, features) in SIZES {
            // Of 16 blades, half as many features fit into the slices of a cluster.
            let features =
                if signature.p + signature.q + signature.r == 4 { features.min(2048) } else { features };
            for dtype in DTYPES {
                let case = Case::new(FAMILY, signature, (rows, features), dtype, device);
                // Where a block has whole rows of f32, another kernel is as fast.
                let widest = if signature.p + signature.q + signature.r == 4 { 256 } else { 512 };
                let runs = [dtype != DType::F32 || features > widest, true];
                case.agrees(&format!("{signature} {rows}x{features} {dtype}"), runs);
            }
        }
    }
}

/// Those with more features than csrc/clifford/product/four_lanes.cuh can take.
fn long_products_of_32_blades_go_forward_this_way(device: &Device) {
    for signature in [Signature::new(4, 1, 0), Signature::new(5, 0, 0)] {
        for (rows, features) in [(3, 1032), (40, 2048)] {
            for dtype in DTYPES {
                let case = Case::new(FAMILY, signature, (rows, features), dtype, device);
                let what = format!("{signature} {rows}x{features} {dtype}");
                let (product, _, ran) = case.observed(Needs::ALL);
                assert_eq!(ran, [true, false], "{what}");
                let (expected, _) = case.expected(Needs { x: false, y: false, w: false });
                close(&what, Some(&product.output), Some(&expected.output), tolerance(dtype));
            }
        }
    }
}

fn the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out(device: &Device) {
    for (size, dtype) in [((900, 512), DType::BF16), ((501, 1040), DType::F32), ((2000, 96), DType::F16)] {
        Case::new(FAMILY, Signature::CL3, size, dtype, device).leaves_out_any_gradient();
    }
}

fn what_is_not_a_number_stays_in_its_row(device: &Device) {
    for dtype in [DType::BF16, DType::F16] {
        Case::new(FAMILY, Signature::CL3, (300, 512), dtype, device).keeps_nan_in_its_row(133);
    }
}

gradewise_testing::main!(if usable;
    agrees_with_double_precision,
    long_products_of_32_blades_go_forward_this_way,
    the_same_inputs_give_the_same_bits_and_any_gradient_can_be_left_out,
    what_is_not_a_number_stays_in_its_row,
);
