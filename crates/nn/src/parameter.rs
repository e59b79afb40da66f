//! Trainable parameters, and their placement: device and dtype.

use crate::{Error, Result, copies::copy_of};
use gradewise_autograd::Tensor;
use gradewise_core::{CliffordAlgebra, Multivector, TypeLevel};
use gradewise_kernels::{Array, DType, Device, Shape};
use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// A trainable array, shared by the layer that uses it and the optimiser that updates it.
///
/// Cloning gives another handle to the same parameter, which is how weights are tied; cloning a layer or a model copies its parameters
/// ([`copying`](crate::copying)). [`frozen`](Self::frozen) ones have names and are in checkpoints like others, but get
/// no gradient: running statistics of a normalisation, or weights that are not to be trained.
///
/// ```
/// use gradewise_kernels::{Array, Device};
/// use gradewise_nn::Parameter;
///
/// let weight = Parameter::new(Array::from_slice(&[2.0f32, 3.0], [2], &Device::Cpu)?);
/// let shared = weight.clone();
/// let grads = weight.tensor().square()?.sum_all()?.backward()?;
/// assert_eq!(grads.get(&weight.tensor())?.to_vec::<f32>()?, [4.0, 6.0]);
/// weight.set(Array::from_slice(&[0.0f32, 1.0], [2], &Device::Cpu)?)?;
/// assert_eq!(shared.array().to_vec::<f32>()?, [0.0, 1.0]);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
pub struct Parameter {
    slot: Arc<RwLock<Tensor>>,
    is_trained: bool,
}

impl Clone for Parameter {
    /// Another handle to this parameter; within [`copying`](crate::copying), a handle to its copy.
    fn clone(&self) -> Self {
        // The values are shared until one of the two changes.
        let copy = || Arc::new(RwLock::new(leaf(self.array(), self.is_trained)));
        let slot = copy_of(&self.slot, copy).unwrap_or_else(|| Arc::clone(&self.slot));
        Self { slot, is_trained: self.is_trained }
    }
}

impl Parameter {
    /// A parameter with these initial values.
    pub fn new(values: Array) -> Self {
        Self { slot: Arc::new(RwLock::new(leaf(values, true))), is_trained: true }
    }

    /// Values without a gradient, which no optimiser changes.
    pub fn frozen(values: Array) -> Self {
        Self { slot: Arc::new(RwLock::new(leaf(values, false))), is_trained: false }
    }

    /// Whether it has a gradient.
    pub fn is_trained(&self) -> bool {
        self.is_trained
    }

    /// The current values as a leaf of a graph. The same leaf is returned until the values change, so every use in one
    /// forward pass shares one gradient.
    pub fn tensor(&self) -> Tensor {
        self.slot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The current values.
    pub fn array(&self) -> Array {
        self.slot.read().unwrap_or_else(PoisonError::into_inner).array().clone()
    }

    /// The sizes along the axes.
    pub fn shape(&self) -> Shape {
        self.slot.read().unwrap_or_else(PoisonError::into_inner).shape().clone()
    }

    /// Replaces the values.
    ///
    /// # Errors
    /// Another shape, dtype or device.
    pub fn set(&self, values: Array) -> Result<()> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        require_fit("set", &values, slot.array())?;
        *slot = leaf(values, self.is_trained);
        Ok(())
    }

    /// Applies `change` to a copy of the values and stores the copy. If `change` fails or panics, the parameter stays as it was.
    ///
    /// # Errors
    /// Whatever `change` returns; another shape, dtype or device than before.
    pub fn update<R>(&self, change: impl FnOnce(&mut Array) -> Result<R>) -> Result<R> {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        // Two arrays share the storage, so the first in-place change copies it.
        let mut values = slot.array().clone();
        let result = change(&mut values)?;
        require_fit("update", &values, slot.array())?;
        *slot = leaf(values, self.is_trained);
        Ok(result)
    }

