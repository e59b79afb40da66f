//! Recording.

use super::{Buffer, Contents, Program, Step, View, compare::require_alike};
use crate::{
    Attributes, Error, Formula, Result, Tensor, no_grad,
    observe::{Event, Observer, Pass, observe},
    registry,
};
use gradewise_kernels::{Array, Device};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{cell::RefCell, rc::Rc};

/// Records what `run` does with inputs of the sizes and dtypes of both examples, which differ in their numbers. `names` are those of
/// parameters, for the constants of the program and for errors.
///
/// # Errors
/// [`Error::NoFormula`] for an operation that has neither a formula nor a re-expression; [`Error::DependsOnNumbers`] if the operations,
/// what they read besides their inputs, or constants follow from the numbers; [`Error::Argument`] for examples that differ in sizes or are
/// not on the CPU; from `run`.
pub fn record(
    examples: &[Vec<Tensor>; 2],
    names: &[(String, Array)],
    run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Program> {
    let names: FxHashMap<u64, &str> =
        names.iter().map(|(name, array)| (storage(array), name.as_str())).collect();
    let [first, second] = examples;
    let alike = first.len() == second.len()
        && first.iter().zip(second).all(|(a, b)| a.shape() == b.shape() && a.dtype() == b.dtype());
    let is_here = |tensor: &Tensor| matches!(tensor.device(), Device::Cpu) && tensor.shape().elements() > 0;
    if !alike || !first.iter().chain(second).all(is_here) {
        let message =
            "both examples need inputs of the same sizes and dtypes, on the CPU, none empty".to_owned();
        return Err(Error::Argument { operation: "record", message });
    }
    let program = once(first, &names, &run)?;
    require_alike(&program, &once(second, &names, &run)?)?;
    Ok(program)
}

fn once(
    inputs: &[Tensor],
    names: &FxHashMap<u64, &str>,
    run: &impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Program> {
    // Memory of their own: an example that is a view, or the same tensor twice, is one input each.
    let inputs = inputs.iter().map(|x| Ok(Tensor::new(own(x.array())?))).collect::<Result<Vec<_>>>()?;
    let seen = Rc::new(RefCell::new(Seen::default()));
    seen.borrow_mut().live.extend(inputs.iter().map(|input| storage(input.array())));
    let (outputs, calls) = watch(&seen, || run(&inputs))?;
    let mut all = Vec::new();
    expand(&seen, names, calls, &mut all)?;
    assemble(&inputs, &outputs, names, all)
}

/// The elements in memory that nothing else refers to.
fn own(array: &Array) -> Result<Array> {
    Ok(Array::from_f64(&array.to_f64_vec()?, array.shape().clone(), array.dtype(), &Device::Cpu)?)
}

/// The identity of the memory that an array shows.
fn storage(array: &Array) -> u64 {
    array.whole_storage().address()
}

/// What recordings know of memory.
#[derive(Default)]
struct Seen {
    /// What depends on inputs, and copies of constants that are not made but read in place.
    live: FxHashSet<u64>,
    /// Results stay, so that no address is given twice.
    kept: Vec<Array>,
}

/// An operation as it ran.
struct Call {
    operation: &'static str,
    attributes: Option<Attributes>,
    inputs: Vec<Tensor>,
    output: Array,
    formula: Option<Formula>,
}

struct Recorder {
    seen: Rc<RefCell<Seen>>,
    calls: Vec<Call>,
}

/// The operations of `work` that depend on inputs.
fn watch(
    seen: &Rc<RefCell<Seen>>,
    work: impl FnOnce() -> Result<Vec<Tensor>>,
) -> Result<(Vec<Tensor>, Vec<Call>)> {
    let recorder = Recorder { seen: Rc::clone(seen), calls: Vec::new() };
    let (result, recorder) = observe(recorder, || no_grad(work));
    Ok((result?, recorder.calls))
}

impl Observer for Recorder {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        let (Pass::Forward, [output]) = (event.pass, &event.outputs[..]) else { return Ok(()) };
        let mut seen = self.seen.borrow_mut();
        seen.kept.push((*output).clone());
        let (live, place) = (|x: &&Tensor| storage(x.array()), storage(output));
        let depends = event.inputs.iter().any(|input| seen.live.contains(&live(input)));
        let sizes: Vec<&[usize]> = event.inputs.iter().map(|input| input.array().dims()).collect();
        let formula = event.body().formula(&sizes, output.dims());
        if !depends {
            // A copy of constants that is longer than they are is read in place.
            let grows = event.inputs.first().is_some_and(|x| output.elements() > x.shape().elements());
            let moves = formula.as_ref().is_some_and(Formula::moves_elements);
            if !(grows && moves) || event.inputs.iter().any(|x| live(x) == place) {
                return Ok(());
            }
        }
        if event.inputs.iter().any(|input| live(input) == place) {
            if event.body().shows_input() {
                return Ok(());
            }
            return Err(refused(event.operation, "it writes to the memory of its input"));
        }
        if seen.live.contains(&place) {
            // Several operations that share a node are reported once more, after their parts.
            return Ok(());
        }
        if output.elements() == 0 {
            return Err(refused(event.operation, "its result has no elements"));
        }
        let attributes = if formula.is_none() { Some(event.attributes()?) } else { None };
        seen.live.insert(place);
        self.calls.push(Call {
            operation: event.operation,
            attributes,
            inputs: event.inputs.iter().map(|&input| input.clone()).collect(),
            output: (*output).clone(),
            formula,
        });
        Ok(())
    }
}

fn refused(operation: &'static str, reason: &str) -> Error {
    Error::NoFormula { operation, layer: String::new(), reason: reason.to_owned() }
}

/// Calls with formulas, in place of those without.
fn expand(
    seen: &Rc<RefCell<Seen>>,
    names: &FxHashMap<u64, &str>,
    calls: Vec<Call>,
    all: &mut Vec<(Call, Formula)>,
) -> Result<()> {
    let mut layer = None;
    for mut call in calls {
        let parameter = call.inputs.iter().find_map(|input| names.get(&storage(input.array())));
        layer = parameter.copied().or(layer);
        if let Some(formula) = call.formula.take() {
            all.push((call, formula));
            continue;
        }
        let operation = call.operation;
        let lacking = |reason: String| Error::NoFormula {
            operation,
            layer: layer.map_or_else(String::new, |name| format!(" at `{name}`")),
            reason,
        };
        let attributes = call.attributes.take().unwrap_or_default();
        let entry = registry::find(operation)
            .ok_or_else(|| lacking("it is not in the registry of operations".to_owned()))?;
        let body = entry.body(&attributes)?;
        let work = || Ok(vec![body.reexpress(&call.inputs)?]);
        let (result, inner) = watch(seen, work).map_err(|error| match error {
            Error::NotTwiceDifferentiable { .. } => {
                lacking("it has neither a formula nor a re-expression in operations that have one".to_owned())
            }
            other => other,
        })?;
        expand(seen, names, inner, all).map_err(|error| match error {
            Error::NoFormula { operation, layer: found, reason } if found.is_empty() => {
                let layer = layer.map_or_else(String::new, |name| format!(" at `{name}`"));
                Error::NoFormula { operation, layer, reason }
            }
            other => other,
        })?;
        // Later operations read the memory of the result that the operation itself made.
        call.inputs = result;
        let formula = Formula::copy(call.output.dims());
        all.push((call, formula));
    }
    Ok(())
}

/// Buffers in the order of their first use.
struct Buffers<'a> {
    all: Vec<Buffer>,
    known: FxHashMap<u64, usize>,
    names: &'a FxHashMap<u64, &'a str>,
}

