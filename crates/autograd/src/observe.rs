//! Watching the operations of a thread as they run: forward, and in backward passes.
//!
//! [`observe`] calls an [`Observer`] after every operation; [`detect_anomalies`](crate::detect_anomalies) is the observer that stops at the first NaN. Nothing
//! is watched, and nothing costs anything, outside of these calls. Work that is replayed as a CUDA graph runs no operations
//! and is not seen.

use crate::{
    Attributes, Cost, Result, Tensor, TensorId, Traffic, stop,
    tensor::{Body, Node},
};
use gradewise_kernels::Array;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

pub use crate::Pass;

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
    /// The operation's non-tensor attributes.
    ///
    /// # Errors
    /// Values that could not be read from their device.
    pub fn attributes(&self) -> Result<Attributes> {
        self.body.attributes()
    }

    /// What the operation reads.
    pub fn traffic(&self) -> Traffic {
        self.body.traffic()
    }

    /// The arithmetic of the operation's forward pass.
    pub fn cost(&self) -> Cost {
        self.body.cost(&self.inputs.iter().map(|input| input.array().dims()).collect::<Vec<_>>())
    }

    /// The operation itself.
    pub(crate) fn body(&self) -> &dyn Body {
        self.body
    }

    /// For each input, the parameter or other leaf requiring a gradient that it is, or is a view or a conversion of.
    pub fn leaves(&self) -> Vec<Option<TensorId>> {
        let leaf = |input: &&Tensor| {
            let mut tensor = (*input).clone();
            while let Some(node) = tensor.node() {
                let inner = node.inputs.first().filter(|_| node.body.shows_input())?.clone();
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
    /// Called before each operation, except composite ones, whose parts are reported themselves.
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

/// Whether an observer watches this thread.
pub(crate) fn is_watched() -> bool {
    WATCHED.get()
}

/// Called before an operation.
pub(crate) fn begin(operation: &'static str, pass: Pass) -> Result<()> {
    stop::check()?;
    if WATCHED.get() { notify(|observer| observer.begin(operation, pass)) } else { Ok(()) }
}

/// Called with the result of every operation.
pub(crate) fn forward(inputs: &[&Tensor], output: &Array, body: &dyn Body) -> Result<()> {
    if !WATCHED.get() {
        return Ok(());
    }
    let event = Event {
        operation: body.name(),
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
        operation: node.operation(),
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

/// Most operations that a trail shows.
const TRAIL: usize = 12;

fn trail(inputs: &[&Tensor]) -> Vec<&'static str> {
    let mut next = inputs.iter().find(|input| input.node().is_some()).copied();
    let mut trail = Vec::new();
    while let Some(node) = next.and_then(Tensor::node)
        && trail.len() < TRAIL
    {
        trail.push(node.operation());
        next = node.inputs.iter().find(|input| input.node().is_some());
    }
    trail
}
