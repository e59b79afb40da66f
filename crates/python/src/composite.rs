//! Several operations on tensors of PyTorch as one node of its graph: the history within is kept here.

use crate::{
    errors::{Class, raised},
    torch::{Fused, Here, Kind, Torch, View, apart, edges::Edges},
};
use gradewise_autograd::{
    BackwardOptions, Operation, Prepared, Tensor,
    clifford::{SplitHeads, split_heads},
    no_grad,
};
use gradewise_kernels::Array;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// Operations of the registry, one after the other, each on inputs of the whole and on results of those before it. The result of the last is
/// that of the whole.
#[pyclass(frozen, module = "gradewise._core")]
pub struct Composite {
    steps: Vec<Step>,
    /// What makes the heads of an attention of their result, whose gradients come group by group; it is not among the steps.
    groups: Option<Arc<SplitHeads>>,
    /// What operators on elements are computed together on a GPU by, if they are.
    fused: Option<Arc<Fused>>,
    /// How the operations see each input.
    views: Arc<[View]>,
    /// How the last operation's result is seen: its axes are put back.
    result: View,
}

/// An operation of the row.
struct Step {
    run: Run,
    /// Its inputs, by number.
    places: Vec<usize>,
    /// The results before it that no later step reads.
    last_read: Vec<usize>,
}

/// What a step runs.
enum Run {
    Registered(Prepared),
    /// On the edges that a call comes with: `edge_difference`.
    EdgeDifference,
    /// As above: `concat_segment_mean`.
    ConcatSegmentMean,
}

type Given<'py> = Bound<'py, PyAny>;

impl Composite {
    fn run(&self, inputs: &[Tensor], edges: Option<&Edges>) -> gradewise_autograd::Result<Tensor> {
        let mut results: Vec<Option<Tensor>> = Vec::with_capacity(self.steps.len());
        for Step { run, places, last_read } in &self.steps {
            let value = |&place: &usize| match place.checked_sub(inputs.len()) {
                None => inputs.get(place),
                Some(step) => results[step].as_ref(),
            };
            let operands: Vec<&Tensor> = places.iter().filter_map(value).collect();
            let missing = || gradewise_autograd::Error::Argument {
                operation: "composite",
                message: "it has steps on edges, and none were given".to_owned(),
            };
            let value = match (run, &operands[..]) {
                (Run::Registered(operation), operands) => operation.apply(operands)?,
                (Run::EdgeDifference, [h, attributes @ ..]) => {
                    let Edges { receivers, senders } = edges.ok_or_else(missing)?;
                    h.edge_difference(attributes.first().copied(), receivers, senders)?
                }
                (Run::ConcatSegmentMean, [h, messages, ..]) => {
                    h.concat_segment_mean(messages, &edges.ok_or_else(missing)?.receivers)?
                }
                // The constructor counts the inputs of these.
                _ => return Err(missing()),
            };
            // Without a history their memory is free from here on.
            for &step in last_read {
                results[step] = None;
            }
            results.push(Some(value));
        }
        results.pop().flatten().ok_or_else(|| gradewise_autograd::Error::Argument {
            operation: "composite",
            message: "it has no steps".to_owned(),
        })
    }
}

