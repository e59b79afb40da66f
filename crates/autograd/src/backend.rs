//! Which implementation an operation runs, chosen at run time: the device's own, the reference on the host, or one of the user's.
//!
//! A choice holds for an operation by its name, forward, backward or both. It comes from the variable `GRADEWISE_BACKEND`, from
//! [`set_default`] (the program's `runtime.backends`), or, in one thread, from [`with_backends`] and [`replace`]; the latest wins.
//!
//! ```
//! use gradewise_autograd::{Tensor, backend::{Backends, with_backends}};
//! use gradewise_kernels::Device;
//!
//! let x = Tensor::from_slice(&[1.0f32, -1.0], [2], &Device::Cpu)?;
//! let y = with_backends(&"gelu=reference,softmax.backward=reference".parse::<Backends>()?, || x.gelu())?;
//! assert_eq!(y.shape(), x.shape());
//! let error = "glue=reference".parse::<Backends>().unwrap_err().to_string();
//! assert!(error.contains("`glue`") && error.contains("gelu"));
//! # Ok::<(), gradewise_autograd::Error>(())
//! ```

use crate::{
    Error, Result, Tensor, mode,
    observe::Pass,
    operation::{Body, back, is_short, on_host},
    recipe,
    tensor::{Node, RuleContext},
};
use gradewise_kernels::{Array, Device};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
};

/// An implementation of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// The kernels of the device that the arrays are on.
    Device,
    /// The CPU implementation, on copies in host memory: 16-bit numbers as `f32`, results rounded back.
    Reference,
}

/// Choices of backends by operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Backends(Vec<(String, Option<Pass>, Backend)>);

impl Backends {
    /// Chooses the backend of an operation, for one pass or both; `all` stands for every operation. A later choice wins.
    ///
    /// # Errors
    /// An operation that there is not, with those there are.
    pub fn choose(&mut self, operation: &str, pass: Option<Pass>, backend: Backend) -> Result<()> {
        let known = operations();
        if operation != "all" && !known.contains(&operation) {
            let message = format!("there is no operation `{operation}`; there are {}", known.join(", "));
            return Err(Error::Argument { operation: "backend", message });
        }
        self.0.push((operation.to_owned(), pass, backend));
        Ok(())
    }

    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, operation: &str, pass: Pass) -> Option<Choice> {
        let (.., backend) =
            self.0.iter().rev().find(|(name, of, _)| {
                (name == operation || name == "all") && of.is_none_or(|of| of == pass)
            })?;
        Some(match backend {
            Backend::Device => Choice::Device,
            Backend::Reference => Choice::Reference,
        })
    }
}

impl FromStr for Backends {
    type Err = Error;

    /// Reads `OPERATION=BACKEND` or `OPERATION.forward=BACKEND` or `OPERATION.backward=BACKEND`, separated by commas; a backend is
    /// `reference`, or `cuda` or `device` for the device's own kernels.
    fn from_str(text: &str) -> Result<Self> {
        let mut backends = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let refuse = |message: String| Err(Error::Argument { operation: "backend", message });
            let Some((target, backend)) = part.split_once('=') else {
                return refuse(format!("`{part}` is no choice; write OPERATION=reference or OPERATION=cuda"));
            };
            let backend = match backend.trim() {
                "reference" => Backend::Reference,
                "cuda" | "device" => Backend::Device,
                other => {
                    return refuse(format!("there is no backend `{other}`; there are reference and cuda"));
                }
            };
            let (operation, pass) = match target.trim().rsplit_once('.') {
                Some((operation, "forward")) => (operation, Some(Pass::Forward)),
                Some((operation, "backward")) => (operation, Some(Pass::Backward)),
                Some((_, other)) => {
                    return refuse(format!("`{other}` is no pass; write .forward or .backward, or neither"));
                }
                None => (target.trim(), None),
            };
            backends.choose(operation, pass, backend)?;
        }
        Ok(backends)
    }
}

impl fmt::Display for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (operation, pass, backend)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let pass = pass.map_or_else(String::new, |pass| format!(".{pass}"));
            let backend = match backend {
                Backend::Device => "cuda",
                Backend::Reference => "reference",
            };
            write!(f, "{comma}{operation}{pass}={backend}")?;
        }
        Ok(())
    }
}

