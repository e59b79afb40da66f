//! Both operators against the definition, written plainly in f64 over indices, and gradients against central differences.

use super::*;
use crate::DType;
use gradewise_core::Signature;
use rand::{RngExt, seq::SliceRandom};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

/// Options that own what they refer to.
struct Case {
    algebra: Algebra,
    order: Vec<u16>,
    groups: usize,
    channels: usize,
    scalars: usize,
    heads: usize,
    batch: usize,
    items: usize,
    norm: Option<Norm>,
    query: Option<usize>,
}

impl Case {
    fn draw(rng: &mut ChaCha8Rng) -> Self {
        let signatures = [(1, 3, 0), (3, 0, 1), (2, 0, 0), (1, 1, 0)];
        let (p, q, r) = signatures[rng.random_range(0..signatures.len())];
        let algebra = Algebra::new(Signature::new(p, q, r)).unwrap();
        let mut order: Vec<u16> = (0..algebra.blade_count() as u16).collect();
        order.shuffle(rng);
        // Not all blades need a plane.
        order.truncate(order.len() - rng.random_range(0..2));
        let groups = rng.random_range(1..4);
        let epsilon = if rng.random_bool(0.8) { 0.01 } else { 1e3 };
        let norm = rng.random_bool(0.7).then(|| Norm { epsilon, gain: rng.random_range(0.5..2.0) });
        let query = rng.random_bool(0.5).then(|| rng.random_range(0..groups));
        Self {
            algebra,
            order,
            groups,
            channels: rng.random_range(1..6),
            scalars: rng.random_range(0..6),
            heads: rng.random_range(1..5),
            batch: rng.random_range(0..4),
            items: rng.random_range(1..71),
            norm,
            query,
        }
    }

    fn options(&self) -> Split<'_> {
        let Self { ref algebra, ref order, groups, channels, scalars, heads, batch, items, norm, query } =
            *self;
        Split { algebra, order, groups, channels, scalars, heads, batch, items, norm, query }
    }

    fn width(&self) -> usize {
        self.order.len() * self.channels + self.scalars
    }

    /// The shape of the planes.
    fn lines(&self) -> [usize; 2] {
        [self.groups * self.heads * self.width(), self.batch * self.items]
    }

    /// The definition.
    fn split(&self, x: &[f64]) -> Vec<f64> {
        let Self { groups, channels, scalars, heads, batch, items, .. } = *self;
        let (planes, rows) = (self.order.len(), batch * items);
        let factor = |p: usize| f64::from(self.algebra.squared_norms()[usize::from(self.order[p])]);
        let grade = |p: usize| self.algebra.grades()[usize::from(self.order[p])];
        let mut out = Vec::new();
        for g in 0..groups {
            for (b, h, n) in positions(batch, heads, items) {
                let at = |line: usize| x[line * rows + b * items + n];
                let first = groups * scalars * heads;
                let multivector = |p: usize, c: usize| {
                    at(first + p * groups * channels * heads + (g * channels + c) * heads + h)
                };
                let scalar = |s: usize| at((g * scalars + s) * heads + h);
                let (mut scale, mut mean, mut inverse) = (1.0, 0.0, 1.0);
                if let Some(Norm { epsilon, gain }) = self.norm {
                    let q = |c: usize, k: u8| -> f64 {
                        let of_grade = (0..planes).filter(|&p| grade(p) == k);
                        of_grade.map(|p| factor(p) * multivector(p, c).powi(2)).sum()
                    };
                    let grades = self.algebra.grade_count() as u8;
                    let total: f64 = (0..channels)
                        .flat_map(|c| (0..grades).map(move |k| (c, k)))
                        .map(|(c, k)| q(c, k).abs())
                        .sum();
                    scale = gain / (total / channels as f64).max(epsilon).sqrt();
                    if scalars > 0 {
                        mean = (0..scalars).map(scalar).sum::<f64>() / scalars as f64;
                        let variance =
                            (0..scalars).map(|s| (scalar(s) - mean).powi(2)).sum::<f64>() / scalars as f64;
                        inverse = 1.0 / (variance + SCALAR_EPSILON).sqrt();
                    }
                }
                for (p, c) in (0..planes).flat_map(|p| (0..channels).map(move |c| (p, c))) {
                    let query = if self.query == Some(g) { factor(p) } else { 1.0 };
                    out.push(multivector(p, c) * scale * query);
                }
                out.extend((0..scalars).map(|s| (scalar(s) - mean) * inverse));
            }
        }
        out
    }
}

fn positions(batch: usize, heads: usize, items: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..batch).flat_map(move |b| (0..heads).flat_map(move |h| (0..items).map(move |n| (b, h, n))))
}

fn values(count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..count).map(|_| rng.random_range(-2.0..2.0)).collect()
}

fn array(values: &[f64], shape: &[usize], dtype: DType) -> Array {
    Array::from_f64(values, shape, dtype, &Device::Cpu).unwrap()
}

