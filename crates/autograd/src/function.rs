//! Operations with kernels of their own.

use crate::{
    Attributes, BackwardOptions, Error, Result, Tensor, engine, mode, operation::Body, tensor::RuleContext,
};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use std::sync::Arc;

/// An operation defined on arrays: a fused kernel, or anything a user brings.
///
/// First derivatives run [`backward`](Self::backward). When the graph of the gradient is recorded
/// ([`BackwardOptions::create_graph`]), the engine differentiates [`reexpress`](Self::reexpress) instead, which says
/// the same thing in differentiable operations.
pub trait Function: Send + Sync + 'static {
    /// The name that errors and summaries show.
    fn name(&self) -> &'static str;

    /// The output, and arrays that the backward pass will want to see again.
    ///
    /// # Errors
    /// Whatever the operation refuses.
    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)>;

    /// One gradient for each input, of its shape; `None` where there is none or none is needed.
    ///
    /// # Errors
    /// Whatever the operation refuses.
    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>>;

    /// The same function of `inputs` in differentiable operations.
    ///
    /// # Errors
    /// [`Error::NotTwiceDifferentiable`] unless implemented.
    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let _ = inputs;
        Err(Error::NotTwiceDifferentiable { operation: self.name() })
    }

    /// Whether [`forward`](Self::forward) and [`backward`](Self::backward) run on `device`; where they do not,
    /// [`reexpress`](Self::reexpress) is what the operation is compared with.
    fn serves(&self, device: &Device) -> bool {
        let _ = device;
        true
    }

    /// What the function was told besides its inputs, so that it can be run again.
    fn attributes(&self) -> Attributes {
        Attributes::new()
    }

    /// The dtype of the output for inputs of these dtypes, where `found` is that of the output for inputs in `f32`: that of the first
    /// input unless implemented.
    fn output_dtype(&self, inputs: &[DType], found: DType) -> DType {
        inputs.first().copied().unwrap_or(found)
    }
}

/// What [`Function::backward`] may look at.
pub struct BackwardContext<'a> {
    inputs: Vec<Array>,
    needs: Vec<bool>,
    output: &'a Array,
    saved: &'a [Array],
}

impl BackwardContext<'_> {
    /// The inputs of the forward pass.
    pub fn inputs(&self) -> &[Array] {
        &self.inputs
    }

    /// The output of the forward pass.
    pub fn output(&self) -> &Array {
        self.output
    }

    /// What the forward pass saved.
    pub fn saved(&self) -> &[Array] {
        self.saved
    }

    /// Whether the gradient of input `index` is wanted.
    pub fn needs(&self, index: usize) -> bool {
        self.needs.get(index).copied().unwrap_or(false)
    }
}

impl Tensor {
    /// Applies `function` to `inputs`.
    ///
    /// # Errors
    /// Whatever the function refuses.
    pub fn apply<F: Function>(function: F, inputs: &[&Tensor]) -> Result<Tensor> {
        let name = function.name();
        Self::run(name, Arc::new(Fused(function)), inputs)
    }
}

struct Fused<F>(F);

impl<F: Function> Fused<F> {
    fn serves(&self, array: Option<&Array>) -> bool {
        array.is_none_or(|array| self.0.serves(&array.device()))
    }
}

impl<F: Function> Body for Fused<F> {
    fn attributes(&self) -> Attributes {
        self.0.attributes()
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        if self.serves(inputs.first()) {
            return self.0.forward(inputs);
        }
        let inputs: Vec<Tensor> = inputs.iter().cloned().map(Tensor::new).collect();
        let output = mode::with_mode(false, || self.0.reexpress(&inputs))?;
        Ok((output.array().clone(), Vec::new()))
    }

    fn backward(
        &self,
        context: &RuleContext<'_>,
        saved: &[Array],
        grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let create_graph = mode::is_grad_enabled();
        if create_graph || !self.serves(context.inputs.first().map(Tensor::array)) {
            return differentiate_reexpressed(&self.0, context.inputs, grad, create_graph);
        }
        let arrays = BackwardContext {
            inputs: context.inputs.iter().map(|input| input.array().clone()).collect(),
            needs: context.inputs.iter().map(Tensor::is_grad_required).collect(),
            output: context.output.array(),
            saved,
        };
        let gradients = self.0.backward(&arrays, grad.array())?;
        Ok(gradients.into_iter().map(|gradient| gradient.map(Tensor::new)).collect())
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn output_dtype(&self, inputs: &[DType], found: DType) -> DType {
        self.0.output_dtype(inputs, found)
    }
}

fn differentiate_reexpressed(
    function: &dyn Function,
    inputs: &[Tensor],
    grad: &Tensor,
    create_graph: bool,
) -> Result<Vec<Option<Tensor>>> {
    mode::with_mode(true, || {
        // Aliases, because one tensor may be several inputs: each occurrence gets its own gradient.
        let aliases: Vec<Tensor> = inputs.iter().map(Tensor::alias).collect();
        let output = function.reexpress(&aliases)?;
        let wanted: Vec<&Tensor> = aliases.iter().filter(|alias| alias.is_grad_required()).collect();
        let options = BackwardOptions { seed: Some(grad.clone()), create_graph };
        let mut gradients = engine::partial(&output, &wanted, &options)?.into_iter();
        Ok(aliases
            .iter()
            .map(|alias| if alias.is_grad_required() { gradients.next().flatten() } else { None })
            .collect())
    })
}