static REGISTERED: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());

/// The names of all operations: this crate's, and those of [`register`].
pub fn operations() -> Vec<&'static str> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    let all: BTreeSet<&'static str> = recipe::OPERATIONS.iter().chain(registered.iter()).copied().collect();
    all.into_iter().collect()
}

/// Adds the name of an operation of the user's to those that can be chosen.
pub fn register(operation: &'static str) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).insert(operation);
}

/// A call of an operation, as a [`Replacement`] sees it.
pub struct Call<'a> {
    /// The operation.
    pub operation: &'static str,
    /// The pass.
    pub pass: Pass,
    /// The inputs, in both passes.
    pub inputs: &'a [Array],
    /// In a backward pass, the output.
    pub output: Option<&'a Array>,
    /// In a backward pass, its gradient.
    pub grad: Option<&'a Array>,
    /// Which gradients are wanted, in a backward pass.
    pub needs: &'a [bool],
    original: &'a dyn Fn() -> Result<Vec<Option<Array>>>,
}

impl Call<'_> {
    /// What the operation gives without its replacement: the output, or a gradient for each input.
    ///
    /// # Errors
    /// From the operation.
    pub fn original(&self) -> Result<Vec<Option<Array>>> {
        (self.original)()
    }
}

/// An implementation of an operation in place of the device's: its output, as a single element, or a gradient for each input.
pub type Replacement = dyn Fn(&Call<'_>) -> Result<Vec<Option<Array>>> + Send + Sync;

#[derive(Clone)]
enum Choice {
    Device,
    Reference,
    Replaced(Arc<Replacement>),
}

#[derive(Clone)]
enum Layer {
    Chosen(Backends),
    Replaced(String, Pass, Arc<Replacement>),
}

thread_local! {
    static LAYERS: RefCell<Vec<Layer>> = const { RefCell::new(Vec::new()) };
    /// Whether choices are ignored in this thread.
    static IGNORED: Cell<bool> = const { Cell::new(false) };
}

static DEFAULT: RwLock<Option<Arc<Backends>>> = RwLock::new(None);

/// The choices for all threads in which nothing else is chosen, over those of `GRADEWISE_BACKEND`. Says so in the log.
pub fn set_default(backends: Backends) {
    if !backends.is_empty() {
        tracing::info!("backends: {backends}");
    }
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(backends));
}

/// The choices of the variable `GRADEWISE_BACKEND`, read once.
///
/// # Errors
/// As [`Backends::from_str`].
pub fn from_environment() -> Result<&'static Backends> {
    static CHOSEN: OnceLock<Result<Backends>> = OnceLock::new();
    let read = || {
        let text = std::env::var("GRADEWISE_BACKEND").unwrap_or_default();
        let backends = text.parse::<Backends>().map_err(|error| match error {
            Error::Argument { message, .. } => Error::Argument { operation: "GRADEWISE_BACKEND", message },
            other => other,
        })?;
        if !backends.is_empty() {
            tracing::info!("backends by GRADEWISE_BACKEND: {backends}");
        }
        Ok(backends)
    };
    CHOSEN.get_or_init(read).as_ref().map_err(Clone::clone)
}

fn with_layer<R>(layer: Layer, body: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            LAYERS.with_borrow_mut(Vec::pop);
        }
    }
    LAYERS.with_borrow_mut(|layers| layers.push(layer));
    let _leave = Leave;
    body()
}

/// Runs `body` with these backends in this thread. A backward pass that is to use them must be in it, too.
pub fn with_backends<R>(backends: &Backends, body: impl FnOnce() -> R) -> R {
    with_layer(Layer::Chosen(backends.clone()), body)
}

