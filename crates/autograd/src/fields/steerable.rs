//! The Clifford-steerable convolution: its kernel is an equivariant network of the position of the tap.

use super::{
    convolution::{ConvolutionOptions, correlate},
    pad::Padding,
    prelude::*,
    steerable_norms::{self, blade_signs, cs_mv_gelu},
    steerable_weights::{SteerableKernel, SteerableLayerWeights},
};
use crate::{
    clifford::{self, ProductOptions},
    without_autocast,
};
use gradewise_core::Algebra;

/// How a steerable convolution treats the ends of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SteerablePadding {
    /// Zeros, such that there are ⌈N/stride⌉ positions; the extra one of an odd number after the field.
    #[default]
    Same,
    /// Nothing.
    Valid,
    /// ⌊taps/2⌋ positions on both sides, filled as this says.
    Filled(Padding),
}

const NAME: &str = "cs_kernel";

/// What a kernel network is computed with: the sorted algebra, and how the blades of the metric lie in it.
struct Space<'a> {
    metric: &'a OrderedMetric,
    algebra: Algebra,
    sorted: Vec<(usize, i8)>,
}

impl<'a> Space<'a> {
    fn new(metric: &'a OrderedMetric) -> Result<Self> {
        if !(1..=3).contains(&metric.dimension()) || metric.signature().r > 0 {
            return refuse(
                NAME,
                format!("the metric {metric}: steerable kernels have 1 to 3 generators, none of them null"),
            );
        }
        let algebra = Algebra::new(metric.signature()).map_err(gradewise_kernels::Error::from)?;
        Ok(Self { metric, algebra, sorted: metric.to_sorted() })
    }

    /// The quadratic form of each position `[positions][axes]`.
    fn squares(&self, points: &[Vec<f64>]) -> Vec<f64> {
        let square = |point: &Vec<f64>| -> f64 {
            point.iter().zip(self.metric.squares()).map(|(v, &g)| f64::from(g) * v * v).sum()
        };
        points.iter().map(square).collect()
    }
}

/// sgn(q)·exp(−|q|/2σ²) with sgn(0) = +1: for `q` of each position, `[positions, …sizes of sigma]`.
fn shell(squares: &[f64], sigma: &Tensor) -> Result<Tensor> {
    let mut shape = vec![1; sigma.shape().rank() + 1];
    shape[0] = squares.len();
    let signs: Vec<f64> = squares.iter().map(|&q| if q >= 0.0 { 1.0 } else { -1.0 }).collect();
    let exponents: Vec<f64> = squares.iter().map(|q| -0.5 * q.abs()).collect();
    let exponents = constant(&exponents, &shape, sigma)?.mul(&sigma.square()?.recip()?)?;
    exponents.exp()?.mul(&constant(&signs, &shape, sigma)?)
}

/// The kernel `[I, out, I, *taps, in]` on the grid of taps (i − ⌊size/2⌋)/max(⌊size/2⌋, 1), for [`correlate`]. It depends on parameters
/// alone: once for each step, once at all in inference.
///
/// # Errors
/// Weights of other shapes, named; a metric with null generators, or of more than three.
pub fn cs_kernel(metric: &OrderedMetric, kernel: &SteerableKernel) -> Result<Tensor> {
    let (points, squares) = taps(metric, kernel.size)?;
    // In mixed precision, too: a kernel is computed once and small beside what it is used for.
    let taps = without_autocast(|| evaluated(metric, kernel, &points, &squares, None))?;
    let (blades, axes) = (metric.blade_count(), metric.dimension());
    let shape = [&[blades, kernel.outputs, blades], &vec![kernel.size; axes][..], &[kernel.inputs]].concat();
    taps.reshape(shape)
}

/// The positions of the taps of a kernel of `size` taps along each axis, and their quadratic forms.
pub(super) fn taps(metric: &OrderedMetric, size: usize) -> Result<(Vec<Vec<f64>>, Vec<f64>)> {
    let axes = metric.dimension();
    if size == 0 {
        return refuse(NAME, "a kernel has one tap at least");
    }
    let half = size / 2;
    let scale = 1.0 / half.max(1) as f64;
    let points: Vec<Vec<f64>> = (0..size.pow(axes as u32))
        .map(|at| {
            (0..axes).rev().map(|axis| (at / size.pow(axis as u32) % size) as f64 - half as f64).collect()
        })
        .collect();
    // From whole numbers, so that taps on the light cone are on it however 1/3 is rounded.
    let squares: Vec<f64> = Space::new(metric)?.squares(&points).iter().map(|q| q * scale * scale).collect();
    let points = points.into_iter().map(|point| point.iter().map(|v| v * scale).collect()).collect();
    Ok((points, squares))
}

