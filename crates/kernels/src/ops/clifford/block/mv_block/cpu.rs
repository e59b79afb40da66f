//! The block on the CPU: everything about a chunk of rows happens while the chunk is in the second-level cache.
//!
//! The separate operators move each intermediate through main memory, which took half of the time of a training step. Here the forward pass
//! writes once what the backward pass needs: the first map's result, the right factor before its normalisation, and the argument of the
//! layer norm. The backward pass recomputes the silu. What is written for it has the order in which it is computed, all blades of a chunk
//! and then the next chunk, so that it needs no copy; its shape is the output's, its order is not, which nothing else relies on.

use super::{Forward, Kept, NAME, OPERANDS, Sizes};
use crate::{
    Array, Result,
    cpu::{
        gemm::{self, Matrix},
        parallel::Flushed,
        simd::Real,
    },
    ops::clifford::{
        algebra::{
            contract::Planes,
            lanewise,
            layout::{Layout, Lines, split_chunks, sum_partials},
            program::Programs,
        },
        block::steerable_layer::cpu as layer,
        pointwise::{mv_layer_norm::cpu as norm, mv_silu::cpu::MvSilu},
    },
    runtime::memory::Scratch,
};
use rayon::prelude::*;

/// The operands as slices, in the order of [`Operands::all`](super::Operands::all).
struct Slices<'a, T> {
    tables: &'a Programs,
    sizes: Sizes,
    x: &'a [T],
    linear: &'a [T],
    bias: &'a [T],
    silu: [&'a [T]; 2],
    gain: &'a [T],
    layer: layer::Slices<'a, T>,
}

impl<'a, T: Real> Slices<'a, T> {
    fn new(tables: &'a Programs, sizes: Sizes, arrays: &'a [Array]) -> Result<Self> {
        let mut slices: [&'a [T]; OPERANDS] = [&[]; OPERANDS];
        for (slice, array) in slices.iter_mut().zip(arrays) {
            *slice = array.as_slice::<T>()?;
        }
        let [x, linear, bias, a, b, right, normalization, product, left, left_bias, gain] = slices;
        let layer = layer::Slices {
            tables,
            batch: sizes.batch,
            features: sizes.features,
            right,
            a: normalization,
            w: product,
            left: Some((left, left_bias)),
        };
        Ok(Self { tables, sizes, x, linear, bias, silu: [a, b], gain, layer })
    }

    fn planes(&self) -> Planes {
        Planes { blades: self.tables.blades, rows: self.sizes.batch, features: self.sizes.features }
    }

    /// The rows of a chunk of the input.
    fn input(&self, layout: &Layout, chunk: usize) -> Lines<'a, T> {
        Lines::of_features(self.x, layout, chunk, self.sizes.inputs)
    }

    /// Offset of the matrix of a blade's grade in the first map's matrices.
    fn place(&self, blade: usize) -> usize {
        usize::from(self.tables.grades[blade]) * self.sizes.inputs * self.sizes.features
    }

    fn is_empty(&self) -> bool {
        self.sizes.batch * self.sizes.features == 0
    }
}

fn zeros<T: Real>(count: usize) -> Vec<T> {
    vec![T::zero(); count]
}

/// The chunk of `data` by blade.
fn lines<T>(data: &mut [T], len: usize) -> Vec<&mut [T]> {
    data.chunks_exact_mut(len).collect()
}

/// `arrays` are the operands without the residual; all operands are contiguous, the residual included.
pub(super) fn forward<T: Real>(
    tables: &Programs,
    sizes: Sizes,
    arrays: &[Array],
    residual: Option<&Array>,
) -> Result<Forward> {
    let slices = Slices::<T>::new(tables, sizes, arrays)?;
    let residual = residual.map(|residual| residual.as_slice::<T>()).transpose()?;
    let shape = [tables.blades, sizes.batch, sizes.features];
    let device = arrays[0].device();
    let (output, (first, (right, (sum, ())))) = Array::build_with(shape, &device, |out| {
        Array::build_with(shape, &device, |first| {
            Array::build_with(shape, &device, |right| {
                Array::build_with(shape, &device, |sum| run(&slices, residual, [first, right, sum], out))
            })
        })
    })?;
    Ok(Forward { output, kept: Kept::All([first, right, sum]) })
}