/// Runs `body` with `replacement` in place of one pass of an operation, in this thread. A forward pass that is replaced saves
/// nothing; a backward pass that wants to see something computes it again.
pub fn replace<R>(
    operation: &str,
    pass: Pass,
    replacement: impl Fn(&Call<'_>) -> Result<Vec<Option<Array>>> + Send + Sync + 'static,
    body: impl FnOnce() -> R,
) -> R {
    with_layer(Layer::Replaced(operation.to_owned(), pass, Arc::new(replacement)), body)
}

/// Runs `body` with the device's own kernels, whatever was chosen or replaced.
pub fn untouched<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IGNORED.set(self.0);
        }
    }
    let _restore = Restore(IGNORED.replace(true));
    body()
}

/// Whether anything is chosen in this thread that cannot be captured into a graph, for it waits for the host or may.
///
/// # Errors
/// As [`from_environment`].
pub fn is_anything_chosen() -> Result<bool> {
    let default = DEFAULT.read().unwrap_or_else(PoisonError::into_inner);
    Ok(LAYERS.with_borrow(|layers| !layers.is_empty())
        || default.as_ref().is_some_and(|backends| !backends.is_empty())
        || !from_environment()?.is_empty())
}

fn choice(operation: &'static str, pass: Pass) -> Result<Choice> {
    if IGNORED.get() {
        return Ok(Choice::Device);
    }
    let local = LAYERS.with_borrow(|layers| {
        layers.iter().rev().find_map(|layer| match layer {
            Layer::Chosen(backends) => backends.find(operation, pass),
            Layer::Replaced(name, of, replacement) if name == operation && *of == pass => {
                Some(Choice::Replaced(Arc::clone(replacement)))
            }
            Layer::Replaced(..) => None,
        })
    });
    if let Some(choice) = local {
        return Ok(choice);
    }
    let default = DEFAULT.read().unwrap_or_else(PoisonError::into_inner).clone();
    let found = default.and_then(|backends| backends.find(operation, pass));
    Ok(match found {
        Some(choice) => choice,
        None => from_environment()?.find(operation, pass).unwrap_or(Choice::Device),
    })
}

/// Says once for each operation and pass that its results come from elsewhere.
fn announce(operation: &'static str, pass: Pass, what: &str) {
    static SEEN: Mutex<BTreeSet<(&'static str, Pass)>> = Mutex::new(BTreeSet::new());
    if SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((operation, pass)) {
        tracing::info!("`{operation}` {pass} by {what}");
    }
}

/// Where arrays that a forward pass saved are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Device,
    Host,
    Nowhere,
}

/// What a forward pass saved for its backward pass.
pub(crate) struct Saved {
    arrays: Vec<Array>,
    place: Place,
}

impl Saved {
    /// Nothing, which serves operations that save nothing.
    pub fn nothing() -> Self {
        Self { arrays: Vec::new(), place: Place::Device }
    }
}

/// 16-bit numbers on the CPU, which computes in them as in `f32` and rounds.
fn is_emulated(inputs: &[Array]) -> bool {
    inputs.iter().any(|input| is_short(input.dtype()) && input.device() == Device::Cpu)
}

/// Runs a forward pass by what is chosen for it.
pub(crate) fn forward(operation: &'static str, body: &dyn Body, inputs: &[Array]) -> Result<(Array, Saved)> {
    let native = || -> Result<(Array, Saved)> {
        if is_emulated(inputs) {
            return on_the_host(operation, body, inputs);
        }
        let (output, arrays) = body.forward(inputs)?;
        Ok((output, Saved { arrays, place: Place::Device }))
    };
    match choice(operation, Pass::Forward)? {
        Choice::Device => native(),
        Choice::Reference => {
            announce(operation, Pass::Forward, "the reference on the host");
            on_the_host(operation, body, inputs)
        }
        Choice::Replaced(replacement) => {
            announce(operation, Pass::Forward, "a replacement");
            let original = || Ok(vec![Some(native()?.0)]);
            let call = Call {
                operation,
                pass: Pass::Forward,
                inputs,
                output: None,
                grad: None,
                needs: &[],
                original: &original,
            };
            match replacement(&call)?.into_iter().next().flatten() {
                Some(output) => Ok((output, Saved { arrays: Vec::new(), place: Place::Nowhere })),
                None => {
                    Err(Error::Argument { operation, message: "its replacement gave no output".to_owned() })
                }
            }
        }
    }
}

