//! Trainable parameters and how to find them by name.

use crate::{Error, Result};
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, DType, Device, Shape};
use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// A trainable array, shared by the layer that uses it and the optimiser that updates it.
///
/// Cloning gives another handle to the same parameter.
#[derive(Clone)]
pub struct Parameter(Arc<RwLock<Tensor>>);

impl Parameter {
    /// A parameter with these initial values.
    pub fn new(values: Array) -> Self {
        Self(Arc::new(RwLock::new(Tensor::new(values).requires_grad())))
    }

    /// The current values as a leaf of a graph. The same leaf is returned until the values change, so every use in one
    /// forward pass shares one gradient.
    pub fn tensor(&self) -> Tensor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The current values.
    pub fn array(&self) -> Array {
        self.tensor().array().clone()
    }

    /// The sizes along the axes.
    pub fn shape(&self) -> Shape {
        self.tensor().shape().clone()
    }

    /// Replaces the values.
    ///
    /// # Errors
    /// Another shape, dtype or device.
    pub fn set(&self, values: Array) -> Result<()> {
        self.update(|current| {
            values.require_like(current, "set", "values")?;
            values.require_shape("set", "values", current.dims(), || "it replaces a parameter".to_owned())?;
            *current = values;
            Ok(())
        })
    }

    /// Changes the values in place: without a copy if no graph holds them any more.
    ///
    /// # Errors
    /// Whatever `change` returns; the values are then what `change` left.
    pub fn update<R>(&self, change: impl FnOnce(&mut Array) -> Result<R>) -> Result<R> {
        let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut values = slot.array().clone();
        // The slot must let go of the storage for the change to be in place.
        let placeholder = Array::zeros([0], values.dtype(), &Device::Cpu)?;
        *slot = Tensor::new(placeholder);
        let result = change(&mut values);
        *slot = Tensor::new(values).requires_grad();
        result
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameter({:?})", self.array())
    }
}

/// Anything with parameters: a layer, a model.
pub trait Module {
    /// Reports every parameter to `visitor`, each under its name.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// The parameters with their full names, in the order of [`visit`](Self::visit), such as `("layers.0.weight", …)`.
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        let mut found = Vec::new();
        let mut collect =
            |name: &str, parameter: &Parameter| found.push((name.to_owned(), parameter.clone()));
        self.visit(&mut Visitor { prefix: String::new(), found: &mut collect });
        found
    }

    /// The parameters without their names.
    fn parameters(&self) -> Vec<Parameter> {
        self.named_parameters().into_iter().map(|(_, parameter)| parameter).collect()
    }

    /// Number of trainable numbers.
    fn parameter_count(&self) -> usize {
        self.parameters().iter().map(|parameter| parameter.shape().elements()).sum()
    }

    /// Replaces every parameter by the array of its name, converted to the parameter's dtype and device.
    ///
    /// Every name must be there, with the parameter's shape; axes of size 1 may differ (the Python reference stores a
    /// bias as `[1, 1, features]`). Nothing changes unless everything fits.
    ///
    /// # Errors
    /// [`Error::MissingParameters`] or [`Error::ParameterShape`].
    fn load(&self, values: &dyn Fn(&str) -> Option<Array>) -> Result<()> {
        let parameters = self.named_parameters();
        let missing: Vec<String> = parameters
            .iter()
            .filter(|(name, _)| values(name).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        if !missing.is_empty() {
            return Err(Error::MissingParameters { names: missing });
        }
        let mut prepared = Vec::with_capacity(parameters.len());
        for (name, parameter) in &parameters {
            let Some(array) = values(name) else { continue };
            let current = parameter.array();
            let significant =
                |shape: &Shape| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
            if significant(array.shape()) != significant(current.shape()) {
                return Err(Error::ParameterShape {
                    name: name.clone(),
                    actual: array.shape().clone(),
                    expected: current.shape().clone(),
                });
            }
            prepared
                .push(array.reshape(current.shape())?.cast(current.dtype())?.to_device(&current.device())?);
        }
        for ((_, parameter), array) in parameters.iter().zip(prepared) {
            parameter.set(array)?;
        }
        Ok(())
    }
}

/// Receives the parameters of a [`Module`].
pub struct Visitor<'a> {
    prefix: String,
    found: &'a mut dyn FnMut(&str, &Parameter),
}

impl Visitor<'_> {
    /// Reports a parameter of the current module.
    pub fn parameter(&mut self, name: &str, parameter: &Parameter) {
        let full = format!("{}{name}", self.prefix);
        (self.found)(&full, parameter);
    }

    /// Reports the parameters of a part, their names prefixed with `name` and a dot.
    pub fn module(&mut self, name: impl fmt::Display, part: &(impl Module + ?Sized)) {
        let length = self.prefix.len();
        self.prefix.push_str(&format!("{name}."));
        part.visit(self);
        self.prefix.truncate(length);
    }
}

/// Where and in which dtype new parameters are made.
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

    /// A parameter of normal samples with this standard deviation.
    pub(crate) fn normal<R: rand::Rng + ?Sized>(
        &self,
        shape: impl Into<Shape>,
        deviation: f64,
        rng: &mut R,
    ) -> Result<Parameter> {
        let values = Array::randn(shape, self.dtype, &self.device, rng)?;
        Ok(Parameter::new(gradewise_kernels::ops::mul_scalar(&values, deviation)?))
    }

    /// A parameter filled with `value`.
    pub(crate) fn filled(&self, shape: impl Into<Shape>, value: f64) -> Result<Parameter> {
        Ok(Parameter::new(Array::full(shape, value, self.dtype, &self.device)?))
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
