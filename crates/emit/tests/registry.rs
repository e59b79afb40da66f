//! Every operation of the registry, as C.

mod common;

use common::{Case, agree};
use gradewise_autograd::{
    AnySample, Error, Sizes, Tensor,
    program::{Program, record},
    registry,
};
use gradewise_core::DType;
use gradewise_kernels::Device;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::collections::BTreeSet;

fn drawn(sample: &AnySample, seed: u64, dtype: DType) -> Vec<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let arrays = sample.draw(dtype, &mut rng).unwrap();
    sample.place(&arrays, dtype, &Device::Cpu).unwrap()
}

fn recorded(sample: &AnySample, dtype: DType) -> Result<Program, Error> {
    let examples = [drawn(sample, 1, dtype), drawn(sample, 2, dtype)];
    record(&examples, &[], |inputs| Ok(vec![sample.run(inputs)?]))
}

/// What cannot be written: convolutions of fields, what depends on the order of numbers, losses, and operations of transformers of
/// multivectors that have neither a formula nor a re-expression.
const REFUSED: &[&str] = &[
    "blade_matrix",
    "clifford_batch_norm",
    "clifford_conv",
    "clifford_conv_transpose",
    "clifford_group_norm",
    "clifford_linear",
    "cross_entropy",
    "field_convolution",
    "field_convolution_adjoint",
    "field_convolution_kernel",
    "g3_conv",
    "gather",
    "inverse_cholesky",
    "joint_norm",
    "merge_heads",
    "pga_conjugate_linear",
    "product_gate",
    "rotary",
    "scatter_add",
    "sort",
    "top_k",
];

#[test]
fn operations_give_their_own_numbers_in_c() {
    let mut cases = Vec::new();
    let mut refused = BTreeSet::new();
    for (algebra, batch, features) in [("3,0,0", 3, 2), ("1,0,1", 2, 5)] {
        let sizes = Sizes::new(algebra.parse().unwrap(), batch, features).unwrap();
        for entry in registry::entries() {
            for sample in entry.samples(&sizes).unwrap() {
                for dtype in [DType::F64, DType::F32] {
                    match recorded(&sample, dtype) {
                        Ok(program) => {
                            let inputs = drawn(&sample, 3, dtype);
                            let expected = vec![sample.run(&inputs).unwrap()];
                            if matches!(expected[0].dtype(), DType::F64 | DType::F32) {
                                let about = format!("{sample} {dtype}");
                                cases.push(Case { about, program, inputs, expected });
                            }
                        }
                        Err(Error::NoFormula { .. } | Error::DependsOnNumbers { .. }) => {
                            refused.insert(entry.name());
                        }
                        Err(other) => panic!("{sample}: {other}"),
                    }
                }
            }
        }
    }
    assert!(cases.len() > 200, "{}", cases.len());
    agree(&cases);
    assert_eq!(refused.into_iter().collect::<Vec<_>>(), REFUSED);
}