fn on_the_host(operation: &'static str, body: &dyn Body, inputs: &[Array]) -> Result<(Array, Saved)> {
    let Some(first) = inputs.first() else {
        let (output, arrays) = body.forward(inputs)?;
        return Ok((output, Saved { arrays, place: Place::Device }));
    };
    let host = inputs.iter().map(on_host).collect::<Result<Vec<_>>>()?;
    let (output, arrays) = body.forward(&host)?;
    let dtypes: Vec<_> = inputs.iter().map(Array::dtype).collect();
    // A conversion gives what it was told to.
    let dtype = match operation {
        "cast" => output.dtype(),
        _ => body.output_dtype(&dtypes, output.dtype()),
    };
    let output = back(&output, dtype, &first.device())?;
    Ok((output, Saved { arrays, place: Place::Host }))
}

/// Runs a backward pass by what is chosen for it.
pub(crate) fn backward(node: &Node, context: &RuleContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
    let (operation, body) = (node.operation, node.body.as_ref());
    // Gradients with a history of their own are made of operations, for each of which this is asked again.
    if mode::is_grad_enabled() {
        return body.backward(context, &node.saved.arrays, grad);
    }
    let native = || -> Result<Vec<Option<Tensor>>> {
        let inputs: Vec<Array> = context.inputs.iter().map(|input| input.array().clone()).collect();
        if body.is_whole() && is_emulated(&inputs) {
            return backward_on_the_host(node, context, grad);
        }
        if node.saved.place == Place::Device || !body.is_fused() {
            return body.backward(context, &node.saved.arrays, grad);
        }
        let (_, saved) = body.forward(&inputs)?;
        body.backward(context, &saved, grad)
    };
    match choice(operation, Pass::Backward)? {
        Choice::Device => native(),
        Choice::Reference if !body.is_whole() => native(),
        Choice::Reference => {
            announce(operation, Pass::Backward, "the reference on the host");
            backward_on_the_host(node, context, grad)
        }
        Choice::Replaced(replacement) => {
            announce(operation, Pass::Backward, "a replacement");
            let original =
                || Ok(native()?.into_iter().map(|g| g.map(|g| g.array().clone())).collect::<Vec<_>>());
            let inputs: Vec<Array> = context.inputs.iter().map(|input| input.array().clone()).collect();
            let needs: Vec<bool> = context.inputs.iter().map(Tensor::is_grad_required).collect();
            let call = Call {
                operation,
                pass: Pass::Backward,
                inputs: &inputs,
                output: Some(context.output.array()),
                grad: Some(grad.array()),
                needs: &needs,
                original: &original,
            };
            Ok(replacement(&call)?.into_iter().map(|gradient| gradient.map(Tensor::new)).collect())
        }
    }
}

fn backward_on_the_host(
    node: &Node,
    context: &RuleContext<'_>,
    grad: &Tensor,
) -> Result<Vec<Option<Tensor>>> {
    let inputs = context.inputs.iter().map(leaf_on_host).collect::<Result<Vec<_>>>()?;
    let output = Tensor::new(on_host(context.output.array())?);
    let host = RuleContext { inputs: &inputs, output: &output };
    let again;
    let saved = match node.saved.place {
        Place::Host => &node.saved.arrays,
        _ => {
            let arrays: Vec<Array> = inputs.iter().map(|input| input.array().clone()).collect();
            again = node.body.forward(&arrays)?.1;
            &again
        }
    };
    let gradients = node.body.backward(&host, saved, &Tensor::new(on_host(grad.array())?))?;
    let as_of = |(gradient, input): (Option<Tensor>, &Tensor)| {
        let moved =
            |gradient: Tensor| Ok(Tensor::new(back(gradient.array(), input.dtype(), &input.device())?));
        gradient.map(moved).transpose()
    };
    gradients.into_iter().zip(context.inputs).map(as_of).collect()
}

/// The values of a tensor on the host, for which a gradient is wanted if one is for the tensor.
fn leaf_on_host(tensor: &Tensor) -> Result<Tensor> {
    let host = Tensor::new(on_host(tensor.array())?);
    Ok(if tensor.is_grad_required() { host.requires_grad() } else { host })
}