#[pymethods]
impl Composite {
    /// Each step names an operation, its attributes as JSON, and its inputs by number: those of the whole come first, then the results of the
    /// steps. `edge_difference` and `concat_segment_mean` take the edges of each call instead of attributes. Views are "same", "reversed",
    /// "row", "list", "last" or "planes", one for each input and one for the result. With `groups` the last step is `split_heads`, and
    /// its history takes a gradient for each group. With `fused`, operators on elements are computed by kernels that are generated for several of
    /// them where PyTorch captures: the same bits in fewer launches.
    #[new]
    #[pyo3(signature = (steps, views, result, groups=false, fused=false))]
    fn new(
        py: Python<'_>,
        mut steps: Vec<(String, String, Vec<usize>)>,
        views: Vec<View>,
        result: View,
        groups: bool,
        fused: bool,
    ) -> PyResult<Self> {
        let fail = |error: gradewise_autograd::Error| raised(py, error);
        let inputs = views.len();
        let groups = if groups { Some(Arc::new(last_split(py, &mut steps, inputs)?)) } else { None };
        let step = |(index, (name, attributes, places)): (usize, (String, String, Vec<usize>))| {
            if let Some(place) = places.iter().find(|&&place| place >= inputs + index) {
                let message = format!("step {index}, {name}: input {place} is not there before it");
                return Err(Class::Argument.exception(py, &message));
            }
            let run = match &*name {
                "edge_difference" if (1..=2).contains(&places.len()) => Run::EdgeDifference,
                "concat_segment_mean" if places.len() == 2 => Run::ConcatSegmentMean,
                _ => {
                    let attributes = attributes.parse().map_err(fail)?;
                    Run::Registered(Prepared::new(&name, &attributes).map_err(fail)?)
                }
            };
            Ok(Step { run, places, last_read: Vec::new() })
        };
        let mut steps = steps.into_iter().enumerate().map(step).collect::<PyResult<Vec<_>>>()?;
        if steps.is_empty() {
            return Err(Class::Argument.exception(py, "a composite needs one step or more"));
        }
        for result in 0..steps.len() - 1 {
            let reader = steps.iter().rposition(|step| step.places.contains(&(inputs + result)));
            // A result that nothing reads goes with the step behind it.
            steps[reader.unwrap_or(result + 1)].last_read.push(result);
        }
        let fused = fused.then(Arc::default);
        Ok(Self { steps, groups, fused, views: views.into(), result })
    }

    /// Whether these are ordinary tensors of PyTorch, of one dtype and on one device.
    fn admits(&self, py: Python<'_>, inputs: Vec<Given<'_>>) -> PyResult<bool> {
        Ok(inputs.len() == self.views.len() && Torch::get(py)?.are_plain(&inputs))
    }

    /// The result, and the history for the gradients of the inputs that `needs` selects; none if it selects none. With `again` the history
    /// keeps the inputs alone, and the backward pass computes the steps again, with the same bits.
    #[pyo3(signature = (inputs, needs, edges=None, again=false))]
    fn forward<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        inputs: Vec<Given<'py>>,
        needs: Vec<bool>,
        edges: Option<&Bound<'py, Edges>>,
        again: bool,
    ) -> PyResult<(Given<'py>, Option<History>)> {
        let this = slf.get();
        if inputs.len() != this.views.len() || needs.len() != inputs.len() {
            let message = format!(
                "{} inputs and {} needs, expected {} of both",
                inputs.len(),
                needs.len(),
                this.views.len()
            );
            return Err(Class::Argument.exception(py, &message));
        }
        let torch = Torch::get(py)?;
        let here = torch.here(py, &inputs)?;
        let borrow = |(index, (input, &view)): (usize, (&Given<'py>, &View))| {
            torch.borrow_as(&here, input, index, view)
        };
        let leaf = |(array, &needs): (Array, &bool)| {
            let tensor = Tensor::new(array);
            if needs { tensor.requires_grad() } else { tensor }
        };
        let operands = inputs.iter().zip(this.views.iter()).enumerate();
        let borrowed = operands.map(borrow).collect::<PyResult<Vec<_>>>()?;
        let addresses = inputs.iter().map(|input| torch.address(input)).collect::<PyResult<Vec<_>>>()?;
        let kept_edges = edges.map(|edges| edges.clone().unbind());
        let edges = edges.map(|edges| edges.get());
        let is_recorded = needs.contains(&true);
        let records_now = is_recorded && !again;
        let wanted: &[bool] = if records_now { &needs } else { &[] };
        let kind = this.fused.as_deref().map(|fused| (fused, Kind::new(false, wanted, &borrowed)));
        let (output, leaves, given) = py
            .detach(|| {
                here.run_as(kind, || {
                    let leaves: Vec<Tensor> =
                        in_order(borrowed, &this.views)?.into_iter().zip(&needs).map(leaf).collect();
                    let work = || this.run(&leaves, edges);
                    let output = if records_now { work() } else { no_grad(work) }?;
                    let given = match &this.groups {
                        Some(split) => no_grad(|| split_heads(split, &output))?.array().clone(),
                        None => output.array().clone(),
                    };
                    let given = apart([given])?;
                    Ok::<_, gradewise_autograd::Error>((output, leaves, given))
                })
            })
            .map_err(|error| raised(py, error))?;
        let tensors = given.iter().map(|array| (array, this.result)).collect::<Vec<_>>();
        let tensor = torch.give_all(py, &here, &tensors)?.pop();
        let tensor = tensor.ok_or_else(|| Class::Other.exception(py, "a composite gave no tensor"))?;
        let output = if records_now {
            Output::There(output)
        } else {
            Output::Again { composite: slf.clone().unbind(), edges: kept_edges }
        };
        let (views, groups) = (Arc::clone(&this.views), this.groups.clone());
        let fused = this.fused.clone().map(|fused| (fused, needs));
        let record = || Record { output, leaves, views, result: this.result, groups, fused };
        let history = || History { record: Mutex::new(Some(record())), addresses };
        Ok((tensor, is_recorded.then(history)))
    }
}

