//! Kernels of products on the host, against sums over the terms of the algebra.

use super::{Form, Generated, THREADS};
use crate::{
    Array, DType, Device,
    ops::clifford::algebra::{device_algebra, program::Programs, table::Table},
    runtime::cuda::{Args, Grid, generated::tests::Host},
};
use gradewise_core::{Algebra, Signature};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SIGNATURES: [(u8, u8, u8); 9] =
    [(1, 0, 0), (0, 1, 1), (3, 0, 0), (1, 3, 0), (3, 0, 1), (2, 2, 0), (0, 4, 0), (5, 0, 0), (4, 0, 1)];

/// Random numbers on a device of the stand-in, and on the host.
struct Drawn(Array, Vec<f64>);

fn draw(random: &mut ChaCha8Rng, shape: &[usize], dtype: DType, device: &Device) -> Drawn {
    let count = shape.iter().product();
    // Exact in single precision.
    let values: Vec<f64> = (0..count).map(|_| f64::from(random.random_range(-2.0f32..2.0))).collect();
    Drawn(Array::from_f64(&values, shape, dtype, device).unwrap(), values)
}

/// A kernel of a product, and what it computes.
struct Case {
    algebra: Algebra,
    form: Form,
    rows: usize,
    features: usize,
}

fn cases(random: &mut ChaCha8Rng) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, (p, q, r)) in SIGNATURES.into_iter().enumerate() {
        for dtype in [DType::F64, DType::F32] {
            let (weighted, based) = (number % 2 == 0 || dtype == DType::F32, random.random());
            cases.push(Case {
                algebra: Algebra::new(Signature::new(p, q, r)).unwrap(),
                form: Form { dtype, weighted, based },
                rows: random.random_range(1..40),
                features: random.random_range(1..20),
            });
        }
    }
    cases
}

fn close(found: &Array, expected: &[f64], what: &str) {
    let tolerance = if found.dtype() == DType::F64 { 1e-13 } else { 1e-5 };
    let found = found.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len());
    let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
    let error = found.iter().zip(expected).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    assert!(error <= tolerance * norm, "{what}: {error:e} of {norm:e}");
}

/// What the kernels need to know of a product.
fn generated(programs: &Programs, by_path: bool) -> Generated {
    let program = if by_path { &programs.by_path } else { &programs.forward };
    let spans = program.spans.iter().map(|range| range.start as usize..range.end as usize).collect();
    Generated::new(device_algebra::lists(program), spans)
}

