//! Operations for libraries that keep the history of a computation themselves.

use crate::{
    Attributes, Axis, BackwardContext, BackwardOptions, Derivative, Error, Pass, Result, Rule, Tensor,
    backend,
    engine::{self, gradients_of},
    mode, registry,
    tensor::{Body, Node, Place, Saved},
};
use gradewise_core::{DType, Shape};
use gradewise_kernels::{Array, Device, memory};
use std::{fmt, sync::Arc};

/// An operation of the [`registry`] with its attributes, ready to run on arrays: forward, backward, and the backward pass of the
/// backward pass. The history is the caller's, such as that of another framework of automatic differentiation.
///
/// ```
/// use gradewise_autograd::{Kept, Prepared};
/// use gradewise_kernels::{Array, Device};
///
/// let square = Prepared::new("square", &"null".parse()?)?;
/// let x = Array::from_slice(&[2.0f64, 3.0], [2], &Device::Cpu)?;
/// let Kept { output, saved } = square.forward(&[x.clone()])?;
/// assert_eq!(output.to_vec::<f64>()?, [4.0, 9.0]);
/// let grad = output.full_like(1.0)?;
/// let gradients = square.backward(&[x.clone()], &output, saved, &grad, &[true])?;
/// assert_eq!(gradients[0].as_ref().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![4.0, 6.0]));
/// // Of 2·x·grad: 2·grad with respect to x, and 2·x with respect to grad.
/// let (inputs, grad) = square.backward_twice(&[x], &grad, &[Some(output.full_like(1.0)?)], &[true], true)?;
/// assert_eq!(inputs[0].as_ref().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![2.0, 2.0]));
/// assert_eq!(grad.map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![4.0, 6.0]));
/// # Ok::<(), gradewise_autograd::Error>(())
/// ```
#[derive(Clone)]
pub struct Prepared(Arc<dyn Body>);

/// What a forward pass leaves.
#[derive(Debug)]
pub struct Kept {
    /// The output.
    pub output: Array,
    /// What the backward pass reads again beside the inputs and the output; `None` if the forward pass ran elsewhere than on the device
    /// of the inputs, so that the backward pass has to find it once more.
    pub saved: Option<Vec<Array>>,
}

/// The gradients of the inputs, and the gradient of the gradient that the first backward pass began with.
pub type Twice = (Vec<Option<Array>>, Option<Array>);

impl Prepared {
    /// The operation called `name`, with attributes as a record has them.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that the registry does not have, listing those it has, or attributes that are not the operation's.
    pub fn new(name: &str, attributes: &Attributes) -> Result<Self> {
        let entry = registry::find(name).ok_or_else(|| registry::unknown("prepare", name))?;
        entry.body(attributes).map(Self)
    }

    /// The name of the operation.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// What mixed precision does with the inputs.
    pub fn rule(&self) -> Rule {
        self.0.rule()
    }

    /// The sizes of the output in terms of the inputs; `None` for operations that do not tell.
    pub fn output_axes(&self) -> Option<Vec<Axis>> {
        self.0.output_axes()
    }

    /// For each array that a forward pass may leave for its backward pass, its sizes in terms of the inputs; `None` for one that it does not
    /// leave with these attributes. Nothing is left where [`serves`](Self::serves) says that there are no kernels.
    pub fn saved_axes(&self) -> Vec<Option<Vec<Axis>>> {
        self.0.saved_axes()
    }

    /// Whether the backward pass reads the output, which nobody may change in place before.
    pub fn reads_output(&self) -> bool {
        self.0.reads_output()
    }

    /// Whether there are kernels for inputs of these shapes, in `dtype` on `device`. Where there are none, re-expressions run, which save
    /// nothing for the backward pass.
    ///
    /// # Errors
    /// From the device.
    pub fn serves(&self, shapes: &[Shape], dtype: DType, device: &Device) -> Result<bool> {
        // One element, shown as many.
        let element = Array::zeros(Shape::scalar(), dtype, device)?;
        let inputs = shapes
            .iter()
            .map(|shape| Ok(element.broadcast_to(shape.clone())?))
            .collect::<Result<Vec<_>>>()?;
        Ok(self.0.serves(&inputs))
    }

    /// Runs the operation, by the implementation that [`backend`] says.
    ///
    /// # Errors
    /// Another number of inputs than the operation takes; whatever the operation refuses.
    pub fn forward(&self, inputs: &[Array]) -> Result<Kept> {
        crate::operation::require_arity(self.0.as_ref(), inputs.len())?;
        let _account = memory::within(self.name());
        let (output, saved) = mode::with_mode(false, || backend::forward(self.0.as_ref(), inputs))?;
        Ok(Kept { output, saved: (saved.place == Place::Device).then_some(saved.arrays) })
    }

