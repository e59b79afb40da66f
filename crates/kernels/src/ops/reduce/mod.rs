//! Reductions over axes.
//!
//! Sums run in double precision whatever the storage, over chunks whose size depends on the shape only: the same
//! inputs give the same bits on any number of threads.

pub(crate) mod cpu;
pub(crate) mod cuda;
mod cumsum;
mod reducer;
mod statistics;
mod summary;

pub use cumsum::cumsum;
pub use summary::{Summary, Validation};

use crate::{
    Array, Device, Element, Error, Result,
    array::{
        layout::collapse,
        lazy::{Description, Reads, is_recording},
    },
    cpu::element::with_element,
};
use gradewise_core::{PerAxis, Shape};
use reducer::{Greatest, Least, Reducer, Sum};

/// The sum over `axes`, which stay as size 1 if `keep`. No axes: the array itself.
///
/// # Errors
/// If an axis is out of range or occurs twice.
pub fn sum(x: &Array, axes: &[usize], keep: bool) -> Result<Array> {
    reduce::<Sum>("sum", x, axes, keep, 1.0)
}

/// The mean over `axes`, which stay as size 1 if `keep`. The mean of nothing is NaN.
///
/// # Errors
/// If an axis is out of range or occurs twice.
pub fn mean(x: &Array, axes: &[usize], keep: bool) -> Result<Array> {
    let count: usize = axes.iter().filter_map(|&axis| x.dims().get(axis)).product();
    reduce::<Sum>("mean", x, axes, keep, 1.0 / count as f64)
}

/// The greatest element over `axes`, which stay as size 1 if `keep`; NaN if one of the elements is.
///
/// # Errors
/// If an axis is out of range, occurs twice or is empty.
pub fn max_over(x: &Array, axes: &[usize], keep: bool) -> Result<Array> {
    extremum::<Greatest>("max", x, axes, keep)
}

/// The least element over `axes`, which stay as size 1 if `keep`; NaN if one of the elements is.
///
/// # Errors
/// If an axis is out of range, occurs twice or is empty.
pub fn min_over(x: &Array, axes: &[usize], keep: bool) -> Result<Array> {
    extremum::<Least>("min", x, axes, keep)
}

/// The sum over those axes along which `shape` is broadcast to the shape of `x`: the gradient of broadcasting.
///
/// # Errors
/// If `shape` does not broadcast to the shape of `x`.
pub fn sum_to(x: &Array, shape: &Shape) -> Result<Array> {
    const NAME: &str = "sum_to";
    if x.shape() == shape {
        return Ok(x.clone());
    }
    if shape.rank() > x.rank() || shape.broadcast(x.shape(), NAME)? != *x.shape() {
        let (left, right) = (x.shape().clone(), shape.clone());
        return Err(gradewise_core::Error::Broadcast { operation: NAME, left, right }.into());
    }
    let missing = x.rank() - shape.rank();
    let stretched = |&axis: &usize| axis < missing || shape[axis - missing] != x.dims()[axis];
    let axes = (0..x.rank()).filter(stretched).collect::<Vec<_>>();
    reduce::<Sum>(NAME, x, &axes, true, 1.0)?.reshape(shape)
}

fn extremum<R: Reducer>(name: &'static str, x: &Array, axes: &[usize], keep: bool) -> Result<Array> {
    if axes.iter().any(|&axis| x.dims().get(axis) == Some(&0)) {
        return Err(Error::Axes {
            operation: name,
            axes: axes.to_vec(),
            reason: "include an empty one, which has no extremum",
            shape: x.shape().clone(),
        });
    }
    reduce::<R>(name, x, axes, keep, 1.0)
}

fn reduce<R: Reducer>(
    name: &'static str,
    x: &Array,
    axes: &[usize],
    keep: bool,
    scale: f64,
) -> Result<Array> {
    let mut reduced = vec![false; x.rank()];
    for &axis in axes {
        crate::array::require_axis(name, axis, x.shape())?;
        if std::mem::replace(&mut reduced[axis], true) {
            return Err(Error::Axes {
                operation: name,
                axes: axes.to_vec(),
                reason: "contain one twice",
                shape: x.shape().clone(),
            });
        }
    }
    if axes.is_empty() {
        return Ok(x.clone());
    }
    let of = |want: bool, values: &[usize]| -> PerAxis {
        values.iter().zip(&reduced).filter(|&(_, &is)| is == want).map(|(&value, _)| value).collect()
    };
    let kept_sizes = of(false, x.dims());
    let layout = Layout {
        kept: merged(&kept_sizes, &of(false, x.strides())),
        reduced: merged(&of(true, x.dims()), &of(true, x.strides())),
    };
    let shape: Shape = if keep {
        let size = |(&size, &reduced): (&usize, &bool)| if reduced { 1 } else { size };
        x.dims().iter().zip(&reduced).map(size).collect()
    } else {
        kept_sizes.into()
    };
    if let Device::Cuda(device) = x.device() {
        return cuda::run::<R>(&device, name, x, &layout, &reduced, scale, &shape);
    }
    with_element!(x.dtype(), name, T => {
        if let Some(value) = described::<T, R>(name, x, &layout, scale, &shape)? {
            return Ok(value);
        }
        let source = x.strided_slice::<T>(name)?.0;
        let Layout { kept, reduced } = &layout;
        let task = cpu::Task {
            source,
            kept: (&kept.0, &kept.1),
            reduced: (&reduced.0, &reduced.1),
            scale,
        };
        Array::build(&shape, &x.device(), |out: &mut [T]| cpu::run::<T, R>(&task, out))
    })
}

/// The reduction as a value that waits, where it is computed row by row of a value that waits as well.
fn described<T: Element, R: Reducer>(
    name: &'static str,
    x: &Array,
    layout: &Layout,
    scale: f64,
    shape: &Shape,
) -> Result<Option<Array>> {
    let Layout { kept: (sizes, strides), reduced } = layout;
    let [leading, ..] = sizes[..] else { return Ok(None) };
    if !is_recording() || x.elements() == 0 {
        return Ok(None);
    }
    let inside =
        reduced.0.iter().zip(&reduced.1).map(|(size, stride)| (size - 1) * stride).sum::<usize>() + 1;
    let reads = Reads::Strided { sizes, strides, inside };
    if !x.is_local(reads) {
        return Ok(None);
    }
    let function = cpu::Rows::<T, R>::new((sizes, strides), (&reduced.0, &reduced.1), x.offset(), scale);
    let operands = &[(x, reads)];
    let (operation, dtype, function) = (name, T::DTYPE, Box::new(function));
    let description =
        Description { operation, dtype, shape, operands, parts: leading, is_exact: false, function };
    Array::waiting(description).map(Some)
}

/// Sizes and strides, merged, of the axes that stay and of those that are reduced.
struct Layout {
    kept: (PerAxis, PerAxis),
    reduced: (PerAxis, PerAxis),
}

fn merged(sizes: &[usize], strides: &[usize]) -> (PerAxis, PerAxis) {
    let (sizes, [strides]) = collapse(sizes, [strides]);
    (sizes, strides)
}
