//! The fused Clifford operators: first derivatives against central differences, the fused backward against the
//! re-expression in primitives, second derivatives against central differences; definite, indefinite and degenerate
//! signatures, odd sizes and a batch of one.

use gradewise_autograd::{
    GradcheckOptions, Result, Tensor,
    clifford::{self, Bias, MvBlock, ProductOptions, Steerable},
    gradcheck, gradgradcheck,
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{DType, Device};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const SIGNATURES: [(u8, u8, u8); 6] = [(1, 0, 0), (2, 0, 0), (3, 0, 0), (1, 1, 0), (1, 3, 0), (3, 0, 1)];

/// Checks `operator` with every input random, in every signature.
fn check(
    name: &str,
    sizes: impl Fn(&Algebra, usize, usize) -> Vec<Vec<usize>>,
    operator: impl Fn(&Algebra, &[Tensor]) -> Result<Tensor>,
) {
    for (p, q, r) in SIGNATURES {
        let algebra = Algebra::new(Signature::new(p, q, r)).unwrap();
        for (batch, features) in [(1, 1), (3, 5)] {
            let mut rng = ChaCha8Rng::seed_from_u64(u64::from(p) * 100 + u64::from(q) * 10 + u64::from(r));
            let inputs: Vec<Tensor> = sizes(&algebra, batch, features)
                .into_iter()
                .map(|shape| Tensor::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap())
                .collect();
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            // ‖x‖ bends sharply where the quadratic form is near 0: a smaller step, and its rounding error accepted.
            let options =
                GradcheckOptions { step: 3e-6, relative: 3e-6, absolute: 1e-7, samples: 12, seed: 7 };
            let context = |what: &str| {
                format!("{what} of {name}, {}, batch {batch}, {features} features", algebra.signature())
            };
            let function = |x: &[Tensor]| operator(&algebra, x);
            gradcheck(function, &inputs, &options)
                .unwrap_or_else(|error| panic!("{}: {error}", context("gradcheck")));
            gradgradcheck(function, &inputs, &options)
                .unwrap_or_else(|error| panic!("{}: {error}", context("gradgradcheck")));
        }
    }
}

fn features(algebra: &Algebra, batch: usize, features: usize) -> Vec<usize> {
    vec![algebra.blade_count(), batch, features]
}

#[test]
fn geometric_product() {
    check(
        "geometric_product",
        |a, b, n| vec![features(a, b, n); 2],
        |a, x| clifford::geometric_product(a, &x[0], &x[1]),
    );
}

#[test]
fn weighted_products() {
    for (gate, normalize) in [(false, false), (true, false), (true, true), (false, true)] {
        let options = ProductOptions { gate, normalize };
        check(
            &format!("sgp {options:?}"),
            |a, b, n| vec![features(a, b, n), features(a, b, n), vec![n, a.paths().len()]],
            |a, x| clifford::sgp(a, &x[0], &x[1], &x[2], options),
        );
    }
}

#[test]
fn fully_connected_products() {
    for (gate, normalize) in [(false, false), (true, true)] {
        let options = ProductOptions { gate, normalize };
        check(
            &format!("fcgp {options:?}"),
            |a, b, n| vec![features(a, b, n), features(a, b, n), vec![a.paths().len(), n, n + 1]],
            |a, x| clifford::fcgp(a, &x[0], &x[1], &x[2], options),
        );
    }
}

#[test]
fn linear_maps() {
    check(
        "mv_linear",
        |a, b, n| vec![features(a, b, n), vec![a.grade_count(), n, n + 2]],
        |a, x| clifford::mv_linear(a, &x[0], &x[1], None),
    );
    check(
        "mv_linear shared",
        |a, b, n| vec![features(a, b, n), vec![n, n + 2]],
        |a, x| clifford::mv_linear(a, &x[0], &x[1], None),
    );
    for bias in [Bias::Scalar, Bias::AllBlades] {
        check(
            &format!("mv_linear {bias:?}"),
            |a, b, n| vec![features(a, b, n), vec![a.grade_count(), n, n + 2], vec![n + 2]],
            |a, x| clifford::mv_linear(a, &x[0], &x[1], Some((&x[2], bias))),
        );
    }
}

#[test]
fn activations() {
    check(
        "mv_silu",
        |a, b, n| vec![features(a, b, n), vec![n, a.grade_count()], vec![n, a.grade_count()]],
        |a, x| clifford::mv_silu(a, &x[0], &x[1], &x[2]),
    );
}

#[test]
fn normalisations() {
    check(
        "mv_normalization",
        |a, b, n| vec![features(a, b, n), vec![n, a.grade_count()]],
        |a, x| clifford::mv_normalization(a, &x[0], &x[1]),
    );
    check(
        "mv_layer_norm",
        |a, b, n| vec![features(a, b, n), vec![n]],
        |a, x| clifford::mv_layer_norm(a, &x[0], &x[1]),
    );
}

#[test]
fn steerable_products() {
    for residual in [false, true] {
        check(
            &format!("steerable_product, residual {residual}"),
            |a, b, n| {
                let x = features(a, b, n);
                let mut shapes =
                    vec![x.clone(), x.clone(), vec![n, a.grade_count()], vec![n, a.paths().len()]];
                shapes.extend(residual.then_some(x));
                shapes
            },
            |algebra, x| {
                let operands = Steerable { x: &x[0], right: &x[1], a: &x[2], w: &x[3], left: x.get(4) };
                clifford::steerable_product(algebra, &operands)
            },
        );
    }
}

/// As where no kernel serves: by its parts, the residual among the operands.
#[test]
fn blocks() {
    check(
        "mv_block",
        |a, b, n| {
            let (grades, paths) = (a.grade_count(), a.paths().len());
            vec![
                features(a, b, n),
                vec![grades, n, n + 1],
                vec![n + 1],
                vec![n + 1, grades],
                vec![n + 1, grades],
                vec![grades, n + 1, n + 1],
                vec![n + 1, grades],
                vec![n + 1, paths],
                vec![grades, n + 1, n + 1],
                vec![n + 1],
                vec![n + 1],
                features(a, b, n + 1),
            ]
        },
        |a, x| clifford::mv_block(a, &MvBlock::from_all(x).unwrap()),
    );
}
