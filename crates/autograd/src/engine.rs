//! Backward passes.
//!
//! A tensor's id exceeds those of its inputs, so processing tensors by descending id visits every consumer of a
//! tensor before the tensor itself: a heap replaces the topological sort, and the order in which contributions to a
//! gradient are added is fixed by the program, not by the run.

use crate::{Error, Gradients, Result, Tensor, TensorId, backend, mode, observe, tensor::RuleContext, trace};
use gradewise_kernels::{memory, ops::ADD_N_AT_ONCE};
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

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

fn seed(output: &Tensor, options: &BackwardOptions) -> Result<Tensor> {
    if !output.is_grad_required() {
        return Err(Error::NoHistory { shape: output.shape().clone() });
    }
    match &options.seed {
        Some(seed) => require_gradient_of("backward", 0, seed, output).map(|()| seed.clone()),
        None if output.shape().elements() == 1 => {
            Tensor::ones(output.shape().clone(), output.dtype(), &output.device())
        }
        None => Err(Error::NotScalar { shape: output.shape().clone() }),
    }
}

pub(crate) fn backward(
    output: &Tensor,
    options: &BackwardOptions,
    watch: Option<Watch<'_>>,
) -> Result<Gradients> {
    let seed = seed(output, options)?;
    let watcher = watch.map(|watch| Watcher { uses: uses(output), watch });
    let mut pass = Pass { watcher, ..Pass::default() };
    mode::with_mode(options.create_graph, || pass.run(output, seed))?;
    Ok(Gradients::new(pass.gradients, pass.visited))
}

/// Sees a leaf and its gradient as soon as nothing more is added to it.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&Tensor, &Tensor);

/// Tells when the gradient of a leaf is complete. The order of ids cannot: parameters are older than everything computed from
/// them, so a pass comes to all of them last.
struct Watcher<'a> {
    /// How often operations that have not run backward yet use each leaf.
    uses: HashMap<TensorId, usize>,
    watch: Watch<'a>,
}

/// How often each leaf is an input of an operation that `output` was computed by.
fn uses(output: &Tensor) -> HashMap<TensorId, usize> {
    let mut uses = HashMap::new();
    let mut seen = HashSet::from([output.id()]);
    let mut pending = vec![output];
    while let Some(tensor) = pending.pop() {
        for input in tensor.node().iter().flat_map(|node| &node.inputs) {
            if !input.is_grad_required() {
                continue;
            }
            if input.is_leaf() {
                *uses.entry(input.id()).or_default() += 1;
            } else if seen.insert(input.id()) {
                pending.push(input);
            }
        }
    }
    uses
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
    let wanted: HashSet<TensorId> = inputs.iter().map(|input| input.id()).collect();
    let relevant = Some(relevant(output, &wanted, stop));
    let mut pass = Pass { wanted: Some(wanted), stop, relevant, ..Pass::default() };
    mode::with_mode(options.create_graph, || pass.run(output, seed))?;
    Ok(inputs.iter().map(|input| pass.gradients.get(&input.id()).cloned()).collect())
}

/// The tensors between `output` and `wanted`, both included.
fn relevant(output: &Tensor, wanted: &HashSet<TensorId>, stop: bool) -> HashSet<TensorId> {
    // Nothing older than the oldest wanted tensor can depend on one.
    let Some(&oldest) = wanted.iter().min() else { return HashSet::new() };
    let mut seen: BTreeMap<TensorId, Tensor> = BTreeMap::new();
    let mut pending = vec![output.clone()];
    while let Some(tensor) = pending.pop() {
        if tensor.id() < oldest || seen.contains_key(&tensor.id()) {
            continue;
        }
        if let Some(node) = tensor.node()
            && !(stop && wanted.contains(&tensor.id()))
        {
            pending.extend(node.inputs.iter().filter(|input| input.is_grad_required()).cloned());
        }
        seen.insert(tensor.id(), tensor);
    }
    let mut relevant = HashSet::new();
    for (&id, tensor) in &seen {
        let leads =
            |node: &crate::tensor::Node| node.inputs.iter().any(|input| relevant.contains(&input.id()));
        if wanted.contains(&id) || tensor.node().is_some_and(leads) {
            relevant.insert(id);
        }
    }
    relevant
}

#[derive(Default)]
struct Pass<'a> {
    /// Tensors to differentiate with respect to; every leaf if `None`.
    wanted: Option<HashSet<TensorId>>,
    /// Whether gradients end at the wanted tensors rather than flow on through them.
    stop: bool,
    /// Tensors worth visiting; all if `None`.
    relevant: Option<HashSet<TensorId>>,
    gradients: BTreeMap<TensorId, Tensor>,
    visited: HashSet<TensorId>,
    watcher: Option<Watcher<'a>>,
}

/// Most bytes of storage that a gradient may keep while it waits to be added up with others. Adding larger ones one by one costs their
/// bytes rather than a launch each, and keeping several would raise the peak of a step.
const WAITING_BYTES: usize = 4 << 20;

