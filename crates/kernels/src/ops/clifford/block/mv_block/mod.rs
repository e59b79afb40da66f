//! A block of the Clifford-group-equivariant networks of Ruhe et al. 2023 (arXiv:2305.11141) as one operator:
//!
//! ```text
//! h   = mv_silu(mv_linear(x))
//! out = mv_layer_norm((mv_linear(h; left) + sgp(h, mv_normalization(mv_linear(h; right)), w)) / √2)
//! ```
//!
//! and residual + out where a residual is given.
//!
//! With at most 32 features, that is one launch forward and two backward, where the separate operators take about thirty. It
//! [`serves`] CUDA devices, the algebras it was compiled for, at most 32 features, or 64 on compute capability 9.0, and as many inputs
//! as fit into a block's shared memory. On the CPU it serves every algebra, as many features as leave a chunk of rows in cache
//! ([`steerable_layer::pays`]), and intermediates of at least [`LEAST_ELEMENTS`]. For anything else, the separate operators compute
//! the same.
//!
//! On a GPU there are kernels for few and for many rows. For few, every lane of a warp has a feature, and sums are plain `f32`. For many,
//! linear maps go by matrix instructions, with the accuracy of `f32` for `f32`, whatever the compute mode; these are compiled for compute
//! capability 9.0. With more than 32 features, the first map and the gradient of its input are launches of their own, and so are the
//! gradients of matrices; products of `f32` are those of the compute mode. Features have 32 or 16 bits.

mod cpu;
mod cuda;
mod kept;
mod simt;
mod sm90;
mod sm90_64;

pub use kept::{Forward, Kept};

use super::{operands::Sizes, simt::MOST_FEATURES, steerable_layer};
use crate::ops::clifford::algebra::{
    contract::{Planes, alike, exact, grades_reason, paths_reason, with_real},
    operands::shared,
    program::Programs,
};
use crate::{Array, CudaDevice, Device, Error, Result};
use gradewise_core::{Algebra, DType};

const NAME: &str = "mv_block";

/// Most inputs on the CPU: twice what a block of the most features has.
const MOST_INPUTS: usize = 192;

/// Fewest elements of an intermediate on the CPU. Smaller intermediates stay in cache between the separate operators, which are then as
/// fast, and which make it easier to find a faulty operation.
pub const LEAST_ELEMENTS: usize = 1 << 18;

/// Number of operands without the residual.
pub const OPERANDS: usize = 11;

/// Operands of the block: arrays, or tensors of the crate above. All have one dtype, or the parameters `f32` and the features, `x` and
/// the residual, 16 bits.
#[derive(Debug)]
pub struct Operands<'a, T = Array> {
    /// The input `[blades, batch, inputs]`.
    pub x: &'a T,
    /// Matrices `[grades, inputs, features]` and bias `[features]` (on the scalar) of the first map.
    pub linear: (&'a T, &'a T),
    /// `a` and `b` of the silu, `[features, grades]`.
    pub silu: (&'a T, &'a T),
    /// Matrices of the right factor `[grades, features, features]`.
    pub right: &'a T,
    /// Normalisation parameter of the right factor `[features, grades]`.
    pub normalization: &'a T,
    /// Product weights `[features, paths]`.
    pub product: &'a T,
    /// Matrices `[grades, features, features]` and bias `[features]` of the map added to the product.
    pub left: (&'a T, &'a T),
    /// Gain of the layer norm `[features]`.
    pub gain: &'a T,
    /// What is added to the output, of its shape.
    pub residual: Option<&'a T>,
}

shared!(Operands);

impl<'a, T> Operands<'a, T> {
    /// Maps every operand, such as from tensors to their arrays.
    pub fn map<U>(&self, form: impl Fn(&'a T) -> &'a U) -> Operands<'a, U> {
        let Self { x, linear, silu, right, normalization, product, left, gain, residual } = *self;
        let pair = |(first, second): (&'a T, &'a T)| (form(first), form(second));
        Operands {
            x: form(x),
            linear: pair(linear),
            silu: pair(silu),
            right: form(right),
            normalization: form(normalization),
            product: form(product),
            left: pair(left),
            gain: form(gain),
            residual: residual.map(&form),
        }
    }

    /// All operands but the residual: `x`, then the parameters in the order of the fields.
    pub fn all(&self) -> [&'a T; OPERANDS] {
        let Self { x, linear, silu, right, normalization, product, left, gain, residual: _ } = *self;
        [x, linear.0, linear.1, silu.0, silu.1, right, normalization, product, left.0, left.1, gain]
    }

    /// The operands from the order of [`all`](Self::all), followed by the residual if there is one; `None` for any other count.
    pub fn from_all(arrays: &'a [T]) -> Option<Self> {
        let [x, w, bias, a, b, right, normalization, product, left, left_bias, gain, residual @ ..] = arrays
        else {
            return None;
        };
        let residual = match residual {
            [] => None,
            [residual] => Some(residual),
            _ => return None,
        };
        Some(Self {
            x,
            linear: (w, bias),
            silu: (a, b),
            right,
            normalization,
            product,
            left: (left, left_bias),
            gain,
            residual,
        })
    }
}

