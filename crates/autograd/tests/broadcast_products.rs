//! Products whose factors broadcast: the values of the product of repeated factors, with derivatives of first and second order and along
//! directions, for every product and random shapes.

use gradewise_autograd::{
    GradcheckOptions, Result, Tensor,
    clifford::{
        ProductOptions, fcgp, geometric_product, metric_product, regressive_product, sgp, tensor_dot,
        tensor_tensor, tensor_vector,
    },
    gradcheck, gradgradcheck, jvp,
};
use gradewise_core::{Algebra, DType, Signature};
use gradewise_kernels::Device;
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

type Product = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor>>;

/// A product, and the components of its factors. Weighted ones are of rows and `features`.
struct Case {
    name: &'static str,
    components: [usize; 2],
    rows_only: bool,
    product: Product,
}

fn random(shape: &[usize], rng: &mut ChaCha8Rng) -> Tensor {
    Tensor::randn(shape, DType::F64, &Device::Cpu, rng).unwrap()
}

fn cases(features: usize, rng: &mut ChaCha8Rng) -> Vec<Case> {
    let space = Algebra::new(Signature::CL3).unwrap();
    let plane = || Algebra::new(Signature::new(1, 1, 0)).unwrap();
    let paths = plane().paths().len();
    let (metric, w, full) =
        (random(&[2], rng), random(&[features, paths], rng), random(&[paths, features, 2], rng));
    let case = |name, components, rows_only, product| Case { name, components, rows_only, product };
    let options = ProductOptions { gate: true, normalize: true };
    let projective = Algebra::new(Signature::new(2, 0, 1)).unwrap();
    vec![
        case("geometric_product", [8, 8], false, Box::new(move |x, y| geometric_product(&space, x, y))),
        case(
            "regressive_product",
            [8, 8],
            false,
            Box::new(move |x, y| regressive_product(&projective, x, y)),
        ),
        case("metric_product", [4, 4], false, Box::new(move |x, y| metric_product(&metric, x, y))),
        case("tensor_vector", [5, 3], false, Box::new(tensor_vector)),
        case("tensor_dot", [5, 5], false, Box::new(tensor_dot)),
        case("tensor_tensor", [5, 5], false, Box::new(tensor_tensor)),
        case("sgp", [4, 4], true, Box::new(move |x, y| sgp(&plane(), x, y, &w, ProductOptions::default()))),
        case("fcgp", [4, 4], true, Box::new(move |x, y| fcgp(&plane(), x, y, &full, options))),
    ]
}

/// The axes after the first of a factor: some of `whole`'s leading ones left out, others of size 1.
fn reduced(whole: &[usize], left_out: usize, ones: u8) -> Vec<usize> {
    let kept = whole.iter().enumerate().skip(left_out.min(whole.len()));
    kept.map(|(axis, &size)| if ones >> axis & 1 == 1 { 1 } else { size }).collect()
}

/// The factor repeated to all axes, element by element: what broadcasting is to compute.
fn repeated(x: &Tensor, rest: &[usize]) -> Tensor {
    let own = &x.shape()[1..];
    let (values, components) = (x.to_vec::<f64>().unwrap(), x.shape()[0]);
    let count: usize = rest.iter().product();
    let stride: usize = own.iter().product();
    let mut all = Vec::with_capacity(components * count);
    for component in 0..components {
        for position in 0..count {
            let (mut left, mut at, mut step) = (position, 0, 1);
            for (axis, &size) in rest.iter().enumerate().rev() {
                let index = left % size;
                left /= size;
                if let Some(axis) = (axis + own.len()).checked_sub(rest.len()) {
                    at += if own[axis] == 1 { 0 } else { index * step };
                    step *= own[axis];
                }
            }
            all.push(values[component * stride + at]);
        }
    }
    Tensor::from_slice(&all, [&[components], rest].concat(), &Device::Cpu).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn factors_that_broadcast_multiply_as_if_repeated(
        (rows, features) in (1..4usize, 1..4usize),
        left_out in (0..3usize, 0..3usize),
        ones in (0..4u8, 0..4u8),
        swapped: bool,
        seed: u64,
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for Case { name, components: [a, b], rows_only, product } in cases(features, &mut rng) {
            // One factor has all axes where a product needs rows and features; elsewhere both may lack some.
            let whole = vec![rows, features];
            let full = if rows_only { whole.clone() } else { reduced(&whole, 0, ones.1) };
            let part = reduced(&whole, left_out.0, ones.0);
            let (x_rest, y_rest) = if swapped { (part, full) } else { (full, part) };
            let rest: Vec<usize> = (0..2)
                .map(|axis| {
                    let of = |own: &[usize]| (axis + own.len()).checked_sub(2).map_or(1, |axis| own[axis]);
                    of(&x_rest).max(of(&y_rest))
                })
                .collect();
            let x = random(&[&[a], &x_rest[..]].concat(), &mut rng);
            let y = random(&[&[b], &y_rest[..]].concat(), &mut rng);
            let found = product(&x, &y)?;
            let expected = product(&repeated(&x, &rest), &repeated(&y, &rest))?;
            prop_assert_eq!(found.shape(), expected.shape(), "{}", name);
            prop_assert_eq!(found.to_vec::<f64>()?, expected.to_vec::<f64>()?, "{}", name);

            // Second derivatives of all elements take long; a sample of them shows a sum that is missing, too.
            let options = GradcheckOptions { samples: 6, ..GradcheckOptions::default() };
            let run = |inputs: &[Tensor]| product(&inputs[0], &inputs[1]);
            gradcheck(&[&x, &y], &options, run).map_err(|e| TestCaseError::fail(format!("{name}: {e}")))?;
            gradgradcheck(&[&x, &y], &options, run).map_err(|e| TestCaseError::fail(format!("{name}: {e}")))?;

            let (v, w) = (random(x.shape(), &mut rng), random(y.shape(), &mut rng));
            let (_, along) = jvp(&[&x, &y], &[&v, &w], run)?;
            let wide = [&x, &y, &v, &w].map(|t| repeated(t, &rest));
            let (_, expected) = jvp(&[&wide[0], &wide[1]], &[&wide[2], &wide[3]], run)?;
            let size = expected.to_vec::<f64>()?.iter().fold(1f64, |m, x| m.max(x.abs()));
            for (a, b) in along.to_vec::<f64>()?.iter().zip(expected.to_vec::<f64>()?) {
                prop_assert!((a - b).abs() < 1e-12 * size, "{}: {} {}", name, a, b);
            }
        }
    }
}

#[test]
fn axes_that_do_not_broadcast_are_refused_by_name_with_both_shapes() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for Case { name, components: [a, b], product, .. } in cases(3, &mut rng) {
        let message =
            product(&random(&[a, 4, 3], &mut rng), &random(&[b, 2, 3], &mut rng)).unwrap_err().to_string();
        let all = [name.to_owned(), ", 4, 3]".to_owned(), ", 2, 3]".to_owned()];
        assert!(all.iter().all(|part| message.contains(part)), "{message}");
    }
}