    /// Changes the values in place, without a copy if no graph holds them any more. `change` must keep shape, dtype and device; if it
    /// fails, the values may be partly changed.
    ///
    /// # Errors
    /// Whatever `change` returns; no memory.
    pub(crate) fn update_in_place<R>(&self, change: impl FnOnce(&mut Array) -> Result<R>) -> Result<R> {
        /// Puts the values back, also if `change` panics.
        struct Taken<'a>(&'a mut Tensor, Array, bool);
        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                *self.0 = leaf(self.1.clone(), self.2);
            }
        }
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        // The change is in place only if the slot no longer shares the storage.
        let placeholder = Array::zeros([0], slot.dtype(), &Device::Cpu)?;
        let values = slot.array().clone();
        *slot = Tensor::new(placeholder);
        change(&mut Taken(&mut slot, values, self.is_trained).1)
    }

    /// Makes the values contiguous, in storage that no other array shares, so that a device may write to it. Copies only if needed.
    pub(crate) fn make_unique(&self) -> Result<()> {
        {
            let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
            if slot.is_unique() && slot.array().is_contiguous() {
                return Ok(());
            }
        }
        self.update_in_place(|values| Ok(values.make_unique()?))
    }

    /// Puts `values`, of the same shape, dtype and device, in place of the present ones, which are returned.
    pub(crate) fn replace(&self, values: Array) -> Array {
        let mut slot = self.slot.write().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(require_fit("replace", &values, slot.array()).is_ok());
        std::mem::replace(&mut *slot, leaf(values, self.is_trained)).array().clone()
    }
}

fn leaf(values: Array, is_trained: bool) -> Tensor {
    let tensor = Tensor::new(values);
    if is_trained { tensor.requires_grad() } else { tensor }
}

/// Refuses values whose shape, dtype or device differ from the parameter's.
fn require_fit(operation: &'static str, values: &Array, current: &Array) -> Result<()> {
    values.require_like(current, operation, "values")?;
    Ok(values.require_shape(operation, "values", current.dims(), || "it replaces a parameter".to_owned())?)
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameter({:?})", self.array())
    }
}

/// The device and dtype of new parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The device.
    pub device: Device,
    /// The dtype.
    pub dtype: DType,
}

impl Placement {
    /// Parameters in `dtype` on `device`.
    pub fn new(device: &Device, dtype: DType) -> Self {
        Self { device: device.clone(), dtype }
    }

    /// A tensor without history from numbers in row-major order, rounded to the dtype of this placement.
    ///
    /// # Errors
    /// Another number of values than the shape has elements; a dtype the device does not serve, or no memory.
    pub fn tensor(&self, values: &[f64], shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        if shape.elements() != values.len() {
            return Err(Error::Argument {
                operation: "Placement::tensor",
                argument: "values",
                actual: format!("{} numbers", values.len()),
                expected: format!("{}, as many as the shape {shape} has elements", shape.elements()),
            });
        }
        Ok(Tensor::new(Array::from_f64(values, shape, self.dtype, &self.device)?))
    }

    /// A parameter of normal samples with this standard deviation.
    ///
    /// # Errors
    /// [`Error::Argument`] for a deviation below 0, or none; a dtype the device does not serve, or no memory.
    pub fn normal<R: rand::Rng + ?Sized>(
        &self,
        shape: impl Into<Shape>,
        deviation: f64,
        rng: &mut R,
    ) -> Result<Parameter> {
        if !(deviation >= 0.0 && deviation.is_finite()) {
            return Err(Error::Argument {
                operation: "initial weights",
                argument: "deviation",
                actual: deviation.to_string(),
                expected: "at least 0, finite".to_owned(),
            });
        }
        let values = Array::randn(shape, self.dtype, &self.device, rng)?;
        Ok(Parameter::new(gradewise_kernels::ops::mul_scalar(&values, deviation)?))
    }

    /// A parameter of samples that are uniform between `low` and `high`.
    ///
    /// # Errors
    /// [`Error::Argument`] for bounds that are not finite, or in the wrong order; a dtype the device does not serve, or no memory.
    pub fn uniform<R: rand::Rng + ?Sized>(
        &self,
        shape: impl Into<Shape>,
        (low, high): (f64, f64),
        rng: &mut R,
    ) -> Result<Parameter> {
        if !(low <= high && (high - low).is_finite()) {
            return Err(Error::Argument {
                operation: "initial weights",
                argument: "bounds",
                actual: format!("({low}, {high})"),
                expected: "finite, the lower one first".to_owned(),
            });
        }
        let values = Array::uniform(shape, self.dtype, &self.device, rng)?;
        let scaled = gradewise_kernels::ops::mul_scalar(&values, high - low)?;
        Ok(Parameter::new(gradewise_kernels::ops::add_scalar(&scaled, low)?))
    }