    /// Runs the operation on tensors: the history is kept here. Where it has no kernels for the inputs, it is recorded as the operations that
    /// it is re-expressed in, so that a backward pass need not find their results once more.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn apply(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        crate::operation::require_arity(self.0.as_ref(), inputs.len())?;
        let arrays: Vec<Array> = inputs.iter().map(|input| input.array().clone()).collect();
        // Numbers of 16 bits on the host are computed with in `f32`, from the first to the last of the operations.
        let is_recorded = mode::is_grad_enabled() && inputs.iter().any(|input| input.is_grad_required());
        let reexpressed = self.0.derivative() == Derivative::Reexpressed
            && is_recorded
            && matches!(backend::choice(self.name(), Pass::Forward)?, backend::Choice::Device)
            && !arrays.iter().any(backend::is_emulated)
            && !self.0.serves(&arrays);
        if reexpressed {
            let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
            return self.0.reexpress(&inputs);
        }
        Tensor::run(Arc::clone(&self.0), inputs)
    }

    /// The gradients of the inputs for which `needs` says so, given what [`forward`](Self::forward) left; without what it saved, it runs
    /// again where the gradients need that.
    ///
    /// # Errors
    /// Other numbers of arrays than the operation has; whatever the operation refuses.
    pub fn backward(
        &self,
        inputs: &[Array],
        output: &Array,
        saved: Option<Vec<Array>>,
        grad: &Array,
        needs: &[bool],
    ) -> Result<Vec<Option<Array>>> {
        crate::operation::require_arity(self.0.as_ref(), inputs.len())?;
        self.require_one_for_each_input("needs", needs.len(), inputs.len())?;
        grad.require_shape(self.name(), "grad", output.dims(), || "it is that of the output".to_owned())?;
        grad.require_like(output, self.name(), "grad")?;
        let place = if saved.is_some() { Place::Device } else { Place::Nowhere };
        let saved = Saved { arrays: saved.unwrap_or_default(), place };
        let leaves = inputs.iter().zip(needs).map(|(input, needs)| leaf(input, *needs)).collect();
        let node = Node { inputs: leaves, body: Arc::clone(&self.0), saved };
        let output = Tensor::new(output.clone());
        let context = BackwardContext::new(&node.inputs, &output, &node.saved.arrays);
        let _account = memory::within(self.name());
        let gradients = mode::with_mode(false, || gradients_of(&node, &context, &Tensor::new(grad.clone())))?;
        let wanted = gradients.into_iter().zip(needs);
        Ok(wanted.map(|(gradient, needs)| gradient.filter(|_| *needs).map(|g| g.array().clone())).collect())
    }

    /// The backward pass of [`backward`](Self::backward): given the inputs and the `grad` that it had, and for some of the gradients that
    /// it returned a gradient in turn, the gradients of the inputs for which `needs` says so, and of `grad` if `needs_grad`.
    ///
    /// An operation with kernels of its own is differentiated through its re-expression in primitives.
    ///
    /// # Errors
    /// As [`backward`](Self::backward); [`Error::NotTwiceDifferentiable`].
    pub fn backward_twice(
        &self,
        inputs: &[Array],
        grad: &Array,
        gradients: &[Option<Array>],
        needs: &[bool],
        needs_grad: bool,
    ) -> Result<Twice> {
        crate::operation::require_arity(self.0.as_ref(), inputs.len())?;
        self.require_one_for_each_input("gradients", gradients.len(), inputs.len())?;
        self.require_one_for_each_input("needs", needs.len(), inputs.len())?;
        let _account = memory::within(self.name());
        mode::with_mode(true, || {
            let wanted = needs.iter().zip(gradients).map(|(needs, gradient)| *needs || gradient.is_some());
            let leaves: Vec<Tensor> =
                inputs.iter().zip(wanted).map(|(input, wanted)| leaf(input, wanted)).collect();
            let seed = leaf(grad, needs_grad);
            let output = match self.0.derivative() {
                Derivative::Reexpressed => self.0.reexpress(&leaves)?,
                Derivative::Differentiable => {
                    Tensor::run(Arc::clone(&self.0), &leaves.iter().collect::<Vec<_>>())?
                }
            };
            if !output.is_grad_required() {
                return Ok((vec![None; inputs.len()], None));
            }
            let (firsts, cotangents): (Vec<&Tensor>, Vec<&Array>) = leaves
                .iter()
                .zip(gradients)
                .filter_map(|(leaf, gradient)| gradient.as_ref().map(|gradient| (leaf, gradient)))
                .unzip();
            let options = BackwardOptions { seed: Some(seed.clone()), create_graph: true };
            let slopes = engine::grad(&output, &firsts, &options)?;
            let mut sum: Option<Tensor> = None;
            for (slope, cotangent) in slopes.into_iter().zip(cotangents) {
                // A gradient that depends on nothing contributes nothing.
                let Some(slope) = slope.filter(Tensor::is_grad_required) else { continue };
                let term = slope.mul(&Tensor::new(cotangent.clone()))?.sum_all()?;
                sum = Some(match sum {
                    Some(sum) => sum.add(&term)?,
                    None => term,
                });
            }
            let Some(sum) = sum else { return Ok((vec![None; inputs.len()], None)) };
            let asked: Vec<&Tensor> = leaves.iter().chain([&seed]).collect();
            let mut all = engine::grad(&sum, &asked, &BackwardOptions::default())?;
            let of_grad = all.pop().flatten().filter(|_| needs_grad);
            let inputs = all.into_iter().zip(needs);
            Ok((
                inputs.map(|(g, needs)| g.filter(|_| *needs).map(|g| g.array().clone())).collect(),
                of_grad.map(|g| g.array().clone()),
            ))
        })
    }

    fn require_one_for_each_input(&self, what: &str, actual: usize, inputs: usize) -> Result<()> {
        if actual == inputs {
            return Ok(());
        }
        let message = format!("`{what}` has {actual} entries for {inputs} inputs");
        Err(Error::Argument { operation: self.name(), message })
    }
}

fn leaf(array: &Array, needs: bool) -> Tensor {
    let tensor = Tensor::new(array.clone());
    if needs { tensor.requires_grad() } else { tensor }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prepared({}", self.name())?;
        if let Ok(attributes) = self.0.attributes()
            && !attributes.is_empty()
        {
            write!(f, " {attributes}")?;
        }
        f.write_str(")")
    }
}