/// Contributions to the gradient of a tensor, in the order of their arrival. They wait to be added up in one launch, until the tensor is
/// reached or there are as many as a launch adds.
#[derive(Default)]
struct Contributions(Vec<Tensor>);

impl Contributions {
    fn add(&mut self, gradient: Tensor) -> Result<()> {
        let waits = gradient.array().storage_bytes() <= WAITING_BYTES;
        self.0.push(gradient);
        if self.0.len() == ADD_N_AT_ONCE || !waits {
            let sum = std::mem::take(self).sum()?;
            self.0.extend(sum);
        }
        Ok(())
    }

    fn sum(self) -> Result<Option<Tensor>> {
        let mut all = self.0.into_iter();
        all.next().map(|first| first.accumulate(all.as_slice())).transpose()
    }
}

/// A tensor in the heap, ordered by id.
struct Pending(Tensor);

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.id().cmp(&other.0.id())
    }
}

/// Refuses a gradient, given by a rule or a hook of `operation` for input `index`, that does not belong to `input`.
pub(crate) fn require_gradient_of(
    operation: &'static str,
    index: usize,
    gradient: &Tensor,
    input: &Tensor,
) -> Result<()> {
    if gradient.shape() != input.shape() {
        let (actual, expected) = (gradient.shape().clone(), input.shape().clone());
        return Err(Error::GradientShape { operation, index, actual, expected });
    }
    if gradient.dtype() != input.dtype() || gradient.device() != input.device() {
        let place = |tensor: &Tensor| format!("{} on {}", tensor.dtype(), tensor.device());
        return Err(Error::GradientPlace {
            operation,
            index,
            actual: place(gradient),
            expected: place(input),
        });
    }
    Ok(())
}

/// The sum of what arrived at a tensor to which nothing more is added, if anything did.
fn total(arriving: &mut HashMap<TensorId, Contributions>, tensor: &Tensor) -> Result<Option<Tensor>> {
    arriving.remove(&tensor.id()).map_or(Ok(None), Contributions::sum)
}

impl Pass<'_> {
    fn run(&mut self, output: &Tensor, seed: Tensor) -> Result<()> {
        let mut arriving = HashMap::from([(output.id(), Contributions(vec![seed]))]);
        let mut heap = BinaryHeap::from([Pending(output.clone())]);
        while let Some(Pending(tensor)) = heap.pop() {
            let Some(gradient) = total(&mut arriving, &tensor)? else { continue };
            let gradient = self.arrived(&tensor, gradient)?;
            if self.stop && self.gradients.contains_key(&tensor.id()) {
                continue;
            }
            let Some(node) = tensor.node() else { continue };
            let context = RuleContext { inputs: &node.inputs, output: &tensor };
            observe::begin(node.operation, observe::Pass::Backward)?;
            let began = trace::begin(Some(gradient.array()))?;
            let within = (observe::within(node.operation), memory::within(node.operation));
            let gradients = backend::backward(node, &context, &gradient)?;
            drop(within);
            began.backward(node, &gradients)?;
            observe::backward(node, &gradient, &gradients)?;
            if gradients.len() != node.inputs.len() {
                return Err(Error::GradientCount {
                    operation: node.operation,
                    actual: gradients.len(),
                    expected: node.inputs.len(),
                });
            }
            for (index, (input, gradient)) in node.inputs.iter().zip(gradients).enumerate() {
                let Some(gradient) = gradient else { continue };
                let relevant = self.relevant.as_ref().is_none_or(|relevant| relevant.contains(&input.id()));
                if !input.is_grad_required() || !relevant {
                    continue;
                }
                require_gradient_of(node.operation, index, &gradient, input)?;
                let contributions = arriving.entry(input.id()).or_insert_with(|| {
                    heap.push(Pending(input.clone()));
                    Contributions::default()
                });
                contributions.add(gradient)?;
            }
            for input in &node.inputs {
                if self.used(input)
                    && let Some(gradient) = total(&mut arriving, input)?
                {
                    self.arrived(input, gradient)?;
                }
            }
        }
        Ok(())
    }

    /// Takes note of a gradient to which nothing more is added, and returns it as its tensor's hooks leave it.
    fn arrived(&mut self, tensor: &Tensor, gradient: Tensor) -> Result<Tensor> {
        let gradient = tensor.run_hooks(gradient)?;
        self.visited.insert(tensor.id());
        let wanted = match &self.wanted {
            Some(wanted) => wanted.contains(&tensor.id()),
            None => tensor.is_leaf(),
        };
        if wanted {
            self.gradients.insert(tensor.id(), gradient.clone());
            if let Some(watcher) = &mut self.watcher {
                (watcher.watch)(tensor, &gradient);
            }
        }
        Ok(gradient)
    }

    /// Counts a use of a watched leaf; whether it was the last one.
    fn used(&mut self, input: &Tensor) -> bool {
        let Some(uses) = self.watcher.as_mut().and_then(|watcher| watcher.uses.get_mut(&input.id())) else {
            return false;
        };
        *uses -= 1;
        *uses == 0
    }
}