/// Takes `split_heads` from the end of steps, the step before which gives its input.
fn last_split(
    py: Python<'_>,
    steps: &mut Vec<(String, String, Vec<usize>)>,
    inputs: usize,
) -> PyResult<SplitHeads> {
    let fail = |message: &str| Class::Argument.exception(py, message);
    let Some((name, attributes, places)) = steps.pop() else {
        return Err(fail("a composite needs one step or more"));
    };
    let before = (inputs + steps.len()).checked_sub(1);
    if name != SplitHeads::NAME || steps.is_empty() || places.len() != 1 || before != places.first().copied()
    {
        return Err(fail(&format!(
            "groups come from split_heads of the step before it, and the last step is {name} of {places:?}"
        )));
    }
    serde_json::from_str(&attributes)
        .map_err(|error| fail(&format!("{name}: attributes {attributes}: {error}")))
}

/// The arrays, those of them that are matrices adjacent in memory. A parameter lies as PyTorch made it, and the kernels read it with its axes
/// turned: copied once for a call, where each operation, forward and backward, would do so for itself. The copy is part of each call, so that
/// it is in a graph under capture and never older than the parameter.
fn in_order(mut arrays: Vec<Array>, views: &[View]) -> gradewise_kernels::Result<Vec<Array>> {
    let places: Vec<usize> = (0..arrays.len()).filter(|&place| views[place] == View::Reversed).collect();
    let matrices: Vec<Array> = places.iter().map(|&place| arrays[place].clone()).collect();
    for (place, array) in places.into_iter().zip(Array::contiguous_all(&matrices)?) {
        arrays[place] = array;
    }
    Ok(arrays)
}

/// The end of a history.
enum Output {
    /// The result, with what led to it.
    There(Tensor),
    /// What computes it.
    Again { composite: Py<Composite>, edges: Option<Py<Edges>> },
}

/// What a forward pass left.
struct Record {
    output: Output,
    leaves: Vec<Tensor>,
    views: Arc<[View]>,
    result: View,
    /// What made the composite's result of the output.
    groups: Option<Arc<SplitHeads>>,
    /// As its composite has it, with the inputs whose gradients are asked for.
    fused: Option<(Arc<Fused>, Vec<bool>)>,
}

/// The history of one call of a [`Composite`].
#[pyclass(frozen, module = "gradewise._core")]
pub struct History {
    record: Mutex<Option<Record>>,
    /// Where the elements of the inputs began.
    addresses: Vec<u64>,
}

