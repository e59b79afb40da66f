//! Operations with kernels of their own.

use crate::{BackwardOptions, Error, Result, Tensor, engine, mode};
use gradewise_kernels::Array;
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
        let arrays: Vec<Array> = inputs.iter().map(|input| input.array().clone()).collect();
        let (output, saved) = function.forward(&arrays)?;
        let function = Arc::new(function);
        let name = function.name();
        Self::from_op(name, output, inputs, move |context, grad| {
            if mode::is_grad_enabled() {
                return differentiate_reexpressed(function.as_ref(), context.inputs, grad);
            }
            let arrays = BackwardContext {
                inputs: context.inputs.iter().map(|input| input.array().clone()).collect(),
                needs: context.inputs.iter().map(Tensor::is_grad_required).collect(),
                output: context.output.array(),
                saved: &saved,
            };
            let gradients = function.backward(&arrays, grad.array())?;
            Ok(gradients.into_iter().map(|gradient| gradient.map(Tensor::new)).collect())
        })
    }
}

fn differentiate_reexpressed(
    function: &dyn Function,
    inputs: &[Tensor],
    grad: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    // Aliases, because one tensor may be several inputs: each occurrence gets its own gradient.
    let aliases: Vec<Tensor> = inputs.iter().map(Tensor::alias).collect();
    let output = function.reexpress(&aliases)?;
    let wanted: Vec<&Tensor> = aliases.iter().filter(|alias| alias.is_grad_required()).collect();
    let options = BackwardOptions { seed: Some(grad.clone()), create_graph: true };
    let mut gradients = engine::partial(&output, &wanted, &options)?.into_iter();
    Ok(aliases
        .iter()
        .map(|alias| if alias.is_grad_required() { gradients.next().flatten() } else { None })
        .collect())
}
