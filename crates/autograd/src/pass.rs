//! One walk backward over a graph.
//!
//! A tensor's id exceeds those of its inputs, so processing tensors by descending id visits every consumer of a
//! tensor before the tensor itself: a heap replaces the topological sort, and the order in which contributions to a
//! gradient are added is fixed by the program, not by the run.

use crate::{
    BackwardContext, Error, Result, Tensor, TensorId, add_n, current_policy, mode, observe,
    tensor::{Node, require_gradient_of},
    trace,
};
use gradewise_kernels::{
    memory,
    ops::{self, ADD_N_AT_ONCE},
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BinaryHeap},
};

/// How the gradients of one operation are computed.
pub(crate) type Rule = fn(&Node, &BackwardContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>>;

/// Called with a leaf and its gradient once the gradient is complete.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&Tensor, &Tensor);

/// Detects that the gradient of a leaf is complete, by counting its uses. Ids cannot tell: parameters have the lowest ids, so the heap
/// yields all of them last.
struct Watcher<'a> {
    /// Uses of each leaf by operations whose backward has not run yet.
    uses: FxHashMap<TensorId, usize>,
    watch: Watch<'a>,
}

/// How often each leaf is an input of an operation that `output` was computed by.
fn uses(output: &Tensor) -> FxHashMap<TensorId, usize> {
    let mut uses = FxHashMap::default();
    let mut seen = FxHashSet::from_iter([output.id()]);
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

/// The tensors between `output` and `wanted`, both included.
fn relevant(output: &Tensor, wanted: &FxHashSet<TensorId>, stop: bool) -> FxHashSet<TensorId> {
    // Nothing older than the oldest wanted tensor can depend on one.
    let Some(&oldest) = wanted.iter().min() else { return FxHashSet::default() };
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
    let mut relevant = FxHashSet::default();
    for (&id, tensor) in &seen {
        let leads =
            |node: &crate::tensor::Node| node.inputs.iter().any(|input| relevant.contains(&input.id()));
        if wanted.contains(&id) || tensor.node().is_some_and(leads) {
            relevant.insert(id);
        }
    }
    relevant
}

/// A backward pass under way.
pub(crate) struct Pass<'a> {
    rule: Rule,
    /// Tensors to differentiate with respect to; every leaf if `None`.
    wanted: Option<FxHashSet<TensorId>>,
    /// Whether gradients end at the wanted tensors rather than flow on through them.
    stop: bool,
    /// Tensors worth visiting; all if `None`.
    relevant: Option<FxHashSet<TensorId>>,
    /// The gradients of the wanted tensors that are complete.
    pub gradients: BTreeMap<TensorId, Tensor>,
    /// Every tensor that a gradient reached, unordered.
    pub visited: Vec<TensorId>,
    watcher: Option<Watcher<'a>>,
}

/// The largest contribution, in bytes of storage, that waits to be summed with others in one launch. For a larger one the launch costs
/// little beside its bytes, and holding several would raise peak memory.
const WAITING_BYTES: usize = 4 << 20;

/// Contributions to the gradient of a tensor, in order of arrival. One launch sums them when the tensor is reached, or when there are as
/// many as a launch can sum.
#[derive(Default)]
struct Contributions(SmallVec<[Tensor; 2]>);

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

    /// All of them, if they are at most `most`; none otherwise.
    fn take(&mut self, most: usize) -> Vec<Tensor> {
        if self.0.len() <= most { std::mem::take(&mut self.0).into_vec() } else { Vec::new() }
    }

    fn sum(self) -> Result<Option<Tensor>> {
        let mut all = self.0.into_iter();
        let Some(first) = all.next() else { return Ok(None) };
        if all.as_slice().is_empty() { Ok(Some(first)) } else { accumulate(first, all.as_slice()).map(Some) }
    }
}

