//! Watching the operations of a thread as they run: forward, and in backward passes.
//!
//! [`observe`] calls an [`Observer`] after every operation; [`detect_anomalies`] is the observer that stops at the first NaN. Nothing
//! is watched, and nothing costs anything, outside of these calls. Work that is replayed as a CUDA graph runs no operations
//! and is not seen.

use crate::{
    Attributes, Error, Result, Tensor, TensorId, backend, mode,
    operation::Body,
    tensor::{Node, RuleContext},
};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
};

/// Which pass an operation ran in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Pass {
    /// The operation itself, also where a backward rule is written in operations ([`Event::within`]).
    Forward,
    /// Its backward rule, as a whole.
    Backward,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        })
    }
}

/// An operation that has just run.
pub struct Event<'a> {
    /// Its name.
    pub operation: &'static str,
    /// Which pass this is.
    pub pass: Pass,
    /// The operation in whose backward rule this one was called, if it was.
    pub within: Option<&'static str>,
    /// The operation's inputs, in both passes.
    pub inputs: Vec<&'a Tensor>,
    /// In a backward pass, the gradient of the operation's output.
    pub arriving: Option<&'a Tensor>,
    /// The output; in a backward pass, the gradients of the inputs that have one.
    pub outputs: Vec<&'a Array>,
    /// In a backward pass, the input that each of [`outputs`](Self::outputs) belongs to; 0 for the output.
    pub positions: Vec<usize>,
    body: &'a dyn Body,
}

impl Event<'_> {
    /// What the operation was told besides its inputs.
    pub fn attributes(&self) -> Attributes {
        self.body.attributes()
    }

    /// The same pass of the same inputs, converted to `dtype`, by the reference on the CPU: what belongs to each of
    /// [`outputs`](Self::outputs). `None` for several operations under one name, such as a recomputation, whose parts are seen
    /// themselves.
    ///
    /// # Errors
    /// From the operation, such as a `dtype` other than `f32` and `f64`, which the CPU does not serve.
    pub fn reference(&self, dtype: DType) -> Result<Option<Vec<Array>>> {
        if !self.body.is_whole() {
            return Ok(None);
        }
        let host =
            |tensor: &Tensor| -> Result<Array> { Ok(tensor.array().to_device(&Device::Cpu)?.cast(dtype)?) };
        let arrays = self.inputs.iter().map(|input| host(input)).collect::<Result<Vec<_>>>()?;
        backend::untouched(|| {
            crate::without_autocast(|| {
                mode::with_mode(false, || {
                    let (output, saved) = self.body.forward(&arrays)?;
                    let Some(arriving) = self.arriving else { return Ok(Some(vec![output])) };
                    let leaf = |(array, input): (&Array, &&Tensor)| {
                        let tensor = Tensor::new(array.clone());
                        if input.is_grad_required() { tensor.requires_grad() } else { tensor }
                    };
                    let inputs: Vec<Tensor> = arrays.iter().zip(&self.inputs).map(leaf).collect();
                    let context = RuleContext { inputs: &inputs, output: &Tensor::new(output) };
                    let grad = Tensor::new(host(arriving)?);
                    let gradients = self.body.backward(&context, &saved, &grad)?;
                    let wanted = |&position: &usize| {
                        gradients.get(position)?.as_ref().map(|gradient| gradient.array().clone())
                    };
                    Ok(self.positions.iter().map(wanted).collect::<Option<Vec<_>>>())
                })
            })
        })
    }

    /// The parameter, or other leaf that requires a gradient, which each input shows, through conversions and views.
    pub fn leaves(&self) -> Vec<Option<TensorId>> {
        const TRANSPARENT: [&str; 7] =
            ["cast", "reshape", "permute", "transpose", "slice", "contiguous", "broadcast_to"];
        let leaf = |input: &&Tensor| {
            let mut tensor = (*input).clone();
            while let Some(node) = tensor.node() {
                let inner = node.inputs.first().filter(|_| TRANSPARENT.contains(&node.operation))?.clone();
                tensor = inner;
            }
            tensor.is_grad_required().then(|| tensor.id())
        };
        self.inputs.iter().map(leaf).collect()
    }

    /// The operations that led to the first input that has a history, the latest first.
    pub fn trail(&self) -> Vec<&'static str> {
        trail(&self.inputs)
    }
}

/// Sees every operation of a thread.
pub trait Observer {
    /// Called before each operation, except those that are only a name for several.
    ///
    /// # Errors
    /// As [`observe`](Self::observe).
    fn begin(&mut self, _operation: &'static str, _pass: Pass) -> Result<()> {
        Ok(())
    }

