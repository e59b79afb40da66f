//! Tensors: arrays with a history.

use crate::{
    Attributes, Axis, Cost, Derivative, Error, Formula, Forward, Operand, Result, Rule, TensorId, Traffic,
    mode, operand,
};
use gradewise_core::{DType, Shape};
use gradewise_kernels::{Array, Device, Element};
use smallvec::SmallVec;
use std::{
    cell::OnceCell,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// What a backward rule may look at.
pub struct BackwardContext<'a> {
    /// The inputs of the forward pass.
    pub inputs: &'a [Tensor],
    /// The output of the forward pass.
    pub output: &'a Tensor,
    /// What the forward pass saved.
    pub saved: &'a [Array],
    /// The arrays of the inputs, once something asked for them.
    arrays: OnceCell<Vec<Array>>,
    /// Where gradients of the inputs from other operations can be taken from.
    earlier: Option<&'a Earlier<'a>>,
}

/// Takes the gradients of a tensor that have arrived and were not summed yet, if there are at most so many.
pub(crate) type Earlier<'a> = dyn Fn(TensorId, usize) -> Vec<Tensor> + 'a;

impl<'a> BackwardContext<'a> {
    pub(crate) fn new(inputs: &'a [Tensor], output: &'a Tensor, saved: &'a [Array]) -> Self {
        Self { inputs, output, saved, arrays: OnceCell::new(), earlier: None }
    }

    /// This context with gradients that the rule may [take](Self::take_earlier).
    pub(crate) fn with_earlier(self, earlier: &'a Earlier<'a>) -> Self {
        Self { earlier: Some(earlier), ..self }
    }

    /// Takes the gradients that input `index` has from other operations so far, in the order in which they arrived, for a rule that adds
    /// to them in its own kernel: the gradient it returns for that input must then be their sum and its own. None if there are more than
    /// `most`, if the gradient is to be differentiated, or if an observer watches what each rule returns.
    pub fn take_earlier(&self, index: usize, most: usize) -> Vec<Tensor> {
        match (self.earlier, self.inputs.get(index)) {
            (Some(earlier), Some(input)) => earlier(input.id(), most),
            _ => Vec::new(),
        }
    }

    /// Whether the gradient of input `index` is wanted.
    pub fn needs(&self, index: usize) -> bool {
        self.inputs.get(index).is_some_and(|input| input.is_grad_required())
    }

    /// The arrays of the inputs.
    pub fn arrays(&self) -> &[Array] {
        self.arrays.get_or_init(|| self.inputs.iter().map(|input| input.array().clone()).collect())
    }

    /// The gradient of input `index` by `gradient`, if it is wanted.
    ///
    /// # Errors
    /// From `gradient`.
    pub fn when_needed(
        &self,
        index: usize,
        gradient: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Option<Tensor>> {
        self.needs(index).then(gradient).transpose()
    }

    /// Exactly `N` saved arrays.
    ///
    /// # Errors
    /// [`Error::Argument`] if the forward pass saved another number of them.
    pub fn saved<const N: usize>(&self, operation: &'static str) -> Result<&[Array; N]> {
        self.saved.try_into().map_err(|_| Error::Argument {
            operation,
            message: format!(
                "its forward pass saved {} arrays, its backward pass reads {N}",
                self.saved.len()
            ),
        })
    }
}

/// An operation without its type: what the history of a tensor refers to.
pub(crate) trait Body: Send + Sync {
    /// The name that errors, choices and records use.
    fn name(&self) -> &'static str;

    /// The non-tensor attributes.
    fn attributes(&self) -> Result<Attributes>;

    /// The precision class.
    fn rule(&self) -> Rule;

    /// The inputs, in order; none where their number is all that is known.
    fn operands(&self) -> &[Operand];

    /// The fewest and the most inputs.
    fn arity(&self) -> (usize, usize) {
        operand::arity(self.operands())
    }

    /// The sizes of the output in terms of the inputs, if they are known.
    fn output_axes(&self) -> Option<Vec<Axis>> {
        None
    }

    /// For each array that a forward pass may leave, its sizes; `None` for one that it does not leave with these attributes.
    fn saved_axes(&self) -> Vec<Option<Vec<Axis>>> {
        Vec::new()
    }

    /// Whether the backward pass reads the output.
    fn reads_output(&self) -> bool {
        false
    }

    /// How the gradient is differentiated.
    fn derivative(&self) -> Derivative;

    /// What it reads.
    fn traffic(&self) -> Traffic;

    /// Whether the output shows the first input's elements: views, conversions and copies.
    fn shows_input(&self) -> bool;

    /// Its arithmetic for inputs of these sizes.
    fn cost(&self, inputs: &[&[usize]]) -> Cost;

    /// The output. What else it reads (indices, masks) follows the inputs to their device.
    fn forward(&self, inputs: &[Array]) -> Result<Forward>;

    /// The gradients of the inputs.
    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>>;

    /// The same function in differentiable operations.
    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor>;

    /// Whether there are kernels for these inputs; where there are none, the re-expression takes their place.
    fn serves(&self, inputs: &[Array]) -> bool;

    /// The dtype of the output for inputs of these dtypes, where `computed` is that of the output for inputs in `f32`.
    fn output_dtype(&self, inputs: &[DType], computed: DType) -> DType;