/// The sum of gradients of one tensor, `first` first, in place where nothing else holds it.
fn accumulate(mut first: Tensor, others: &[Tensor]) -> Result<Tensor> {
    if !mode::is_grad_enabled()
        && let Some(array) = first.array_mut()
        && array.is_unique()
        && array.device().supports(array.dtype())
    {
        ops::add_n_assign(array, &others.iter().map(Tensor::array).collect::<Vec<_>>())?;
        return Ok(first);
    }
    match others {
        [other] => first.add(other),
        _ => add_n(&[&first].into_iter().chain(others).collect::<Vec<_>>()),
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

/// Removes and sums the contributions to a tensor, which must be complete; `None` if there are none.
fn total(arriving: &mut FxHashMap<TensorId, Contributions>, tensor: &Tensor) -> Result<Option<Tensor>> {
    arriving.remove(&tensor.id()).map_or(Ok(None), Contributions::sum)
}

impl<'a> Pass<'a> {
    /// A pass to every leaf, which `watch` sees as they are completed.
    pub fn to_leaves(output: &Tensor, rule: Rule, watch: Option<Watch<'a>>) -> Self {
        Self {
            rule,
            wanted: None,
            stop: false,
            relevant: None,
            gradients: BTreeMap::new(),
            visited: Vec::new(),
            watcher: watch.map(|watch| Watcher { uses: uses(output), watch }),
        }
    }

    /// A pass to `wanted` alone; gradients flow on through them unless `stop`.
    pub fn towards(output: &Tensor, wanted: FxHashSet<TensorId>, rule: Rule, stop: bool) -> Self {
        let relevant = Some(relevant(output, &wanted, stop));
        Self {
            rule,
            wanted: Some(wanted),
            stop,
            relevant,
            gradients: BTreeMap::new(),
            visited: Vec::new(),
            watcher: None,
        }
    }

    /// Runs the pass from `output`, whose gradient is `seed`.
    ///
    /// # Errors
    /// From the rules of the operations, and gradients that do not fit their inputs.
    pub fn run(&mut self, output: &Tensor, seed: Tensor) -> Result<()> {
        let mut arriving: FxHashMap<TensorId, Contributions> = FxHashMap::default();
        arriving.insert(output.id(), Contributions(smallvec![seed]));
        let mut heap = BinaryHeap::from([Pending(output.clone())]);
        while let Some(Pending(tensor)) = heap.pop() {
            let Some(gradient) = total(&mut arriving, &tensor)? else { continue };
            let gradient = self.arrived(&tensor, gradient)?;
            if self.stop && self.gradients.contains_key(&tensor.id()) {
                continue;
            }
            let Some(node) = tensor.node() else { continue };
            let operation = node.operation();
            observe::begin(operation, observe::Pass::Backward)?;
            let began = trace::begin(Some(gradient.array()))?;
            let within = (observe::within(operation), memory::within(operation));
            let gradients = {
                let waiting = RefCell::new(&mut arriving);
                let take = |id: TensorId, most: usize| {
                    waiting.borrow_mut().get_mut(&id).map_or_else(Vec::new, |all| all.take(most))
                };
                let context = BackwardContext::new(&node.inputs, &tensor, &node.saved.arrays);
                // A rule that adds to earlier gradients returns a sum, which is neither recorded nor what observers compare.
                let adds = !mode::is_grad_enabled() && !observe::is_watched();
                let context = if adds { context.with_earlier(&take) } else { context };
                (self.rule)(node, &context, &gradient).map_err(|error| error.in_backward(operation))?
            };
            drop(within);
            began.backward(node, &gradients)?;
            observe::backward(node, &gradient, &gradients)?;
            if gradients.len() != node.inputs.len() {
                return Err(Error::GradientCount {
                    operation,
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
                // A recorded rule within `autocast` is made of operations that run by its policy.
                let is_cast = gradient.dtype() != input.dtype() && current_policy().is_some();
                let gradient = if is_cast { gradient.cast(input.dtype())? } else { gradient };
                require_gradient_of(operation, index, &gradient, input)?;
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

    /// Runs the hooks of a tensor whose gradient is complete, keeps the result if it is wanted, and returns it.
    fn arrived(&mut self, tensor: &Tensor, gradient: Tensor) -> Result<Tensor> {
        let gradient = tensor.run_hooks(gradient)?;
        self.visited.push(tensor.id());
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

    /// Counts down the uses of a watched leaf; true at the last.
    fn used(&mut self, input: &Tensor) -> bool {
        let Some(uses) = self.watcher.as_mut().and_then(|watcher| watcher.uses.get_mut(&input.id())) else {
            return false;
        };
        *uses -= 1;
        *uses == 0
    }
}