    /// A parameter filled with `value`.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn filled(&self, shape: impl Into<Shape>, value: f64) -> Result<Parameter> {
        Ok(Parameter::new(Array::full(shape, value, self.dtype, &self.device)?))
    }

    /// A tensor `[blades, rows, features]` without history of the multivectors that `at` gives for each row and feature, rounded to the
    /// dtype of this placement. [`Tensor::grade`], [`Tensor::blade`] and [`Tensor::to_multivectors`] lead back.
    ///
    /// ```
    /// use gradewise_core::{Blade, Cl3, DType, Multivector};
    /// use gradewise_kernels::Device;
    /// use gradewise_nn::Placement;
    ///
    /// let place = Placement::new(&Device::Cpu, DType::F64);
    /// let x = place.multivectors(2, 3, |row, feature| {
    ///     Multivector::<Cl3, f64>::vector([row as f64, feature as f64, 1.0]) + 7.0
    /// })?;
    /// assert_eq!(x.shape().dims(), [8, 2, 3]);
    /// assert_eq!(x.grade(1)?.shape().dims(), [3, 2, 3]);
    /// assert_eq!(x.blade(Blade::E2)?.to_vec::<f64>()?, [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    /// assert_eq!(x.to_multivectors::<Cl3>()?[5], Multivector::vector([1.0, 2.0, 1.0]) + 7.0);
    /// # Ok::<(), gradewise_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn multivectors<A: TypeLevel>(
        &self,
        rows: usize,
        features: usize,
        at: impl FnMut(usize, usize) -> Multivector<A, f64>,
    ) -> Result<Tensor> {
        self.multivectors_in(&A::ALGEBRA, rows, features, at)
    }

    /// As [`multivectors`](Self::multivectors), of an algebra that is known at run time.
    ///
    /// # Errors
    /// A multivector of another algebra; a dtype the device does not serve, or no memory.
    pub fn multivectors_in<A: CliffordAlgebra>(
        &self,
        algebra: &A,
        rows: usize,
        features: usize,
        mut at: impl FnMut(usize, usize) -> Multivector<A, f64>,
    ) -> Result<Tensor> {
        let (signature, blades) = (algebra.signature(), algebra.signature().blade_count());
        let mut values = vec![0.0; blades * rows * features];
        for row in 0..rows {
            for feature in 0..features {
                let multivector = at(row, feature);
                let found = multivector.algebra().signature();
                if found != signature {
                    return Err(Error::Argument {
                        operation: "Placement::multivectors_in",
                        argument: "at",
                        actual: format!("of {found} in row {row}, feature {feature}"),
                        expected: format!("a multivector of {signature}"),
                    });
                }
                for (blade, coefficient) in multivector.coefficients().iter().enumerate() {
                    values[(blade * rows + row) * features + feature] = *coefficient;
                }
            }
        }
        self.tensor(&values, [blades, rows, features])
    }
}

impl From<&Device> for Placement {
    /// Single precision on `device`.
    fn from(device: &Device) -> Self {
        Self::new(device, DType::F32)
    }
}

impl From<&Placement> for Placement {
    fn from(placement: &Placement) -> Self {
        placement.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array() -> Array {
        Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], &Device::Cpu).unwrap()
    }

    #[test]
    fn frozen_values_stay_without_a_gradient_however_they_are_replaced() {
        let parameter = Parameter::frozen(array());
        parameter.set(array()).unwrap();
        parameter.update(|_| Ok(())).unwrap();
        parameter.update_in_place(|_| Ok(())).unwrap();
        parameter.replace(array());
        assert!(!parameter.tensor().is_grad_required() && !parameter.is_trained());
        let trained = Parameter::new(array());
        trained.update_in_place(|_| Ok(())).unwrap();
        assert!(trained.tensor().is_grad_required() && trained.is_trained());
    }

    #[test]
    fn values_are_copied_before_a_device_writes_them_only_where_that_would_be_seen() {
        let parameter = Parameter::new(array());
        let leaf = parameter.tensor().id();
        parameter.make_unique().unwrap();
        assert_eq!(parameter.tensor().id(), leaf, "nothing else shows the values");
        // Storage is shared with another array, then with a leaf that a graph may hold.
        let held = parameter.array();
        parameter.make_unique().unwrap();
        assert!(!parameter.array().shares_storage(&held));
        let held = parameter.tensor();
        parameter.make_unique().unwrap();
        assert!(!parameter.array().shares_storage(held.array()));
        // A strided view of unshared storage: a kernel that expects contiguous elements would misread it.
        let turned = Parameter::new(array().transpose(0, 1).unwrap());
        turned.make_unique().unwrap();
        assert!(turned.array().is_contiguous());
        assert_eq!(turned.array().to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