fn like_the_output() -> String {
    "it has the shape of the output".to_owned()
}

const NAMES: [&str; OPERANDS] =
    ["x", "linear", "bias", "a", "b", "right", "normalization", "product", "left", "left bias", "gain"];

/// The sizes, if the shapes fit together.
fn sizes(algebra: &Algebra, operands: &Operands<'_>) -> Result<Sizes> {
    let all = operands.all();
    let Planes { rows: batch, features: inputs, .. } = Planes::checked(NAME, "x", algebra, operands.x)?;
    let (n, grades, paths) = (operands.gain.elements(), algebra.grade_count(), algebra.paths().len());
    let expected: [&[usize]; OPERANDS] = [
        operands.x.dims(),
        &[grades, inputs, n],
        &[n],
        &[n, grades],
        &[n, grades],
        &[grades, n, n],
        &[n, grades],
        &[n, paths],
        &[grades, n, n],
        &[n],
        &[n],
    ];
    for ((name, array), expected) in NAMES.into_iter().zip(all).zip(expected) {
        exact(NAME, name, array, expected, || {
            if name == "product" { paths_reason(algebra) } else { grades_reason(algebra) }
        })?;
    }
    if let Some(residual) = operands.residual {
        exact(NAME, "residual", residual, &[algebra.blade_count(), batch, n], like_the_output)?;
    }
    Ok(Sizes { batch, inputs, features: n })
}

/// The sizes, if shapes, dtypes and devices fit together.
fn check(algebra: &Algebra, operands: &Operands<'_>) -> Result<Sizes> {
    let sizes = sizes(algebra, operands)?;
    let all = operands.all();
    let parameters: [_; OPERANDS - 1] = std::array::from_fn(|index| (NAMES[index + 1], all[index + 1]));
    let dtype = alike(NAME, &parameters)?;
    // Mixed precision: features in 16 bits, parameters in f32.
    if dtype == DType::F32 && operands.x.dtype().size() == 2 {
        operands.x.require_beside(&operands.gain.device(), NAME, "linear")?;
    } else {
        alike(NAME, &[("x", operands.x), ("linear", operands.linear.0)])?;
    }
    if let Some(residual) = operands.residual {
        alike(NAME, &[("x", operands.x), ("residual", residual)])?;
    }
    Ok(sizes)
}

/// Whether a kernel serves these operands and is faster than the separate operators. [`forward`] refuses operands without a kernel.
pub fn serves(algebra: &Algebra, operands: &Operands<'_>) -> bool {
    let Device::Cuda(device) = operands.x.device() else {
        return check(algebra, operands).is_ok_and(|sizes| {
            let elements = algebra.blade_count() * sizes.batch * sizes.features;
            elements >= LEAST_ELEMENTS && serves_on_the_cpu(sizes, operands)
        });
    };
    check(algebra, operands)
        .is_ok_and(|sizes| plan(&device, algebra, sizes, operands.x.dtype(), operands.gain.dtype()).is_some())
}

/// Whether blocks of so many features on this device read x fastest where its rows begin at multiples of 16 bytes. They also read it as
/// columns of wider rows.
pub(in crate::ops) fn wants_aligned_rows(device: &CudaDevice, features: usize, dtype: DType) -> bool {
    sm90_64::serves(device, features, dtype)
}

/// Whether the CPU computes in this dtype, and the working set of a chunk of rows fits in its cache.
fn serves_on_the_cpu(sizes: Sizes, operands: &Operands<'_>) -> bool {
    let dtype = operands.x.dtype();
    matches!(dtype, DType::F32 | DType::F64)
        && operands.gain.dtype() == dtype
        && steerable_layer::pays(sizes.features)
        && sizes.inputs <= MOST_INPUTS
}

/// Whether there is a kernel for these operands with the features in `dtype`, once they are converted to it.
pub fn serves_features_in(dtype: DType, algebra: &Algebra, operands: &Operands<'_>) -> bool {
    let Device::Cuda(device) = operands.x.device() else { return false };
    let parameters = operands.gain.dtype();
    (parameters == dtype || (parameters == DType::F32 && dtype.size() == 2))
        && (operands.x.dtype() == dtype || operands.x.dtype() == DType::F32)
        && sizes(algebra, operands)
            .is_ok_and(|sizes| plan(&device, algebra, sizes, dtype, parameters).is_some())
}

/// How the block runs on a GPU.
enum Plan {
    /// A kernel for each pass.
    Whole(cuda::Plan),
    /// A kernel for each pass between products of matrices.
    Wide(sm90_64::Plan),
}

