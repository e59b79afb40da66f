//! split_heads and merge_heads on the CPU, some rows of one head at a time.

use super::{Norm, SCALAR_EPSILON, Sizes, form::Form};
use crate::{
    cpu::{
        parallel::Flushed,
        simd::{Kernel, LANES, Lanes, Real, Simd, accumulate, dispatch, mul_add},
        split::{self as pieces, CHUNK, rows_per_chunk},
    },
    ops::clifford::algebra::{
        layout::{load, store},
        tile::signed_squares,
    },
};
use rayon::prelude::*;

/// Planes to heads.
pub(super) fn split<T: Real>(sizes: Sizes, form: &Form, norm: Option<Norm>, planes: &[T], heads: &mut [T]) {
    let width = sizes.width();
    let lines: Vec<Vec<usize>> = lines(&sizes);
    let chunk = rows_per_chunk(width).next_multiple_of(LANES);
    pieces::for_chunks(heads, chunk * width, |start, out| {
        dispatch(Forward { sizes, form, norm, lines: &lines, planes, first: start / width, out });
    });
}

/// Heads to planes: the transpose of [`split`] without a norm; its gradient with one, and the planes that it was taken of.
pub(super) fn merge<T: Real>(
    sizes: Sizes,
    form: &Form,
    norm: Option<(Norm, &[T])>,
    heads: &[T],
    planes: &mut [T],
) {
    /// Chunks at most, so that their lists of lines are small beside the lines.
    const MOST: usize = 64;
    let lines: Vec<Vec<usize>> = lines(&sizes);
    let rows = CHUNK.div_ceil(sizes.lines()).max(sizes.rows().div_ceil(MOST)).next_multiple_of(LANES);
    let chunks = pieces::planes(sizes.lines(), rows, planes);
    chunks.into_par_iter().flushed_for_each(|(start, mut out)| {
        dispatch(Backward { sizes, form, norm, lines: &lines, heads, start, out: &mut out });
    });
}

/// The lines of each head of each group.
fn lines(sizes: &Sizes) -> Vec<Vec<usize>> {
    (0..sizes.groups).flat_map(|g| (0..sizes.heads).map(move |h| sizes.lines_of(g, h))).collect()
}

/// The factor of each plane of a group, if it has any.
fn factors(form: &Form, group: usize) -> Option<&[i8]> {
    (form.query == Some(group)).then_some(&form.factors[..])
}

struct Forward<'a, T> {
    sizes: Sizes,
    form: &'a Form,
    norm: Option<Norm>,
    lines: &'a [Vec<usize>],
    planes: &'a [T],
    /// The row of the heads with which `out` begins.
    first: usize,
    out: &'a mut [T],
}

impl<T: Real> Kernel for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { sizes, form, norm, lines, planes, first, out } = self;
        let (width, multivectors, rows) = (sizes.width(), sizes.multivectors(), sizes.rows());
        let count = out.len() / width;
        let mut tile = vec![[T::zero(); LANES]; width];
        let mut done = 0;
        while done < count {
            // Rows of one head of one sequence follow each other in the planes, too.
            let (sequence, item) = ((first + done) / sizes.items, (first + done) % sizes.items);
            let run = (sizes.items - item).min(LANES).min(count - done);
            let (head, b) = (sequence % sizes.heads, sequence / sizes.heads % sizes.batch);
            let group = sequence / sizes.heads / sizes.batch;
            let at = b * sizes.items + item;
            for (part, &line) in tile.iter_mut().zip(&lines[group * sizes.heads + head]) {
                *part = load(&planes[line * rows + at..][..run]);
            }
            if let Some(norm) = norm {
                normalise::<T, FMA>(&sizes, form, norm, &mut tile);
            }
            if let Some(factors) = factors(form, group) {
                scale_planes(factors, &mut tile[..multivectors]);
            }
            for (element, part) in tile.iter().enumerate() {
                for (row, &value) in out[done * width..][..run * width].chunks_exact_mut(width).zip(part) {
                    row[element] = value;
                }
            }
            done += run;
        }
    }
}

struct Backward<'a, 'b, T> {
    sizes: Sizes,
    form: &'a Form,
    norm: Option<(Norm, &'a [T])>,
    lines: &'a [Vec<usize>],
    heads: &'a [T],
    /// The row with which `out` begins.
    start: usize,
    out: &'a mut [&'b mut [T]],
}

