//! cs_layer_norm(x): x / (mean over channels of ‖x‖ + 1e-6) with the norm of max(q, 0.01), which is 0.1 at least (Zhdanov et al. 2024,
//! arXiv:2402.14730). `x` is `[blades, points, channels]`.

use super::mv_layer_norm::cpu;
use crate::ops::clifford::algebra::{
    contract::{Planes, alike, exact, with_real},
    device_algebra::DeviceAlgebra,
    program::Programs,
};
use crate::{
    Array, CudaDevice, Device, Result,
    array::rows::row_grid,
    runtime::cuda::{Args, Kernel},
};
use gradewise_core::Algebra;

const NAME: &str = "cs_layer_norm";

/// The norm of `x`.
///
/// # Errors
/// A shape that does not fit the algebra; dtypes the device does not serve.
pub fn forward(algebra: &Algebra, x: &Array) -> Result<Array> {
    let planes = Planes::checked(NAME, "x", algebra, x)?;
    let x = x.contiguous()?;
    if let Device::Cuda(device) = x.device() {
        return launch(&device, algebra, planes, &x, None);
    }
    let tables = Programs::of(algebra);
    with_real!(x.dtype(), NAME, T => {
        let (values, ones) = (x.as_slice::<T>()?, vec![num_traits::one::<T>(); planes.features]);
        Array::build::<T>(x.shape(), &x.device(), |out| cpu::forward::<T, true>(&tables, planes, values, &ones, out))
    })
}

/// The gradient of `x` for the cotangent `grad` of the result.
///
/// # Errors
/// As [`forward`]; a gradient of another shape, dtype or device.
pub fn backward(algebra: &Algebra, x: &Array, grad: &Array) -> Result<Array> {
    let planes = Planes::checked(NAME, "x", algebra, x)?;
    exact(NAME, "grad", grad, x.shape(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("x", x), ("grad", grad)])?;
    let (x, grad) = (x.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = x.device() {
        return launch(&device, algebra, planes, &x, Some(&grad));
    }
    let tables = Programs::of(algebra);
    with_real!(dtype, NAME, T => {
        let (values, grad) = (x.as_slice::<T>()?, grad.as_slice::<T>()?);
        let ones = vec![num_traits::one::<T>(); planes.features];
        Array::build::<T>(x.shape(), &x.device(), |out| {
            // There is no gain whose gradient would be asked for.
            let _ = cpu::backward::<T, true>(&tables, planes, values, &ones, grad, out);
        })
    })
}

/// The result, or, where there is `grad`, the gradient.
fn launch(
    device: &CudaDevice,
    algebra: &Algebra,
    planes: Planes,
    x: &Array,
    grad: Option<&Array>,
) -> Result<Array> {
    let tables = DeviceAlgebra::of(device, algebra)?;
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let (name, args) = match grad {
            None => ("cs_layer_norm_fwd", Args::new().array(x)),
            Some(grad) => ("cs_layer_norm_bwd", Args::new().array(x).array(grad)),
        };
        let args = args
            .array(&out)
            .pointer(tables.metric.address())
            .size(planes.blades)
            .size(planes.rows)
            .size(planes.features);
        // SAFETY: 1: `Planes::checked` gave the sizes, and the gradient was checked to have the shape of x; both are contiguous. 2: `out`
        // is new. 3: a grid of rows. 4: the device keeps the algebra's tables.
        unsafe {
            device.launch(NAME, Kernel::new(name, x.dtype()), row_grid(planes.rows, planes.features), args)?
        };
    }
    Ok(out)
}
