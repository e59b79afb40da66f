//! Couplings of symmetric traceless tensors, against their definition.
//!
//! A symmetric traceless tensor T is determined by T(z, …, z) for vectors z with z·z = 0, which are complex. There neither the order of
//! indices nor a trace counts, so that the coupling is the bare contracted product.

use gradewise_autograd::{
    GradcheckOptions, Tensor,
    clifford::{tensor_dot, tensor_tensor, tensor_vector, traceless_coupling},
    gradcheck, gradgradcheck,
};
use gradewise_kernels::{DType, Device};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

const CPU: Device = Device::Cpu;
const NAMES: [&[&str]; 4] = [
    &[""],
    &["x", "y", "z"],
    &["xx", "xy", "xz", "yy", "yz"],
    &["xxx", "xxy", "xxz", "xyy", "xyz", "yyy", "yyz"],
];

/// The entry with these indices, from the components.
fn entry(components: &[f64], rank: usize, mut indices: Vec<usize>) -> f64 {
    indices.sort_unstable();
    let name: String = indices.iter().map(|&k| ['x', 'y', 'z'][k]).collect();
    if let Some(at) = NAMES[rank].iter().position(|known| *known == name) {
        return components[at];
    }
    let last = indices.len();
    let of = |k: usize| {
        let mut other = indices.clone();
        (other[last - 2], other[last - 1]) = (k, k);
        entry(components, rank, other)
    };
    -of(0) - of(1)
}

fn digits(mut code: usize, count: usize) -> Vec<usize> {
    let mut digits = vec![0; count];
    for digit in &mut digits {
        (*digit, code) = (code % 3, code / 3);
    }
    digits
}

type Complex = [f64; 2];

fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// Σ over `contracted` of T(z, …, z, contracted): the entry with the other indices summed against z.
fn at(components: &[f64], rank: usize, z: [Complex; 3], contracted: &[usize]) -> Complex {
    let free = rank - contracted.len();
    let mut sum = [0.0; 2];
    for code in 0..3usize.pow(free as u32) {
        let indices = digits(code, free);
        let factor = indices.iter().fold([1.0, 0.0], |product, &k| times(product, z[k]));
        let value = entry(components, rank, [&indices, contracted].concat());
        sum = [sum[0] + factor[0] * value, sum[1] + factor[1] * value];
    }
    sum
}

fn couplings() -> impl Iterator<Item = [usize; 3]> {
    (0..64)
        .map(|code| [code / 16, code / 4 % 4, code % 4])
        .filter(|&[a, b, c]| (a + b + c) % 2 == 0 && a + b >= c && b + c >= a && a + c >= b)
}

#[test]
fn couplings_are_contracted_products_at_null_vectors() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    assert_eq!(couplings().count(), 23);
    for [a, b, c] in couplings() {
        let mut draw = |rank: usize| Tensor::randn([2 * rank + 1, 1], DType::F64, &CPU, &mut rng).unwrap();
        let (x, y) = (draw(a), draw(b));
        let out = traceless_coupling([a, b], c, &x, &y).unwrap().to_vec::<f64>().unwrap();
        let (x, y) = (x.to_vec::<f64>().unwrap(), y.to_vec::<f64>().unwrap());
        let contracted = (a + b - c) / 2;
        for angle in [0.3, 1.1, 2.9] {
            // u + i w of two unit vectors at a right angle.
            let (s, t): (f64, f64) = (f64::sin(angle), f64::cos(angle));
            let z = [[t, 0.0], [s * 0.6, 0.8], [s * 0.8, -0.6]];
            let square = z.iter().fold([0.0; 2], |sum, &k| {
                let k = times(k, k);
                [sum[0] + k[0], sum[1] + k[1]]
            });
            assert!(square.iter().all(|x| x.abs() < 1e-15), "{square:?}");
            let mut expected = [0.0; 2];
            for code in 0..3usize.pow(contracted as u32) {
                let inner = digits(code, contracted);
                let term = times(at(&x, a, z, &inner), at(&y, b, z, &inner));
                expected = [expected[0] + term[0], expected[1] + term[1]];
            }
            let found = at(&out, c, z, &[]);
            for part in 0..2 {
                let error = (found[part] - expected[part]).abs();
                assert!(error < 1e-12, "{a} {b} {c}: {found:?} {expected:?}");
            }
        }
    }
}

#[test]
fn couplings_of_low_rank_are_the_products_that_have_names() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut draw = |rank: usize| Tensor::randn([2 * rank + 1, 4, 3], DType::F64, &CPU, &mut rng).unwrap();
    let (s, t, v) = (draw(2), draw(2), draw(1));
    let both = tensor_tensor(&s, &t).unwrap();
    for (found, expected) in [
        (traceless_coupling([2, 1], 1, &s, &v), tensor_vector(&s, &v).unwrap()),
        (traceless_coupling([2, 2], 0, &s, &t), tensor_dot(&s, &t).unwrap()),
        (traceless_coupling([2, 2], 2, &s, &t), both.mul_scalar(0.5).unwrap()),
    ] {
        let error = found.unwrap().array().relative_error(expected.array()).unwrap();
        assert!(error < 1e-14, "{error:e}");
    }
}

#[test]
fn couplings_have_first_and_second_derivatives() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for [a, b, c] in [[3, 3, 2], [3, 2, 3], [2, 1, 3], [3, 2, 1], [3, 3, 0], [3, 1, 2]] {
        let mut draw = |rank: usize| {
            Tensor::randn([2 * rank + 1, 2], DType::F64, &CPU, &mut rng).unwrap().requires_grad()
        };
        let inputs = [draw(a), draw(b)];
        let of = |x: &[Tensor]| traceless_coupling([a, b], c, &x[0], &x[1]);
        gradcheck(&[&inputs[0], &inputs[1]], &GradcheckOptions::default(), of).unwrap();
        gradgradcheck(&[&inputs[0], &inputs[1]], &GradcheckOptions::default(), of).unwrap();
    }
}

#[test]
fn ranks_that_do_not_couple_are_refused_by_name() {
    let ones = |rank: usize| Tensor::ones([2 * rank + 1, 2], DType::F64, &CPU).unwrap();
    for [a, b, c] in [[1, 1, 1], [4, 0, 4], [1, 0, 3], [0, 0, 4]] {
        let error = traceless_coupling([a, b], c, &ones(a), &ones(b)).unwrap_err().to_string();
        assert!(error.contains(&format!("ranks {a} and {b} do not couple to rank {c}")), "{error}");
    }
    let error = traceless_coupling([3, 2], 1, &ones(3), &ones(3)).unwrap_err().to_string();
    assert!(error.contains("traceless_coupling") && error.contains("`y`"), "{error}");
}
