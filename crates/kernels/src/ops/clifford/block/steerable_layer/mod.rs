//! The whole steerable product layer of Ruhe et al. 2023 (arXiv:2305.11141) in one pass over memory:
//! `(x·left + bias + sgp(x, mv_normalization(x·right; a), w)) / √2`, with grade-wise matrices; without `left` the
//! product alone.
//!
//! `x` is `[blades, batch, features]`, `right` and `left` `[grades, features, features]`, `bias` `[features]` (on the
//! scalar), `a` `[features, grades]`, `w` `[features, paths]`. It pays for up to a hundred features or so, where a chunk
//! of rows with everything derived from it fits in cache ([`pays`]); beyond that the separate operators are as fast.

pub(crate) mod cpu;
mod cuda;
mod simt;

use crate::ops::clifford::algebra::{
    contract::{Planes, alike, exact, grades_reason, paths_reason, with_real},
    operands::shared,
    program::Programs,
};
use crate::{Array, Device, Error, Result};
use gradewise_core::{Algebra, DType};

const NAME: &str = "steerable_layer";

/// Operands of the layer: arrays, or tensors of the crate above.
#[derive(Debug)]
pub struct Operands<'a, T = Array> {
    /// The input `[blades, batch, features]`.
    pub x: &'a T,
    /// Matrices of the right factor `[grades, features, features]`.
    pub right: &'a T,
    /// Normalisation parameter of the right factor `[features, grades]`.
    pub a: &'a T,
    /// Product weights `[features, paths]`; `[paths, features, out]` if the product is fully connected.
    pub w: &'a T,
    /// Matrices `[grades, features, out]` and bias `[out]` of the map added to the product.
    pub left: Option<(&'a T, &'a T)>,
}

shared!(Operands);

impl<'a, T> Operands<'a, T> {
    /// The operands in the order of the fields; matrices and bias of the left map may be missing.
    pub fn all(&self) -> Vec<&'a T> {
        let Self { x, right, a, w, left } = *self;
        let left = left.into_iter().flat_map(|(matrices, bias)| [matrices, bias]);
        [x, right, a, w].into_iter().chain(left).collect()
    }

    /// The operands from the order of [`all`](Self::all); `None` for another number of them.
    pub fn from_all(operands: &'a [T]) -> Option<Self> {
        match operands {
            [x, right, a, w] => Some(Self { x, right, a, w, left: None }),
            [x, right, a, w, left, bias] => Some(Self { x, right, a, w, left: Some((left, bias)) }),
            _ => None,
        }
    }
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

/// The largest number of features for which a chunk, its intermediates and all matrices fit in cache together.
const MAX_FEATURES: usize = 96;

/// Whether the fused layer is the faster choice for this many features.
pub fn pays(features: usize) -> bool {
    features <= MAX_FEATURES
}

fn check(algebra: &Algebra, operands: &Operands<'_>) -> Result<(Planes, DType)> {
    let Operands { x, right, a, w, left } = *operands;
    let planes = Planes::checked(NAME, "x", algebra, x)?;
    let n = planes.features;
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
    Ok((planes, alike(NAME, &named)?))
}

/// The layer's output, of the shape of `x`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, operands: &Operands<'_>) -> Result<Array> {
    let (planes, dtype) = check(algebra, operands)?;
    let arrays = contiguous(operands)?;
    if let Device::Cuda(device) = arrays[0].device() {
        return cuda::forward(&device, algebra, planes, &view(&arrays)?);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let slices = slices::<T>(&tables, planes, &arrays)?;
        let x = arrays[0].as_slice::<T>()?;
        let build = |out: &mut [T]| cpu::forward(&slices, x, out);
        Ok(Array::build_with(arrays[0].shape(), &arrays[0].device(), build)?.0)
    })
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(algebra: &Algebra, operands: &Operands<'_>, grad: &Array) -> Result<Gradients> {
    let (planes, dtype) = check(algebra, operands)?;
    exact(NAME, "grad", grad, operands.x.shape(), || "the gradient has the shape of the output".to_owned())?;
    alike(NAME, &[("x", operands.x), ("grad", grad)])?;
    let (arrays, grad) = (contiguous(operands)?, grad.contiguous()?);
    if let Device::Cuda(device) = arrays[0].device() {
        return cuda::backward(&device, algebra, planes, &view(&arrays)?, &grad);
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let slices = slices::<T>(&tables, planes, &arrays)?;
        let (x, grad) = (arrays[0].as_slice::<T>()?, grad.as_slice::<T>()?);
        let device = arrays[0].device();
        let (grad_x, parameters) =
            Array::build_with(arrays[0].shape(), &device, |out| cpu::backward(&slices, x, grad, out))?;
        let cpu::Gradients { right, a, w, left, bias } = parameters;
        let array = |values: Vec<T>, index: usize| Array::from_vec(values, arrays[index].shape(), &device);
        Ok(Gradients {
            x: grad_x,
            right: array(right, 1)?,
            a: array(a, 2)?,
            w: array(w, 3)?,
            left: if operands.left.is_some() { Some((array(left, 4)?, array(bias, 5)?)) } else { None },
        })
    })
}

/// The operands as contiguous arrays: x, right, a, w and, if there is a left map, its matrices and bias.
fn contiguous(operands: &Operands<'_>) -> Result<Vec<Array>> {
    operands.all().into_iter().map(Array::contiguous).collect()
}

/// The arrays of [`contiguous`] as operands.
fn view(arrays: &[Array]) -> Result<Operands<'_>> {
    Operands::from_all(arrays).ok_or_else(|| Error::Argument {
        operation: NAME,
        argument: "operands",
        actual: format!("{} arrays", arrays.len()),
        expected: "4, or 6 with a left map",
    })
}

fn slices<'a, T: crate::cpu::simd::Real>(
    tables: &'a Programs,
    planes: Planes,
    arrays: &'a [Array],
) -> Result<cpu::Slices<'a, T>> {
    let Operands { x: _, right, a, w, left } = view(arrays)?;
    let left = match left {
        Some((left, bias)) => Some((left.as_slice::<T>()?, bias.as_slice::<T>()?)),
        None => None,
    };
    Ok(cpu::Slices {
        tables,
        batch: planes.rows,
        features: planes.features,
        right: right.as_slice::<T>()?,
        a: a.as_slice::<T>()?,
        w: w.as_slice::<T>()?,
        left,
    })
}