/// How the block runs on a device with features and parameters in these dtypes; `None` if no kernel serves the sizes.
fn plan(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: Sizes,
    features: DType,
    parameters: DType,
) -> Option<Plan> {
    let is_wide = parameters == DType::F32;
    if sizes.features > MOST_FEATURES {
        return sm90_64::plan(device, algebra, sizes, features, is_wide).map(Plan::Wide);
    }
    let by_rows = || simt::plan(device, algebra, sizes, features, is_wide);
    let by_tiles = || sm90::plan(device, algebra, sizes, features, is_wide);
    let plan =
        if sm90::pay(device, sizes) { by_tiles().or_else(by_rows) } else { by_rows().or_else(by_tiles) };
    plan.map(Plan::Whole)
}

/// The device of the operands, and how the block runs there.
fn planned(algebra: &Algebra, arrays: &[Array], sizes: Sizes) -> Result<(CudaDevice, Plan)> {
    let Device::Cuda(device) = arrays[0].device() else { return Err(unserved()) };
    let plan = plan(&device, algebra, sizes, arrays[0].dtype(), arrays[1].dtype()).ok_or_else(unserved)?;
    Ok((device, plan))
}

fn unserved() -> Error {
    Error::NoKernel { operation: NAME, kernel: "operands that `serves` accepts".to_owned() }
}

/// The block's output.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named; [`Error::NoKernel`] where it does not [`serves`](serves()).
pub fn forward(algebra: &Algebra, operands: &Operands<'_>) -> Result<Forward> {
    let sizes = check(algebra, operands)?;
    let arrays = contiguous(operands)?;
    let residual = operands.residual.map(Array::contiguous).transpose()?;
    if let Device::Cpu = arrays[0].device() {
        if !serves_on_the_cpu(sizes, operands) {
            return Err(unserved());
        }
        let tables = Programs::of(algebra);
        return with_real!(arrays[0].dtype(), NAME, T => {
            cpu::forward::<T>(&tables, sizes, &arrays, residual.as_ref())
        });
    }
    let (device, plan) = planned(algebra, &arrays, sizes)?;
    match plan {
        Plan::Whole(plan) => cuda::forward(&device, algebra, &plan, &arrays, residual.as_ref()),
        Plan::Wide(plan) => sm90_64::forward(&device, algebra, &plan, &arrays, residual.as_ref()),
    }
}

/// Gradients of the operands for the cotangent `grad` of the output, in the order of [`Operands::all`]; that of `x` only if needed. Those
/// of the parameters are parts of one array. That of the residual is `grad` itself and is not returned.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    algebra: &Algebra,
    operands: &Operands<'_>,
    kept: &Kept,
    grad: &Array,
    need_x: bool,
) -> Result<Vec<Option<Array>>> {
    let sizes = check(algebra, operands)?;
    let shape = [algebra.blade_count(), sizes.batch, sizes.features];
    for (name, array) in Kept::NAMES.into_iter().zip(kept.intermediates()).chain([("grad", grad)]) {
        exact(NAME, name, array, &shape, like_the_output)?;
        alike(NAME, &[("x", operands.x), (name, array)])?;
    }
    // As the forward pass makes them: kernels take them as they are.
    if let Some(view) = kept.intermediates().iter().find(|array| !array.is_contiguous()) {
        let (shape, strides) = (view.shape().clone(), view.strides().to_vec());
        return Err(Error::NotContiguous { operation: NAME, shape, strides });
    }
    let arrays = contiguous(operands)?;
    let grad = grad.contiguous()?;
    if let Device::Cpu = arrays[0].device() {
        if !serves_on_the_cpu(sizes, operands) {
            return Err(unserved());
        }
        let tables = Programs::of(algebra);
        return with_real!(arrays[0].dtype(), NAME, T => {
            cpu::backward::<T>(&tables, sizes, &arrays, kept.all()?, &grad, need_x)
        });
    }
    let (device, plan) = planned(algebra, &arrays, sizes)?;
    match plan {
        Plan::Whole(plan) => cuda::backward(&device, &plan, &arrays, kept.all()?, &grad, need_x),
        Plan::Wide(plan) => sm90_64::backward(&device, algebra, &plan, &arrays, kept.first()?, &grad, need_x),
    }
}

/// All operands but the residual, contiguous, unless the way to run reads x as it lies.
fn contiguous(operands: &Operands<'_>) -> Result<Vec<Array>> {
    let as_it_lies = operands.gain.elements() > MOST_FEATURES && sm90_64::reads(operands.x);
    // Reserves the whole length: collecting from `Result`s would grow the vector step by step.
    let mut arrays = Vec::with_capacity(OPERANDS);
    for (number, array) in operands.all().into_iter().enumerate() {
        arrays.push(if number == 0 && as_it_lies { array.clone() } else { array.contiguous()? });
    }
    Ok(arrays)
}
