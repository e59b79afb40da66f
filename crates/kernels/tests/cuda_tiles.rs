//! Operators wide enough for the tiles of tensor cores, against the CPU in double precision: sums over the blades of a grade and over
//! paths, shared matrices, results that are added to, batches in stretches; in every tile.

mod common;

use common::{Pair, rng};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, Compute, DType, Device,
    ops::clifford::{
        clifford_layer::{self, Kept, Operands, Options},
        fcgp,
        mv_linear::{self, Bias},
        sgp::{self, ProductOptions},
    },
    tuning::Tile,
};

/// Storage, how products of f32 are computed, and what relative error they may have.
const MODES: [(DType, Compute, f64); 4] = [
    (DType::F32, Compute::Tf32, 1e-3),
    (DType::F32, Compute::Exact, 1e-6),
    (DType::BF16, Compute::Tf32, 1e-2),
    (DType::F16, Compute::Tf32, 2e-3),
];

fn close(what: &str, tested: &[Array], reference: &[Array], bound: f64) {
    assert_eq!(tested.len(), reference.len());
    for (position, (tested, reference)) in tested.iter().zip(reference).enumerate() {
        assert_eq!(tested.shape(), reference.shape(), "{what}, result {position}");
        let wide = tested.cast(DType::F64).unwrap().to_device(&Device::Cpu).unwrap();
        let error = wide.relative_error(reference).unwrap();
        assert!(error <= bound, "{what}, result {position}: relative error {error:e} > {bound:e}");
    }
}

fn in_every_tile(work: impl Fn(&str)) {
    work("estimated tile");
    for tile in Tile::ALL {
        tile.scope(|| work(&format!("{tile:?}")));
    }
}

fn linear_maps(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    in_every_tile(|tile| {
        // Whole tiles, tails, and a batch whose matrices cannot be transposed for the copy engine.
        for (batch, inputs, outputs) in [(256, 128, 256), (200, 72, 136), (1000, 136, 72), (99, 64, 68)] {
            for (dtype, compute, bound) in MODES {
                for (shared, bias) in [(false, Bias::Scalar), (true, Bias::AllBlades)] {
                    let mut rng = rng(batch as u64);
                    let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
                    let matrices = [4, inputs, outputs];
                    let (x, grad) = (random(&[8, batch, inputs]), random(&[8, batch, outputs]));
                    let (w, b) = (random(&matrices[usize::from(shared)..]), random(&[outputs]));
                    let run = |x: &Array, w: &Array, b: &Array, grad: &Array| {
                        let out = mv_linear::forward(&algebra, x, w, Some((b, bias))).unwrap();
                        let found =
                            mv_linear::backward(&algebra, x, w, bias, grad, mv_linear::Needs::ALL).unwrap();
                        [out, found.x.unwrap(), found.w.unwrap(), found.bias.unwrap()]
                    };
                    let tested = compute.scope(|| run(&x.tested, &w.tested, &b.tested, &grad.tested));
                    let reference = run(&x.reference, &w.reference, &b.reference, &grad.reference);
                    let what =
                        format!("{batch}x{inputs}x{outputs} {dtype} {compute} shared {shared}, {tile}");
                    close(&what, &tested, &reference, bound);
                }
            }
        }
    });
}

fn layers_with_both_products(device: &Device) {
    for signature in [Signature::CL2, Signature::CL3] {
        let algebra = Algebra::new(signature).unwrap();
        let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
        for (batch, n) in [(256, 128), (200, 72)] {
            for (dtype, compute, bound) in MODES {
                for fully_connected in [false, true] {
                    let mut rng = rng(n as u64);
                    let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
                    let (x, grad) = (random(&[blades, batch, n]), random(&[blades, batch, n]));
                    let (linear, bias) = (random(&[grades, n, n]), random(&[n]));
                    let weights = if fully_connected { vec![paths, n, n] } else { vec![n, paths] };
                    let w = random(&weights);
                    let product = ProductOptions { gate: true, normalize: true };
                    let options = Options { fully_connected, product };
                    let run = |[x, linear, bias, w, grad]: [&Array; 5]| {
                        let operands = Operands { x, linear, bias: Some((bias, Bias::Scalar)), w };
                        let out = clifford_layer::forward(&algebra, &operands, options).unwrap();
                        let gradients = |y| {
                            let (kept, all) = (Kept { product: &out.product, y }, clifford_layer::Needs::ALL);
                            clifford_layer::backward(&algebra, &operands, options, kept, grad, all).unwrap()
                        };
                        let (found, again) = (gradients(Some(&out.y)), gradients(None));
                        let same = |a: &Array, b: &Array| a.to_f64_vec().unwrap() == b.to_f64_vec().unwrap();
                        let [a, b] = [found.x.as_ref(), again.x.as_ref()].map(Option::unwrap);
                        assert!(same(a, b), "what is computed again is the same");
                        [
                            out.product.output,
                            found.x.unwrap(),
                            found.linear.unwrap(),
                            found.bias.unwrap(),
                            found.w.unwrap(),
                        ]
                    };
                    let tested =
                        compute.scope(|| run([&x, &linear, &bias, &w, &grad].map(|pair| &pair.tested)));
                    let reference = run([&x, &linear, &bias, &w, &grad].map(|pair| &pair.reference));
                    let what = format!(
                        "{signature} {batch}x{n} {dtype} {compute} fully connected {fully_connected}"
                    );
                    // Two products and the norm's gradient, which is a difference.
                    close(&what, &tested, &reference, 4.0 * bound);
                }
            }
        }
    }
}

fn fully_connected_products_of_many_stretches(device: &Device) {
    let algebra = Algebra::new(Signature::CL3).unwrap();
    let (batch, n) = (4500, 128);
    for (dtype, compute, bound) in MODES {
        let mut rng = rng(9);
        let mut random = |shape: &[usize]| Pair::randn(shape, dtype, device, &mut rng);
        let (x, y, grad) = (random(&[8, batch, n]), random(&[8, batch, n]), random(&[8, batch, n]));
        let w = random(&[algebra.paths().len(), n, n]);
        let options = ProductOptions { gate: true, normalize: false };
        let run = |[x, y, w, grad]: [&Array; 4]| {
            let operands = sgp::Operands { x, y, w };
            let product = fcgp::forward(&algebra, &operands, options).unwrap();
            let found =
                fcgp::backward(&algebra, &operands, options, &product, grad, sgp::Needs::ALL).unwrap();
            [product.output, found.x.unwrap(), found.y.unwrap(), found.w.unwrap()]
        };
        let operands = [&x, &y, &w, &grad];
        let tested = compute.scope(|| run(operands.map(|pair| &pair.tested)));
        let again = compute.scope(|| run(operands.map(|pair| &pair.tested)));
        for (a, b) in tested.iter().zip(&again) {
            assert_eq!(a.to_f64_vec().unwrap(), b.to_f64_vec().unwrap(), "the same bits");
        }
        let reference = run(operands.map(|pair| &pair.reference));
        close(&format!("{dtype} {compute}"), &tested, &reference, 2.0 * bound);
    }
}

gradewise_testing::main!(linear_maps, layers_with_both_products, fully_connected_products_of_many_stretches,);
