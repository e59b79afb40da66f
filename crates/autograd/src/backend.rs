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
    Error, Forward, Pass, Result,
    tensor::{Body, Place, Saved},
};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// An implementation of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// The kernels of the device that the arrays are on.
    Device,
    /// The CPU implementation, on copies in host memory: 16-bit numbers as `f32`, results rounded back.
    Reference,
}

impl Backend {
    /// Every backend.
    pub const ALL: [Self; 2] = [Self::Reference, Self::Device];

    /// The name in settings and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Device => "cuda",
        }
    }
}

/// Choices of backends by operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Backends(Vec<(String, Option<Pass>, Backend)>);

impl Backends {
    /// Adds a choice for an operation, whose name was checked.
    pub(crate) fn push(&mut self, operation: &str, pass: Option<Pass>, backend: Backend) {
        self.0.push((operation.to_owned(), pass, backend));
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

impl fmt::Display for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (operation, pass, backend)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let pass = pass.map_or_else(String::new, |pass| format!(".{pass}"));
            let backend = backend.name();
            write!(f, "{comma}{operation}{pass}={backend}")?;
        }
        Ok(())
    }
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
    pub(crate) original: &'a dyn Fn() -> Result<Vec<Option<Array>>>,
}

impl Call<'_> {
    /// The result without the replacement: the output, or a gradient for each input.
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
pub(crate) enum Choice {
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
/// Whether [`DEFAULT`] has choices: read before each operation, without its lock.
static IS_DEFAULT_CHOSEN: AtomicBool = AtomicBool::new(false);

/// The choices for all threads in which nothing else is chosen, over those of `GRADEWISE_BACKEND`. Says so in the log.
pub fn set_default(backends: Backends) {
    if !backends.is_empty() {
        tracing::info!("backends: {backends}");
    }
    let chosen = !backends.is_empty();
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(backends));
    IS_DEFAULT_CHOSEN.store(chosen, Ordering::Release);
}

/// The choices of the variable `GRADEWISE_BACKEND`, read once.
///
/// # Errors
/// Text that is not a list of choices, as when a [`Backends`] is parsed.
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

/// Whether a choice is in force in this thread that may wait for the host, so that work cannot be captured into a graph.
///
/// # Errors
/// As [`from_environment`].
pub fn is_anything_chosen() -> Result<bool> {
    Ok(LAYERS.with_borrow(|layers| !layers.is_empty())
        || IS_DEFAULT_CHOSEN.load(Ordering::Acquire)
        || !from_environment()?.is_empty())
}

/// What is chosen for a pass of an operation in this thread.
pub(crate) fn choice(operation: &'static str, pass: Pass) -> Result<Choice> {
    if IGNORED.get() {
        return Ok(Choice::Device);
    }
    let is_default_chosen = IS_DEFAULT_CHOSEN.load(Ordering::Acquire);
    if LAYERS.with_borrow(Vec::is_empty) && !is_default_chosen && from_environment()?.is_empty() {
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

/// Logs, once for each operation and pass, that another implementation computes it.
pub(crate) fn announce(operation: &'static str, pass: Pass, what: &str) {
    static SEEN: Mutex<BTreeSet<(&'static str, Pass)>> = Mutex::new(BTreeSet::new());
    if SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert((operation, pass)) {
        tracing::info!("`{operation}` {pass} by {what}");
    }
}

/// 16-bit numbers on the CPU, which computes in them as in `f32` and rounds.
pub(crate) fn is_emulated(input: &Array) -> bool {
    input.dtype().is_short() && input.device() == Device::Cpu
}

/// An array on the host, in `f32` if it has 16 bits: what the reference computes from.
pub(crate) fn on_host(array: &Array) -> Result<Array> {
    let array = array.to_device(&Device::Cpu)?;
    Ok(if array.dtype().is_short() { array.cast(DType::F32)? } else { array })
}

/// A result of the host, converted to a dtype and moved to a device.
pub(crate) fn back(array: &Array, dtype: DType, device: &Device) -> Result<Array> {
    Ok(array.cast(dtype)?.to_device(device)?)
}

/// Runs a forward pass by what is chosen for it.
pub(crate) fn forward(body: &dyn Body, inputs: &[Array]) -> Result<(Array, Saved)> {
    let operation = body.name();
    let native = || -> Result<(Array, Saved)> {
        if inputs.iter().any(is_emulated) {
            return on_the_host(body, inputs);
        }
        let Forward { output, saved } = body.forward(inputs)?;
        Ok((output, Saved { arrays: saved, place: Place::Device }))
    };
    match choice(operation, Pass::Forward)? {
        Choice::Device => native(),
        Choice::Reference => {
            announce(operation, Pass::Forward, "the reference on the host");
            on_the_host(body, inputs)
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

fn on_the_host(body: &dyn Body, inputs: &[Array]) -> Result<(Array, Saved)> {
    let Some(first) = inputs.first() else {
        let Forward { output, saved } = body.forward(inputs)?;
        return Ok((output, Saved { arrays: saved, place: Place::Device }));
    };
    let host = inputs.iter().map(on_host).collect::<Result<Vec<_>>>()?;
    let Forward { output, saved } = body.forward(&host)?;
    let dtypes: Vec<_> = inputs.iter().map(Array::dtype).collect();
    let output = back(&output, body.output_dtype(&dtypes, output.dtype()), &first.device())?;
    Ok((output, Saved { arrays: saved, place: Place::Host }))
}
