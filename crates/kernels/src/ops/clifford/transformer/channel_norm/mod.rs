//! The normalisation of a geometric-algebra transformer and its gates (Brehmer et al. 2023, arXiv:2305.18415; de Haan, Cohen and Brehmer 2024,
//! arXiv:2311.04744; Spinner et al. 2024, arXiv:2405.14806), on feature planes `[scalars + blades · channels, rows]`.
//!
//! The norm multiplies the multivectors of a row by gain / √max(m, ε), where m is the mean over channels of Σ_grades |q_k|, with q_k the
//! quadratic form of grade k; scalars are layer-normalised over channels (ε = 1e-5). Each grade of each channel, and each scalar, may have a
//! gain of its own. A gate then multiplies each multivector by a function of its scalar part, and another function is applied to scalars.

mod cpu;
mod cuda;

use super::Order;
pub use super::activation::Activation;
use crate::{
    Array, Device, Result,
    ops::clifford::algebra::contract::{alike, exact, with_real},
};
use gradewise_core::{DType, Error as CoreError};

const NAME: &str = "channel_norm";

/// What is divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// The least mean.
    pub epsilon: f64,
    /// What multivectors are multiplied by.
    pub gain: f64,
}

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Options {
    /// The norm; gates alone without it.
    pub norm: Option<Norm>,
    /// What a multivector is multiplied by, of its scalar part.
    pub gate: Option<Activation>,
    /// The function of scalars.
    pub scalar_gate: Option<Activation>,
}

/// Features, and the gains of a norm.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a, T = Array> {
    /// `[scalars + blades · channels, rows]`.
    pub x: &'a T,
    /// `[channels, grades]`.
    pub gains: Option<&'a T>,
    /// `[scalars]`. Only beside `gains`.
    pub scalar_gains: Option<&'a T>,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    scalars: usize,
    channels: usize,
    rows: usize,
}

fn check(order: &Order, channels: usize, operands: &Operands<'_>) -> Result<(Sizes, DType)> {
    let Operands { x, gains, scalar_gains } = *operands;
    let planes = channels * order.blades().len();
    let refuse = |reason: String| CoreError::Shape {
        operation: NAME,
        argument: "x",
        actual: x.shape().clone(),
        expected: format!("[scalars + {planes}, rows]"),
        reason,
    };
    let &[height, rows] = x.dims() else {
        return Err(refuse("feature planes have two axes".to_owned()).into());
    };
    let Some(scalars) = height.checked_sub(planes) else {
        let blades = order.blades().len();
        return Err(refuse(format!("there are {channels} multivectors of {blades} blades")).into());
    };
    let mut all = vec![("x", x)];
    if let Some(gains) = gains {
        exact(NAME, "gains", gains, &[channels, order.grade_count()], || {
            "a gain for each grade of each channel".to_owned()
        })?;
        all.push(("gains", gains));
    }
    if let Some(gains) = scalar_gains {
        exact(NAME, "scalar_gains", gains, &[scalars], || "a gain for each scalar".to_owned())?;
        all.push(("scalar_gains", gains));
    }
    Ok((Sizes { scalars, channels, rows }, alike(NAME, &all)?))
}

/// The features, normalised and gated.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(order: &Order, channels: usize, operands: &Operands<'_>, options: Options) -> Result<Array> {
    let (sizes, dtype) = check(order, channels, operands)?;
    let Operands { x, gains, scalar_gains } = *operands;
    let x = x.contiguous()?;
    let gains = gains.map(Array::contiguous).transpose()?;
    let scalar_gains = scalar_gains.map(Array::contiguous).transpose()?;
    let operands = Operands { x: &x, gains: gains.as_ref(), scalar_gains: scalar_gains.as_ref() };
    if let Device::Cuda(device) = x.device() {
        return cuda::forward(&device, order, sizes, &operands, options);
    }
    with_real!(dtype, NAME, T => {
        let work = cpu::Work::<T>::new(order, sizes, &operands, options)?;
        Array::build::<T>(x.shape(), &x.device(), |out| work.forward(out))
    })
}

/// Gradients of [`forward`]; those of gains that are absent are `None`.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of `x`.
    pub x: Array,
    /// Of `gains`.
    pub gains: Option<Array>,
    /// Of `scalar_gains`.
    pub scalar_gains: Option<Array>,
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    order: &Order,
    channels: usize,
    operands: &Operands<'_>,
    options: Options,
    grad: &Array,
) -> Result<Gradients> {
    let (sizes, dtype) = check(order, channels, operands)?;
    let Operands { x, gains, scalar_gains } = *operands;
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    alike(NAME, &[("x", x), ("grad", grad)])?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    let gains = gains.map(Array::contiguous).transpose()?;
    let scalar_gains = scalar_gains.map(Array::contiguous).transpose()?;
    let operands = Operands { x: &x, gains: gains.as_ref(), scalar_gains: scalar_gains.as_ref() };
    if let Device::Cuda(device) = x.device() {
        return cuda::backward(&device, order, sizes, &operands, options, &grad);
    }
    with_real!(dtype, NAME, T => {
        let work = cpu::Work::<T>::new(order, sizes, &operands, options)?;
        let upstream = grad.as_slice::<T>()?;
        let mut sums = Vec::new();
        let of_x = Array::build::<T>(x.shape(), &x.device(), |out| sums = work.backward(upstream, out))?;
        let (of_gains, of_scalar_gains) = sums.split_at(channels * order.grade_count());
        let given = |gains: Option<&Array>, sums: &[T]| {
            gains.map(|gains| Array::from_slice(sums, gains.shape(), &x.device())).transpose()
        };
        Ok(Gradients {
            gains: given(operands.gains, of_gains)?,
            scalar_gains: given(operands.scalar_gains, of_scalar_gains)?,
            x: of_x,
        })
    })
}