impl Buffers<'_> {
    /// The view that an array is; constants become buffers when they are first read.
    fn view(&mut self, array: &Array, contents: Option<Contents>) -> View {
        let place = storage(array);
        let buffer = *self.known.entry(place).or_insert_with(|| {
            let whole = array.whole_storage();
            let name = self.names.get(&place).map(|&name| name.to_owned());
            let (dtype, elements) = (array.dtype(), whole.elements());
            let contents = contents.unwrap_or(Contents::Constant(whole, name));
            self.all.push(Buffer { dtype, elements, contents });
            self.all.len() - 1
        });
        View {
            buffer,
            offset: array.storage_offset(),
            sizes: array.dims().to_vec(),
            strides: array.strides().to_vec(),
        }
    }
}

/// The program of the calls that results depend on.
fn assemble(
    inputs: &[Tensor],
    outputs: &[Tensor],
    names: &FxHashMap<u64, &str>,
    calls: Vec<(Call, Formula)>,
) -> Result<Program> {
    let mut wanted: FxHashSet<u64> = outputs.iter().map(|output| storage(output.array())).collect();
    let mut used = Vec::new();
    for (call, formula) in calls.into_iter().rev() {
        if wanted.contains(&storage(&call.output)) {
            wanted.extend(call.inputs.iter().map(|input| storage(input.array())));
            used.push((call, formula));
        }
    }
    let mut buffers = Buffers { all: Vec::new(), known: FxHashMap::default(), names };
    let of_inputs = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| buffers.view(input.array(), Some(Contents::Input(index))))
        .collect();
    let steps = used
        .into_iter()
        .rev()
        .map(|(call, formula)| Step {
            operation: call.operation,
            inputs: call.inputs.iter().map(|input| buffers.view(input.array(), None)).collect(),
            output: buffers.view(&call.output, Some(Contents::Computed)),
            formula,
        })
        .collect();
    let outputs = outputs.iter().map(|output| buffers.view(output.array(), None)).collect();
    Ok(Program { buffers: buffers.all, steps, inputs: of_inputs, outputs })
}