    /// Called after each operation, before its result is used.
    ///
    /// # Errors
    /// What it returns becomes the error of the operation, or of the backward pass.
    fn observe(&mut self, event: &Event<'_>) -> Result<()>;
}

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static OBSERVERS: RefCell<Vec<Rc<RefCell<dyn Observer>>>> = const { RefCell::new(Vec::new()) };
    static WITHIN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `body` with `observer` watching this thread, together with those that watch it already.
pub fn observe<O: Observer + 'static, R>(observer: O, body: impl FnOnce() -> R) -> (R, O) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            OBSERVERS.with_borrow_mut(|observers| {
                observers.pop();
                WATCHED.set(!observers.is_empty());
            });
        }
    }
    let observer = Rc::new(RefCell::new(observer));
    OBSERVERS.with_borrow_mut(|observers| observers.push(observer.clone()));
    WATCHED.set(true);
    let leave = Leave;
    let result = body();
    drop(leave);
    let Some(observer) = Rc::into_inner(observer) else { unreachable!("the list held the only other one") };
    (result, observer.into_inner())
}

fn notify(tell: impl Fn(&mut dyn Observer) -> Result<()>) -> Result<()> {
    // What observers compute themselves is not watched.
    WATCHED.set(false);
    let observers = OBSERVERS.with_borrow(Clone::clone);
    let result = observers.iter().try_for_each(|observer| tell(&mut *observer.borrow_mut()));
    WATCHED.set(!observers.is_empty());
    result
}

/// Called before an operation.
pub(crate) fn begin(operation: &'static str, pass: Pass) -> Result<()> {
    if WATCHED.get() { notify(|observer| observer.begin(operation, pass)) } else { Ok(()) }
}

/// Called with the result of every operation.
pub(crate) fn forward(
    operation: &'static str,
    inputs: &[&Tensor],
    output: &Array,
    body: &dyn Body,
) -> Result<()> {
    if !WATCHED.get() {
        return Ok(());
    }
    let event = Event {
        operation,
        pass: Pass::Forward,
        within: WITHIN.get(),
        inputs: inputs.to_vec(),
        arriving: None,
        outputs: vec![output],
        positions: vec![0],
        body,
    };
    notify(|observer| observer.observe(&event))
}

/// While this lives, operations belong to the backward rule of `operation`.
pub(crate) struct Within(Option<&'static str>);

pub(crate) fn within(operation: &'static str) -> Within {
    Within(WITHIN.replace(Some(operation)))
}

impl Drop for Within {
    fn drop(&mut self) {
        WITHIN.set(self.0);
    }
}

/// Called with the gradients that a backward rule returns.
pub(crate) fn backward(node: &Node, arriving: &Tensor, gradients: &[Option<Tensor>]) -> Result<()> {
    if !WATCHED.get() {
        return Ok(());
    }
    let (positions, outputs) = gradients
        .iter()
        .enumerate()
        .filter_map(|(position, gradient)| Some((position, gradient.as_ref()?.array())))
        .unzip();
    let event = Event {
        operation: node.operation,
        pass: Pass::Backward,
        within: WITHIN.get(),
        inputs: node.inputs.iter().collect(),
        arriving: Some(arriving),
        outputs,
        positions,
        body: node.body.as_ref(),
    };
    notify(|observer| observer.observe(&event))
}

/// Runs `body`, in which the first operation that makes a NaN, or an infinity out of finite numbers, forward or backward, fails
/// with [`Error::Anomaly`]. Infinities that an operation was given (a mask of −∞) may pass through it.
///
/// Every result is read once more, and on a GPU waited for: expect twice the time on the CPU, and several times that of a GPU whose operations are short.
///
/// ```
/// use gradewise_autograd::{Error, Tensor, detect_anomalies};
/// use gradewise_kernels::Device;
///
/// let x = Tensor::from_slice(&[1.0f32, -1.0], [2], &Device::Cpu)?;
/// let error = detect_anomalies(|| x.log()?.sum_all()).unwrap_err();
/// assert!(matches!(&error, Error::Anomaly(anomaly) if anomaly.operation == "log"));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// Whatever `body` returns.
pub fn detect_anomalies<R>(body: impl FnOnce() -> R) -> R {
    observe(Anomalies, body).0
}

/// Stops at the first operation that makes a NaN or an infinity.
struct Anomalies;

/// What [`detect_anomalies`] found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Anomaly {
    /// The operation.
    pub operation: &'static str,
    /// The pass in which it made them.
    pub pass: Pass,
    /// The operation in whose backward rule it was called, if it was.
    pub within: Option<&'static str>,
    /// NaN and infinite values among the result's elements.
    pub nan: usize,
    /// See [`nan`](Self::nan).
    pub infinite: usize,
    /// Elements of the result that nobody wrote, as far as memory was poisoned ([debug mode](gradewise_kernels::debug)).
    pub unwritten: usize,
    /// The result's summary.
    pub result: String,
    /// What it was computed from: a name, and its summary.
    pub sources: Vec<(String, String)>,
    /// The parameter that each of the operation's inputs shows, if it shows one; sources begin with the inputs.
    pub leaves: Vec<Option<TensorId>>,
    /// Whether a source had NaN before.
    pub inherited: bool,
    /// The operations that led to the operation's first inputs, the latest first.
    pub trail: Vec<&'static str>,
}

