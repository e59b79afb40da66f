//! The whole steerable product layer of Ruhe et al. 2023 (arXiv:2305.11141) in one pass over memory:
//! `(x·left + bias + sgp(x, mv_normalization(x·right; a), w)) / √2`, with grade-wise matrices; without `left` the
//! product alone.
//!
//! `x` is `[blades, batch, features]`, `right` and `left` `[grades, features, features]`, `bias` `[features]` (on the
//! scalar), `a` `[features, grades]`, `w` `[features, paths]`. It pays for up to a hundred features or so, where a chunk
//! of rows with everything derived from it fits in cache ([`pays`]); beyond that the separate operators are as fast.

mod cpu;
mod cuda;

use super::{
    contract::{alike, exact, features, grades_reason, paths_reason, with_real},
    program::Programs,
};
use crate::{Array, Device, Result};
use gradewise_core::{Algebra, DType};

const NAME: &str = "steerable_layer";

/// Operands of the layer.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The input.
    pub x: &'a Array,
    /// Matrices of the right factor.
    pub right: &'a Array,
    /// Normalisation parameter of the right factor.
    pub a: &'a Array,
    /// Product weights.
    pub w: &'a Array,
    /// Matrices and bias of the map added to the product.
    pub left: Option<(&'a Array, &'a Array)>,
}

/// Gradients of the operands, in their order; `left` and `bias` if there is a left map.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of `x`.
    pub x: Array,
    /// Of `right`.
    pub right: Array,
    /// Of `a`.
    pub a: Array,
    /// Of `w`.
    pub w: Array,
    /// Of the left matrices and the bias.
    pub left: Option<(Array, Array)>,
}

/// Whether the fused layer is the faster choice for this many features.
pub fn pays(features: usize) -> bool {
    features <= Operands::MAX_FEATURES
}

fn check(algebra: &Algebra, operands: &Operands<'_>) -> Result<(usize, usize, DType)> {
    let Operands { x, right, a, w, left } = *operands;
    let (batch, n) = features(NAME, "x", algebra, x)?;
    let matrices = [algebra.grade_count(), n, n];
    exact(NAME, "right", right, &matrices, || grades_reason(algebra))?;
    exact(NAME, "a", a, &[n, algebra.grade_count()], || grades_reason(algebra))?;
    exact(NAME, "w", w, &[n, algebra.paths().len()], || paths_reason(algebra))?;
    let mut named = vec![("x", x), ("right", right), ("a", a), ("w", w)];
    if let Some((left, bias)) = left {
        exact(NAME, "left", left, &matrices, || grades_reason(algebra))?;
        exact(NAME, "bias", bias, &[n], || "one entry for each feature".to_owned())?;
        named.extend([("left", left), ("bias", bias)]);
    }
    Ok((batch, n, alike(NAME, &named)?))
}

/// The layer's output, of the shape of `x`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, operands: &Operands<'_>) -> Result<Array> {
    let (batch, n, dtype) = check(algebra, operands)?;
    let arrays = contiguous(operands)?;
    if let Device::Cuda(device) = arrays[0].device() {
        return cuda::forward(&device, algebra, (batch, n), &view(&arrays));
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let slices = slices::<T>(&tables, (batch, n), &arrays)?;
        Array::build::<T>(arrays[0].shape(), &arrays[0].device(), |out| cpu::forward(&slices, out))
    })
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(algebra: &Algebra, operands: &Operands<'_>, grad: &Array) -> Result<Gradients> {
    let (batch, n, dtype) = check(algebra, operands)?;
    exact(NAME, "grad", grad, operands.x.shape(), || "the gradient has the shape of the output".to_owned())?;
    alike(NAME, &[("x", operands.x), ("grad", grad)])?;
    let (arrays, grad) = (contiguous(operands)?, grad.contiguous()?);
    if let Device::Cuda(device) = arrays[0].device() {
        return cuda::backward(&device, algebra, (batch, n), &view(&arrays), &grad);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let slices = slices::<T>(&tables, (batch, n), &arrays)?;
        let grad = grad.as_slice::<T>()?;
        let device = arrays[0].device();
        let mut parameters = None;
        let x = Array::build::<T>(arrays[0].shape(), &device, |out| {
            parameters = Some(cpu::backward(&slices, grad, out));
        })?;
        let Some(cpu::Gradients { right, a, w, left, bias }) = parameters else {
            unreachable!("build calls its closure once")
        };
        let array = |values: Vec<T>, index: usize| Array::from_vec(values, arrays[index].shape(), &device);
        Ok(Gradients {
            x,
            right: array(right, 1)?,
            a: array(a, 2)?,
            w: array(w, 3)?,
            left: if operands.left.is_some() { Some((array(left, 4)?, array(bias, 5)?)) } else { None },
        })
    })
}

/// The operands as contiguous arrays: x, right, a, w and, if there is a left map, its matrices and bias.
fn contiguous(operands: &Operands<'_>) -> Result<Vec<Array>> {
    let Operands { x, right, a, w, left } = *operands;
    [x, right, a, w]
        .into_iter()
        .chain(left.map(|(left, _)| left))
        .chain(left.map(|(_, bias)| bias))
        .map(Array::contiguous)
        .collect()
}

/// The arrays of [`contiguous`] as operands.
fn view(arrays: &[Array]) -> Operands<'_> {
    let left = match arrays {
        [.., left, bias] if arrays.len() == 6 => Some((left, bias)),
        _ => None,
    };
    Operands { x: &arrays[0], right: &arrays[1], a: &arrays[2], w: &arrays[3], left }
}

fn slices<'a, T: crate::simd::Real>(
    tables: &'a Programs,
    (batch, features): (usize, usize),
    arrays: &'a [Array],
) -> Result<cpu::Slices<'a, T>> {
    let left = match arrays {
        [.., left, bias] if arrays.len() == 6 => Some((left.as_slice::<T>()?, bias.as_slice::<T>()?)),
        _ => None,
    };
    Ok(cpu::Slices {
        tables,
        batch,
        features,
        x: arrays[0].as_slice::<T>()?,
        right: arrays[1].as_slice::<T>()?,
        a: arrays[2].as_slice::<T>()?,
        w: arrays[3].as_slice::<T>()?,
        left,
    })
}