fn require_near(actual: &Array, expected: &[f64], tolerance: f64) {
    let actual = actual.to_f64_vec().unwrap();
    assert_eq!(actual.len(), expected.len());
    let largest = expected.iter().fold(1.0, |largest: f64, value| largest.max(value.abs()));
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        assert!((actual - expected).abs() <= tolerance * largest, "{at}: {actual}, expected {expected}");
    }
}

#[test]
fn heads_are_those_of_the_definition() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..60 {
        let case = Case::draw(&mut rng);
        let x = values(case.lines().iter().product(), &mut rng);
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 3e-5)] {
            let stored = array(&x, &case.lines(), dtype);
            let heads = split(&case.options(), &stored).unwrap();
            assert_eq!(heads.dims(), case.options().heads_shape());
            require_near(&heads, &case.split(&stored.to_f64_vec().unwrap()), tolerance);
        }
    }
}

#[test]
fn gradients_are_central_differences() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for _ in 0..40 {
        let mut case = Case::draw(&mut rng);
        case.items = case.items.min(9);
        let x = values(case.lines().iter().product(), &mut rng);
        let direction = values(x.len(), &mut rng);
        let shape = case.options().heads_shape();
        let grad = array(&direction, &shape, DType::F64);
        let gradient = split_backward(&case.options(), &array(&x, &case.lines(), DType::F64), &grad).unwrap();
        assert_eq!(gradient.dims(), case.lines());
        let gradient = gradient.to_f64_vec().unwrap();
        let along = |x: &[f64]| -> f64 { case.split(x).iter().zip(&direction).map(|(y, v)| y * v).sum() };
        for at in (0..x.len()).step_by(1 + x.len() / 12) {
            let moved = |step: f64| {
                let mut x = x.clone();
                x[at] += step;
                along(&x)
            };
            let numeric = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!(
                (gradient[at] - numeric).abs() < 1e-5 * numeric.abs().max(1.0),
                "{at}: {} {numeric}",
                gradient[at]
            );
        }
    }
}

/// The gradient in f32 is that in f64, over sizes at which lanes and chunks end within a sequence.
#[test]
fn gradients_in_single_precision_are_those_in_double() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..30 {
        let case = Case::draw(&mut rng);
        let shape = case.options().heads_shape();
        let count = case.lines().iter().product();
        let (x, grad) = (values(count, &mut rng), values(count, &mut rng));
        let [single, double] = [DType::F32, DType::F64].map(|dtype| {
            let [x, grad] = [(&x, &case.lines()[..]), (&grad, &shape)]
                .map(|(values, shape)| array(values, shape, DType::F32).cast(dtype).unwrap());
            split_backward(&case.options(), &x, &grad).unwrap()
        });
        require_near(&single, &double.to_f64_vec().unwrap(), 1e-3);
    }
}

#[test]
fn merged_heads_are_in_order_and_their_gradient_is_the_transpose() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for _ in 0..40 {
        let Case { channels, scalars, heads, batch, items, .. } = Case::draw(&mut rng);
        let planes = rng.random_range(1..17);
        let (width, rows) = (planes * channels + scalars, batch * items);
        let options = Merge { planes, channels, scalars };
        let x = values(batch * heads * items * width, &mut rng);
        let stored = array(&x, &[batch, heads, items, width], DType::F64);
        let mut expected = vec![0.0; x.len()];
        for (row, (b, h, n)) in positions(batch, heads, items).enumerate() {
            for (element, &value) in x[row * width..][..width].iter().enumerate() {
                let line = match element.checked_sub(planes * channels) {
                    Some(s) => h * scalars + s,
                    None => {
                        let (p, c) = (element / channels, element % channels);
                        heads * scalars + p * heads * channels + h * channels + c
                    }
                };
                expected[line * rows + b * items + n] = value;
            }
        }
        let merged = merge(&options, &stored).unwrap();
        assert_eq!(merged.dims(), [heads * width, rows]);
        assert_eq!(merged.to_f64_vec().unwrap(), expected);
        // It only moves elements: its transpose brings them back.
        let back = merge_backward(&options, &stored, &merged).unwrap();
        assert_eq!((back.dims(), back.to_f64_vec().unwrap()), (stored.dims(), x));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let algebra = Algebra::new(Signature::CL2).unwrap();
    let fine = Split {
        algebra: &algebra,
        order: &[0, 2, 1, 3],
        groups: 3,
        channels: 2,
        scalars: 1,
        heads: 2,
        batch: 2,
        items: 5,
        norm: Some(Norm { epsilon: 0.01, gain: 1.0 }),
        query: Some(0),
    };
    let x = Array::zeros([54, 10], DType::F32, &Device::Cpu).unwrap();
    split(&fine, &x).unwrap();
    let norm = |epsilon, gain| Some(Norm { epsilon, gain });
    let cases = [
        (Split { order: &[0, 1, 2, 4], ..fine }, "order"),
        (Split { order: &[0, 1, 2, 2], ..fine }, "order"),
        (Split { order: &[], ..fine }, "order"),
        (Split { query: Some(3), ..fine }, "query"),
        (Split { norm: norm(0.0, 1.0), ..fine }, "epsilon"),
        (Split { norm: norm(f64::NAN, 1.0), ..fine }, "epsilon"),
        (Split { norm: norm(1.0, f64::INFINITY), ..fine }, "gain"),
        (Split { heads: 0, ..fine }, "heads"),
        (Split { channels: 0, ..fine }, "channels"),
        (Split { channels: usize::MAX, ..fine }, "[18446744073709551615, 10]"),
        (Split { items: 4, ..fine }, "[54, 8]"),
        (Split { scalars: 0, ..fine }, "[48, 10]"),
    ];
    for (options, named) in cases {
        let error = split(&options, &x).unwrap_err().to_string();
        assert!(error.contains(SPLIT) && error.contains(named), "{error}");
    }
    let error = split_backward(&fine, &x, &x).unwrap_err().to_string();
    assert!(error.contains("grad") && error.contains("[3, 2, 2, 5, 9]"), "{error}");
    let heads = Array::zeros([2, 2, 5, 9], DType::F32, &Device::Cpu).unwrap();
    let options = Merge { planes: 4, channels: 2, scalars: 1 };
    merge(&options, &heads).unwrap();
    for options in [Merge { scalars: 2, ..options }, Merge { planes: 0, scalars: 9, ..options }] {
        let error = merge(&options, &heads).unwrap_err().to_string();
        assert!(error.contains(MERGE), "{error}");
    }
    assert!(merge(&options, &x).unwrap_err().to_string().contains("[batch, heads, items, 9]"));
}

