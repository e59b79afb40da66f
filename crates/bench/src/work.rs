//! The minimum bytes and operations of a case, and the floor of its time.

use crate::{Case, Ceilings, NBODY_HIDDEN, Op, Pass, Result};
use gradewise_core::{Algebra, DType};
use gradewise_kernels::Compute;
use std::collections::BTreeSet;

/// The work of a fully fused implementation: it reads or writes each input and output tensor once per pass, without intermediates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations of matrix products, two for each multiply-add.
    pub matrix_flops: u64,
    /// All operations: those of matrix products, and three for each term of a weighted product (weight, x·y, sum).
    pub flops: u64,
}

impl Work {
    /// The work of a pass over a case.
    ///
    /// A forward pass reads the inputs and writes the output. A backward pass reads the inputs and the output's gradient, and
    /// writes the inputs' gradients; it has twice the operations of the forward pass, once for each factor. Parameters and
    /// their gradients are counted once per pass each.
    ///
    /// # Errors
    /// An invalid algebra.
    pub fn of(case: &Case, pass: Pass) -> Result<Self> {
        if case.op == Op::NBody {
            return Ok(nbody(case, pass));
        }
        let algebra = Algebra::new(case.signature)?;
        let blades = algebra.blade_count() as u64;
        let (batch, n) = (case.batch as u64, case.features as u64);
        let (grades, paths) = (algebra.grade_count() as u64, algebra.paths().len() as u64);
        let rows = batch * n * n;
        let linear = 2 * blades * rows;
        let pairs: BTreeSet<_> = algebra.terms().iter().map(|term| (term.path, term.out)).collect();
        let full = 2 * pairs.len() as u64 * rows;
        let terms = 3 * algebra.terms().len() as u64 * batch * n;
        // Elements of inputs and parameters; operations of matrix products and of product terms.
        let (inputs, parameters, matrices, lanes) = match case.op {
            Op::Product => (2, n * paths, 0, terms),
            Op::FcProduct => (2, paths * n * n, full, 0),
            Op::Layer => (1, n * paths + grades * n * n + n, linear, terms),
            Op::FcLayer => (1, paths * n * n + grades * n * n + n, full + linear, 0),
            Op::Linear => (1, grades * n * n + n, linear, 0),
            Op::Matmul => (1, n * n, 2 * rows, 0),
            Op::MvSilu => (1, 2 * n * grades, 0, 0),
            Op::MvNormalization => (1, n * grades, 0, 0),
            Op::MvLayerNorm => (1, n, 0, 0),
            Op::SteerableLayer => (1, n * paths + 2 * grades * n * n + n * (grades + 1), 2 * linear, terms),
            Op::NBody => unreachable!("above"),
        };
        let tensor = blades * batch * n;
        let forward = (inputs + 1) * tensor + parameters;
        let backward = (2 * inputs + 1) * tensor + 2 * parameters;
        let size = case.dtype.size() as u64;
        Ok(match pass {
            Pass::Forward => Self { bytes: size * forward, matrix_flops: matrices, flops: matrices + lanes },
            Pass::Both | Pass::Graph => Self {
                bytes: size * (forward + backward),
                matrix_flops: 3 * matrices,
                flops: 3 * (matrices + lanes),
            },
        })
    }

    /// The lower bound on the time in milliseconds: bytes over the copy rate, or matrix products over the product rate of the arithmetic,
    /// whichever is larger. `None` if a required ceiling is unknown.
    pub fn floor_ms(&self, case: &Case, ceilings: &Ceilings) -> Option<f64> {
        self.floor_ms_in(arithmetic(case), ceilings)
    }

    /// As [`floor_ms`](Self::floor_ms), with the arithmetic by its key in [`Ceilings::products`].
    pub fn floor_ms_in(&self, arithmetic: &str, ceilings: &Ceilings) -> Option<f64> {
        let bytes = self.bytes as f64 / ceilings.copy_bytes_per_s?;
        if self.matrix_flops == 0 {
            return Some(bytes * 1e3);
        }
        let rate = ceilings.products.get(arithmetic)?.best();
        Some(bytes.max(self.matrix_flops as f64 / rate) * 1e3)
    }
}

/// The arithmetic of a case's matrix products, as the key in [`Ceilings::products`].
pub fn arithmetic(case: &Case) -> &'static str {
    match (case.dtype, case.compute) {
        (DType::F32, Compute::Tf32) => "tf32",
        (dtype, _) => dtype.name(),
    }
}

