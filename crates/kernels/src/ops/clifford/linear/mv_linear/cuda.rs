//! The grade-wise linear map on CUDA: one launch for all blades, and one for all weights. Few features on both sides or on one
//! side have kernels of their own.

use super::{Bias, Gradients, NAME, Needs, Sizes, few_to_many::FewToMany, narrow::Narrow};

pub(in crate::ops::clifford) use super::call::Backward;
use crate::{
    Array, CudaDevice, DType, Error, Result,
    cpu::gemm,
    ops::{
        self,
        clifford::algebra::device_algebra::DeviceAlgebra,
        matmul::product::{Operand, Product},
    },
    runtime::cuda::Words,
};
use gradewise_core::Algebra;
use std::cell::OnceCell;

/// Matrices of `rows` rows, `columns` elements apart, one after the other.
fn matrices(array: &Array, rows: usize, columns: usize, transpose: bool) -> Operand<'static> {
    Operand {
        address: array.cuda_address(),
        row: columns,
        stride: rows * columns,
        transpose,
        index: None,
        transposed: None,
    }
}

/// The matrix of each blade's grade, or the one that all share.
fn weights<'a>(w: &Array, sizes: &Sizes, grades: &'a Words, transpose: bool) -> Operand<'a> {
    let operand = matrices(w, sizes.inputs, sizes.outputs, transpose);
    if sizes.shared { Operand { stride: 0, ..operand } } else { Operand { index: Some(grades), ..operand } }
}

/// Elements from one row of x `[…, rows, columns]`, which is contiguous or columns of wider rows, to the next.
pub(in crate::ops::clifford) fn pitch(x: &Array) -> usize {
    let rank = x.rank();
    if x.is_contiguous() { x.dims()[rank - 1] } else { x.strides()[rank - 2] }
}

/// The map of x `[blades, batch, in]`, contiguous or columns of wider rows.
pub(in crate::ops::clifford) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    x: &Array,
    w: &Array,
    bias: Option<(&Array, Bias)>,
) -> Result<Array> {
    let blades = algebra.blade_count();
    if x.is_contiguous() {
        if let Some(narrow) = Narrow::of(device, algebra, sizes, x.dtype()) {
            return narrow.forward(x, w, with_blades(bias, algebra));
        }
        if let Some(map) = FewToMany::of(device, algebra, sizes, x.dtype()) {
            return map.forward(x, w, with_blades(bias, algebra));
        }
    }
    let tables = DeviceAlgebra::of(device, algebra)?;
    let product = Product {
        operation: NAME,
        dtype: x.dtype(),
        sizes: gemm::Sizes { m: sizes.batch, n: sizes.outputs, k: sizes.inputs },
        count: blades,
        a: matrices(x, sizes.batch, pitch(x), false),
        b: weights(w, sizes, &tables.grades, false),
        starts: None,
        segments: 1,
        bias: bias.map(|(array, bias)| (array.cuda_address(), bias.blades(algebra))),
        scale: 1.0,
        window: None,
    };
    // SAFETY: the operator's entry compared x, w and the bias with the sizes, and x lies in rows `pitch` apart; all are borrowed.
    unsafe { product.run(device, [blades, sizes.batch, sizes.outputs]) }
}

/// A bias, and how many of the first blades it is added to.
fn with_blades<'a>(bias: Option<(&'a Array, Bias)>, algebra: &Algebra) -> Option<(&'a Array, usize)> {
    bias.map(|(array, bias)| (array, bias.blades(algebra).len()))
}

/// The map of features of one dtype to features of another; `None` if no kernel reads operands of these dtypes. x, w and the bias are
/// contiguous.
pub(super) fn mixed_forward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    (x, w): (&Array, &Array),
    bias: Option<(&Array, Bias)>,
    dtype: DType,
) -> Result<Option<Array>> {
    // The features on one side are many, and those on the other one have the dtype of the matrices.
    let (few, many, read) =
        if sizes.is_from_few() { (x.dtype(), dtype, None) } else { (dtype, x.dtype(), Some(x)) };
    mixed(device, algebra, sizes, [few, w.dtype()], many, read)
        .map(|map| map.forward(x, w, with_blades(bias, algebra)))
        .transpose()
}