#[test]
fn nothing_below_epsilon_and_no_norm_of_nothing() {
    let algebra = Algebra::new(Signature::new(1, 1, 0)).unwrap();
    let options = |epsilon| Split {
        algebra: &algebra,
        order: &[0, 1, 2, 3],
        groups: 1,
        channels: 1,
        scalars: 0,
        heads: 1,
        batch: 1,
        items: 1,
        norm: Some(Norm { epsilon, gain: 3.0 }),
        query: None,
    };
    // q = 4 of the scalar and 3² − 3² of the vector: a mean of 4, and no pull of the vector whose q is 0.
    let x = array(&[2.0, 3.0, 3.0, 0.0], &[4, 1], DType::F64);
    let grad = array(&[1.0, 0.0, 0.0, 0.0], &[1, 1, 1, 1, 4], DType::F64);
    let gradient = |epsilon| split_backward(&options(epsilon), &x, &grad).unwrap().to_f64_vec().unwrap();
    assert_eq!(split(&options(1.0), &x).unwrap().to_f64_vec().unwrap(), [3.0, 4.5, 4.5, 0.0]);
    assert_eq!(gradient(1.0), [0.0; 4]);
    // At ε the gradient passes, below it does not.
    assert_eq!(gradient(4.0), [0.0; 4]);
    assert_eq!(gradient(9.0), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_gradient_for_each_group_is_that_of_all() {
    let algebra = Algebra::new(Signature::CL2).unwrap();
    for (groups, norm) in [(1, None), (2, Some(Norm { epsilon: 0.01, gain: 1.0 })), (3, None), (4, None)] {
        let (batch, heads, items, channels, scalars) = (2, 3, 5, 2, 1);
        let order = &[0, 2, 1, 3];
        let options = Split {
            algebra: &algebra,
            order,
            groups,
            channels,
            scalars,
            heads,
            batch,
            items,
            norm,
            query: Some(0),
        };
        let width = 4 * channels + scalars;
        let numbers = |count: usize| (0..count).map(|at| (at * 7 % 11) as f64 - 4.5).collect::<Vec<_>>();
        let count = groups * heads * width * batch * items;
        let x = array(&numbers(count), &[groups * heads * width, batch * items], DType::F64);
        let whole = array(&numbers(count), &[groups, batch, heads, items, width], DType::F64);
        let parts: Vec<Array> = (0..groups)
            .map(|group| {
                whole.slice(0, group..group + 1).unwrap().reshape([batch, heads, items, width]).unwrap()
            })
            .collect();
        let expected = split_backward(&options, &x, &whole).unwrap().to_f64_vec().unwrap();
        assert_eq!(split_backward_of_groups(&options, &x, &parts).unwrap().to_f64_vec().unwrap(), expected);
        let error = split_backward_of_groups(&options, &x, &parts[1..]).unwrap_err().to_string();
        assert!(error.contains(SPLIT) && error.contains("one for each group"), "{error}");
        let short = parts[0].slice(2, 0..4).unwrap();
        let error = split_backward_of_groups(&options, &x, &vec![short; groups]).unwrap_err().to_string();
        assert!(error.contains("grads") && error.contains("[2, 3, 5, 9]"), "{error}");
    }
}
