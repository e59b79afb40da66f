//! Tensors: arrays with a history.

use crate::{
    Attributes, BackwardOptions, Gradients, Result, add_n, autocast,
    backend::{self, Saved},
    engine, mode, observe,
    operation::{Body, Composite, Primitive},
    trace,
};
use gradewise_core::{DType, Shape};
use gradewise_kernels::{Array, Device, Element, ops};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Identifies a tensor within the process.
///
/// Ids ascend in the order of creation, so a tensor's id is larger than those of everything it was computed from:
/// descending ids are a topological order of any graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TensorId(u64);

impl TensorId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a backward rule may look at.
pub(crate) struct RuleContext<'a> {
    pub inputs: &'a [Tensor],
    pub output: &'a Tensor,
}

impl RuleContext<'_> {
    /// Whether input `index` requires a gradient.
    pub fn needs(&self, index: usize) -> bool {
        self.inputs.get(index).is_some_and(|input| input.is_grad_required())
    }
}

/// How a tensor was computed.
pub(crate) struct Node {
    pub operation: &'static str,
    pub inputs: Vec<Tensor>,
    pub body: Arc<dyn Body>,
    pub saved: Saved,
}

type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

struct Inner {
    id: TensorId,
    array: Array,
    requires_grad: bool,
    node: Option<Node>,
    hooks: Mutex<Vec<Hook>>,
}

/// An [`Array`] with a history. Cloning is cheap and keeps the identity.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

impl Tensor {
    fn create(array: Array, requires_grad: bool, node: Option<Node>) -> Self {
        let hooks = Mutex::default();
        Self(Arc::new(Inner { id: TensorId::next(), array, requires_grad, node, hooks }))
    }

    /// A constant: an array without history that requires no gradient.
    pub fn new(array: Array) -> Self {
        Self::create(array, false, None)
    }

    /// Runs an operation: its inputs in the dtypes that [`autocast`](crate::autocast()) says, by the implementation that
    /// [`backend`] says, seen by whoever observes this thread. Records history if recording is on and an input requires a gradient.
    ///
    /// # Errors
    /// From the operation, or whatever an observer has to say.
    pub(crate) fn run(operation: &'static str, body: Arc<dyn Body>, inputs: &[&Tensor]) -> Result<Self> {
        let cast = autocast::inputs(operation, inputs)?;
        let inputs: Vec<&Tensor> = match &cast {
            Some(cast) => cast.iter().collect(),
            None => inputs.to_vec(),
        };
        let arrays: Vec<Array> = inputs.iter().map(|input| input.array().clone()).collect();
        observe::begin(operation, observe::Pass::Forward)?;
        let began = trace::begin(arrays.first())?;
        let account = gradewise_kernels::memory::within(operation);
        let (array, saved) = backend::forward(operation, body.as_ref(), &arrays)?;
        drop((account, arrays));
        began.forward(operation, &inputs, &array)?;
        observe::forward(operation, &inputs, &array, body.as_ref())?;
        Ok(Self::with_node(operation, array, &inputs, body, saved))
    }

