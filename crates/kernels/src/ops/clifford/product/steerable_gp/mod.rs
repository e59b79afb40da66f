//! The core of the steerable product layer, fused: `(left + sgp(x, mv_normalization(right; a), w)) / √2`, or the
//! product alone without `left` (Ruhe et al. 2023, arXiv:2305.11141).
//!
//! `x`, `right` and `left` are `[blades, batch, features]`, `a` `[features, grades]`, `w` `[features, paths]`.

pub(crate) mod cuda;

use super::sgp::{self, Epilogue, Prologue, cpu, run_backward};
use crate::cpu::parallel::Flushed;
use crate::ops::clifford::algebra::{
    contract::{Planes, alike, exact, grades_reason, paths_reason, with_real},
    operands::shared,
    program::Programs,
};
use crate::{Array, Device, Element, Result};
use gradewise_core::Algebra;
use rayon::prelude::*;

const NAME: &str = "steerable_gp";

/// Operands of the steerable product: arrays, or tensors of the crate above.
#[derive(Debug)]
pub struct Operands<'a, T = Array> {
    /// Left factor `[blades, batch, features]`.
    pub x: &'a T,
    /// Right factor before its normalisation, of the shape of `x`.
    pub right: &'a T,
    /// Normalisation parameter `[features, grades]`.
    pub a: &'a T,
    /// Product weights `[features, paths]`.
    pub w: &'a T,
    /// Added to the product before the division by √2; neither happens without it.
    pub left: Option<&'a T>,
}

shared!(Operands);

impl<'a, T> Operands<'a, T> {
    /// The operands in the order of the fields; the last may be missing.
    pub fn all(&self) -> Vec<&'a T> {
        let Self { x, right, a, w, left } = *self;
        [x, right, a, w].into_iter().chain(left).collect()
    }

    /// The operands from the order of [`all`](Self::all); `None` for another number of them.
    pub fn from_all(operands: &'a [T]) -> Option<Self> {
        match operands {
            [x, right, a, w] => Some(Self { x, right, a, w, left: None }),
            [x, right, a, w, left] => Some(Self { x, right, a, w, left: Some(left) }),
            _ => None,
        }
    }
}

/// Which gradients to compute. That of `left` is free, and is returned whenever `left` is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// That of `x`.
    pub x: bool,
    /// Those of `right` and `a`, which are formed together.
    pub right: bool,
    /// That of `w`.
    pub w: bool,
}

impl Needs {
    /// All of them.
    pub const ALL: Self = Self { x: true, right: true, w: true };

    /// As those of the product of x and the normalised right factor.
    const fn of_product(self) -> sgp::Needs {
        sgp::Needs { x: self.x, y: self.right, w: self.w }
    }
}

/// Gradients of the operands; those not asked for are `None`.
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    /// Of `x`.
    pub x: Option<Array>,
    /// Of `right`.
    pub right: Option<Array>,
    /// Of `a`.
    pub a: Option<Array>,
    /// Of `w`.
    pub w: Option<Array>,
    /// Of `left`, if there is one: `grad`/√2.
    pub left: Option<Array>,
}

fn check(algebra: &Algebra, operands: &Operands<'_>) -> Result<Planes> {
    let Operands { x, right, a, w, left } = operands;
    let planes = Planes::checked(NAME, "x", algebra, x)?;
    let n = planes.features;
    exact(NAME, "right", right, x.shape(), || "both factors have one shape".to_owned())?;
    if let Some(left) = left {
        exact(NAME, "left", left, x.shape(), || "it is added to the product".to_owned())?;
    }
    exact(NAME, "a", a, &[n, algebra.grade_count()], || grades_reason(algebra))?;
    exact(NAME, "w", w, &[n, algebra.paths().len()], || paths_reason(algebra))?;
    Ok(planes)
}

/// The operands as contiguous arrays.
struct Contiguous {
    x: Array,
    right: Array,
    a: Array,
    w: Array,
    left: Option<Array>,
}

