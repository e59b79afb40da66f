//! Gates of vectors by products of vectors, and of scalars by scalars, of L-GATr-slim (Petitjean et al. 2025, arXiv:2512.17011): the gated
//! linear unit behind its linear map, on feature planes.
//!
//! Of `[2 · scalars + planes · 3 · channels, rows]`, a plane of which has the channels v, then a, then b, and whose scalars are s, then g, it makes
//! `[scalars + planes · channels, rows]`: v times f(½ ⟨a, b⟩), with the quadratic form's product ⟨a, b⟩, the scalar part of reverse(a)·b over
//! the planes; and s times h(g).

mod cpu;
mod cuda;

use super::{Activation, Order};
use crate::{
    Array, Device, Error, Result,
    ops::clifford::algebra::contract::{alike, exact, with_real},
};
use gradewise_core::{DType, Error as CoreError};

const NAME: &str = "product_gate";

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Vectors of the result.
    pub channels: usize,
    /// The function of products of vectors.
    pub gate: Activation,
    /// The function of scalars.
    pub scalar_gate: Activation,
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    planes: usize,
    channels: usize,
    scalars: usize,
    rows: usize,
}

impl Sizes {
    const fn shape_out(self) -> [usize; 2] {
        [self.scalars + self.planes * self.channels, self.rows]
    }
}

fn check(order: &Order, options: Options, x: &Array) -> Result<(Sizes, DType)> {
    let (planes, channels) = (order.blades().len(), options.channels);
    if channels == 0 {
        let actual = channels.to_string();
        return Err(Error::Argument {
            operation: NAME,
            argument: "channels",
            actual,
            expected: "at least 1",
        });
    }
    let width = planes.saturating_mul(3).saturating_mul(channels);
    let refuse = |reason: &str| CoreError::Shape {
        operation: NAME,
        argument: "x",
        actual: x.shape().clone(),
        expected: format!("[2 · scalars + {width}, rows]"),
        reason: reason.to_owned(),
    };
    let &[height, rows] = x.dims() else { return Err(refuse("feature planes have two axes").into()) };
    let Some(both) = height.checked_sub(width).filter(|both| both % 2 == 0) else {
        return Err(refuse("a vector of the result takes three, and a scalar two").into());
    };
    Ok((Sizes { planes, channels, scalars: both / 2, rows }, alike(NAME, &[("x", x)])?))
}

/// The gated features.
///
/// # Errors
/// A shape, named; dtypes the device does not serve.
pub fn forward(order: &Order, options: Options, x: &Array) -> Result<Array> {
    let (sizes, dtype) = check(order, options, x)?;
    let x = x.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return cuda::forward(&device, order, (sizes, options), &x);
    }
    with_real!(dtype, NAME, T => {
        let source = x.as_slice::<T>()?;
        Array::build::<T>(sizes.shape_out(), &Device::Cpu, |out| cpu::forward(order, (sizes, options), source, out))
    })
}

/// The gradient of x for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(order: &Order, options: Options, x: &Array, grad: &Array) -> Result<Array> {
    let (sizes, _) = check(order, options, x)?;
    exact(NAME, "grad", grad, &sizes.shape_out(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("grad", grad)])?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::backward(&device, order, (sizes, options), &x, &grad);
    }
    with_real!(dtype, NAME, T => {
        let (source, slopes) = (x.as_slice::<T>()?, grad.as_slice::<T>()?);
        Array::build::<T>(x.shape(), &Device::Cpu, |out| {
            cpu::backward(order, (sizes, options), source, slopes, out);
        })
    })
}