impl<T: Real> Kernel for Backward<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        let Self { sizes, form, norm, lines, heads, start, out } = self;
        let (width, multivectors, rows) = (sizes.width(), sizes.multivectors(), sizes.rows());
        let len = out.first().map_or(0, |line| line.len());
        let mut tile = vec![[T::zero(); LANES]; width];
        let mut x = vec![[T::zero(); LANES]; if norm.is_some() { width } else { 0 }];
        for (number, lines) in lines.iter().enumerate() {
            let (group, head) = (number / sizes.heads, number % sizes.heads);
            for offset in (0..len).step_by(LANES) {
                let (at, run) = (start + offset, LANES.min(len - offset));
                for lane in 0..run {
                    let (b, n) = ((at + lane) / sizes.items, (at + lane) % sizes.items);
                    let row = ((group * sizes.batch + b) * sizes.heads + head) * sizes.items + n;
                    for (part, &value) in tile.iter_mut().zip(&heads[row * width..][..width]) {
                        part[lane] = value;
                    }
                }
                if let Some(factors) = factors(form, group) {
                    scale_planes(factors, &mut tile[..multivectors]);
                }
                if let Some((norm, planes)) = norm {
                    for (part, &line) in x.iter_mut().zip(lines) {
                        *part = load(&planes[line * rows + at..][..run]);
                    }
                    differentiate::<T, FMA>(&sizes, form, norm, &x, &mut tile);
                }
                for (part, &line) in tile.iter().zip(lines) {
                    store(&mut out[line][offset..offset + run], part);
                }
            }
        }
    }
}

/// Multiplies each plane by its factor.
#[inline(always)]
fn scale_planes<T: Real>(factors: &[i8], multivectors: &mut [Lanes<T>]) {
    let channels = multivectors.len() / factors.len().max(1);
    for (plane, &factor) in multivectors.chunks_exact_mut(channels.max(1)).zip(factors) {
        let factor = T::narrow(f64::from(factor));
        plane.iter_mut().flatten().for_each(|value| *value *= factor);
    }
}

/// The quadratic form of each grade of one channel.
#[inline(always)]
fn quadratic<T: Real, const FMA: bool>(
    form: &Form,
    grade: usize,
    x: &[Lanes<T>],
    channels: usize,
    channel: usize,
) -> Lanes<T> {
    let grade = &form.grades[grade];
    signed_squares::<T, FMA>(&grade.signs, |index| x[grade.planes[index] * channels + channel])
}

/// max(mean over channels of Σ_grades |q|, ε), and the mean.
#[inline(always)]
fn mean_norm<T: Real, const FMA: bool>(
    sizes: &Sizes,
    form: &Form,
    epsilon: T,
    x: &[Lanes<T>],
) -> (Lanes<T>, Lanes<T>) {
    let share = T::one() / T::narrow(sizes.channels as f64);
    let mut mean = [T::zero(); LANES];
    for channel in 0..sizes.channels {
        for grade in 0..form.grades.len() {
            let q = quadratic::<T, FMA>(form, grade, x, sizes.channels, channel);
            for lane in 0..LANES {
                mean[lane] += q[lane].abs();
            }
        }
    }
    let mut clamped = mean;
    for lane in 0..LANES {
        mean[lane] *= share;
        // A comparison, so that NaN stays NaN.
        clamped[lane] = if mean[lane] < epsilon { epsilon } else { mean[lane] };
    }
    (clamped, mean)
}

/// The mean of a head's scalars, and one over their standard deviation.
#[inline(always)]
fn statistics<T: Real, const FMA: bool>(scalars: &[Lanes<T>]) -> (Lanes<T>, Lanes<T>) {
    let share = T::one() / T::narrow(scalars.len() as f64);
    let (mut mean, mut inverse) = ([T::zero(); LANES], [T::zero(); LANES]);
    for part in scalars {
        for lane in 0..LANES {
            mean[lane] += part[lane];
        }
    }
    mean.iter_mut().for_each(|mean| *mean *= share);
    for part in scalars {
        let mut centred = *part;
        for lane in 0..LANES {
            centred[lane] -= mean[lane];
        }
        accumulate::<T, FMA>(&mut inverse, &centred, &centred);
    }
    for value in &mut inverse {
        *value = T::one() / (*value * share + T::narrow(SCALAR_EPSILON)).sqrt();
    }
    (mean, inverse)
}