impl Contiguous {
    fn new(operands: &Operands<'_>) -> Result<Self> {
        Ok(Self {
            x: operands.x.contiguous()?,
            right: operands.right.contiguous()?,
            a: operands.a.contiguous()?,
            w: operands.w.contiguous()?,
            left: operands.left.map(Array::contiguous).transpose()?,
        })
    }

    fn operands(&self) -> Operands<'_> {
        let Self { x, right, a, w, left } = self;
        Operands { x, right, a, w, left: left.as_ref() }
    }

    fn slices<'a, T: crate::cpu::simd::Real>(
        &'a self,
        tables: &'a Programs,
        planes: Planes,
    ) -> Result<cpu::Operands<'a, T>> {
        let epilogue = match &self.left {
            Some(left) => Epilogue::Residual {
                base: left.as_slice::<T>()?,
                scale: T::narrow(std::f64::consts::FRAC_1_SQRT_2),
            },
            None => Epilogue::None,
        };
        Ok(cpu::Operands {
            tables,
            batch: planes.rows,
            features: planes.features,
            x: self.x.as_slice::<T>()?,
            y: self.right.as_slice::<T>()?,
            weights: self.w.as_slice::<T>()?,
            left: Prologue::None,
            right: Prologue::Normalize(self.a.as_slice::<T>()?),
            epilogue,
        })
    }
}

/// The product, `[blades, batch, features]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, operands: &Operands<'_>) -> Result<Array> {
    let planes = check(algebra, operands)?;
    let dtype = dtype(operands)?;
    let arrays = Contiguous::new(operands)?;
    if let Device::Cuda(device) = arrays.x.device() {
        return cuda::forward(&device, algebra, planes, &arrays.operands());
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let operands = arrays.slices::<T>(&tables, planes)?;
        Array::build::<T>(arrays.x.shape(), &arrays.x.device(), |out| {
            cpu::forward(&operands, out);
        })
    })
}

fn dtype(operands: &Operands<'_>) -> Result<gradewise_core::DType> {
    let Operands { x, right, a, w, left } = operands;
    alike(NAME, &[("x", x), ("right", right), ("a", a), ("w", w), ("left", left.unwrap_or(x))])
}

/// Gradients for the cotangent `grad` of the output, those that `needs` selects.
///
/// # Errors
/// As [`forward`].
pub fn backward(algebra: &Algebra, operands: &Operands<'_>, grad: &Array, needs: Needs) -> Result<Gradients> {
    let planes = check(algebra, operands)?;
    exact(NAME, "grad", grad, operands.x.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = dtype(operands)?;
    let arrays = Contiguous::new(operands)?;
    let grad = grad.contiguous()?;
    if let Device::Cuda(device) = arrays.x.device() {
        return cuda::backward(&device, algebra, planes, &arrays.operands(), &grad, needs);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let operands = arrays.slices::<T>(&tables, planes)?;
        let (grads, parameters) = run_backward(&operands, &arrays.x, grad.as_slice::<T>()?, needs.of_product())?;
        let [x, right] = grads;
        let device = arrays.w.device();
        let left = match &arrays.left {
            Some(_) => {
                let (grad, scale) = (grad.as_slice::<T>()?, T::narrow(std::f64::consts::FRAC_1_SQRT_2));
                Some(Array::build::<T>(arrays.x.shape(), &device, |out| {
                    const PIECE: usize = 1 << 14;
                    out.par_chunks_mut(PIECE).zip(grad.par_chunks(PIECE)).flushed_for_each(|(out, grad)| {
                        for (out, &grad) in out.iter_mut().zip(grad) {
                            *out = grad * scale;
                        }
                    });
                })?)
            }
            None => None,
        };
        Ok(Gradients {
            x,
            right,
            a: if needs.right { Some(Array::from_vec(parameters.normalization, arrays.a.shape(), &device)?) } else { None },
            w: if needs.w { Some(Array::from_vec(parameters.weights, arrays.w.shape(), &device)?) } else { None },
            left,
        })
    })
}