    /// The output as loops over scalar formulas, if it is known as such.
    fn formula(&self, _: &[&[usize]], _: &[usize]) -> Option<Formula> {
        None
    }

    /// Whether [`forward`](Self::forward) can be called: not for several operations that share one node.
    fn is_whole(&self) -> bool {
        true
    }
}

/// Where the arrays that a forward pass saved are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the device of the inputs.
    Device,
    /// On the host, of a forward pass by the reference there.
    Host,
    /// The forward pass saved nothing, because a replacement ran in its place.
    Nowhere,
}

/// What a forward pass saved for its backward pass.
pub(crate) struct Saved {
    pub arrays: Vec<Array>,
    pub place: Place,
}

impl Saved {
    /// Nothing, for operations that save nothing.
    pub fn nothing() -> Self {
        Self { arrays: Vec::new(), place: Place::Device }
    }
}

/// How a tensor was computed.
pub(crate) struct Node {
    pub inputs: SmallVec<[Tensor; 4]>,
    pub body: Arc<dyn Body>,
    pub saved: Saved,
}

impl Node {
    /// The name of the operation.
    pub fn operation(&self) -> &'static str {
        self.body.name()
    }
}

type Hook = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;

struct Inner {
    id: TensorId,
    array: Array,
    requires_grad: bool,
    node: Option<Node>,
    /// Made when the first hook is registered.
    hooks: OnceLock<Box<Mutex<Vec<Hook>>>>,
}

/// An [`Array`] with a history. Cloning is cheap and keeps the identity.
///
/// ```
/// use gradewise_autograd::{BackwardOptions, Tensor};
/// use gradewise_kernels::Device;
///
/// let a = Tensor::from_slice(&[1.0f64, 2.0], [2], &Device::Cpu)?.requires_grad();
/// let b = Tensor::from_slice(&[3.0f64, 4.0], [2], &Device::Cpu)?;
/// let y = ((&a + &b)? * &a)?; // a² + a·b
/// let slope = y.sum_all()?.backward_with(&BackwardOptions::create_graph())?.take(&a)?;
/// assert_eq!(slope.to_vec::<f64>()?, [5.0, 8.0]);
/// // The gradient has a history of its own: second derivatives.
/// assert_eq!(slope.sum_all()?.backward()?.get(&a)?.to_vec::<f64>()?, [2.0, 2.0]);
/// # Ok::<(), gradewise_autograd::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

impl Tensor {
    fn create(array: Array, requires_grad: bool, node: Option<Node>) -> Self {
        let hooks = OnceLock::new();
        Self(Arc::new(Inner { id: TensorId::next(), array, requires_grad, node, hooks }))
    }

    /// A constant: an array without history that requires no gradient.
    pub fn new(array: Array) -> Self {
        Self::create(array, false, None)
    }

    /// The result of an operation. Records history, with what `body` gives, if recording is on and an input requires a gradient.
    pub(crate) fn with_node(
        array: Array,
        inputs: &[&Tensor],
        body: impl FnOnce() -> Arc<dyn Body>,
        saved: Saved,
    ) -> Self {
        if !mode::is_grad_enabled() || !inputs.iter().any(|input| input.is_grad_required()) {
            return Self::new(array);
        }
        let inputs = inputs.iter().map(|&input| input.clone()).collect();
        Self::create(array, true, Some(Node { inputs, body: body(), saved }))
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
        self.0.node.as_ref().map(Node::operation)
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
        let hooks = self.0.hooks.get_or_init(Box::default);
        hooks.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(hook));
    }

    /// Whether nothing else holds this tensor or shows its storage: an update in place is seen by nobody else.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && self.0.array.is_unique()
    }

    /// The array, if nothing else holds this tensor or its history.
    pub(crate) fn array_mut(&mut self) -> Option<&mut Array> {
        if !self.is_leaf() {
            return None;
        }
        Arc::get_mut(&mut self.0).map(|inner| &mut inner.array)
    }

    /// The gradient after the hooks.
    pub(crate) fn run_hooks(&self, mut gradient: Tensor) -> Result<Tensor> {
        let Some(hooks) = self.0.hooks.get() else { return Ok(gradient) };
        let hooks = hooks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for hook in hooks {
            if let Some(replacement) = hook(&gradient)? {
                require_given_gradient(
                    || "the gradient that a hook returned".to_owned(),
                    &replacement,
                    self,
                )?;
                gradient = replacement;
            }
        }
        Ok(gradient)
    }
}

/// Refuses a gradient, given by the rule of `operation` for input `index`, that does not belong to `input`.
/// Refuses a gradient or a tangent from outside, `what`, that is not of the shape, dtype and device of its tensor.
pub(crate) fn require_given_gradient(
    what: impl FnOnce() -> String,
    given: &Tensor,
    of: &Tensor,
) -> Result<()> {
    if given.shape() == of.shape() && given.array().require_like(of.array(), "gradient", "gradient").is_ok() {
        return Ok(());
    }
    let describe = |x: &Tensor| format!("{} {} on {}", x.shape(), x.dtype(), x.device());
    Err(Error::GivenGradient { what: what(), actual: describe(given), expected: describe(of) })
}

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
    if gradient.array().require_like(input.array(), operation, "gradient").is_err() {
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
