//! Gradient checkpointing: memory for time.

use crate::{BackwardOptions, Result, Tensor, TensorId, engine, mode, policy};
use std::collections::{BTreeMap, HashSet};

/// Computes `body(inputs)` without keeping its intermediate results; the backward pass computes them again.
///
/// Gradients reach `inputs` and everything else that `body` uses, such as parameters it captures. `body` must compute
/// the same function both times: random numbers in it must come from a fixed seed or from
/// [`training_stream`](crate::training_stream), which repeats itself (Chen et al. 2016, arXiv:1604.06174). Both times it runs in
/// the same mixed precision, and in the same pass of training or evaluation.
///
/// # Errors
/// Whatever `body` returns.
pub fn checkpoint(
    inputs: &[&Tensor],
    body: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let aliases = |keep_history: bool| -> Vec<Tensor> {
        inputs
            .iter()
            .map(|input| match (input.is_grad_required(), keep_history) {
                (true, true) => input.alias(),
                (true, false) => input.requires_grad(),
                (false, _) => (*input).clone(),
            })
            .collect()
    };
    if !mode::is_grad_enabled() {
        return body(&aliases(true));
    }
    // Ids ascend: what is older than this and appears in the graph was captured by `body`.
    let start = TensorId::next();
    let local = aliases(false);
    // With the draws so far, so that the recomputation repeats the random numbers of `body`.
    let pass = mode::current_pass();
    let output = body(&local)?;
    let captured = captured(&output, start);
    let array = output.array().clone();
    drop(output);

    let count = inputs.len();
    let policy = policy::current_policy();
    let mut all: Vec<&Tensor> = inputs.to_vec();
    all.extend(&captured);
    Tensor::composite("checkpoint", array, &all, move |context, grad| {
        let create_graph = mode::is_grad_enabled();
        mode::with_mode(true, || {
            let (inputs, captured) = context.inputs.split_at(count);
            let local: Vec<Tensor> = inputs
                .iter()
                .map(|input| match (input.is_grad_required(), create_graph) {
                    (true, true) => input.alias(),
                    (true, false) => input.requires_grad(),
                    (false, _) => input.clone(),
                })
                .collect();
            let again = || policy::scoped(policy.clone(), || body(&local));
            let output = mode::with_pass(pass.clone(), again)?;
            let wanted: Vec<&Tensor> = local.iter().chain(captured).collect();
            let options = BackwardOptions { seed: Some(grad.clone()), create_graph };
            engine::partial(&output, &wanted, &options)
        })
    })
}

/// The tensors older than `start` that `output` depends on and that require gradients.
fn captured(output: &Tensor, start: TensorId) -> Vec<Tensor> {
    let mut found: BTreeMap<TensorId, Tensor> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut pending = vec![output.clone()];
    while let Some(tensor) = pending.pop() {
        if !seen.insert(tensor.id()) {
            continue;
        }
        if tensor.id() < start {
            found.insert(tensor.id(), tensor);
        } else if let Some(node) = tensor.node() {
            pending.extend(node.inputs.iter().filter(|input| input.is_grad_required()).cloned());
        }
    }
    found.into_values().collect()
}
