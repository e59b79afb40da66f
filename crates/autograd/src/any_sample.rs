//! Samples of operations, whatever the operation.

use crate::{
    Attributes, Cost, Derivative, Input, Operation, Result, Sample, Tensor, Traffic, operation::Erased,
    sample::placed, tensor::Body,
};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use std::{fmt, sync::Arc};

/// A sample without the type of its operation.
#[derive(Clone)]
pub struct AnySample {
    body: Arc<dyn Body>,
    inputs: Vec<Input>,
}

impl AnySample {
    pub(crate) fn of<O: Operation>(sample: Sample<O>) -> Self {
        Self { body: Arc::new(Erased(sample.operation)), inputs: sample.inputs }
    }

    /// The name of the operation.
    pub fn operation(&self) -> &'static str {
        self.body.name()
    }

    /// The attributes of the operation.
    ///
    /// # Errors
    /// Values that could not be read from their device.
    pub fn attributes(&self) -> Result<Attributes> {
        self.body.attributes()
    }

    /// The inputs of the sample.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The arithmetic of the forward pass.
    pub fn cost(&self) -> Cost {
        self.body.cost(&self.inputs.iter().map(|input| input.shape.dims()).collect::<Vec<_>>())
    }

    /// What the operation reads.
    pub fn traffic(&self) -> Traffic {
        self.body.traffic()
    }

    /// Whether its backward pass runs kernels and is compared with a re-expression.
    pub fn is_reexpressed(&self) -> bool {
        self.body.derivative() == Derivative::Reexpressed
    }

    /// Draws the inputs on the host in `f64`, rounded to what `dtype` can hold.
    ///
    /// # Errors
    /// No memory.
    pub fn draw(&self, dtype: DType, rng: &mut impl rand::Rng) -> Result<Vec<Array>> {
        self.inputs.iter().map(|input| input.draw(dtype, rng)).collect()
    }

    /// Inputs that were drawn, as tensors of `dtype` on `device`.
    ///
    /// # Errors
    /// From the device.
    pub fn place(&self, drawn: &[Array], dtype: DType, device: &Device) -> Result<Vec<Tensor>> {
        placed(drawn, dtype, device)
    }

    /// Runs the operation.
    ///
    /// # Errors
    /// From the operation.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Tensor> {
        Tensor::run(Arc::clone(&self.body), &inputs.iter().collect::<Vec<_>>())
    }

    /// Runs the re-expression.
    ///
    /// # Errors
    /// [`Error::NotTwiceDifferentiable`](crate::Error::NotTwiceDifferentiable) if the operation has none.
    pub fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        self.body.reexpress(inputs)
    }
}

impl fmt::Display for AnySample {
    /// The operation, its attributes and the shapes of its inputs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation())?;
        if let Ok(attributes) = self.attributes()
            && !attributes.is_empty()
        {
            write!(f, " {attributes}")?;
        }
        write!(f, ", inputs")?;
        self.inputs.iter().try_for_each(|input| write!(f, " {}", input.shape))
    }
}
