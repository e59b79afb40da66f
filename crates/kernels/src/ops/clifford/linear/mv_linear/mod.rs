//! The grade-wise linear map: each blade of `x` `[blades, batch, in]` times the matrix of its grade.
//!
//! Weights are `[grades, in, out]`, or `[in, out]` when all grades share one matrix. A bias `[out]` goes to the scalar
//! blade ([`Bias::Scalar`]), which keeps the map equivariant, or to every blade ([`Bias::AllBlades`]), which does not
//! and exists to load the weights of a reference implementation that does so.

mod call;
pub(crate) mod cpu;
pub(crate) mod cuda;
mod few_to_many;
mod few_to_many_kernels;
mod narrow;
mod narrow_kernels;

use crate::ops::clifford::algebra::{
    contract::{Planes, alike, exact, with_real},
    program::Programs,
};
use crate::{Array, Device, Result, ops};
use gradewise_core::{Algebra, DType, Error as CoreError};
use std::ops::Range;

/// Which blades a bias is added to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bias {
    /// The scalar blade only: equivariant.
    #[default]
    Scalar,
    /// Every blade: **not** equivariant once trained; for weights of the Python reference.
    AllBlades,
}

impl Bias {
    fn blades(self, algebra: &Algebra) -> Range<usize> {
        match self {
            Self::Scalar => 0..1,
            Self::AllBlades => 0..algebra.blade_count(),
        }
    }
}

const NAME: &str = "mv_linear";

pub(crate) struct Sizes {
    batch: usize,
    inputs: usize,
    outputs: usize,
    shared: bool,
}

impl Sizes {
    /// The sizes of a map between equal numbers of features, with a matrix for each grade.
    pub const fn square(planes: Planes) -> Self {
        let Planes { rows, features, .. } = planes;
        Self::grade_wise(rows, features, features)
    }

    /// The sizes of a map with a matrix for each grade.
    pub const fn grade_wise(batch: usize, inputs: usize, outputs: usize) -> Self {
        Self { batch, inputs, outputs, shared: false }
    }

    /// Whether the inputs are the side of few features, where there is one.
    const fn is_from_few(&self) -> bool {
        self.inputs <= self.outputs
    }

    /// The first blade of each group of rows that share a matrix, and one past the last: blades of a grade are adjacent.
    fn groups(&self, algebra: &Algebra) -> Vec<usize> {
        let grades = if self.shared { 1 } else { algebra.grade_count() };
        let first = (0..grades).map(|grade| algebra.blades_of_grade(grade).start);
        first.chain([algebra.blade_count()]).collect()
    }
}

fn check(algebra: &Algebra, x: &Array, w: &Array) -> Result<Sizes> {
    let Planes { rows: batch, features: inputs, .. } = Planes::checked(NAME, "x", algebra, x)?;
    let grades = algebra.grade_count();
    match w.shape()[..] {
        [g, n, outputs] if g == grades && n == inputs => Ok(Sizes { batch, inputs, outputs, shared: false }),
        [n, outputs] if n == inputs => Ok(Sizes { batch, inputs, outputs, shared: true }),
        _ => Err(CoreError::Shape {
            operation: NAME,
            argument: "w",
            actual: w.shape().clone(),
            expected: format!("[{grades}, {inputs}, out] or [{inputs}, out]"),
            reason: format!(
                "one matrix for each of the {grades} grades of {}, or one shared by all",
                algebra.signature()
            ),
        }
        .into()),
    }
}

fn check_bias(bias: Option<(&Array, Bias)>, outputs: usize) -> Result<()> {
    let Some((bias, _)) = bias else { return Ok(()) };
    exact(NAME, "bias", bias, &[outputs], || "one entry for each output feature".to_owned())
}

fn check_grad(algebra: &Algebra, grad: &Array, batch: usize, outputs: usize) -> Result<()> {
    let reason = || "the gradient has the shape of the output".to_owned();
    exact(NAME, "grad", grad, &[algebra.blade_count(), batch, outputs], reason)
}

/// A contiguous bias.
fn flat(bias: Option<(&Array, Bias)>) -> Result<Option<(Array, Bias)>> {
    bias.map(|(array, bias)| Ok((array.contiguous()?, bias))).transpose()
}