    /// [`run`](Self::run) for an operation whose backward rule is written in operations. `attributes` are what it was told;
    /// whatever `forward` reads besides its inputs follows them to their device.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) fn operate<A, F, R>(
        operation: &'static str,
        inputs: &[&Tensor],
        attributes: A,
        forward: F,
        rule: R,
    ) -> Result<Self>
    where
        A: Fn() -> Attributes + Send + Sync + 'static,
        F: Fn(&[Array]) -> Result<Array> + Send + Sync + 'static,
        R: Fn(&RuleContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    {
        Self::run(operation, Arc::new(Primitive { attributes, forward, rule }), inputs)
    }

    /// The result of several operations under one name, whose backward pass is not theirs.
    ///
    /// # Errors
    /// Whatever an observer has to say.
    pub(crate) fn from_op(
        operation: &'static str,
        array: Array,
        inputs: &[&Tensor],
        rule: impl Fn(&RuleContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let body: Arc<dyn Body> = Arc::new(Composite(rule));
        observe::forward(operation, inputs, &array, body.as_ref())?;
        Ok(Self::with_node(operation, array, inputs, body, Saved::nothing()))
    }

    /// As [`from_op`](Self::from_op), unobserved: for what computes nothing.
    pub(crate) fn with_history(
        operation: &'static str,
        array: Array,
        inputs: &[&Tensor],
        rule: impl Fn(&RuleContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        Self::with_node(operation, array, inputs, Arc::new(Composite(rule)), Saved::nothing())
    }

    fn with_node(
        operation: &'static str,
        array: Array,
        inputs: &[&Tensor],
        body: Arc<dyn Body>,
        saved: Saved,
    ) -> Self {
        if !mode::is_grad_enabled() || !inputs.iter().any(|input| input.is_grad_required()) {
            return Self::new(array);
        }
        let inputs = inputs.iter().map(|&input| input.clone()).collect();
        Self::create(array, true, Some(Node { operation, inputs, body, saved }))
    }

    /// A tensor from row-major data.
    ///
    /// # Errors
    /// A number of elements other than the shape's.
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::from_slice(data, shape, device)?))
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::zeros(shape, dtype, device)?))
    }

    /// A tensor of ones.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn ones(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::ones(shape, dtype, device)?))
    }

    /// A tensor filled with `value`.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn full(shape: impl Into<Shape>, value: f64, dtype: DType, device: &Device) -> Result<Self> {
        Ok(Self::new(Array::full(shape, value, dtype, device)?))
    }

    /// Independent standard normal samples.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn randn(
        shape: impl Into<Shape>,
        dtype: DType,
        device: &Device,
        rng: &mut impl rand::Rng,
    ) -> Result<Self> {
        Ok(Self::new(Array::randn(shape, dtype, device, rng)?))
    }

    /// A leaf with the same data whose gradient [`backward`](Self::backward) will compute. History is left behind.
    #[must_use]
    pub fn requires_grad(&self) -> Self {
        Self::create(self.array().clone(), true, None)
    }

    /// The same data without history.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self::new(self.array().clone())
    }

    /// The identity of this tensor.
    pub fn id(&self) -> TensorId {
        self.0.id
    }

    /// The data.
    pub fn array(&self) -> &Array {
        &self.0.array
    }

    /// The sizes along the axes.
    pub fn shape(&self) -> &Shape {
        self.array().shape()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.array().dtype()
    }

    /// Where the data lives.
    pub fn device(&self) -> Device {
        self.array().device()
    }

    /// Whether gradients flow to this tensor.
    pub fn is_grad_required(&self) -> bool {
        self.0.requires_grad
    }

    /// Whether this tensor has no history: a constant, or a leaf that gradients are computed for.
    pub fn is_leaf(&self) -> bool {
        self.0.node.is_none()
    }

    /// The name of the operation that made this tensor, if it has a history.
    pub fn operation(&self) -> Option<&'static str> {
        self.0.node.as_ref().map(|node| node.operation)
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.0.node.as_ref()
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// `T` is not the dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.array().to_vec::<T>()?)
    }

    /// The only element, widened.
    ///
    /// # Errors
    /// The tensor has not exactly one element.
    pub fn item(&self) -> Result<f64> {
        Ok(self.array().item()?)
    }

    /// Calls `hook` with the gradient of this tensor during every later backward pass; what it returns replaces the
    /// gradient. Hooks run in the order of registration, once the gradient is complete.
    pub fn register_hook(&self, hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static) {
        self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(hook));
    }

    /// The sum of gradients of one tensor, this one first, in place where nothing else holds it.
    pub(crate) fn accumulate(mut self, others: &[Tensor]) -> Result<Tensor> {
        if self.is_leaf()
            && !mode::is_grad_enabled()
            && let Some(inner) = Arc::get_mut(&mut self.0)
            && inner.array.is_unique()
            && inner.array.device().supports(inner.array.dtype())
        {
            ops::add_n_assign(&mut inner.array, &others.iter().map(Tensor::array).collect::<Vec<_>>())?;
            return Ok(self);
        }
        match others {
            [] => Ok(self),
            [other] => self.add(other),
            _ => add_n(&[&self].into_iter().chain(others).collect::<Vec<_>>()),
        }
    }

    /// The gradient after the hooks.
    pub(crate) fn run_hooks(&self, mut gradient: Tensor) -> Result<Tensor> {
        let hooks = self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for hook in hooks {
            if let Some(replacement) = hook(&gradient)? {
                engine::require_gradient_of("hook", 0, &replacement, self)?;
                gradient = replacement;
            }
        }
        Ok(gradient)
    }

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
        engine::backward(self, options, None)
    }

    /// As [`backward_with`](Self::backward_with); `watch` sees each leaf with its gradient as soon as nothing more is added to it, while the
    /// pass goes on towards the others: what is done with a gradient can begin before the pass is over. Every leaf that gets a
    /// gradient is seen once, in an order that depends on the graph alone, and the gradients have the bits of
    /// [`backward_with`](Self::backward_with).
    ///
    /// # Errors
    /// As [`backward_with`](Self::backward_with).
    pub fn backward_watched(
        &self,
        options: &BackwardOptions,
        mut watch: impl FnMut(&Tensor, &Tensor),
    ) -> Result<Gradients> {
        engine::backward(self, options, Some(&mut watch))
    }
}

impl Drop for Inner {
    /// Drops the history without recursion: a long chain must not overflow the stack.
    fn drop(&mut self) {
        let Some(node) = self.node.take() else { return };
        let mut pending = node.inputs;
        while let Some(tensor) = pending.pop() {
            if let Some(mut inner) = Arc::into_inner(tensor.0)
                && let Some(node) = inner.node.take()
            {
                pending.extend(node.inputs);
            }
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = match (self.operation(), self.is_grad_required()) {
            (Some(operation), _) => format!("from {operation}"),
            (None, true) => "requires grad".to_owned(),
            (None, false) => "constant".to_owned(),
        };
        write!(f, "Tensor({history}, {:?})", self.array())
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = match (self.operation(), self.is_grad_required()) {
            (Some(operation), _) => format!(" from {operation}"),
            (None, true) => " requires grad".to_owned(),
            (None, false) => String::new(),
        };
        write!(f, "{}{history}", self.array())
    }
}
