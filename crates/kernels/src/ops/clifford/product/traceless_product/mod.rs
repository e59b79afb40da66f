//! The symmetric traceless part of the product of two vectors: what the geometric product leaves out, whose parts are the scalar
//! u·v and the bivector u∧v.
//!
//! S = ½(u⊗v + v⊗u) − (u·v)/n · g⁻¹ in n dimensions with the metric g of a signature (p,q,0): of three dimensions the spherical
//! tensors of degree 2, even under inversion. A track of it carries what products of vectors and bivectors alone cannot (Weiler et al.
//! 2018, arXiv:1807.02547, for the degrees). `u` and `v` are `[n, batch, features]`, the result
//! `[n(n+1)/2 − 1, batch, features]`: S₁₁, S₁₂, …, S₁ₙ, S₂₂, …, Sₙ₋₁,ₙ without Sₙₙ, which follows from the trace.

mod cpu;

use crate::ops::clifford::algebra::contract::{alike, exact, with_real};
use crate::{
    Array, CudaDevice, Device, Result,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::{Error as CoreError, Signature};

const NAME: &str = "traceless_product";

/// The sizes of the operands.
#[derive(Clone, Copy)]
struct Sizes {
    /// The number of generators that square to +1; those after them square to −1.
    positive: usize,
    /// The dimension of the vectors.
    dimension: usize,
    /// Positions of each component: rows times features.
    plane: usize,
    batch: usize,
    features: usize,
}

impl Sizes {
    fn components(&self) -> [usize; 3] {
        [components(self.dimension), self.batch, self.features]
    }

    /// Launches a kernel that takes `arrays` and the sizes, a thread for each position.
    ///
    /// # Safety
    /// The kernel is one of this product, and `arrays` are its operands, contiguous and of these sizes, and then new arrays for its results.
    unsafe fn launch(&self, device: &CudaDevice, kernel: Kernel, arrays: &[&Array]) -> Result<()> {
        if self.plane == 0 {
            return Ok(());
        }
        let args = arrays.iter().fold(Args::new(), |args, array| args.array(array));
        let args = args.size(self.positive).size(self.dimension).size(self.plane);
        // SAFETY: 1, 2 and 4: as the caller vouches. 3: linear, a thread for a position; the kernels stride.
        unsafe { device.launch(NAME, kernel, Grid::linear(self.plane), args) }
    }
}

/// The independent components of a symmetric traceless tensor of rank 2 in `dimension` dimensions.
pub fn components(dimension: usize) -> usize {
    (dimension * (dimension + 1) / 2).saturating_sub(1)
}

fn check(signature: Signature, u: &Array, v: &Array) -> Result<Sizes> {
    let Signature { p, q, r } = signature;
    let dimension = usize::from(p) + usize::from(q);
    if r > 0 || dimension < 2 {
        return Err(CoreError::Undefined {
            operation: NAME,
            reason: "the trace takes the inverse of the metric: give a signature p,q,0 of at least two generators",
        }
        .into());
    }
    let &[rows, batch, features] = u.dims() else {
        return Err(CoreError::Shape {
            operation: NAME,
            argument: "u",
            actual: u.shape().clone(),
            expected: format!("[{dimension}, batch, features]"),
            reason: "a vector has one component for each generator".to_owned(),
        }
        .into());
    };
    let expected = [dimension, batch, features];
    exact(NAME, "u", u, &expected, || {
        format!("{rows} components, and {signature} has {dimension} generators")
    })?;
    exact(NAME, "v", v, &expected, || "both vectors have one shape".to_owned())?;
    Ok(Sizes { positive: p.into(), dimension, plane: batch * features, batch, features })
}

/// The symmetric traceless part of `u` and `v`.
///
/// # Errors
/// A signature without a traceless part; shapes, dtypes or devices that do not fit together, named; dtypes the device does not
/// serve.
pub fn forward(signature: Signature, u: &Array, v: &Array) -> Result<Array> {
    let sizes = check(signature, u, v)?;
    let dtype = alike(NAME, &[("u", u), ("v", v)])?;
    let (u, v) = (u.contiguous()?, v.contiguous()?);
    if let Device::Cuda(device) = u.device() {
        let out = Array::for_kernel(NAME, sizes.components(), dtype, &device)?;
        // SAFETY: `check` gave the sizes, with which u and v were compared; both are contiguous; `out` is new.
        unsafe { sizes.launch(&device, Kernel::new("traceless_product_fwd", dtype), &[&u, &v, &out])? };
        return Ok(out);
    }
    with_real!(dtype, NAME, T => {
        let (u_slice, v_slice) = (u.as_slice::<T>()?, v.as_slice::<T>()?);
        Array::build::<T>(sizes.components(), &u.device(), |out| cpu::forward(sizes, u_slice, v_slice, out))
    })
}

/// Gradients of [`forward`].
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of `u`.
    pub u: Array,
    /// Of `v`.
    pub v: Array,
}

