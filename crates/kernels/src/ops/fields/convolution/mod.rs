//! Convolution of fields that have a leading axis of blades, and its two adjoints.
//!
//! All three are faces of one trilinear form over a field x `[I, batch, *input, C]`, a field y `[J, batch, *output, O]` and a kernel w
//! `[J, O, I, *taps, C/groups]`:
//!
//! Σ y_j[b, p, o] · w[j, o, i, t, c] · x_i[b, p·stride + t·dilation − before, c]
//!
//! with x zero outside of its extent, and o and c in the same group. [`forward`] is its derivative by y: cross-correlation, as deep
//! learning frameworks call a convolution. [`adjoint`] is its derivative by x: transposed convolution. [`kernel`] is its derivative by w.
//! The derivatives of each are the other two, so that gradients of any order come from these three.

mod cpu;
mod cuda;
mod geometry;
mod hopper;

pub use geometry::{Axis, Geometry};
pub(crate) use hopper::shared_bytes_of_kernel;

use crate::ops::clifford::algebra::contract::{alike, exact, with_real};
use crate::{Array, Device, Error, Result};
use geometry::Sizes;
use gradewise_core::{Error as CoreError, Shape};

/// Names of the three faces in errors.
const FORWARD: &str = "field_convolution";
const ADJOINT: &str = "field_convolution_adjoint";
const KERNEL: &str = "field_convolution_kernel";

/// The parts of a field's shape: blades, batch and channels; its extents are those that the geometry states.
struct Field {
    blades: usize,
    batch: usize,
    channels: usize,
}

fn field(operation: &'static str, argument: &'static str, array: &Array, extents: &[usize]) -> Result<Field> {
    if let [blades, batch, space @ .., channels] = array.dims()
        && space == extents
    {
        return Ok(Field { blades: *blades, batch: *batch, channels: *channels });
    }
    let text: Vec<String> = extents.iter().map(usize::to_string).collect();
    Err(CoreError::Shape {
        operation,
        argument,
        actual: array.shape().clone(),
        expected: format!("[blades, batch, {}, channels]", text.join(", ")),
        reason: "the extents are those of the geometry".to_owned(),
    }
    .into())
}

/// The blades and channels of both fields, as the kernel `w` says.
fn of_kernel(operation: &'static str, geometry: &Geometry, w: &Array) -> Result<[usize; 4]> {
    if let [j, o, i, taps @ .., c] = w.dims()
        && taps.iter().copied().eq(geometry.axes().iter().map(|axis| axis.kernel))
    {
        return Ok([*i, *c * geometry.groups(), *j, *o]);
    }
    let text: Vec<String> = geometry.axes().iter().map(|axis| axis.kernel.to_string()).collect();
    Err(CoreError::Shape {
        operation,
        argument: "w",
        actual: w.shape().clone(),
        expected: format!("[blades out, out, blades in, {}, in / groups]", text.join(", ")),
        reason: "the taps are those of the geometry".to_owned(),
    }
    .into())
}

fn require_groups(operation: &'static str, geometry: &Geometry, c: usize, o: usize) -> Result<()> {
    let groups = geometry.groups();
    if c.is_multiple_of(groups) && o.is_multiple_of(groups) {
        return Ok(());
    }
    let actual = format!("{groups}, for {c} channels in and {o} out");
    Err(Error::Argument { operation, argument: "groups", actual, expected: "a divisor of both" })
}

/// y `[J, batch, *output, O]` for the field `x` `[I, batch, *input, C]` and the kernel `w` `[J, O, I, *taps, C/groups]`.
///
/// # Errors
/// Shapes that do not fit the geometry or each other, different dtypes or devices, named; dtypes the device does not serve.
pub fn forward(geometry: &Geometry, x: &Array, w: &Array) -> Result<Array> {
    let field = field(FORWARD, "x", x, &geometry.extents(|axis| axis.input))?;
    let [i, c, j, o] = of_kernel(FORWARD, geometry, w)?;
    exact(FORWARD, "x", x, &shape(i, field.batch, geometry.extents(|axis| axis.input), c), || {
        "blades and channels are those of the kernel".to_owned()
    })?;
    require_groups(FORWARD, geometry, c, o)?;
    let dtype = alike(FORWARD, &[("x", x), ("w", w)])?;
    let sizes = Sizes::new(geometry, field.batch, [i, c, j, o]);
    let out = shape(j, field.batch, geometry.extents(|axis| axis.output), o);
    let (x, gather) = (x.contiguous()?, sizes.forward(geometry));
    if let Device::Cuda(device) = x.device() {
        return cuda::gathered(FORWARD, &device, &gather, [&x, w], out);
    }
    let w = gather.by_group(w)?;
    with_real!(dtype, FORWARD, T => {
        let (x_slice, w_slice) = (x.as_slice::<T>()?, w.as_slice::<T>()?);
        Array::build::<T>(out, &x.device(), |out| cpu::gathered(&gather, x_slice, w_slice, out))
    })
}