/// The dtypes of x and of the output with which [`forward_in`] reads parameters in `f32` as they are, where features have 16 bits: those on
/// the side of at most 8 features are in `f32`, too, for they are few beside those of `dtype` on the other side. `None` if neither side has
/// so few, or for operands that are neither in `f32` nor, as x may be, in `dtype`.
pub fn mixed_dtypes(dtype: DType, algebra: &Algebra, x: &Array, w: &Array) -> Option<[DType; 2]> {
    let sizes = check(algebra, x, w).ok()?;
    let (few, many) = (sizes.inputs.min(sizes.outputs), sizes.inputs.max(sizes.outputs));
    let is_served = dtype.is_short()
        && w.dtype() == DType::F32
        && [DType::F32, dtype].contains(&x.dtype())
        && few <= few_to_many::MOST_FEW
        && many <= few_to_many::MOST_MANY;
    is_served.then_some(if sizes.is_from_few() { [DType::F32, dtype] } else { [dtype, DType::F32] })
}

/// As [`forward`], to an output in `dtype`. Operands may have different dtypes; where no kernel reads these, they are converted to that of
/// the matrices, and the result from it. On a GPU there are kernels for the dtypes of [`mixed_dtypes`].
///
/// # Errors
/// As [`forward`]; a bias of another dtype than the matrices.
pub fn forward_in(
    dtype: DType,
    algebra: &Algebra,
    x: &Array,
    w: &Array,
    bias: Option<(&Array, Bias)>,
) -> Result<Array> {
    if x.dtype() == dtype && w.dtype() == dtype {
        return forward(algebra, x, w, bias);
    }
    let sizes = check(algebra, x, w)?;
    w.require_beside(&x.device(), NAME, "w")?;
    check_bias(bias, sizes.outputs)?;
    if let Some((bias, _)) = bias {
        bias.require_like(w, NAME, "bias")?;
    }
    if let Device::Cuda(device) = x.device() {
        let operands = (&x.contiguous()?, &w.contiguous()?);
        let flat = flat(bias)?;
        let flat = flat.as_ref().map(|(array, bias)| (array, *bias));
        if let Some(out) = cuda::mixed_forward(&device, algebra, &sizes, operands, flat, dtype)? {
            return Ok(out);
        }
    }
    forward(algebra, &x.cast(w.dtype())?, w, bias)?.cast(dtype)
}

/// `out[b] = x[b]·w[grade(b)]` plus the bias, `[blades, batch, out]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, x: &Array, w: &Array, bias: Option<(&Array, Bias)>) -> Result<Array> {
    let Sizes { batch, inputs, outputs, shared } = check(algebra, x, w)?;
    check_bias(bias, outputs)?;
    let dtype = alike(NAME, &[("x", x), ("w", w), ("bias", bias.map_or(w, |(bias, _)| bias))])?;
    let (x, w) = (x.contiguous()?, w.contiguous()?);
    let bias = flat(bias)?;
    if let Device::Cuda(device) = x.device() {
        let sizes = Sizes { batch, inputs, outputs, shared };
        let bias = bias.as_ref().map(|(array, bias)| (array, *bias));
        return cuda::forward(&device, algebra, &sizes, &x, &w, bias);
    }
    let tables = Programs::of(algebra);
    let linear = cpu::Linear { tables: &tables, batch, inputs, outputs, shared };
    with_real!(dtype, NAME, T => {
        let bias = match &bias {
            Some((array, bias)) => Some((array.as_slice::<T>()?, bias.blades(algebra))),
            None => None,
        };
        let (x_slice, w_slice) = (x.as_slice::<T>()?, w.as_slice::<T>()?);
        let shape = [algebra.blade_count(), batch, outputs];
        Array::build::<T>(shape, &x.device(), |out| linear.forward(x_slice, w_slice, bias, out))
    })
}

/// Which gradients to compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// That of `x`.
    pub x: bool,
    /// That of `w`.
    pub w: bool,
    /// That of the bias.
    pub bias: bool,
}

impl Needs {
    /// All of them.
    pub const ALL: Self = Self { x: true, w: true, bias: true };
}

/// Gradients of [`forward`]; those not asked for are `None`.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    /// Of `x`.
    pub x: Option<Array>,
    /// Of `w`.
    pub w: Option<Array>,
    /// Of the bias, `[out]`.
    pub bias: Option<Array>,
}

