//! Watching the operations of a thread as they run: forward, and in backward passes.
//!
//! [`observe`] calls an [`Observer`] after every operation; [`detect_anomalies`] is the observer that stops at the first NaN. Nothing
//! is watched, and nothing costs anything, outside of these calls. Work that is replayed as a CUDA graph runs no operations
//! and is not seen.

use crate::{Error, Result, Tensor, tensor::Node};
use gradewise_kernels::Array;
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
}

/// Sees every operation of a thread.
pub trait Observer {
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

fn notify(event: &Event<'_>) -> Result<()> {
    // What observers compute themselves is not watched.
    WATCHED.set(false);
    let observers = OBSERVERS.with_borrow(Clone::clone);
    let result = observers.iter().try_for_each(|observer| observer.borrow_mut().observe(event));
    WATCHED.set(!observers.is_empty());
    result
}

/// Called with the result of every operation.
pub(crate) fn forward(operation: &'static str, inputs: &[&Tensor], output: &Array) -> Result<()> {
    if !WATCHED.get() {
        return Ok(());
    }
    let (inputs, within) = (inputs.to_vec(), WITHIN.get());
    notify(&Event { operation, pass: Pass::Forward, within, inputs, arriving: None, outputs: vec![output] })
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
    notify(&Event {
        operation: node.operation,
        pass: Pass::Backward,
        within: WITHIN.get(),
        inputs: node.inputs.iter().collect(),
        arriving: Some(arriving),
        outputs: gradients.iter().flatten().map(Tensor::array).collect(),
    })
}

/// Runs `body`, in which the first operation that makes a NaN, or an infinity out of finite numbers, forward or backward, fails
/// with [`Error::Anomaly`]. Infinities that an operation was given (a mask of −∞) may pass through it.
///
/// Every result is read once more, and on a GPU waited for: expect up to twice the time.
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
    /// The result's summary.
    pub result: String,
    /// What it was computed from: a name, and its summary.
    pub sources: Vec<(String, String)>,
    /// Whether a source had NaN before.
    pub inherited: bool,
    /// The operations that led to the operation's first inputs, the latest first.
    pub trail: Vec<&'static str>,
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
            let summarised =
                |(name, source): (String, &Tensor)| Ok((name, source.array().summary()?.to_string()));
            return Err(Error::Anomaly(Box::new(Anomaly {
                operation: event.operation,
                pass: event.pass,
                within: event.within,
                nan: found.nan,
                infinite: found.infinite,
                result: result.summary()?.to_string(),
                sources: sources.into_iter().map(summarised).collect::<Result<_>>()?,
                inherited,
                trail: trail(&event.inputs),
            })));
        }
        Ok(())
    }
}
