//! The convolution of fields and its two adjoints: each is the derivative of the others.

use super::{
    pad::{Padding, pad},
    prelude::*,
};
use gradewise_kernels::ops::fields::convolution::{self as kernel, Axis, Geometry};

/// The faces of the trilinear form over x, y and the kernel w: which of the three it makes.
pub(crate) const FORWARD: u8 = 0;
pub(crate) const ADJOINT: u8 = 1;
pub(crate) const KERNEL: u8 = 2;

/// Inputs: x and w for y; y and w for x; x and y for w.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Convolution<const FACE: u8> {
    /// Input, output, taps, stride, dilation and zeros before, of each axis.
    axes: Vec<[usize; 6]>,
    groups: usize,
}

impl<const FACE: u8> Convolution<FACE> {
    pub fn of(geometry: &Geometry) -> Self {
        let numbers = |a: &Axis| [a.input, a.output, a.kernel, a.stride, a.dilation, a.before];
        Self { axes: geometry.axes().iter().map(numbers).collect(), groups: geometry.groups() }
    }

    fn geometry(&self) -> Result<Geometry> {
        let axis = |&[input, output, kernel, stride, dilation, before]: &[usize; 6]| Axis {
            input,
            output,
            kernel,
            stride,
            dilation,
            before,
        };
        Ok(Geometry::new(&self.axes.iter().map(axis).collect::<Vec<_>>(), self.groups)?)
    }

    /// The same form, made for another face.
    fn face<const OTHER: u8>(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        Tensor::apply(Convolution::<OTHER> { axes: self.axes.clone(), groups: self.groups }, &[a, b])
    }
}

impl<const FACE: u8> Operation for Convolution<FACE> {
    const NAME: &'static str = match FACE {
        FORWARD => "field_convolution",
        ADJOINT => "field_convolution_adjoint",
        _ => "field_convolution_kernel",
    };
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("a"), Operand::array("b")];
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let channels = sizes.features;
        let sample = |axes: &[Axis], groups: usize, [i, c, j, o]: [usize; 4]| -> Result<Sample<Self>> {
            let geometry = Geometry::new(axes, groups)?;
            let field = |blades, size: fn(&Axis) -> usize, channels| {
                Input::normal([&[blades, sizes.batch], &geometry.extents(size)[..], &[channels]].concat())
            };
            let x = field(i, |axis| axis.input, c);
            let y = field(j, |axis| axis.output, o);
            let taps = geometry.extents(|axis| axis.kernel);
            let w = Input::normal([&[j, o, i], &taps[..], &[c / groups]].concat());
            let inputs = match FACE {
                FORWARD => [x, w],
                ADJOINT => [y, w],
                _ => [x, y],
            };
            Ok(Sample::new(Self::of(&geometry), inputs))
        };
        let same = |input| Axis::convolution(input, 3, 1, 1, [1, 1]);
        Ok(vec![
            sample(&[Axis::convolution(6, 3, 2, 1, [1, 1])], 1, [2, channels, 2, channels + 1])?,
            sample(&[same(3), Axis::convolution(5, 2, 1, 2, [0, 1])], 1, [2, channels, 1, channels])?,
            sample(&[same(2), same(3)], 2, [1, 2 * channels, 2, 4])?,
            sample(&[same(3), Axis::convolution(2, 1, 1, 1, [0, 0])], channels, [2, channels, 2, channels])?,
            sample(&[same(2), same(2), Axis::convolution(3, 2, 2, 1, [1, 0])], 1, [1, channels, 2, 2])?,
            sample(&[Axis::convolution(3, 1, 1, 1, [0, 0])], 1, [4, channels, 4, channels])?,
        ])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let geometry = self.geometry()?;
        let made = match FACE {
            FORWARD => kernel::forward(&geometry, &inputs[0], &inputs[1])?,
            ADJOINT => kernel::adjoint(&geometry, &inputs[0], &inputs[1])?,
            _ => kernel::kernel(&geometry, &inputs[0], &inputs[1])?,
        };
        Ok(made.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [a, b] = [&context.inputs[0], &context.inputs[1]];
        let (first, second): (Option<Tensor>, Option<Tensor>) = match FACE {
            // y of (x, w).
            FORWARD => (
                context.when_needed(0, || self.face::<ADJOINT>(grad, b))?,
                context.when_needed(1, || self.face::<KERNEL>(a, grad))?,
            ),
            // x of (y, w).
            ADJOINT => (
                context.when_needed(0, || self.face::<FORWARD>(grad, b))?,
                context.when_needed(1, || self.face::<KERNEL>(grad, a))?,
            ),
            // w of (x, y).
            _ => (
                context.when_needed(0, || self.face::<ADJOINT>(b, grad))?,
                context.when_needed(1, || self.face::<FORWARD>(a, grad))?,
            ),
        };
        Ok(vec![first, second])
    }

    /// Two operations for each tap of each position of y, each pair of blades and of channels of a group.
    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [a, b] = inputs else { return Cost::default() };
        let positions: usize = self.axes.iter().map(|axis| axis[1] * axis[2]).product();
        let channels = |field: &[usize]| field[0] * field[field.len() - 1];
        let pairs = match FACE {
            FORWARD => channels(a) * b[0] * b[1] / self.groups,
            ADJOINT => channels(a) * b[2] * b[b.len() - 1],
            _ => channels(a) * channels(b) / self.groups,
        };
        Cost { matrix_flops: 2 * (a[1] * positions * pairs) as u64, element_flops: 0 }
    }
}

