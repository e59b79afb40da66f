//! Fused operators against the definition: outputs against loops over the Cayley table, gradients against those of the
//! re-expression in primitives. Any signature with at most five generators, sizes that meet every edge: one row, one
//! feature, odd widths, several chunks, no rows at all.

use gradewise_autograd::{
    BackwardOptions, Result, Tensor,
    clifford::{self, ProductOptions},
    grad,
};
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{Array, DType, Device};
use proptest::prelude::*;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// Values of multivector features, `[blades][batch][features]`.
struct Features {
    values: Vec<f64>,
    batch: usize,
    width: usize,
    /// By how much rounding errors grew on the way, at most: a row that nearly vanishes is divided by its norm.
    growth: f64,
}

impl Features {
    fn of(tensor: &Tensor) -> Self {
        let dims = tensor.shape().dims();
        Self { values: tensor.to_vec::<f64>().unwrap(), batch: dims[1], width: dims[2], growth: 1.0 }
    }

    fn zeros(blades: usize, batch: usize, width: usize) -> Self {
        Self { values: vec![0.0; blades * batch * width], batch, width, growth: 1.0 }
    }

    fn at(&self, blade: usize, row: usize, feature: usize) -> f64 {
        self.values[(blade * self.batch + row) * self.width + feature]
    }

    fn at_mut(&mut self, blade: usize, row: usize, feature: usize) -> &mut f64 {
        &mut self.values[(blade * self.batch + row) * self.width + feature]
    }

    /// The same with `change` applied to each multivector.
    fn map(&self, algebra: &Algebra, change: impl Fn(usize, &[f64]) -> Vec<f64>) -> Self {
        let blades = algebra.blade_count();
        let mut out = Self::zeros(blades, self.batch, self.width);
        for row in 0..self.batch {
            for feature in 0..self.width {
                let x: Vec<f64> = (0..blades).map(|blade| self.at(blade, row, feature)).collect();
                for (blade, value) in change(feature, &x).into_iter().enumerate() {
                    *out.at_mut(blade, row, feature) = value;
                }
            }
        }
        out
    }
}

fn grade(algebra: &Algebra, blade: usize) -> usize {
    usize::from(algebra.grades()[blade])
}

/// q of the grades that `keep` keeps.
fn quadratic(algebra: &Algebra, x: &[f64], keep: impl Fn(usize) -> bool) -> f64 {
    let square = |blade: usize| {
        // β(e)e for a blade e: its generators' squares, and no sign but theirs.
        let mask = algebra.mask(blade);
        (0..algebra.dimension())
            .filter(|&generator| mask >> generator & 1 == 1)
            .map(|generator| f64::from(algebra.signature().square(generator)))
            .product::<f64>()
    };
    (0..x.len())
        .filter(|&blade| keep(grade(algebra, blade)))
        .map(|blade| square(blade) * x[blade] * x[blade])
        .sum()
}

fn smooth_norm(q: f64) -> f64 {
    (q * q + 1e-16).powf(0.25)
}

fn sigmoid(t: f64) -> f64 {
    1.0 / (1.0 + (-t).exp())
}

/// Φ(t) = ½ + (2π)^-½ Σ (−1)^k t^(2k+1) / (2^k k! (2k+1)), which converges for every t that is drawn here.
fn phi(t: f64) -> f64 {
    let (mut power, mut sum) = (t, t);
    for k in 1..120 {
        power *= -t * t / f64::from(2 * k);
        sum += power / f64::from(2 * k + 1);
    }
    0.5 + sum / (2.0 * std::f64::consts::PI).sqrt()
}

fn gate(algebra: &Algebra, x: &Features) -> Features {
    x.map(algebra, |_, x| x.iter().map(|value| value * phi(x[0])).collect())
}

fn rms_norm(algebra: &Algebra, x: Features) -> Features {
    let blades = algebra.blade_count();
    let mut out = Features::zeros(blades, x.batch, x.width);
    for row in 0..x.batch {
        for g in 0..algebra.grade_count() {
            let range = algebra.blades_of_grade(g);
            let squares: f64 = range
                .clone()
                .flat_map(|b| (0..x.width).map(move |n| (b, n)))
                .map(|(b, n)| x.at(b, row, n).powi(2))
                .sum();
            let scale = 1.0 / (squares / x.width as f64 + 1e-6).sqrt();
            out.growth = out.growth.max(scale);
            for blade in range {
                for n in 0..x.width {
                    *out.at_mut(blade, row, n) = x.at(blade, row, n) * scale;
                }
            }
        }
    }
    out
}