/// The kernel `[I, out, I, points, in]` at any positions: K(T·v) = ρ(T)·K(v)·ρ(T)⁻¹ for the isometries T of the metric.
///
/// # Errors
/// As [`cs_kernel`]; positions of another dimension.
pub fn cs_kernel_at(metric: &OrderedMetric, kernel: &SteerableKernel, points: &[Vec<f64>]) -> Result<Tensor> {
    if points.iter().any(|point| point.len() != metric.dimension()) {
        return refuse(NAME, format!("positions have {} coordinates", metric.dimension()));
    }
    let squares = Space::new(metric)?.squares(points);
    evaluated(metric, kernel, points, &squares, None)
}

/// The kernel `[I, out, I, points, in]`; for conditions `[I, batch, channels]`, which enter the network beside the position,
/// `[I, out, I, batch·points, in]`.
pub(super) fn evaluated(
    metric: &OrderedMetric,
    kernel: &SteerableKernel,
    points: &[Vec<f64>],
    squares: &[f64],
    condition: Option<&Tensor>,
) -> Result<Tensor> {
    let dtype = kernel.widths.dtype();
    if dtype.is_short() {
        // A network of many products: rounding to 16 bits after each would cost the kernel's gradients their digits.
        let condition = condition.map(|condition| condition.cast(dtype.accumulator())).transpose()?;
        let wide = kernel.in_dtype(dtype.accumulator())?;
        return evaluated(metric, &wide, points, squares, condition.as_ref())?.cast(dtype);
    }
    let space = Space::new(metric)?;
    let (blades, grades, count) = (metric.blade_count(), metric.dimension() + 1, points.len());
    let (inputs, outputs) = (kernel.inputs, kernel.outputs);
    let paths = metric.paths();
    if kernel.layers.len() < 2 {
        return refuse(
            NAME,
            format!("a kernel network has two layers at least, not {}", kernel.layers.len()),
        );
    }
    require_shape(NAME, "rel_pos_sigma", &kernel.position_width, &[1, 1, 1], "one width")?;
    require_shape(
        NAME,
        "kernel_width",
        &kernel.widths,
        &[outputs, inputs, grades],
        "a width for each pair of channels and grade",
    )?;
    require_shape(
        NAME,
        "weight",
        &kernel.head,
        &[outputs, inputs, paths.len()],
        "one weight for each grade path",
    )?;
    let like = &kernel.position_width;
    // The position as a multivector of the sorted algebra, [I, points, 1], with the shell as its scalar part.
    let place = metric.sorted_generators();
    let mut vector = vec![0.0; (blades - 1) * count];
    for (at, point) in points.iter().enumerate() {
        point.iter().zip(&place).for_each(|(&v, &generator)| vector[generator * count + at] = v);
    }
    let scalar = shell(squares, &like.reshape([1])?)?.reshape([1, count, 1])?;
    let mut x = crate::concat(&[&scalar, &constant(&vector, &[blades - 1, count, 1], like)?], 0)?;
    let mut squares = std::borrow::Cow::Borrowed(squares);
    if let Some(condition) = condition {
        let &[own, batch, channels] = condition.shape().dims() else {
            return refuse(
                NAME,
                format!("`condition` has shape {}, expected [{blades}, batch, channels]", condition.shape()),
            );
        };
        if own != blades {
            return refuse(NAME, format!("`condition` has {own} blades, the metric {blades}"));
        }
        let everywhere = [blades, batch, count];
        let place = x.unsqueeze(1)?.broadcast_to(&[&everywhere[..], &[1]].concat().into())?;
        let field = space
            .sort(condition)?
            .unsqueeze(2)?
            .broadcast_to(&[&everywhere[..], &[channels]].concat().into())?;
        x = crate::concat(&[&place, &field], 3)?.reshape([blades, batch * count, 1 + channels])?;
        squares = squares.repeat(batch).into();
    }
    let (count, squares) = (squares.len(), &squares[..]);
    for (at, layer) in kernel.layers.iter().enumerate() {
        x = space.layer(&x, layer, &kernel.bias_blades)?;
        match &layer.norm {
            Some(norm) => x = cs_mv_gelu(&space.grade_norm(&x, norm)?)?,
            None if at + 1 == kernel.layers.len() => {}
            None => return refuse(NAME, format!("layer {at} has no normalisation, and is not the last")),
        }
    }
    require_shape(
        NAME,
        "the network's output",
        &x,
        &[blades, count, outputs * inputs],
        "one multivector for each pair of channels",
    )?;
    space.head(&x, kernel, squares)
}

