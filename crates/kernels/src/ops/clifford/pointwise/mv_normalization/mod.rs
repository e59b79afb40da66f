//! mv_normalization(x; a): x⁽ᵏ⁾ / (σ(a_k)·(‖x⁽ᵏ⁾‖ − 1) + 1 + 1e-6) with the smooth norm ‖x‖ = (q² + 1e-16)^¼
//! (Ruhe et al. 2023, arXiv:2305.11141). `x` is `[blades, batch, features]`, `a` is `[features, grades]`.
//!
//! cs_grade_norm(x; a) is the same with the norm of max(q, 0.01), which is 0.1 at least (Zhdanov et al. 2024, arXiv:2402.14730).

pub(crate) mod cpu;

use crate::ops::clifford::{
    algebra::{
        contract::{Planes, alike, exact, grades_reason, with_real},
        lanewise,
        program::Programs,
        tile::sigmoids,
    },
    pointwise::by_grade::ByGrade,
};
use crate::{Array, Device, Result};
use gradewise_core::Algebra;

/// The least quadratic form of clamped norms, which are 0.1 at least.
pub const LEAST_SQUARE: f64 = crate::ops::clifford::algebra::tile::LEAST_SQUARE;

/// The norm of a grade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norm {
    /// (q² + 1e-16)^¼.
    Smooth,
    /// The same of max(q, 0.01).
    Clamped,
}

impl Norm {
    fn operation(self) -> &'static str {
        match self {
            Self::Smooth => "mv_normalization",
            Self::Clamped => "cs_grade_norm",
        }
    }

    /// The launch on CUDA.
    pub(in crate::ops::clifford) fn on_cuda(self) -> ByGrade {
        let (forward, backward) = match self {
            Self::Smooth => ("mv_normalization_fwd", "mv_normalization_bwd"),
            Self::Clamped => ("cs_grade_norm_fwd", "cs_grade_norm_bwd"),
        };
        ByGrade { operation: self.operation(), forward, backward }
    }
}

fn check(norm: Norm, algebra: &Algebra, x: &Array, a: &Array) -> Result<Planes> {
    let planes = Planes::checked(norm.operation(), "x", algebra, x)?;
    exact(norm.operation(), "a", a, &[planes.features, algebra.grade_count()], || grades_reason(algebra))?;
    Ok(planes)
}

/// The operator on `x` `[blades, batch, features]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(norm: Norm, algebra: &Algebra, x: &Array, a: &Array) -> Result<Array> {
    let planes = check(norm, algebra, x, a)?;
    let dtype = alike(norm.operation(), &[("x", x), ("a", a)])?;
    let x = x.contiguous()?;
    let a = a.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return norm.on_cuda().forward(&device, algebra, planes, &x, &[&a]);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, norm.operation(), T => {
        let x_slice = x.as_slice::<T>()?;
        let (s, complement) = sigmoids(a.as_slice::<T>()?);
        let params = [&s[..], &complement[..]];
        Array::build::<T>(x.shape(), &x.device(), |out| {
            match norm {
                Norm::Smooth => lanewise::forward::<T, cpu::MvNormalization<false>>(&tables, planes, x_slice, &params, out),
                Norm::Clamped => lanewise::forward::<T, cpu::MvNormalization<true>>(&tables, planes, x_slice, &params, out),
            }
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
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(norm: Norm, algebra: &Algebra, x: &Array, a: &Array, grad: &Array) -> Result<Gradients> {
    let planes = check(norm, algebra, x, a)?;
    exact(norm.operation(), "grad", grad, x.shape(), || {
        "the gradient has the shape of the output".to_owned()
    })?;
    let dtype = alike(norm.operation(), &[("x", x), ("a", a), ("grad", grad)])?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    let a = a.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        let (x, [a]) = norm.on_cuda().backward(&device, algebra, planes, &x, [&a], &grad)?;
        return Ok(Gradients { x, a });
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, norm.operation(), T => {
        let (x_slice, grad_slice) = (x.as_slice::<T>()?, grad.as_slice::<T>()?);
        let (s, complement) = sigmoids(a.as_slice::<T>()?);
        let params = [&s[..], &complement[..]];
        let mut parameters = Vec::new();
        let x = Array::build::<T>(x.shape(), &x.device(), |out| {
            parameters = match norm {
                Norm::Smooth => {
                    lanewise::backward::<T, cpu::MvNormalization<false>>(&tables, planes, x_slice, &params, grad_slice, out)
                }
                Norm::Clamped => {
                    lanewise::backward::<T, cpu::MvNormalization<true>>(&tables, planes, x_slice, &params, grad_slice, out)
                }
            };
        })?;
        let mut parameters = parameters.into_iter();
        let a = Array::from_vec(parameters.next().unwrap_or_default(), a.shape(), &a.device())?;
        Ok(Gradients { x, a })
    })
}
