//! A tile: [`LANES`] positions of every blade at once, and the products and nonlinearities on it.
//!
//! `BLADES` is the capacity of a tile, a power of two at least as large as the number of blades: indices are masked
//! with it, which is free and spares the bounds check of each of the thousands of accesses in a product.

use super::program::{Group, Program, Programs};
use crate::cpu::simd::{LANES, Lanes, Real, accumulate, mul_add, subtract_product};

/// [`LANES`] positions of every blade.
pub(crate) type Tile<T, const BLADES: usize> = [Lanes<T>; BLADES];

#[inline(always)]
pub(crate) fn zero_tile<T: Real, const BLADES: usize>() -> Tile<T, BLADES> {
    [[T::zero(); LANES]; BLADES]
}

/// Σ ±a_i·b_k over the pairs of one group.
#[inline(always)]
fn group_sum<T: Real, const FMA: bool, const BLADES: usize>(
    program: &Program,
    group: &Group,
    a: &Tile<T, BLADES>,
    b: &Tile<T, BLADES>,
) -> Lanes<T> {
    let mut sum = [T::zero(); LANES];
    let mask = BLADES - 1;
    for &(i, k) in &program.pairs[group.start as usize..group.split as usize] {
        accumulate::<T, FMA>(&mut sum, &a[usize::from(i) & mask], &b[usize::from(k) & mask]);
    }
    for &(i, k) in &program.pairs[group.split as usize..group.end as usize] {
        subtract_product::<T, FMA>(&mut sum, &a[usize::from(i) & mask], &b[usize::from(k) & mask]);
    }
    sum
}

/// `out[result] = Σ_groups w[path]·Σ ±a_i·b_k`.
#[inline(always)]
pub(crate) fn weighted<T: Real, const FMA: bool, const BLADES: usize>(
    program: &Program,
    a: &Tile<T, BLADES>,
    b: &Tile<T, BLADES>,
    weights: &[Lanes<T>],
    out: &mut Tile<T, BLADES>,
) {
    let mask = BLADES - 1;
    for result in 0..program.spans.len() {
        let mut total = [T::zero(); LANES];
        for group in program.span(result) {
            let sum = group_sum::<T, FMA, BLADES>(program, group, a, b);
            accumulate::<T, FMA>(&mut total, &sum, &weights[usize::from(group.path)]);
        }
        out[result & mask] = total;
    }
}

/// `sums[path] += Σ_results grad[result]·Σ ±a_i·b_k`: the gradient of the weights.
#[inline(always)]
pub(crate) fn weight_gradient<T: Real, const FMA: bool, const BLADES: usize>(
    by_path: &Program,
    a: &Tile<T, BLADES>,
    b: &Tile<T, BLADES>,
    grad: &Tile<T, BLADES>,
    sums: &mut [Lanes<T>],
) {
    let mask = BLADES - 1;
    for (path, total) in sums.iter_mut().enumerate() {
        for group in by_path.span(path) {
            let sum = group_sum::<T, FMA, BLADES>(by_path, group, a, b);
            accumulate::<T, FMA>(total, &sum, &grad[usize::from(group.result) & mask]);
        }
    }
}

/// Φ of each lane.
#[inline(always)]
pub(crate) fn normal_cdf<T: Real, const FMA: bool>(x: &Lanes<T>) -> Lanes<T> {
    let mut cdf = [T::zero(); LANES];
    for lane in 0..LANES {
        cdf[lane] = x[lane].normal_cdf::<FMA>();
    }
    cdf
}

/// gate(x) = x·Φ(x₀): the scalar part gates every part. `cdf` is Φ(x₀).
#[inline(always)]
pub(crate) fn gate<T: Real, const BLADES: usize>(
    x: &Tile<T, BLADES>,
    cdf: &Lanes<T>,
    out: &mut Tile<T, BLADES>,
    blades: usize,
) {
    for (out, part) in out.iter_mut().zip(x).take(blades) {
        for lane in 0..LANES {
            out[lane] = part[lane] * cdf[lane];
        }
    }
}

/// Turns the gradient of gate(x) into that of x. `cdf` is Φ(x₀).
#[inline(always)]
pub(crate) fn gate_gradient<T: Real, const FMA: bool, const BLADES: usize>(
    x: &Tile<T, BLADES>,
    cdf: &Lanes<T>,
    grad: &mut Tile<T, BLADES>,
    blades: usize,
) {
    let mut dot = [T::zero(); LANES];
    for blade in 0..blades {
        accumulate::<T, FMA>(&mut dot, &x[blade & (BLADES - 1)], &grad[blade & (BLADES - 1)]);
    }
    for part in grad.iter_mut().take(blades) {
        for lane in 0..LANES {
            part[lane] *= cdf[lane];
        }
    }
    for lane in 0..LANES {
        grad[0][lane] = mul_add::<T, FMA>(x[0][lane].normal_pdf::<FMA>(), dot[lane], grad[0][lane]);
    }
}