impl Space<'_> {
    /// The normalisation of `x` `[I, points, channels]` by `factor` `[1, channels, grades]`, as one operation.
    fn grade_norm(&self, x: &Tensor, factor: &Tensor) -> Result<Tensor> {
        let (channels, grades) = (x.shape()[2], self.algebra.grade_count());
        require_shape(
            NAME,
            "factor",
            factor,
            &[1, channels, grades],
            "one entry for each channel and grade",
        )?;
        steerable_norms::grade_norm(&self.algebra, x, &factor.reshape([channels, grades])?)
    }

    /// A layer of the network, on `[I, points, in]` of the sorted algebra.
    fn layer(&self, x: &Tensor, layer: &SteerableLayerWeights, bias_blades: &[usize]) -> Result<Tensor> {
        let by_grade = |weight: &Tensor| weight.permute(&[2, 1, 0]);
        if [&layer.product, &layer.right, &layer.linear].iter().any(|weight| weight.shape().rank() != 3) {
            return refuse(
                NAME,
                "weights of a layer have the shapes [out, in, paths], [in, in, grades] and [out, in, grades]",
            );
        }
        let right = clifford::mv_linear(&self.algebra, x, &by_grade(&layer.right)?, None)?;
        let right = self.grade_norm(&right, &layer.right_norm)?;
        let product =
            clifford::fcgp(&self.algebra, x, &right, &by_grade(&layer.product)?, ProductOptions::default())?;
        let linear = clifford::mv_linear(&self.algebra, x, &by_grade(&layer.linear)?, None)?;
        let mut sum = product.add(&linear)?;
        if let Some(bias) = &layer.bias {
            let out = layer.linear.shape()[0];
            require_shape(
                NAME,
                "bias",
                bias,
                &[1, out, bias_blades.len()],
                "one entry for each channel and blade",
            )?;
            sum =
                sum.add(&self.spread(&bias.reshape([out, bias_blades.len()])?, bias_blades)?.unsqueeze(1)?)?;
        }
        sum.mul_scalar(std::f64::consts::FRAC_1_SQRT_2)
    }

    /// Multivectors `[I, …]` of the metric as those of the sorted algebra.
    fn sort(&self, x: &Tensor) -> Result<Tensor> {
        let (places, signs): (Vec<usize>, Vec<i8>) = self.sorted.iter().copied().unzip();
        x.mul(&blade_signs(signs.into_iter(), x)?)?.segment_sum(0, &positions(&places, places.len(), x)?)
    }

    /// Columns of `[channels, chosen blades]` as rows of `[I, channels]` of the sorted algebra.
    fn spread(&self, columns: &Tensor, chosen: &[usize]) -> Result<Tensor> {
        let blades = self.sorted.len();
        if chosen.iter().any(|&blade| blade >= blades) {
            return refuse(NAME, format!("bias blades {chosen:?}: there are {blades}, counted from 0"));
        }
        let (places, signs): (Vec<usize>, Vec<f64>) =
            chosen.iter().map(|&blade| (self.sorted[blade].0, f64::from(self.sorted[blade].1))).unzip();
        let rows = columns.transpose(0, 1)?.mul(&constant(&signs, &[signs.len(), 1], columns)?)?;
        rows.segment_sum(0, &positions(&places, blades, columns)?)
    }

    /// Masks the multivectors `x` `[I, points, out·in]` by shells and turns them into maps between blades: `[J, out, I, points, in]`.
    fn head(&self, x: &Tensor, kernel: &SteerableKernel, squares: &[f64]) -> Result<Tensor> {
        let (metric, blades) = (self.metric, self.sorted.len());
        let (inputs, outputs, count) = (kernel.inputs, kernel.outputs, squares.len());
        let size = kernel.size as f64;
        // The constant of the reference implementation.
        let scale = 20.0 / size.powi(metric.dimension() as i32 - 1);
        // [points, out, in, grades] → [grades, points, out·in].
        let shells = shell(squares, &kernel.widths.add_scalar(0.4)?)?.mul_scalar(scale)?;
        let grades = metric.dimension() + 1;
        let shells = shells.permute(&[3, 0, 1, 2])?.reshape([grades, count, outputs * inputs])?;
        let paths = metric.paths();
        // K[j, i] = ±k_l with e_l·e_i = ±e_j, weighted by the path of their grades: the kernel is the left factor.
        let pairs = (0..blades).flat_map(|j| (0..blades).map(move |i| (j, i)));
        let (mut left, mut grade, mut path, mut signs) = (vec![], vec![], vec![], vec![]);
        for (j, i) in pairs {
            let l = metric.factor(i, j);
            let (place, sign) = self.sorted[l];
            let triple = [l, j, i].map(|blade| metric.grade(blade) as u8);
            let Ok(at) = paths.binary_search_by_key(&triple, |path| [path.left, path.out, path.right]) else {
                return refuse(NAME, format!("the metric {metric} has no product of grades {triple:?}"));
            };
            left.push(place);
            grade.push(metric.grade(l));
            path.push(at);
            signs.push(f64::from(sign * metric.product(l, i).1));
        }
        let select = |tensor: &Tensor, entries: &[usize]| -> Result<Tensor> {
            tensor.index_select(0, &positions(entries, tensor.shape()[0], x)?)
        };
        let weights = kernel.head.permute(&[2, 0, 1])?.reshape([paths.len(), 1, outputs * inputs])?;
        let weights = select(&weights, &path)?.mul(&constant(&signs, &[signs.len(), 1, 1], x)?)?;
        let maps = select(x, &left)?.mul(&select(&shells, &grade)?)?.mul(&weights)?;
        maps.reshape([blades, blades, count, outputs, inputs])?.permute(&[0, 3, 1, 2, 4])
    }
}