/// x `[I, batch, *input, C]` for the field `y` `[J, batch, *output, O]` and the kernel `w` `[J, O, I, *taps, C/groups]`.
///
/// # Errors
/// As [`forward`].
pub fn adjoint(geometry: &Geometry, y: &Array, w: &Array) -> Result<Array> {
    let field = field(ADJOINT, "y", y, &geometry.extents(|axis| axis.output))?;
    let [i, c, j, o] = of_kernel(ADJOINT, geometry, w)?;
    exact(ADJOINT, "y", y, &shape(j, field.batch, geometry.extents(|axis| axis.output), o), || {
        "blades and channels are those of the kernel".to_owned()
    })?;
    require_groups(ADJOINT, geometry, c, o)?;
    let dtype = alike(ADJOINT, &[("y", y), ("w", w)])?;
    let sizes = Sizes::new(geometry, field.batch, [i, c, j, o]);
    let out = shape(i, field.batch, geometry.extents(|axis| axis.input), c);
    let (y, gather) = (y.contiguous()?, sizes.adjoint(geometry));
    if let Device::Cuda(device) = y.device() {
        return cuda::gathered(ADJOINT, &device, &gather, [&y, w], out);
    }
    let w = gather.by_group(w)?;
    with_real!(dtype, ADJOINT, T => {
        let (y_slice, w_slice) = (y.as_slice::<T>()?, w.as_slice::<T>()?);
        Array::build::<T>(out, &y.device(), |out| cpu::gathered(&gather, y_slice, w_slice, out))
    })
}

/// w `[J, O, I, *taps, C/groups]` for the fields `x` `[I, batch, *input, C]` and `y` `[J, batch, *output, O]`.
///
/// # Errors
/// As [`forward`].
pub fn kernel(geometry: &Geometry, x: &Array, y: &Array) -> Result<Array> {
    let of_x = field(KERNEL, "x", x, &geometry.extents(|axis| axis.input))?;
    let of_y = field(KERNEL, "y", y, &geometry.extents(|axis| axis.output))?;
    let expected = shape(of_y.blades, of_x.batch, geometry.extents(|axis| axis.output), of_y.channels);
    exact(KERNEL, "y", y, &expected, || "both fields have one batch".to_owned())?;
    require_groups(KERNEL, geometry, of_x.channels, of_y.channels)?;
    let dtype = alike(KERNEL, &[("x", x), ("y", y)])?;
    let sizes = Sizes::new(geometry, of_x.batch, [of_x.blades, of_x.channels, of_y.blades, of_y.channels]);
    let mut out = vec![of_y.blades, of_y.channels, of_x.blades];
    out.extend(geometry.extents(|axis| axis.kernel));
    out.push(of_x.channels / geometry.groups());
    let (x, y, gather) = (x.contiguous()?, y.contiguous()?, sizes.forward(geometry));
    if let Device::Cuda(device) = x.device() {
        return cuda::gradient(KERNEL, &device, &gather, [&x, &y], out.into());
    }
    with_real!(dtype, KERNEL, T => {
        let (x_slice, y_slice) = (x.as_slice::<T>()?, y.as_slice::<T>()?);
        Array::build::<T>(out, &x.device(), |out| cpu::kernel(&gather, x_slice, y_slice, out))
    })
}

fn shape(blades: usize, batch: usize, extents: Vec<usize>, channels: usize) -> Shape {
    [blades, batch].into_iter().chain(extents).chain([channels]).collect()
}

#[cfg(test)]
mod tests;