/// The product by definition: a weight per feature and path, or a matrix to `outputs` features per path.
fn product(
    algebra: &Algebra,
    (x, y): (&Features, &Features),
    w: &[f64],
    outputs: Option<usize>,
    options: ProductOptions,
) -> Features {
    let gated =
        |x: &Features| if options.gate { gate(algebra, x) } else { x.map(algebra, |_, x| x.to_vec()) };
    let (x, y) = (gated(x), gated(y));
    let paths = algebra.paths().len();
    let width = outputs.unwrap_or(x.width);
    let mut out = Features::zeros(algebra.blade_count(), x.batch, width);
    for term in algebra.terms() {
        let (i, k, j, path) =
            (usize::from(term.left), usize::from(term.right), usize::from(term.out), usize::from(term.path));
        for row in 0..x.batch {
            for n in 0..x.width {
                let value = f64::from(term.sign) * x.at(i, row, n) * y.at(k, row, n);
                match outputs {
                    None => *out.at_mut(j, row, n) += value * w[n * paths + path],
                    Some(outputs) => {
                        for m in 0..outputs {
                            *out.at_mut(j, row, m) += value * w[(path * x.width + n) * outputs + m];
                        }
                    }
                }
            }
        }
    }
    if options.normalize { rms_norm(algebra, out) } else { out }
}

fn relative(actual: &Tensor, expected: &[f64]) -> f64 {
    let expected = Array::from_slice(expected, actual.shape(), &Device::Cpu).unwrap();
    actual.array().relative_error(&expected).unwrap()
}

/// Runs `operator` on random inputs of these shapes; its output against `expected`, its gradients by the fused backward
/// against those through the primitives.
fn check(
    shapes: &[Vec<usize>],
    seed: u64,
    (forward, backward): (f64, f64),
    operator: impl Fn(&[Tensor]) -> Result<Tensor>,
    expected: impl Fn(&[Tensor]) -> Features,
) -> std::result::Result<(), TestCaseError> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut random = |shape: &[usize]| Tensor::randn(shape, DType::F64, &Device::Cpu, &mut rng).unwrap();
    let inputs: Vec<Tensor> = shapes.iter().map(|shape| random(shape).requires_grad()).collect();
    let output = operator(&inputs).unwrap();
    let expected = expected(&inputs);
    let error = relative(&output, &expected.values);
    prop_assert!(error <= forward * expected.growth, "output: {error:e}");
    let cotangent = random(output.shape().dims());
    let gradients = |create_graph| {
        let options = BackwardOptions { seed: Some(cotangent.clone()), create_graph };
        grad(&output, &inputs.iter().collect::<Vec<_>>(), &options).unwrap()
    };
    for (index, (fused, primitive)) in gradients(false).into_iter().zip(gradients(true)).enumerate() {
        let (fused, primitive) = (fused.expect("a gradient"), primitive.expect("a gradient"));
        let error = relative(&fused, &primitive.to_vec::<f64>().unwrap());
        prop_assert!(error <= backward, "gradient {index}: {error:e}");
    }
    Ok(())
}

/// At most five generators.
fn algebra() -> impl Strategy<Value = Algebra> {
    (0u8..6, 0u8..4, 0u8..3)
        .prop_filter("at most five generators", |(p, q, r)| (1..=5).contains(&(p + q + r)))
        .prop_map(|(p, q, r)| Algebra::new(Signature::new(p, q, r)).unwrap())
}

