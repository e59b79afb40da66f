//! Every operation of the registry as a program.

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
pub const REFUSED: &[&str] = &[
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

/// Calls `see` with what each sample of an operation is, its program, and inputs with what they give, by seed; the operations that
/// cannot be written, by name.
pub fn each(
    mut see: impl FnMut(String, Program, &dyn Fn(u64) -> (Vec<Tensor>, Vec<Tensor>)),
) -> Vec<&'static str> {
    let mut refused = BTreeSet::new();
    for (algebra, batch, features) in [("3,0,0", 3, 2), ("1,0,1", 2, 5)] {
        let sizes = Sizes::new(algebra.parse().unwrap(), batch, features).unwrap();
        for entry in registry::entries() {
            for sample in entry.samples(&sizes).unwrap() {
                for dtype in [DType::F64, DType::F32] {
                    let draw = |seed: u64| {
                        let inputs = drawn(&sample, seed, dtype);
                        let expected = vec![sample.run(&inputs).unwrap()];
                        (inputs, expected)
                    };
                    match recorded(&sample, dtype) {
                        Ok(program) => {
                            if matches!(draw(3).1[0].dtype(), DType::F64 | DType::F32) {
                                see(format!("{sample} {dtype}"), program, &draw);
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
    refused.into_iter().collect()
}