/// The steerable convolution of a field `x` `[I, batch, *space, in]`: cross-correlation with the kernel of [`cs_kernel`], and a bias
/// `[out, bias blades]` on the kernel's bias blades. Commutes with the signed permutations of axes that keep the metric, about the centre
/// of a cubic grid, if taps are odd in number and the bias is on the scalar alone.
///
/// # Errors
/// As [`cs_kernel`]; shapes that do not fit together.
pub fn cs_conv(
    metric: &OrderedMetric,
    x: &Tensor,
    kernel: &SteerableKernel,
    bias: Option<&Tensor>,
    stride: usize,
    padding: SteerablePadding,
) -> Result<Tensor> {
    let bias = bias.map(|bias| (bias, &kernel.bias_blades[..]));
    cs_correlate(metric, x, &cs_kernel(metric, kernel)?, bias, stride, padding)
}

/// [`cs_conv`] with a kernel that was computed before, and a bias `[out, blades]` with its blades.
///
/// # Errors
/// Shapes that do not fit together.
pub fn cs_correlate(
    metric: &OrderedMetric,
    x: &Tensor,
    kernel: &Tensor,
    bias: Option<(&Tensor, &[usize])>,
    stride: usize,
    padding: SteerablePadding,
) -> Result<Tensor> {
    let extents = space(CONV, x, metric.blade_count(), Some(metric.dimension()))?;
    let &[_, _, _, size, ..] = kernel.shape().dims() else {
        return refuse(
            CONV,
            format!("`kernel` has shape {}, expected [I, out, I, *taps, in]", kernel.shape()),
        );
    };
    let y = correlate(x, kernel, &options(extents, size, stride, padding))?;
    biased(metric, y, bias)
}

const CONV: &str = "cs_conv";

/// How a kernel of `size` taps along each axis moves over a field of these extents.
pub(super) fn options(
    extents: &[usize],
    size: usize,
    stride: usize,
    padding: SteerablePadding,
) -> ConvolutionOptions {
    let axes = extents.len();
    let mut options = ConvolutionOptions::new(axes);
    options.stride = vec![stride; axes];
    match padding {
        SteerablePadding::Valid => {}
        SteerablePadding::Filled(mode) => {
            options.mode = mode;
            options.padding = vec![[size.saturating_sub(1) / 2; 2]; axes];
        }
        SteerablePadding::Same => {
            let pads = extents.iter().map(|&extent| {
                let covered = (extent.div_ceil(stride.max(1)).saturating_sub(1)) * stride + size;
                let total = covered.saturating_sub(extent);
                [total / 2, total - total / 2]
            });
            options.padding = pads.collect();
        }
    }
    options
}

/// `y` `[I, …, out]` with a bias `[out, blades]` on these blades.
pub(super) fn biased(metric: &OrderedMetric, y: Tensor, bias: Option<(&Tensor, &[usize])>) -> Result<Tensor> {
    let Some((bias, chosen)) = bias else { return Ok(y) };
    let outputs = y.shape().last().copied().unwrap_or(0);
    require_shape(CONV, "bias", bias, &[outputs, chosen.len()], "one entry for each channel and bias blade")?;
    let rows = bias.transpose(0, 1)?.segment_sum(0, &positions(chosen, metric.blade_count(), &y)?)?;
    add_bias(CONV, &y, Some(&rows))
}