/// How a convolution moves over its field: one entry for each spatial axis.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConvolutionOptions {
    /// Positions of the input from one output to the next.
    pub stride: Vec<usize>,
    /// Positions of the input from one tap to the next.
    pub dilation: Vec<usize>,
    /// Positions added before and after the input.
    pub padding: Vec<[usize; 2]>,
    /// What these positions hold.
    pub mode: Padding,
    /// Groups of adjacent channels, each convolved for itself.
    pub groups: usize,
}

impl ConvolutionOptions {
    /// Stride and dilation 1, no padding, one group, over `axes` axes of space.
    pub fn new(axes: usize) -> Self {
        Self {
            stride: vec![1; axes],
            dilation: vec![1; axes],
            padding: vec![[0, 0]; axes],
            mode: Padding::Zeros,
            groups: 1,
        }
    }

    /// Padding that keeps the extents for stride 1: dilation·(taps − 1) positions, the extra one of an odd number at the end.
    #[must_use]
    pub fn same(mut self, taps: &[usize]) -> Self {
        self.padding = taps
            .iter()
            .zip(&self.dilation)
            .map(|(taps, dilation)| {
                let total = dilation * taps.saturating_sub(1);
                [total / 2, total - total / 2]
            })
            .collect();
        self
    }

    fn require(&self, operation: &'static str, axes: usize) -> Result<()> {
        let lengths = [self.stride.len(), self.dilation.len(), self.padding.len()];
        if lengths == [axes; 3] {
            return Ok(());
        }
        refuse(
            operation,
            format!("the options are of {lengths:?} axes (stride, dilation, padding), the field has {axes}"),
        )
    }
}

/// Cross-correlation of a field `x` `[I, batch, *space, in]` with a kernel `[J, out, I, *taps, in/groups]`: `[J, batch, *space′, out]`.
///
/// # Errors
/// Shapes, options, dtypes or devices that do not fit together, named.
pub fn correlate(x: &Tensor, kernel: &Tensor, options: &ConvolutionOptions) -> Result<Tensor> {
    const NAME: &str = "correlate";
    let (extents, taps) = parts(NAME, x, kernel)?;
    options.require(NAME, extents.len())?;
    let (padded, padding) = match options.mode {
        Padding::Zeros => (x.clone(), options.padding.clone()),
        mode => (pad(x, &options.padding, mode)?, vec![[0, 0]; extents.len()]),
    };
    let extents = &padded.shape()[2..2 + extents.len()];
    let axis = |at: usize| {
        Axis::convolution(extents[at], taps[at], options.stride[at], options.dilation[at], padding[at])
    };
    let geometry = Geometry::new(&(0..extents.len()).map(axis).collect::<Vec<_>>(), options.groups)?;
    Tensor::apply(Convolution::<FORWARD>::of(&geometry), &[&padded, kernel])
}

/// Transposed convolution: what [`correlate`] with the same kernel and options would read, from what it makes. `x` is
/// `[J, batch, *space, out]`, the kernel `[J, out, I, *taps, in/groups]`, the result `[I, batch, *space′, in]` with extents
/// (N − 1)·stride − before − after + dilation·(taps − 1) + output_padding + 1. Zeros are its only padding.
///
/// # Errors
/// As [`correlate`]; another mode of padding; padding that leaves nothing.
pub fn correlate_transposed(
    x: &Tensor,
    kernel: &Tensor,
    options: &ConvolutionOptions,
    output_padding: &[usize],
) -> Result<Tensor> {
    const NAME: &str = "correlate_transposed";
    let (extents, taps) = parts(NAME, x, kernel)?;
    options.require(NAME, extents.len())?;
    if options.mode != Padding::Zeros || output_padding.len() != extents.len() {
        let given = output_padding.len();
        return refuse(
            NAME,
            format!(
                "padding is of zeros; the output's padding has {given} axes, the field {}",
                extents.len()
            ),
        );
    }
    let axis = |at: usize| -> Result<Axis> {
        let (stride, dilation, [before, after]) =
            (options.stride[at], options.dilation[at], options.padding[at]);
        let full = extents[at].saturating_sub(1) * stride
            + dilation * taps[at].saturating_sub(1)
            + output_padding[at]
            + 1;
        let Some(input) = full.checked_sub(before + after).filter(|_| extents[at] > 0) else {
            return refuse(NAME, format!("padding {before} and {after} leaves nothing of {full} positions"));
        };
        Ok(Axis { input, output: extents[at], kernel: taps[at], stride, dilation, before })
    };
    let geometry = Geometry::new(&(0..extents.len()).map(axis).collect::<Result<Vec<_>>>()?, options.groups)?;
    Tensor::apply(Convolution::<ADJOINT>::of(&geometry), &[x, kernel])
}

/// The extents of the field and the taps of the kernel, over as many axes.
fn parts<'a>(
    operation: &'static str,
    x: &'a Tensor,
    kernel: &'a Tensor,
) -> Result<(&'a [usize], &'a [usize])> {
    if let ([_, _, extents @ .., _], [_, _, _, taps @ .., _]) = (x.shape().dims(), kernel.shape().dims())
        && extents.len() == taps.len()
        && (1..=3).contains(&taps.len())
    {
        return Ok((extents, taps));
    }
    let (x, kernel) = (x.shape(), kernel.shape());
    refuse(
        operation,
        format!(
            "`x` has shape {x}, expected [blades, batch, *space, channels] with 1 to 3 axes of space; `kernel` has shape {kernel}, \
             expected [blades out, out, blades in, *taps, in / groups] with as many"
        ),
    )
}