/// Gradients for the cotangent `grad` `[blades, batch, out]`, those that `needs` selects.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    algebra: &Algebra,
    x: &Array,
    w: &Array,
    bias: Bias,
    grad: &Array,
    needs: Needs,
) -> Result<Gradients> {
    backward_adding(algebra, x, w, bias, grad, needs, None)
}

/// Gradients of [`forward_in`], each of the dtype of its operand; `grad` has that of the output.
///
/// # Errors
/// As [`forward_in`].
pub fn backward_in(
    algebra: &Algebra,
    x: &Array,
    w: &Array,
    bias: Bias,
    grad: &Array,
    needs: Needs,
) -> Result<Gradients> {
    if x.dtype() == w.dtype() && grad.dtype() == w.dtype() {
        return backward(algebra, x, w, bias, grad, needs);
    }
    let sizes = check(algebra, x, w)?;
    check_grad(algebra, grad, sizes.batch, sizes.outputs)?;
    for (argument, array) in [("x", x), ("grad", grad)] {
        array.require_beside(&w.device(), NAME, argument)?;
    }
    if let Device::Cuda(device) = x.device() {
        let (x, w, grad) = (&x.contiguous()?, &w.contiguous()?, &grad.contiguous()?);
        let call = cuda::Backward { x, w, bias, grad, needs, add_to: None };
        if let Some(gradients) = cuda::mixed_backward(&device, algebra, &sizes, &call)? {
            return Ok(gradients);
        }
    }
    let dtype = x.dtype();
    let mut gradients = backward(algebra, &x.cast(w.dtype())?, w, bias, &grad.cast(w.dtype())?, needs)?;
    gradients.x = gradients.x.map(|x| x.cast(dtype)).transpose()?;
    Ok(gradients)
}

/// Whether [`backward_adding`] reads a gradient that is a transposed view of `[blades, out, batch]` without a copy, for the gradients of x
/// and of w that are needed.
pub(crate) fn reads_transposed(algebra: &Algebra, x: &Array, w: &Array, needs: Needs) -> Result<bool> {
    let sizes = check(algebra, x, w)?;
    alike(NAME, &[("x", x), ("w", w)])?;
    let Device::Cuda(device) = x.device() else { return Ok(false) };
    // New arrays are aligned like address 0.
    cuda::reads_transposed(&device, algebra, &sizes, x, w, 0, needs)
}

/// As [`backward`]; adds the gradient of x to `direct`, another of its gradients, in place where the device supports that.
pub(crate) fn backward_adding(
    algebra: &Algebra,
    x: &Array,
    w: &Array,
    bias: Bias,
    grad: &Array,
    needs: Needs,
    direct: Option<&Array>,
) -> Result<Gradients> {
    let Sizes { batch, inputs, outputs, shared } = check(algebra, x, w)?;
    check_grad(algebra, grad, batch, outputs)?;
    let dtype = alike(NAME, &[("x", x), ("w", w), ("grad", grad)])?;
    let (x, w) = (x.contiguous()?, w.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        let sizes = Sizes { batch, inputs, outputs, shared };
        let call = cuda::Backward { x: &x, w: &w, bias, grad, needs, add_to: direct };
        return cuda::backward(&device, algebra, &sizes, call);
    }
    let grad = grad.contiguous()?;
    let tables = Programs::of(algebra);
    let linear = cpu::Linear { tables: &tables, batch, inputs, outputs, shared };
    with_real!(dtype, NAME, T => {
        let (x_slice, w_slice, grad_slice) = (x.as_slice::<T>()?, w.as_slice::<T>()?, grad.as_slice::<T>()?);
        let mut gradients = Gradients::default();
        if needs.x {
            let build = |out: &mut [T]| linear.grad_input(grad_slice, w_slice, out);
            let mapped = Array::build::<T>(x.shape(), &x.device(), build)?;
            gradients.x = Some(match direct {
                Some(direct) => ops::add(direct, &mapped)?,
                None => mapped,
            });
        }
        if needs.w {
            gradients.w = Some(Array::from_vec(linear.grad_weights(x_slice, grad_slice), w.shape(), &w.device())?);
        }
        if needs.bias {
            let sums = linear.grad_bias(grad_slice, bias.blades(algebra));
            gradients.bias = Some(Array::from_vec(sums, [outputs], &w.device())?);
        }
        Ok(gradients)
    })
}