/// Gradients for the cotangent `grad` of the output.
///
/// # Errors
/// As [`forward`].
pub fn backward(signature: Signature, u: &Array, v: &Array, grad: &Array) -> Result<Gradients> {
    let sizes = check(signature, u, v)?;
    exact(NAME, "grad", grad, &sizes.components(), || "the gradient has the shape of the output".to_owned())?;
    let dtype = alike(NAME, &[("u", u), ("v", v), ("grad", grad)])?;
    let (u, v, grad) = (u.contiguous()?, v.contiguous()?, grad.contiguous()?);
    if let Device::Cuda(device) = u.device() {
        let of = |array: &Array| Array::for_kernel(NAME, array.shape(), dtype, &device);
        let gradients = Gradients { u: of(&u)?, v: of(&v)? };
        let arrays = [&u, &v, &grad, &gradients.u, &gradients.v];
        // SAFETY: as in the forward pass, with a gradient of the shape of its result; the gradients are new.
        unsafe { sizes.launch(&device, Kernel::new("traceless_product_bwd", dtype), &arrays)? };
        return Ok(gradients);
    }
    // The product is symmetric: the gradient of each factor is the same function of the other.
    with_real!(dtype, NAME, T => {
        let grad_slice = grad.as_slice::<T>()?;
        let of = |other: &Array| {
            let other_slice = other.as_slice::<T>()?;
            Array::build::<T>(other.shape(), &other.device(), |out| cpu::backward(sizes, other_slice, grad_slice, out))
        };
        Ok(Gradients { u: of(&v)?, v: of(&u)? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn vector(values: &[f64]) -> Array {
        Array::from_f64(values, [values.len(), 1, 1], DType::F64, &Device::Cpu).unwrap()
    }

    #[test]
    fn the_components_are_those_worked_out_by_hand() {
        let (u, v) = (vector(&[1.0, 2.0, -1.0]), vector(&[0.5, -1.0, 3.0]));
        let s = forward(Signature::CL3, &u, &v).unwrap().to_f64_vec().unwrap();
        assert_eq!(s, [2.0, 0.0, 1.25, -0.5, 3.5]);
        // With the component that the trace determines, ‖S‖² = ½(u²v² + (u·v)²) − ⅓(u·v)².
        let [xx, xy, xz, yy, yz] = s[..] else { unreachable!("five components") };
        let square = xx * xx + yy * yy + (xx + yy).powi(2) + 2.0 * (xy * xy + xz * xz + yz * yz);
        assert!((square - 34.125).abs() < 1e-12);
        // In the metric (+, −): S = ½(u⊗v + v⊗u) − (u·v)/2·g⁻¹ with u·v = u₁v₁ − u₂v₂.
        let s = forward(Signature::new(1, 1, 0), &vector(&[3.0, 1.0]), &vector(&[2.0, 5.0])).unwrap();
        assert_eq!(s.to_f64_vec().unwrap(), [6.0 - 0.5, 0.5 * (15.0 + 2.0)]);
    }

    #[test]
    fn what_has_no_traceless_part_is_refused() {
        let v = vector(&[1.0, 2.0, 3.0]);
        for signature in [Signature::new(3, 0, 1), Signature::new(1, 0, 0), Signature::new(2, 0, 0)] {
            let error = forward(signature, &v, &v).unwrap_err().to_string();
            assert!(error.contains("traceless_product"), "{error}");
        }
    }
}