impl Anomaly {
    /// Calls parameters among the sources by the names that `name` gives them.
    pub fn name_parameters(&mut self, name: impl Fn(TensorId) -> Option<String>) {
        for ((described, _), leaf) in self.sources.iter_mut().zip(&self.leaves) {
            if let Some(name) = leaf.and_then(&name) {
                let input = described.split(',').next().unwrap_or_default();
                *described = format!("{input}, parameter `{name}`");
            }
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = match self.pass {
            Pass::Forward => "",
            Pass::Backward => "the backward pass of ",
        };
        let origin = if self.inherited { "from a source that has NaN already" } else { "from finite values" };
        write!(
            f,
            "{pass}`{}` gave {} NaN and {} infinite values {origin}",
            self.operation, self.nan, self.infinite
        )?;
        if let Some(within) = self.within {
            write!(f, ", within the backward pass of `{within}`")?;
        }
        if self.unwritten > 0 {
            let command = gradewise_kernels::sanitizer("initcheck");
            write!(
                f,
                "\n  {} elements were never written: their memory is as it was poisoned; {command}",
                self.unwritten
            )?;
        }
        write!(f, "\n  result: {}", self.result)?;
        for (name, summary) in &self.sources {
            write!(f, "\n  {name}: {summary}")?;
        }
        if !self.trail.is_empty() {
            write!(f, "\n  computed through {}", self.trail.join(" ← "))?;
        }
        Ok(())
    }
}

/// Most operations that a trail shows.
const TRAIL: usize = 12;

fn trail(inputs: &[&Tensor]) -> Vec<&'static str> {
    let mut next = inputs.iter().find(|input| input.node().is_some()).copied();
    let mut trail = Vec::new();
    while let Some(node) = next.and_then(Tensor::node)
        && trail.len() < TRAIL
    {
        trail.push(node.operation);
        next = node.inputs.iter().find(|input| input.node().is_some());
    }
    trail
}

fn described(index: usize, tensor: &Tensor) -> String {
    match tensor.operation() {
        Some(operation) => format!("input {index}, from `{operation}`"),
        None if tensor.is_grad_required() => format!("input {index}, a parameter"),
        None => format!("input {index}"),
    }
}

impl Observer for Anomalies {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        for result in &event.outputs {
            let found = result.validate()?;
            if found.nan + found.infinite == 0 {
                continue;
            }
            let mut sources: Vec<(String, &Tensor)> = event
                .inputs
                .iter()
                .enumerate()
                .map(|(index, input)| (described(index, input), *input))
                .collect();
            sources.extend(event.arriving.map(|gradient| ("gradient of the output".to_owned(), gradient)));
            let (mut inherited, mut infinite) = (false, false);
            for (_, source) in &sources {
                let found = source.array().validate()?;
                inherited |= found.nan > 0;
                infinite |= found.infinite > 0;
            }
            if found.nan == 0 && (infinite || inherited) {
                continue;
            }
            // Copies keep the bits of what was not written before.
            let unwritten = if found.nan > 0 && !inherited { result.unwritten()? } else { 0 };
            let summarised =
                |(name, source): (String, &Tensor)| Ok((name, source.array().summary()?.to_string()));
            return Err(Error::Anomaly(Box::new(Anomaly {
                operation: event.operation,
                pass: event.pass,
                within: event.within,
                nan: found.nan,
                infinite: found.infinite,
                unwritten,
                result: result.summary()?.to_string(),
                sources: sources.into_iter().map(summarised).collect::<Result<_>>()?,
                leaves: event.leaves(),
                inherited,
                trail: event.trail(),
            })));
        }
        Ok(())
    }
}