/// The quadratic form restricted to one grade.
#[inline(always)]
pub(crate) fn quadratic_form<T: Real, const FMA: bool, const BLADES: usize>(
    tables: &Programs,
    grade: usize,
    x: &Tile<T, BLADES>,
) -> Lanes<T> {
    let blades = tables.blades_of_grade[grade].clone();
    signed_squares::<T, FMA>(&tables.metric[blades.clone()], |index| x[(blades.start + index) & (BLADES - 1)])
}

/// Σ metric[i]·part(i)². With both signs in the metric the sum can cancel; it is then formed without fused
/// multiply-add, whose single rounding favours one of two equal squares.
#[inline(always)]
pub(crate) fn signed_squares<T: Real, const FMA: bool>(
    metric: &[i8],
    part: impl Fn(usize) -> Lanes<T>,
) -> Lanes<T> {
    let mut q = [T::zero(); LANES];
    let indefinite = metric.contains(&1) && metric.contains(&-1);
    for (index, &metric) in metric.iter().enumerate() {
        let part = part(index);
        match (metric, indefinite) {
            (1, false) => accumulate::<T, FMA>(&mut q, &part, &part),
            (-1, false) => subtract_product::<T, FMA>(&mut q, &part, &part),
            (1, true) => accumulate::<T, false>(&mut q, &part, &part),
            (-1, true) => subtract_product::<T, false>(&mut q, &part, &part),
            _ => {}
        }
    }
    q
}

/// ‖x‖ = (q² + 1e-16)^¼, smooth where q crosses zero. Above 1 the summand is less than half a unit in the last place of q², and the norm
/// is √|q|: the square of q, which overflows where x is about 4e9 in `f32`, is not formed.
#[inline(always)]
pub(crate) fn smooth_norm<T: Real>(q: T) -> T {
    let size = if q < T::zero() { -q } else { q };
    let root = (q * q + T::narrow(SMOOTH_EPS)).sqrt();
    (if size > T::one() { size } else { root }).sqrt()
}

/// ∂‖x‖/∂q = q / (2‖x‖³). Above 1 it is ±1/(2‖x‖), without the cube.
#[inline(always)]
pub(crate) fn smooth_norm_slope<T: Real>(q: T, norm: T) -> T {
    let is_large = norm > T::one();
    let sign = if q < T::zero() { -T::one() } else { T::one() };
    T::narrow(0.5) * (if is_large { sign } else { q }) / (if is_large { norm } else { norm * norm * norm })
}

/// Keeps the norm and its gradient finite at q = 0 (SPEC: ‖x‖ = (q² + 1e-16)^¼).
const SMOOTH_EPS: f64 = 1e-16;
/// Added to the interpolated norm and to the mean norm before dividing by them.
pub(crate) const NORM_EPS: f64 = 1e-6;

/// The divisor σ(a)(‖x⁽ᵏ⁾‖ − 1) + 1 + 1e-6 of `mv_normalization`, from q, σ(a) and σ(−a): as σ(a)‖x⁽ᵏ⁾‖ + σ(−a) + 1e-6
/// nothing cancels.
#[inline(always)]
pub(crate) fn interpolated_norm<T: Real>(q: T, s: T, complement: T) -> T {
    s * smooth_norm(q) + (complement + T::narrow(NORM_EPS))
}

/// σ(a) and σ(−a), of which [`normalize`] takes both: 1 − σ(a) would lose digits near 1.
pub(crate) fn sigmoids<T: Real>(a: &[T]) -> (Vec<T>, Vec<T>) {
    (a.iter().map(|a| a.sigmoid::<false>()).collect(), a.iter().map(|a| (-*a).sigmoid::<false>()).collect())
}

/// The least quadratic form whose root is divided by where norms are clamped: they are 0.1 at least.
pub(crate) const LEAST_SQUARE: f64 = 0.01;

/// max(q, 0.01) where norms are clamped. A comparison, so that NaN stays NaN.
#[inline(always)]
pub(crate) fn clamped<T: Real, const CLAMPED: bool>(q: T) -> T {
    if CLAMPED && q < T::narrow(LEAST_SQUARE) { T::narrow(LEAST_SQUARE) } else { q }
}

