//! mv_silu(x; a, b): grade k of `x` times σ(a_k·u_k + b_k), where u_0 is the scalar part and u_k = q(x⁽ᵏ⁾) otherwise
//! (Ruhe et al. 2023, arXiv:2305.11141). `x` is `[blades, batch, features]`, `a` and `b` are `[features, grades]`.

pub(crate) mod cpu;

use crate::ops::clifford::{
    algebra::{
        contract::{Planes, alike, exact, grades_reason, with_real},
        lanewise,
        program::Programs,
    },
    pointwise::by_grade::ByGrade,
};
use crate::{Array, Device, Result};
use gradewise_core::Algebra;

const NAME: &str = "mv_silu";
const CUDA: ByGrade = ByGrade { operation: NAME, forward: "mv_silu_fwd", backward: "mv_silu_bwd" };

fn check(algebra: &Algebra, x: &Array, a: &Array, b: &Array) -> Result<Planes> {
    let planes = Planes::checked(NAME, "x", algebra, x)?;
    exact(NAME, "a", a, &[planes.features, algebra.grade_count()], || grades_reason(algebra))?;
    exact(NAME, "b", b, &[planes.features, algebra.grade_count()], || grades_reason(algebra))?;
    Ok(planes)
}

/// The operator on `x` `[blades, batch, features]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, x: &Array, a: &Array, b: &Array) -> Result<Array> {
    let planes = check(algebra, x, a, b)?;
    let dtype = alike(NAME, &[("x", x), ("a", a), ("b", b)])?;
    let x = x.contiguous()?;
    let a = a.contiguous()?;
    let b = b.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return CUDA.forward(&device, algebra, planes, &x, &[&a, &b]);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let (x_slice, params) = (x.as_slice::<T>()?, [a.as_slice::<T>()?, b.as_slice::<T>()?]);
        Array::build::<T>(x.shape(), &x.device(), |out| {
            lanewise::forward::<T, cpu::MvSilu>(&tables, planes, x_slice, &params, out);
        })
    })
}

/// Gradients of [`forward`].
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of `x`.
    pub x: Array,
    /// Of `a`, `[features, grades]`.
    pub a: Array,
    /// Of `b`, `[features, grades]`.
    pub b: Array,
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(algebra: &Algebra, x: &Array, a: &Array, b: &Array, grad: &Array) -> Result<Gradients> {
    let planes = check(algebra, x, a, b)?;
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("a", a), ("b", b), ("grad", grad)])?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    let a = a.contiguous()?;
    let b = b.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        let (x, parameters) = CUDA.backward(&device, algebra, planes, &x, [&a, &b], &grad)?;
        let [a, b] = parameters;
        return Ok(Gradients { x, a, b });
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let (x_slice, grad_slice) = (x.as_slice::<T>()?, grad.as_slice::<T>()?);
        let params = [a.as_slice::<T>()?, b.as_slice::<T>()?];
        let mut parameters = Vec::new();
        let x = Array::build::<T>(x.shape(), &x.device(), |out| {
            parameters = lanewise::backward::<T, cpu::MvSilu>(&tables, planes, x_slice, &params, grad_slice, out);
        })?;
        let mut parameters = parameters.into_iter();
        let a = Array::from_vec(parameters.next().unwrap_or_default(), a.shape(), &a.device())?;
        let b = Array::from_vec(parameters.next().unwrap_or_default(), b.shape(), &b.device())?;
        Ok(Gradients { x, a, b })
    })
}