fn run<T: Real>(
    slices: &Slices<'_, T>,
    residual: Option<&[T]>,
    kept: [&mut [T]; 3],
    out: &mut [T],
) -> Result<()> {
    if slices.is_empty() {
        return Ok(());
    }
    let (blades, Sizes { inputs, features: n, .. }) = (slices.tables.blades, slices.sizes);
    let silu = lanewise::Plan::new(slices.tables, slices.planes(), &slices.silu);
    let operands = slices.layer.product();
    let layer = layer::Plan::forward(&slices.layer, &operands);
    let norm = norm::Plan::<_, false>::new(slices.tables, slices.planes(), slices.gain);
    let layout = layer.layout();
    let [first, right, sum] = kept.map(|kept| kept.par_chunks_mut(blades * layout.chunk_len()));
    let chunks = split_chunks(out, layout).into_par_iter().zip(first).zip(right).zip(sum);
    let done = chunks.enumerate().flushed_map(|(chunk, (((mut out, first), right), sum))| {
        let len = out[0].len();
        let x = slices.input(layout, chunk);
        let mut h = Scratch::new(blades * len, NAME)?;
        for (blade, y) in first.chunks_exact_mut(len).enumerate() {
            let a = Matrix::rows(x.get(blade, 0, len / n * inputs), inputs);
            let b = Matrix::rows(&slices.linear[slices.place(blade)..][..inputs * n], n);
            gemm::product(gemm::Sizes { m: len / n, k: inputs, n }, a, b, y, false);
        }
        for row in first[..len].chunks_exact_mut(n) {
            for (y, &bias) in row.iter_mut().zip(slices.bias) {
                *y += bias;
            }
        }
        lanewise::forward_chunk::<T, MvSilu>(&silu, Lines::local(first, len), &mut lines(&mut h, len));
        let h = Lines::local(&h, len);
        layer.right_chunk(h, len, right);
        layer.forward_chunk(chunk, h, Lines::local(right, len), &mut lines(sum, len));
        norm.forward_chunk(Lines::local(sum, len), &mut out);
        if let Some(residual) = residual {
            let residual = Lines::new(residual, layout, chunk);
            for (blade, out) in out.iter_mut().enumerate() {
                for (out, &residual) in out.iter_mut().zip(residual.get(blade, 0, len)) {
                    *out = residual + *out;
                }
            }
        }
        Ok(())
    });
    done.into_iter().collect()
}

/// Gradients of the parameters from one chunk.
struct Partial<T> {
    linear: Vec<T>,
    bias: Vec<T>,
    silu: Vec<T>,
    layer: layer::Partial<T>,
    gain: Vec<T>,
}

/// The gradients in the order of [`Operands::all`](super::Operands::all); that of `x` only if needed.
pub(super) fn backward<T: Real>(
    tables: &Programs,
    sizes: Sizes,
    arrays: &[Array],
    kept: &[Array; 3],
    grad: &Array,
    need_x: bool,
) -> Result<Vec<Option<Array>>> {
    let slices = Slices::<T>::new(tables, sizes, arrays)?;
    let kept = [kept[0].as_slice::<T>()?, kept[1].as_slice::<T>()?, kept[2].as_slice::<T>()?];
    let grad = grad.as_slice::<T>()?;
    let device = arrays[0].device();
    let gradients_with = |grad_x: &mut [T]| parameter_gradients(&slices, kept, grad, grad_x);
    let (grad_x, parameters) = if need_x {
        let (grad_x, parameters) = Array::build_with(arrays[0].shape(), &device, gradients_with)?;
        (Some(grad_x), parameters)
    } else {
        (None, gradients_with(&mut [])?)
    };
    let mut gradients = vec![grad_x];
    for (array, values) in arrays[1..].iter().zip(parameters) {
        gradients.push(Some(Array::from_vec(values, array.shape(), &device)?));
    }
    Ok(gradients)
}