/// ∂‖x‖/∂q where `norm` is that of `clamped(q)`: 0 where it is clamped.
#[inline(always)]
pub(crate) fn clamped_slope<T: Real, const CLAMPED: bool>(q: T, norm: T) -> T {
    if CLAMPED && q < T::narrow(LEAST_SQUARE) { T::zero() } else { smooth_norm_slope(q, norm) }
}

/// mv_normalization: x⁽ᵏ⁾ / (σ(a_k)(‖x⁽ᵏ⁾‖ − 1) + 1 + 1e-6); `s` holds σ(a_k), then σ(−a_k). With
/// CLAMPED, norms are 0.1 at least.
#[inline(always)]
pub(crate) fn normalize<T: Real, const FMA: bool, const BLADES: usize, const CLAMPED: bool>(
    tables: &Programs,
    x: &Tile<T, BLADES>,
    s: &[Lanes<T>],
    out: &mut Tile<T, BLADES>,
) {
    let (s, complement) = s.split_at(s.len() / 2);
    for (grade, (s, complement)) in s.iter().zip(complement).enumerate() {
        let mut scale = quadratic_form::<T, FMA, BLADES>(tables, grade, x);
        for lane in 0..LANES {
            let q = clamped::<T, CLAMPED>(scale[lane]);
            scale[lane] = T::one() / interpolated_norm(q, s[lane], complement[lane]);
        }
        for blade in tables.blades_of_grade[grade].clone() {
            let (part, out) = (&x[blade & (BLADES - 1)], &mut out[blade & (BLADES - 1)]);
            for lane in 0..LANES {
                out[lane] = part[lane] * scale[lane];
            }
        }
    }
}

/// Turns the gradient of mv_normalization(x) into that of x, and adds the gradient of `a` to `sums`.
#[inline(always)]
pub(crate) fn normalize_gradient<T: Real, const FMA: bool, const BLADES: usize, const CLAMPED: bool>(
    tables: &Programs,
    x: &Tile<T, BLADES>,
    s: &[Lanes<T>],
    grad: &mut Tile<T, BLADES>,
    sums: &mut [Lanes<T>],
) {
    let (s, complement) = s.split_at(s.len() / 2);
    for (grade, ((s, complement), sums)) in s.iter().zip(complement).zip(sums).enumerate() {
        let q = quadratic_form::<T, FMA, BLADES>(tables, grade, x);
        let mut dot = [T::zero(); LANES];
        for blade in tables.blades_of_grade[grade].clone() {
            accumulate::<T, FMA>(&mut dot, &grad[blade & (BLADES - 1)], &x[blade & (BLADES - 1)]);
        }
        let (mut inverse, mut pull) = ([T::zero(); LANES], [T::zero(); LANES]);
        for lane in 0..LANES {
            let form = clamped::<T, CLAMPED>(q[lane]);
            let norm = smooth_norm(form);
            let inv = T::one() / interpolated_norm(form, s[lane], complement[lane]);
            let c = -dot[lane] * inv * inv;
            sums[lane] += c * (norm - T::one()) * s[lane] * complement[lane];
            inverse[lane] = inv;
            let slope = clamped_slope::<T, CLAMPED>(q[lane], norm);
            pull[lane] = c * s[lane] * (slope + slope);
        }
        for blade in tables.blades_of_grade[grade].clone() {
            let (x, grad) = (&x[blade & (BLADES - 1)], &mut grad[blade & (BLADES - 1)]);
            let metric = T::narrow(f64::from(tables.metric[blade]));
            for lane in 0..LANES {
                grad[lane] = mul_add::<T, FMA>(pull[lane] * metric, x[lane], grad[lane] * inverse[lane]);
            }
        }
    }
}

/// Evaluates `$body` with `$capacity` a tile capacity that holds `$blades` blades. Each is compiled for every instruction set, so
/// that double precision has no capacity of its own for the smallest algebras.
macro_rules! with_capacity {
    ($type:ty, $blades:expr, $capacity:ident => $body:expr) => {
        match $blades {
            0..=8 if const { size_of::<$type>() < size_of::<f64>() } => {
                const $capacity: usize = 8;
                $body
            }
            0..=32 => {
                const $capacity: usize = 32;
                $body
            }
            _ => {
                const $capacity: usize = 256;
                $body
            }
        }
    };
}
pub(crate) use with_capacity;
