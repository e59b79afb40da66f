//! Backward passes: gradients of a result with respect to leaves or to chosen tensors, and how one operation's are computed.

use crate::{
    BackwardContext, Derivative, Error, Gradients, Pass as Direction, Result, Tensor, TensorId,
    backend::{self, Call, Choice, back, is_emulated, on_host},
    current_policy, mode,
    pass::{Pass, Watch},
    tensor::{Body, Node, Place, require_given_gradient},
};
use gradewise_kernels::Array;
use rustc_hash::FxHashSet;

/// Options of a backward pass.
#[derive(Clone, Debug, Default)]
pub struct BackwardOptions {
    /// The gradient of the tensor that backward starts from; 1 if `None`, for a tensor of one element.
    pub seed: Option<Tensor>,
    /// Record the history of the gradients, so that they can be differentiated again.
    pub create_graph: bool,
}

impl BackwardOptions {
    /// Options that keep the graph of the gradients.
    pub fn create_graph() -> Self {
        Self { create_graph: true, ..Self::default() }
    }

    /// Options with a seed gradient.
    pub fn seed(seed: Tensor) -> Self {
        Self { seed: Some(seed), ..Self::default() }
    }
}

impl Tensor {
    /// Gradients of this one-element tensor with respect to every leaf that requires them.
    ///
    /// # Errors
    /// [`Error::NotScalar`](crate::Error::NotScalar), [`Error::NoHistory`](crate::Error::NoHistory), or what a rule reports.
    pub fn backward(&self) -> Result<Gradients> {
        self.backward_with(&BackwardOptions::default())
    }

    /// As [`backward`](Self::backward), with a seed gradient for tensors of several elements, or keeping the graph of
    /// the gradients so that they can be differentiated again.
    ///
    /// # Errors
    /// As [`backward`](Self::backward); a seed of another shape.
    pub fn backward_with(&self, options: &BackwardOptions) -> Result<Gradients> {
        run_backward(self, options, None)
    }

    /// As [`backward_with`](Self::backward_with), calling `watch` with each leaf and its gradient once that gradient is complete, while
    /// the pass continues: work on a gradient, such as its reduction over processes, can begin before the pass ends. Each leaf that
    /// gets a gradient is reported once, in an order that depends on the graph alone. The gradients have the bits of
    /// [`backward_with`](Self::backward_with).
    ///
    /// # Errors
    /// As [`backward_with`](Self::backward_with).
    pub fn backward_watched(
        &self,
        options: &BackwardOptions,
        mut watch: impl FnMut(&Tensor, &Tensor),
    ) -> Result<Gradients> {
        run_backward(self, options, Some(&mut watch))
    }
}

fn seed(output: &Tensor, options: &BackwardOptions) -> Result<Tensor> {
    if !output.is_grad_required() {
        return Err(Error::NoHistory { shape: output.shape().clone() });
    }
    match &options.seed {
        Some(seed) => {
            require_given_gradient(|| "the seed of the backward pass".to_owned(), seed, output)?;
            Ok(seed.clone())
        }
        None if output.shape().elements() == 1 => {
            Tensor::ones(output.shape().clone(), output.dtype(), &output.device())
        }
        None => Err(Error::NotScalar { shape: output.shape().clone() }),
    }
}

fn run_backward(output: &Tensor, options: &BackwardOptions, watch: Option<Watch<'_>>) -> Result<Gradients> {
    let seed = seed(output, options)?;
    let mut pass = Pass::to_leaves(output, gradients_of, watch);
    mode::with_mode(options.create_graph, || pass.run(output, seed))?;
    Ok(Gradients::new(pass.gradients, pass.visited))
}

/// Gradients of `output` with respect to `inputs`, leaves or intermediate results; `None` for an input that `output`
/// does not depend on. Only the part of the graph between them is visited. An input that another is computed from gets
/// its total derivative.
///
/// # Errors
/// As [`Tensor::backward`].
pub fn grad(output: &Tensor, inputs: &[&Tensor], options: &BackwardOptions) -> Result<Vec<Option<Tensor>>> {
    towards(output, inputs, options, false)
}

/// As [`grad`], but gradients do not flow through `inputs`: partial derivatives, with every input held independent.
pub(crate) fn partial(
    output: &Tensor,
    inputs: &[&Tensor],
    options: &BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    towards(output, inputs, options, true)
}

fn towards(
    output: &Tensor,
    inputs: &[&Tensor],
    options: &BackwardOptions,
    stop: bool,
) -> Result<Vec<Option<Tensor>>> {
    let seed = seed(output, options)?;
    let wanted: FxHashSet<TensorId> = inputs.iter().map(|input| input.id()).collect();
    let mut pass = Pass::towards(output, wanted, gradients_of, stop);
    mode::with_mode(options.create_graph, || pass.run(output, seed))?;
    Ok(inputs.iter().map(|input| pass.gradients.get(&input.id()).cloned()).collect())
}