/// Normalises rows of a head in place.
#[inline(always)]
fn normalise<T: Real, const FMA: bool>(sizes: &Sizes, form: &Form, norm: Norm, x: &mut [Lanes<T>]) {
    let (mut scale, _) = mean_norm::<T, FMA>(sizes, form, T::narrow(norm.epsilon), x);
    scale.iter_mut().for_each(|scale| *scale = T::narrow(norm.gain) / scale.sqrt());
    let (multivectors, scalars) = x.split_at_mut(sizes.multivectors());
    for part in multivectors {
        for lane in 0..LANES {
            part[lane] *= scale[lane];
        }
    }
    if !scalars.is_empty() {
        let (mean, inverse) = statistics::<T, FMA>(scalars);
        for part in scalars {
            for lane in 0..LANES {
                part[lane] = (part[lane] - mean[lane]) * inverse[lane];
            }
        }
    }
}

/// Makes of the gradient of normalised rows that of the rows `x`. With M = max(mean |q|, ε) and s = gain/√M, the gradient of an element of
/// a multivector is s·g − [mean |q| ≥ ε]·s·D/(channels·M)·sign(q)·factor·x with D = Σ g·x.
#[inline(always)]
fn differentiate<T: Real, const FMA: bool>(
    sizes: &Sizes,
    form: &Form,
    norm: Norm,
    x: &[Lanes<T>],
    grad: &mut [Lanes<T>],
) {
    let epsilon = T::narrow(norm.epsilon);
    let (clamped, mean) = mean_norm::<T, FMA>(sizes, form, epsilon, x);
    let (x, x_scalars) = x.split_at(sizes.multivectors());
    let (grad, grad_scalars) = grad.split_at_mut(sizes.multivectors());
    let mut along = [T::zero(); LANES];
    for (g, x) in grad.iter().zip(x) {
        accumulate::<T, FMA>(&mut along, g, x);
    }
    let (mut scale, mut pull) = ([T::zero(); LANES], [T::zero(); LANES]);
    for lane in 0..LANES {
        scale[lane] = T::narrow(norm.gain) / clamped[lane].sqrt();
        let slope = scale[lane] * along[lane] / (T::narrow(sizes.channels as f64) * clamped[lane]);
        pull[lane] = if mean[lane] < epsilon { T::zero() } else { slope };
    }
    for g in &mut *grad {
        for lane in 0..LANES {
            g[lane] *= scale[lane];
        }
    }
    for channel in 0..sizes.channels {
        for (number, grade) in form.grades.iter().enumerate() {
            let mut toward = quadratic::<T, FMA>(form, number, x, sizes.channels, channel);
            for lane in 0..LANES {
                let (q, pull) = (toward[lane], pull[lane]);
                let signed = if q < T::zero() { -pull } else { pull };
                toward[lane] = if q == T::zero() { T::zero() } else { signed };
            }
            for (&plane, &sign) in grade.planes.iter().zip(&grade.signs) {
                let (at, sign) = (plane * sizes.channels + channel, T::narrow(-f64::from(sign)));
                for lane in 0..LANES {
                    grad[at][lane] = mul_add::<T, FMA>(sign * toward[lane], x[at][lane], grad[at][lane]);
                }
            }
        }
    }
    if !x_scalars.is_empty() {
        differentiate_scalars::<T, FMA>(x_scalars, grad_scalars);
    }
}

/// The same for scalars: (g − mean g − y·mean(g·y))/σ with y = (x − μ)/σ.
#[inline(always)]
fn differentiate_scalars<T: Real, const FMA: bool>(x: &[Lanes<T>], grad: &mut [Lanes<T>]) {
    let share = T::one() / T::narrow(x.len() as f64);
    let (mean, inverse) = statistics::<T, FMA>(x);
    let (mut slope, mut bend) = ([T::zero(); LANES], [T::zero(); LANES]);
    for (g, x) in grad.iter().zip(x) {
        for lane in 0..LANES {
            slope[lane] += g[lane];
            bend[lane] = mul_add::<T, FMA>(g[lane], x[lane] - mean[lane], bend[lane]);
        }
    }
    for lane in 0..LANES {
        slope[lane] *= share;
        bend[lane] *= share * inverse[lane] * inverse[lane];
    }
    for (g, x) in grad.iter_mut().zip(x) {
        for lane in 0..LANES {
            g[lane] = inverse[lane] * (g[lane] - slope[lane] - (x[lane] - mean[lane]) * bend[lane]);
        }
    }
}