#[pymethods]
impl History {
    /// Whether these inputs lie where those of the forward pass did.
    fn is_of(&self, py: Python<'_>, inputs: Vec<Given<'_>>) -> PyResult<bool> {
        let torch = Torch::get(py)?;
        if inputs.len() != self.addresses.len() {
            return Ok(false);
        }
        for (input, &address) in inputs.iter().zip(&self.addresses) {
            if torch.address(input)? != address {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The gradients of the inputs that were selected, and None for the others, for that of the result, or those of its groups; the history is
    /// gone afterwards unless `keep`.
    fn backward<'py>(
        &self,
        py: Python<'py>,
        grads: Vec<Given<'py>>,
        keep: bool,
    ) -> PyResult<Vec<Option<Given<'py>>>> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(record) = record else {
            let message = "the history is gone: a second backward pass needs retain_graph=True in the first";
            return Err(Class::Other.exception(py, message));
        };
        let gradients = Self::gradients(py, &record, &grads);
        if keep {
            *self.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
        } else {
            // Outside of the lock: memory goes back to PyTorch.
            drop(record);
        }
        gradients
    }
}

impl History {
    fn gradients<'py>(
        py: Python<'py>,
        record: &Record,
        grads: &[Given<'py>],
    ) -> PyResult<Vec<Option<Given<'py>>>> {
        let torch = Torch::get(py)?;
        let here: Here = torch.here(py, grads)?;
        let borrow = |grad| torch.borrow_as(&here, grad, record.leaves.len(), record.result);
        let mut seeds = grads.iter().map(borrow).collect::<PyResult<Vec<Array>>>()?;
        let Record { output, leaves, views, groups, fused, .. } = record;
        if groups.is_none() && seeds.len() != 1 {
            let message = format!("{} gradients of a composite's result, expected 1", seeds.len());
            return Err(Class::Argument.exception(py, &message));
        }
        let kind = fused.as_ref().map(|(fused, needs)| (&**fused, Kind::new(true, needs, &seeds)));
        let work = || {
            let computed;
            let output = match output {
                Output::There(output) => output,
                Output::Again { composite, edges } => {
                    computed = composite.get().run(leaves, edges.as_ref().map(|edges| edges.get()))?;
                    &computed
                }
            };
            let seed = match groups {
                Some(split) => Some(split.backward_of_groups(output.array(), &seeds)?),
                None => seeds.pop(),
            };
            drop(seeds);
            let options = BackwardOptions { seed: seed.map(Tensor::new), create_graph: false };
            let mut gradients = output.backward_with(&options)?;
            let mut given: Vec<Option<Array>> = Vec::with_capacity(leaves.len());
            for leaf in leaves {
                let is_there = leaf.is_grad_required() && gradients.contains(leaf);
                let gradient = is_there.then(|| gradients.take(leaf)).transpose()?;
                given.push(gradient.map(|gradient| gradient.array().clone()));
            }
            drop(gradients);
            let places: Vec<usize> = (0..given.len()).filter(|&place| given[place].is_some()).collect();
            // The gradient of a matrix lies in memory as the parameter does: optimisers read both element by element.
            let turned =
                places.iter().zip(given.into_iter().flatten()).map(|(&place, array)| match views[place] {
                    View::Reversed => array.permute(&(0..array.rank()).rev().collect::<Vec<_>>()),
                    _ => Ok(array),
                });
            let shown: Vec<View> = places.iter().map(|&place| views[place]).collect();
            let arrays = apart(in_order(turned.collect::<gradewise_kernels::Result<Vec<_>>>()?, &shown)?)?;
            Ok::<_, gradewise_autograd::Error>((places, arrays))
        };
        let (places, arrays) = py.detach(|| here.run_as(kind, work)).map_err(|error| raised(py, error))?;
        let is_turned = |place: usize| views[place] == View::Reversed;
        let shown = arrays
            .iter()
            .zip(&places)
            .map(|(array, &place)| (array, if is_turned(place) { View::Same } else { views[place] }))
            .collect::<Vec<_>>();
        let mut tensors = torch.give_all(py, &here, &shown)?.into_iter();
        let mut results: Vec<Option<Given<'py>>> = (0..leaves.len()).map(|_| None).collect();
        for place in places {
            results[place] = tensors.next();
        }
        Ok(results)
    }
}