/// Batch and width, with the edges drawn often.
fn sizes() -> impl Strategy<Value = (usize, usize)> {
    (
        prop_oneof![Just(0usize), Just(1), 2usize..9, 30usize..40],
        prop_oneof![Just(1usize), 2usize..9, 15usize..36],
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn weighted_products(
        algebra in algebra(), (batch, n) in sizes(), gate: bool, normalize: bool, seed: u64,
    ) {
        let options = ProductOptions { gate, normalize };
        let x = vec![algebra.blade_count(), batch, n];
        // A norm over one number is nearly constant: its gradient is what is left of a cancellation.
        let backward = if normalize { 1e-7 } else { 1e-12 };
        check(
            &[x.clone(), x, vec![n, algebra.paths().len()]],
            seed,
            (1e-12, backward),
            |inputs| clifford::sgp(&algebra, &inputs[0], &inputs[1], &inputs[2], options),
            |inputs| {
                let (x, y) = (Features::of(&inputs[0]), Features::of(&inputs[1]));
                product(&algebra, (&x, &y), &inputs[2].to_vec::<f64>().unwrap(), None, options)
            },
        )?;
    }

    #[test]
    fn fully_connected_products(
        algebra in algebra(), (batch, n) in sizes(), m in 1usize..10, gate: bool, normalize: bool, seed: u64,
    ) {
        let options = ProductOptions { gate, normalize };
        let x = vec![algebra.blade_count(), batch, n];
        let backward = if normalize { 1e-7 } else { 1e-12 };
        check(
            &[x.clone(), x, vec![algebra.paths().len(), n, m]],
            seed,
            (1e-12, backward),
            |inputs| clifford::fcgp(&algebra, &inputs[0], &inputs[1], &inputs[2], options),
            |inputs| {
                let (x, y) = (Features::of(&inputs[0]), Features::of(&inputs[1]));
                product(&algebra, (&x, &y), &inputs[2].to_vec::<f64>().unwrap(), Some(m), options)
            },
        )?;
    }

    #[test]
    fn linear_maps(
        algebra in algebra(), (batch, n) in sizes(), m in 1usize..20, shared: bool, seed: u64,
    ) {
        let grades = algebra.grade_count();
        let mut weight = vec![grades, n, m];
        if shared {
            weight.remove(0);
        }
        check(
            &[vec![algebra.blade_count(), batch, n], weight, vec![m]],
            seed,
            (1e-12, 1e-12),
            |inputs| {
                let bias = Some((&inputs[2], clifford::Bias::Scalar));
                clifford::mv_linear(&algebra, &inputs[0], &inputs[1], bias)
            },
            |inputs| {
                let x = Features::of(&inputs[0]);
                let (w, b) = (inputs[1].to_vec::<f64>().unwrap(), inputs[2].to_vec::<f64>().unwrap());
                let mut out = Features::zeros(algebra.blade_count(), batch, m);
                for blade in 0..algebra.blade_count() {
                    let matrix = if shared { &w[..] } else { &w[grade(&algebra, blade) * n * m..][..n * m] };
                    for row in 0..batch {
                        for to in 0..m {
                            let sum: f64 = (0..n).map(|from| x.at(blade, row, from) * matrix[from * m + to]).sum();
                            *out.at_mut(blade, row, to) = sum + if blade == 0 { b[to] } else { 0.0 };
                        }
                    }
                }
                out
            },
        )?;
    }

    #[test]
    fn silu(algebra in algebra(), (batch, n) in sizes(), seed: u64) {
        let grades = algebra.grade_count();
        check(
            &[vec![algebra.blade_count(), batch, n], vec![n, grades], vec![n, grades]],
            seed,
            (1e-12, 1e-11),
            |inputs| clifford::mv_silu(&algebra, &inputs[0], &inputs[1], &inputs[2]),
            |inputs| {
                let (a, b) = (inputs[1].to_vec::<f64>().unwrap(), inputs[2].to_vec::<f64>().unwrap());
                Features::of(&inputs[0]).map(&algebra, |feature, x| {
                    let gate = |k: usize| {
                        let u = if k == 0 { x[0] } else { quadratic(&algebra, x, |grade| grade == k) };
                        sigmoid(a[feature * grades + k] * u + b[feature * grades + k])
                    };
                    x.iter().enumerate().map(|(blade, value)| value * gate(grade(&algebra, blade))).collect()
                })
            },
        )?;
    }

    /// Definite metrics: elsewhere the norm amplifies rounding without bound near the null cone.
    #[test]
    fn normalisations(p in 1u8..6, (batch, n) in sizes(), seed: u64) {
        let algebra = Algebra::new(Signature::new(p, 0, 0)).unwrap();
        let grades = algebra.grade_count();
        let x = vec![algebra.blade_count(), batch, n];
        check(
            &[x.clone(), vec![n, grades]],
            seed,
            (1e-12, 1e-9),
            |inputs| clifford::mv_normalization(&algebra, &inputs[0], &inputs[1]),
            |inputs| {
                let a = inputs[1].to_vec::<f64>().unwrap();
                Features::of(&inputs[0]).map(&algebra, |feature, x| {
                    let divisor = |k: usize| {
                        let norm = smooth_norm(quadratic(&algebra, x, |grade| grade == k));
                        sigmoid(a[feature * grades + k]) * (norm - 1.0) + 1.0 + 1e-6
                    };
                    x.iter().enumerate().map(|(blade, value)| value / divisor(grade(&algebra, blade))).collect()
                })
            },
        )?;
        check(
            &[x, vec![n]],
            seed,
            (1e-12, 1e-9),
            |inputs| clifford::mv_layer_norm(&algebra, &inputs[0], &inputs[1]),
            |inputs| {
                let (x, a) = (Features::of(&inputs[0]), inputs[1].to_vec::<f64>().unwrap());
                let mut out = Features::zeros(algebra.blade_count(), batch, n);
                for row in 0..batch {
                    let norm = |feature: usize| {
                        let x: Vec<f64> = (0..algebra.blade_count()).map(|blade| x.at(blade, row, feature)).collect();
                        smooth_norm(quadratic(&algebra, &x, |_| true))
                    };
                    let mean = (0..n).map(norm).sum::<f64>() / n as f64;
                    for blade in 0..algebra.blade_count() {
                        for (feature, a) in a.iter().enumerate() {
                            *out.at_mut(blade, row, feature) = a * x.at(blade, row, feature) / (mean + 1e-6);
                        }
                    }
                }
                out
            },
        )?;
    }
}
