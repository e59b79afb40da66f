//! mv_layer_norm(x; a): a·x / (mean over features of ‖x‖ + 1e-6), with the smooth norm of the whole multivector
//! (Ruhe et al. 2023, arXiv:2305.11141). `x` is `[blades, batch, features]`, `a` is `[features]`.

pub(crate) mod cpu;
mod cuda;

use crate::ops::clifford::algebra::{
    contract::{Planes, alike, exact, with_real},
    program::Programs,
};
use crate::{Array, Device, Result};
use gradewise_core::Algebra;

const NAME: &str = "mv_layer_norm";

fn check(algebra: &Algebra, x: &Array, a: &Array) -> Result<Planes> {
    let planes = Planes::checked(NAME, "x", algebra, x)?;
    exact(NAME, "a", a, &[planes.features], || "one gain for each feature".to_owned())?;
    Ok(planes)
}

/// The norm of `x`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, x: &Array, a: &Array) -> Result<Array> {
    let planes = check(algebra, x, a)?;
    let dtype = alike(NAME, &[("x", x), ("a", a)])?;
    let (x, a) = (x.contiguous()?, a.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::forward(&device, algebra, planes, &x, &a);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let (x_slice, a_slice) = (x.as_slice::<T>()?, a.as_slice::<T>()?);
        Array::build::<T>(x.shape(), &x.device(), |out| cpu::forward::<T, false>(&tables, planes, x_slice, a_slice, out))
    })
}

/// Gradients of [`forward`].
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of `x`.
    pub x: Array,
    /// Of `a`, `[features]`.
    pub a: Array,
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(algebra: &Algebra, x: &Array, a: &Array, grad: &Array) -> Result<Gradients> {
    let planes = check(algebra, x, a)?;
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("a", a), ("grad", grad)])?;
    let (x, a, grad) = (x.contiguous()?, a.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return cuda::backward(&device, algebra, planes, &x, &a, &grad);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let (x_slice, a_slice, grad_slice) = (x.as_slice::<T>()?, a.as_slice::<T>()?, grad.as_slice::<T>()?);
        let mut gain = Vec::new();
        let x = Array::build::<T>(x.shape(), &x.device(), |out| {
            gain = cpu::backward::<T, false>(&tables, planes, x_slice, a_slice, grad_slice, out);
        })?;
        Ok(Gradients { x, a: Array::from_vec(gain, a.shape(), &a.device())? })
    })
}