/// The gradients of [`mixed_forward`], each of the dtype of its operand. All arrays are contiguous.
pub(super) fn mixed_backward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    call: &Backward<'_>,
) -> Result<Option<Gradients>> {
    let Backward { x, w, bias, grad, needs, .. } = *call;
    let (few, many) = if sizes.is_from_few() { (x, grad) } else { (grad, x) };
    let of_few = [few.dtype(), w.dtype()];
    let Some(map) = mixed(device, algebra, sizes, of_few, many.dtype(), Some(many)) else {
        return Ok(None);
    };
    let blades = bias.blades(algebra);
    let mut gradients = map.backward(call, grad, blades.len())?;
    if needs.bias && gradients.bias.is_none() {
        gradients.bias = Some(ops::sum(&grad.slice(0, blades)?.cast(w.dtype())?, &[0, 1], false)?);
    }
    Ok(Some(gradients))
}

/// The kernels for few features and matrices, of these dtypes, beside many features in another.
fn mixed<'a>(
    device: &'a CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    few: [DType; 2],
    dtype: DType,
    many: Option<&Array>,
) -> Option<FewToMany<'a>> {
    (few == [DType::F32; 2]).then(|| FewToMany::mixed(device, algebra, sizes, dtype, many)).flatten()
}

/// The matrix products that compute the gradients.
struct GradientProducts<'a> {
    tables: &'a DeviceAlgebra,
    blades: usize,
    grades: usize,
    sizes: &'a Sizes,
    dtype: DType,
    /// The gradient of the output.
    upstream: Operand<'a>,
}

impl<'a> GradientProducts<'a> {
    fn new(
        algebra: &Algebra,
        tables: &'a DeviceAlgebra,
        sizes: &'a Sizes,
        dtype: DType,
        upstream: Operand<'a>,
    ) -> Self {
        let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
        Self { tables, blades, grades, sizes, dtype, upstream }
    }

    fn of_x(&self, w: &Array) -> Product<'a> {
        let Self { tables, sizes, dtype, upstream, .. } = *self;
        Product {
            operation: NAME,
            dtype,
            sizes: gemm::Sizes { m: sizes.batch, n: sizes.inputs, k: sizes.outputs },
            count: self.blades,
            a: upstream,
            b: weights(w, sizes, &tables.grades, true),
            starts: None,
            segments: 1,
            bias: None,
            scale: 1.0,
            window: None,
        }
    }

    /// The blades of a grade follow each other, so their sum is a sum over segments; for a shared matrix all blades are
    /// rows of one product.
    fn of_w(&self, x: &Array) -> Product<'a> {
        let Self { tables, sizes, dtype, upstream, .. } = *self;
        let (count, rows, segments) = match sizes.shared {
            true => (1, self.blades * sizes.batch, 1),
            false => (self.grades, sizes.batch, tables.widest),
        };
        Product {
            operation: NAME,
            dtype,
            sizes: gemm::Sizes { m: sizes.inputs, n: sizes.outputs, k: rows },
            count,
            a: matrices(x, sizes.batch, sizes.inputs, true),
            b: upstream,
            starts: (!sizes.shared).then_some(&tables.first),
            segments,
            bias: None,
            scale: 1.0,
            window: None,
        }
    }
}

/// A transposed gradient `[blades, batch, out]` at an address.
fn transposed(address: u64, sizes: &Sizes) -> Operand<'static> {
    let (row, stride) = (sizes.batch, sizes.batch * sizes.outputs);
    Operand { address, row, stride, transpose: true, index: None, transposed: None }
}

/// Whether [`backward`] reads a transposed gradient at `address` without a copy. Not with a shared matrix, whose product has the rows of
/// all blades, nor between few features, whose kernels read rows.
pub(super) fn reads_transposed(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    x: &Array,
    w: &Array,
    address: u64,
    needs: Needs,
) -> Result<bool> {
    let is_narrow = Narrow::of(device, algebra, sizes, x.dtype()).is_some();
    if sizes.shared || is_narrow || !(needs.x || needs.w) {
        return Ok(false);
    }
    let tables = DeviceAlgebra::of(device, algebra)?;
    let products = GradientProducts::new(algebra, &tables, sizes, x.dtype(), transposed(address, sizes));
    Ok((!needs.x || products.of_x(w).may_transpose_both(device)?)
        && (!needs.w || products.of_w(x).may_transpose_both(device)?))
}