/// The work of the paper's model. Matrix products: per edge or node, `in · out` multiply-adds in every blade of every grade-wise map, two
/// blocks of three maps in each of two networks, in three rounds. Bytes: the parameters and the optimiser's two moments, read and written,
/// which no fusion avoids.
fn nbody(case: &Case, pass: Pass) -> Work {
    const PARAMETERS: u64 = 134_625;
    const PARTICLES: u64 = 5;
    let hidden = NBODY_HIDDEN as u64;
    let mlp = |inputs: u64| inputs * hidden + 5 * hidden * hidden;
    let (edges, nodes) = (case.batch as u64 * PARTICLES * (PARTICLES - 1), case.batch as u64 * PARTICLES);
    let forward = 2 * 8 * 3 * (edges * mlp(hidden + 1) + nodes * mlp(2 * hidden));
    let size = case.dtype.size() as u64;
    let (flops, tensors) = match pass {
        Pass::Forward => (forward, 1),
        Pass::Both | Pass::Graph => (3 * forward, 8),
    };
    Work { bytes: tensors * PARAMETERS * size, matrix_flops: flops, flops }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProductRate;
    use gradewise_core::Signature;

    fn case(op: Op, batch: usize, features: usize) -> Case {
        Case::new(op, Signature::CL3, (batch, features), DType::F32, Compute::Tf32)
    }

    fn ceilings() -> Ceilings {
        let rate = |rate| ProductRate { ours: Some(rate), vendor: None };
        Ceilings {
            copy_bytes_per_s: Some(4.28e12),
            vendor: None,
            products: [("tf32".to_owned(), rate(356e12)), ("bf16".to_owned(), rate(687e12))].into(),
        }
    }

    /// Floors computed by hand for an H200, in microseconds.
    #[test]
    fn floors_are_those_worked_out_by_hand() {
        let ceilings = ceilings();
        for (op, pass, microseconds) in [
            (Op::Layer, Pass::Forward, 48.0),
            (Op::Layer, Pass::Both, 144.0),
            (Op::Layer, Pass::Graph, 144.0),
            (Op::Product, Pass::Forward, 47.0),
            (Op::Product, Pass::Both, 125.0),
            (Op::FcProduct, Pass::Forward, 265.0),
            (Op::FcProduct, Pass::Both, 797.0),
        ] {
            let case = case(op, 4096, 512);
            let floor = Work::of(&case, pass).unwrap().floor_ms(&case, &ceilings).unwrap() * 1e3;
            assert!(
                (floor / microseconds - 1.0).abs() < 0.02,
                "{op} {pass}: {floor} µs, {microseconds} by hand"
            );
        }
    }

    #[test]
    fn a_product_of_matrices_is_counted_as_one() {
        let work = Work::of(&case(Op::Matmul, 4096, 1024), Pass::Forward).unwrap();
        assert_eq!(work.matrix_flops, 2 * 4096 * 1024 * 1024);
        assert_eq!(work.bytes, 4 * (2 * 4096 * 1024 + 1024 * 1024));
        assert_eq!(work.flops, work.matrix_flops);
    }

    #[test]
    fn narrow_storage_halves_the_bytes_and_changes_the_ceiling() {
        let wide = case(Op::Layer, 4096, 512);
        let narrow = Case { dtype: DType::BF16, compute: Compute::Exact, ..wide };
        let [a, b] = [wide, narrow].map(|case| Work::of(&case, Pass::Both).unwrap());
        assert_eq!(a.bytes, 2 * b.bytes);
        let [a, b] = [(a, wide), (b, narrow)].map(|(work, case)| work.floor_ms(&case, &ceilings()).unwrap());
        assert!(b < 0.6 * a, "{a} {b}");
    }

    #[test]
    fn an_unknown_ceiling_gives_no_floor() {
        let exact = Case { compute: Compute::Exact, ..case(Op::Layer, 64, 64) };
        assert_eq!(Work::of(&exact, Pass::Forward).unwrap().floor_ms(&exact, &ceilings()), None);
        let product = Case { op: Op::Product, ..exact };
        assert!(Work::of(&product, Pass::Forward).unwrap().floor_ms(&product, &ceilings()).is_some());
    }

    #[test]
    fn every_operator_has_work_in_every_pass() {
        for op in Op::ALL {
            let [forward, both] =
                [Pass::Forward, Pass::Both].map(|pass| Work::of(&case(op, 16, 8), pass).unwrap());
            assert!(forward.bytes > 0 && both.bytes > forward.bytes, "{op}");
            assert!(both.flops >= 2 * forward.flops, "{op}");
        }
        assert!(
            Work::of(&Case { signature: Signature::new(9, 0, 0), ..case(Op::Layer, 1, 1) }, Pass::Both)
                .is_err()
        );
    }
}