#[test]
fn products_and_gradients_of_weights_are_the_sums_over_the_terms() {
    let random = &mut ChaCha8Rng::seed_from_u64(7);
    let (mut host, cases) = (Host::new(), cases(random));
    let device = Device::Cuda(host.device.clone());
    let programs: Vec<_> = cases.iter().map(|case| Programs::of(&case.algebra)).collect();
    let products: Vec<_> = programs.iter().map(|programs| generated(programs, false)).collect();
    let weights: Vec<_> = programs.iter().map(|programs| generated(programs, true)).collect();
    let codes: Vec<_> = cases
        .iter()
        .zip(products.iter().zip(&weights))
        .flat_map(|(case, (product, weights))| {
            [product.product_code(case.form), weights.weights_code(case.form.dtype)]
        })
        .collect();
    if !host.compile(&codes.iter().collect::<Vec<_>>()) {
        return;
    }
    for (case, (product, weights)) in cases.iter().zip(products.iter().zip(&weights)) {
        let Case { algebra, form, rows, features } = case;
        let (dtype, plane) = (form.dtype, rows * features);
        let what = format!("{} in {dtype}, {rows} rows of {features}", algebra.signature());
        let (blades, paths) = (algebra.blade_count(), algebra.paths().len());
        let multivectors = [blades, *rows, *features];
        let [a, b, base, grad] = [(); 4].map(|()| draw(random, &multivectors, dtype, &device));
        let w = draw(random, &[paths, *features], dtype, &device);
        let scale = 0.75;

        let mut expected = if form.based { base.1.clone() } else { vec![0.0; blades * plane] };
        let mut by_path = vec![0.0; features * paths];
        for term in algebra.terms() {
            let [left, right, out] = [term.left, term.right, term.out].map(usize::from);
            let path = usize::from(term.path);
            for at in 0..plane {
                let value = f64::from(term.sign) * a.1[left * plane + at] * b.1[right * plane + at];
                let feature = at % features;
                expected[out * plane + at] +=
                    if form.weighted { value * w.1[path * features + feature] } else { value };
                by_path[feature * paths + path] += scale * value * grad.1[out * plane + at];
            }
        }
        expected.iter_mut().for_each(|x| *x *= scale);

        let out = Array::for_kernel("test", multivectors, dtype, &host.device).unwrap();
        let arrays = [Some(&a.0), Some(&b.0), form.weighted.then_some(&w.0), form.based.then_some(&base.0)];
        let args = arrays.into_iter().flatten().fold(Args::new(), Args::array);
        let args = args.array(&out).size(plane).size(*features).double(scale);
        let function = product.product(&host.device, *form).unwrap().unwrap();
        // Fewer threads than positions, which the kernel has to stride over.
        let grid = Grid::blocks(plane.div_ceil(2 * THREADS as usize), THREADS);
        // SAFETY: the kernel's parameters, and arrays of its sizes; `out` is new.
        unsafe { host.device.launch_generated("test", &function, grid, args).unwrap() };
        close(&out, &expected, &what);

        // Threads for several rows, or fewer threads than features.
        let (chunk, threads) = (3, random.random_range(1..40));
        let lanes = if *features < threads { threads / features } else { 1 };
        let blocks = rows.div_ceil(chunk * lanes);
        let chunks = blocks * lanes;
        let partial = Array::for_kernel("test", [chunks, features * paths], dtype, &host.device).unwrap();
        let args = [&a.0, &b.0, &grad.0, &partial].into_iter().fold(Args::new(), Args::array);
        let args = args.size(*rows).size(*features).size(chunk).double(scale);
        let function = weights.weights(&host.device, dtype).unwrap().unwrap();
        let grid = Grid::new([1, weights.parts(dtype), blocks], [threads as u32, 1, 1]);
        // SAFETY: the kernel's parameters, and arrays of its sizes; `partial` is new.
        unsafe { host.device.launch_generated("test", &function, grid, args).unwrap() };
        let partial = partial.to_f64_vec().unwrap();
        let sums: Vec<f64> = (0..features * paths)
            .map(|result| (0..chunks).map(|chunk| partial[chunk * features * paths + result]).sum())
            .collect();
        let sums = Array::from_f64(&sums, [*features, paths], dtype, &Device::Cpu).unwrap();
        close(&sums, &by_path, &format!("weights of {what}"));
    }
}

#[test]
fn products_that_do_not_fit_into_registers_have_no_kernel() {
    let host = Host::new();
    let form = Form { dtype: DType::F32, weighted: false, based: false };
    let table = |table: &Table| {
        let program = device_algebra::DeviceProgram::from_table(&host.device, table).unwrap();
        program.generated.fits()
    };
    let algebra = |p, q, r| Algebra::new(Signature::new(p, q, r)).unwrap();
    assert!(table(&Table::geometric(&algebra(5, 0, 0))));
    assert!(!table(&Table::geometric(&algebra(6, 0, 0))), "64 components of either factor");
    assert!(table(&Table::by_path(&algebra(3, 0, 0)).0));
    assert!(!table(&Table::by_path(&algebra(1, 3, 0)).0.grad_a()), "a factor for each path and blade");
    let large = Programs::of(&algebra(6, 0, 0));
    assert!(generated(&large, false).product(&host.device, form).unwrap().is_none());
}