/// The gradients that are asked for.
pub(in crate::ops::clifford) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    call: Backward<'_>,
) -> Result<Gradients> {
    let Backward { x, w, bias, grad, needs, add_to } = call;
    let as_it_lies = !grad.is_contiguous()
        && grad.transpose(1, 2)?.is_contiguous()
        && reads_transposed(device, algebra, sizes, x, w, grad.cuda_address(), needs)?;
    let grad = if as_it_lies { grad.clone() } else { grad.contiguous()? };
    let mut gradients = if x.is_contiguous() && !as_it_lies {
        by_rows(device, algebra, sizes, &call, &grad)?
    } else {
        Gradients::default()
    };
    let (lacks_x, lacks_w) = (needs.x && gradients.x.is_none(), needs.w && gradients.w.is_none());
    if lacks_x || lacks_w {
        // If both gradients are wanted, a row-major gradient is read along both axes: one transposed copy serves both products.
        let turned = OnceCell::new();
        let upstream = if as_it_lies {
            transposed(grad.cuda_address(), sizes)
        } else {
            let transposed = (lacks_x && lacks_w && !sizes.shared).then_some(&turned);
            Operand { transposed, ..matrices(&grad, sizes.batch, sizes.outputs, false) }
        };
        let tables = DeviceAlgebra::of(device, algebra)?;
        let products = GradientProducts::new(algebra, &tables, sizes, grad.dtype(), upstream);
        if lacks_x {
            // SAFETY: the operator's entry compared x, w and the gradient with the sizes; all live until after the call.
            gradients.x = Some(unsafe { add_or_write(device, &products.of_x(w), x, add_to)? });
        }
        if lacks_w {
            // SAFETY: as above.
            gradients.w = Some(unsafe { products.of_w(x).run(device, w.shape())? });
        }
    }
    if needs.bias && gradients.bias.is_none() {
        let range = bias.blades(algebra);
        gradients.bias = Some(ops::sum(&grad.slice(0, range)?, &[0, 1], false)?);
    }
    Ok(gradients)
}

/// The gradients that kernels for few features compute, from contiguous rows.
fn by_rows(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    call: &Backward<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let biased_blades = call.bias.blades(algebra).len();
    if let Some(narrow) = Narrow::of(device, algebra, sizes, grad.dtype()) {
        if let Some(target) = call.add_to {
            check_target(target, call.x)?;
        }
        return narrow.backward(call, grad, biased_blades);
    }
    match FewToMany::of(device, algebra, sizes, grad.dtype()) {
        Some(map) => map.backward(call, grad, biased_blades),
        None => Ok(Gradients::default()),
    }
}

/// Compares what the gradient of x is added to with x.
fn check_target(target: &Array, x: &Array) -> Result<()> {
    target.require_like(x, NAME, "add_to")?;
    target.require_shape(NAME, "add_to", x.dims(), || "the gradient of x is added to it".to_owned())?;
    if target.is_contiguous() {
        return Ok(());
    }
    let (shape, strides) = (target.shape().clone(), target.strides().to_vec());
    Err(Error::NotContiguous { operation: NAME, shape, strides })
}

/// The product of the shape of `x`, added to `target` in place if there is one.
///
/// # Safety
/// As for [`Product::run`].
unsafe fn add_or_write(
    device: &CudaDevice,
    product: &Product<'_>,
    x: &Array,
    target: Option<&Array>,
) -> Result<Array> {
    // SAFETY: as for this function.
    let Some(target) = target else { return unsafe { product.run(device, x.shape()) } };
    check_target(target, x)?;
    if target.elements() > 0 {
        // SAFETY: as for this function; `target` was compared above, and the caller has it written.
        unsafe { product.run_into(device, target, true)? };
    }
    Ok(target.clone())
}