/// Writes the gradient of `x`, unless `grad_x` is empty, and returns those of the parameters.
fn parameter_gradients<T: Real>(
    slices: &Slices<'_, T>,
    kept: [&[T]; 3],
    grad: &[T],
    grad_x: &mut [T],
) -> Result<[Vec<T>; OPERANDS - 1]> {
    let (tables, Sizes { inputs, features: n, .. }) = (slices.tables, slices.sizes);
    let (blades, grades) = (tables.blades, tables.blades_of_grade.len());
    let silu = lanewise::Plan::new(tables, slices.planes(), &slices.silu);
    let operands = slices.layer.product();
    let layer = layer::Plan::backward(&slices.layer, &operands);
    let norm = norm::Plan::<_, false>::new(tables, slices.planes(), slices.gain);
    let layout = layer.layout();
    let turned = layer::transposed(slices.linear, inputs, n);
    let matrices = grades * inputs * n;
    let work = |chunk: usize, grad_x: &mut [&mut [T]]| {
        let len = layout.chunk.min(layout.batch - chunk * layout.chunk) * n;
        let [first, right, sum] =
            kept.map(|kept| Lines::local(&kept[blades * chunk * layout.chunk_len()..][..blades * len], len));
        let rows = len / n;
        let mut space = Scratch::new(3 * blades * len, NAME)?;
        let (ds, rest) = space.split_at_mut(blades * len);
        let (h, dh) = rest.split_at_mut(blades * len);
        let gain = norm.backward_chunk(sum, Lines::new(grad, layout, chunk), &mut lines(ds, len));
        lanewise::forward_chunk::<T, MvSilu>(&silu, first, &mut lines(h, len));
        let (of_sum, of_h) = (Lines::local(ds, len), Lines::local(h, len));
        let layer = layer.backward_chunk(chunk, of_h, right, of_sum, &mut lines(dh, len))?;
        // The silu's output is not needed any more: its input's gradient takes the place.
        let silu =
            lanewise::backward_chunk::<T, MvSilu>(&silu, first, Lines::local(dh, len), &mut lines(h, len));
        let (mut linear, mut bias) = (zeros(matrices), zeros(n));
        layer::add_rows(&h[..len], &mut bias);
        let x = slices.input(layout, chunk);
        for (blade, dy) in h.chunks_exact(len).enumerate() {
            let place = slices.place(blade);
            let dy = Matrix::rows(dy, n);
            let transposed = Matrix::rows(x.get(blade, 0, rows * inputs), inputs).transposed();
            let target = &mut linear[place..][..inputs * n];
            gemm::product(gemm::Sizes { m: inputs, k: rows, n }, transposed, dy, target, true);
            if let Some(grad_x) = grad_x.get_mut(blade) {
                let b = Matrix::rows(&turned[place..][..inputs * n], inputs);
                gemm::product(gemm::Sizes { m: rows, k: n, n: inputs }, dy, b, grad_x, false);
            }
        }
        Ok(Partial { linear, bias, silu, layer, gain })
    };
    let partials = if slices.is_empty() {
        grad_x.fill(T::zero());
        Vec::new()
    } else {
        let chunks = inputs_of(grad_x, layout, inputs).into_par_iter().enumerate();
        let partials = chunks.flushed_map(|(chunk, mut grad_x)| work(chunk, &mut grad_x));
        partials.into_iter().collect::<Result<Vec<_>>>()?
    };
    let no_rows = partials.is_empty();
    let (mut linear, mut bias, mut by_silu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut by_layer, mut gain) = (Vec::new(), Vec::new());
    for partial in partials {
        linear.push(partial.linear);
        bias.push(partial.bias);
        by_silu.push(partial.silu);
        by_layer.push(partial.layer);
        gain.push(partial.gain);
    }
    let total = |partials: Vec<Vec<T>>, count: usize| sum_partials(partials).unwrap_or_else(|| zeros(count));
    let layer::Gradients { right, a, w, left, bias: left_bias } =
        if no_rows { slices.layer.no_gradients() } else { layer.fold(by_layer) };
    let mut silu = silu.fold(by_silu).into_iter();
    let mut next = || silu.next().unwrap_or_else(|| zeros(n * grades));
    let (slope, shift) = (next(), next());
    Ok([total(linear, matrices), total(bias, n), slope, shift, right, a, w, left, left_bias, total(gain, n)])
}

/// The gradient of the input by chunks and blades; chunks without lines if it is not wanted.
fn inputs_of<'a, T>(grad_x: &'a mut [T], layout: &Layout, inputs: usize) -> Vec<Vec<&'a mut [T]>> {
    if grad_x.is_empty() {
        return (0..layout.chunks()).map(|_| Vec::new()).collect();
    }
    split_chunks(grad_x, &Layout { features: inputs, ..*layout })
}