/// The gradients of one operation's inputs, by the backend chosen for its backward pass.
pub(crate) fn gradients_of(
    node: &Node,
    context: &BackwardContext<'_>,
    grad: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    let (operation, body) = (node.operation(), node.body.as_ref());
    // A recorded gradient is made of operations, each of which chooses its own backend.
    if mode::is_grad_enabled() {
        return differentiate(body, context, grad);
    }
    let native = |context: &BackwardContext<'_>| -> Result<Vec<Option<Tensor>>> {
        if body.is_whole() && context.inputs.iter().any(|input| is_emulated(input.array())) {
            return on_the_host(node, context, grad);
        }
        if node.saved.place == Place::Device || body.derivative() == Derivative::Differentiable {
            return differentiate(body, context, grad);
        }
        let saved = body.forward(context.arrays())?.saved;
        differentiate(body, &BackwardContext::new(context.inputs, context.output, &saved), grad)
    };
    match backend::choice(operation, Direction::Backward)? {
        Choice::Device => native(context),
        Choice::Reference if !body.is_whole() => native(context),
        Choice::Reference => {
            backend::announce(operation, Direction::Backward, "the reference on the host");
            on_the_host(node, context, grad)
        }
        Choice::Replaced(replacement) => {
            backend::announce(operation, Direction::Backward, "a replacement");
            // A replacement knows nothing of earlier gradients, and may compare itself with the original.
            let context = &BackwardContext::new(context.inputs, context.output, context.saved);
            let original =
                || Ok(native(context)?.into_iter().map(|g| g.map(|g| g.array().clone())).collect::<Vec<_>>());
            let needs: Vec<bool> = context.inputs.iter().map(Tensor::is_grad_required).collect();
            let call = Call {
                operation,
                pass: Direction::Backward,
                inputs: context.arrays(),
                output: Some(context.output.array()),
                grad: Some(grad.array()),
                needs: &needs,
                original: &original,
            };
            Ok(replacement(&call)?.into_iter().map(|gradient| gradient.map(Tensor::new)).collect())
        }
    }
}

/// The gradients by the operation's own rule, or by its re-expression: where the rule runs kernels and the graph of the
/// gradient is recorded, or where it has no kernels for the device.
pub(crate) fn differentiate(
    body: &dyn Body,
    context: &BackwardContext<'_>,
    grad: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    let create_graph = mode::is_grad_enabled();
    if body.derivative() == Derivative::Differentiable || (!create_graph && body.serves(context.arrays())) {
        return body.backward(context, grad);
    }
    mode::with_mode(true, || {
        // Aliases, because one tensor may be several inputs: each occurrence gets its own gradient.
        let aliases: Vec<Tensor> = context.inputs.iter().map(Tensor::alias).collect();
        let output = body.reexpress(&aliases)?;
        // Within `autocast`, parts of the re-expression may run in f32 where the operation has 16 bits.
        let output = if current_policy().is_some() { output.cast(grad.dtype())? } else { output };
        let wanted: Vec<&Tensor> = aliases.iter().filter(|alias| alias.is_grad_required()).collect();
        let options = BackwardOptions { seed: Some(grad.clone()), create_graph };
        let mut gradients = partial(&output, &wanted, &options)?.into_iter();
        Ok(aliases
            .iter()
            .map(|alias| if alias.is_grad_required() { gradients.next().flatten() } else { None })
            .collect())
    })
}

fn on_the_host(node: &Node, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
    let inputs = context.inputs.iter().map(leaf_on_host).collect::<Result<Vec<_>>>()?;
    let output = Tensor::new(on_host(context.output.array())?);
    let again;
    let saved = match node.saved.place {
        Place::Host => &node.saved.arrays,
        _ => {
            let arrays: Vec<Array> = inputs.iter().map(|input| input.array().clone()).collect();
            again = node.body.forward(&arrays)?.saved;
            &again
        }
    };
    let host = BackwardContext::new(&inputs, &output, saved);
    let gradients = differentiate(node.body.as_ref(), &host, &Tensor::new(on_host(grad.array())?))?;
    let as_of = |(gradient, input): (Option<Tensor>, &Tensor)| {
        let moved =
            |gradient: Tensor| Ok(Tensor::new(back(gradient.array(), input.dtype(), &input.device())?));
        gradient.map(moved).transpose()
    };
    gradients.into_iter().zip(context.inputs).map(as_of).collect()
}

/// A copy of a tensor on the host: a leaf that requires a gradient if the tensor does.
fn leaf_on_host(tensor: &Tensor) -> Result<Tensor> {
    let host = Tensor::new(on_host(tensor.array())?);
    Ok(if tensor.is_grad_required() { host.requires_grad() } else { host })
}
