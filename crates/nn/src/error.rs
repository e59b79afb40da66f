//! Errors of data, files, layers and training.

use std::{borrow::Cow, io, path::PathBuf, sync::Arc};

/// The result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors above the level of operators: of files, data sets, configurations and training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape or dtype mistake, or a bad signature.
    #[error(transparent)]
    Core(#[from] gradewise_core::Error),
    /// An error of an array or an operator.
    #[error(transparent)]
    Kernels(#[from] gradewise_kernels::Error),
    /// A graph could not be built or differentiated.
    #[error(transparent)]
    Autograd(#[from] gradewise_autograd::Error),
    /// A layer was given what it cannot take.
    #[error("{layer}{}: {source}", input.as_ref().map(|shape| format!(" of {shape}")).unwrap_or_default())]
    Layer {
        /// The layer and its method, such as `MvLinear::forward`.
        layer: Cow<'static, str>,
        /// The shape of its input, if that is one tensor.
        input: Option<gradewise_core::Shape>,
        /// What its operators refused.
        source: Box<Error>,
    },
    /// An error of user-defined samples, models or measures, made by [`Error::other`].
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// Two parameters of a module that have the same name.
    #[error(
        "two parameters of the model are named `{name}`, so that files and optimisers would keep one of them; where the \
         module visits its parts, give each a name of its own: visitor.modules(\"layers\", &self.layers) numbers those of a list"
    )]
    DuplicateParameter {
        /// The name.
        name: String,
    },
    /// Parameters that the source does not have.
    #[error("load: the source lacks {} of the model's parameters: {}", names.len(), names.join(", "))]
    MissingParameters {
        /// Their names.
        names: Vec<String>,
    },
    /// Weights of the Python reference, whose axes are in another order.
    #[error(
        "load: the source is of the Python reference of Clifford group equivariant networks (it holds `{table}`), whose weights are \
         [out, in, grades] and [out, in, paths] where this library's are [grades, in, out] and [paths, in, out]; `gradewise import` (or \
         nn::published::import) makes a checkpoint of the published n-body network; for others bring each to this order first \
         (permute [2, 1, 0]), and leave the tables of the algebra out"
    )]
    ReferenceLayout {
        /// The tensor that identifies the reference layout.
        table: String,
    },
    /// Weights of another library that do not match the model's parameters one to one.
    #[error("{operation}: {}: {reason}{}", path.display(), listed(missing, unused))]
    Published {
        /// `import` or `export`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
        /// Tensors that the model has and the file lacks.
        missing: Vec<String>,
        /// Tensors of the file that the model has no place for.
        unused: Vec<String>,
    },
    /// A parameter whose shape differs from the model's.
    #[error("load: parameter `{name}` has shape {actual}, the model's has {expected}")]
    ParameterShape {
        /// The parameter.
        name: String,
        /// The shape in the source.
        actual: gradewise_core::Shape,
        /// The model's shape.
        expected: gradewise_core::Shape,
    },
    /// The operating system refused to write.
    #[error("write {}: {source}{}", path.display(), room(source))]
    Write {
        /// The file. If there was one before, it is unchanged.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The operating system refused to read.
    #[error("{operation}: {}: {source}", path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that is not in the format that its name or location implies.
    #[error("{} is not a usable {format} file: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format it was read as.
        format: &'static str,
        /// What is wrong and, where there is one, the remedy.
        reason: String,
    },
    /// A tensor of a file that is missing, or not what it should be.
    #[error("{}: tensor `{name}`: {reason}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A folder or set of files that does not make up a data set.
    #[error("{} is not a usable data set: {reason}", path.display())]
    DataSet {
        /// The folder or the file at fault.
        path: PathBuf,
        /// What is wrong and, where there is one, the remedy.
        reason: String,
    },
    /// NaN or infinity where finite numbers are needed.
    #[error(
        "{operation}: `{argument}` holds {value} at index {index:?}; every value must be finite, \
         so drop or repair the sample"
    )]
    NotFinite {
        /// The operation that refused.
        operation: &'static str,
        /// The argument or tensor.
        argument: String,
        /// Index of the first offending element, one number per axis.
        index: Vec<usize>,
        /// The offending value.
        value: f64,
    },
    /// An argument outside its range.
    #[error("{operation}: `{argument}` is {actual}, expected {expected}")]
    Argument {
        /// The operation that refused.
        operation: &'static str,
        /// The argument.
        argument: &'static str,
        /// Its value.
        actual: String,
        /// What is accepted.
        expected: String,
    },
    /// Training no longer yields usable gradients.
    #[error(
        "training diverged at step {step}: {skipped} steps in a row were skipped ({reason}); lower the learning rate or \
         clip gradients"
    )]
    Diverged {
        /// The step.
        step: u64,
        /// Steps skipped in a row.
        skipped: u64,
        /// What was wrong with the last one.
        reason: String,
    },
    /// Communication between the processes of a run failed.
    #[error(transparent)]
    Exchange {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A background thread ended before its work was done.
    #[error("{operation}: the background thread stopped early: {reason}")]
    Worker {
        /// What the thread was for.
        operation: &'static str,
        /// How it ended.
        reason: String,
    },
}

/// The remedy for a write error; empty if there is none.
fn room(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; the disk is full: free some of it, or write to another"
        }
        io::ErrorKind::FileTooLarge => "; files of this size are not allowed here: ulimit -f shows the limit",
        _ => "",
    }
}

/// The names of tensors without a counterpart, cut off after the first few.
fn listed(missing: &[String], unused: &[String]) -> String {
    const SHOWN: usize = 8;
    let list = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => {
            let more = if names.len() > SHOWN { ", …" } else { "" };
            format!("; {what} ({}): {}{more}", names.len(), names[..names.len().min(SHOWN)].join(", "))
        }
    };
    list("the file lacks", missing) + &list("nothing takes", unused)
}

impl Error {
    /// Wraps an error of the operating system, adding the operation and the file.
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { operation, path: path.into(), source }
    }

    /// Whether the work was stopped on request ([`stoppable`](gradewise_autograd::stoppable)).
    pub fn is_stopped(&self) -> bool {
        matches!(self.cause(), Self::Autograd(gradewise_autograd::Error::Stopped))
    }

    /// Whether memory for arrays ran out.
    pub fn is_out_of_memory(&self) -> bool {
        match self.cause() {
            Self::Kernels(error) | Self::Autograd(gradewise_autograd::Error::Kernel(error)) => {
                error.is_out_of_memory()
            }
            _ => false,
        }
    }

    /// Whether the input (files, data, arguments) is at fault, rather than the system or the computation.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Io { .. }
            | Self::Format { .. }
            | Self::Tensor { .. }
            | Self::MissingParameters { .. }
            | Self::ParameterShape { .. }
            | Self::ReferenceLayout { .. }
            | Self::Published { .. }
            | Self::DataSet { .. }
            | Self::NotFinite { .. }
            | Self::Argument { .. } => true,
            Self::Layer { source, .. } => source.is_input(),
            Self::Core(_)
            | Self::Kernels(_)
            | Self::Autograd(_)
            | Self::Write { .. }
            | Self::Diverged { .. }
            | Self::Exchange { .. }
            | Self::DuplicateParameter { .. }
            | Self::Other(_)
            | Self::Worker { .. } => false,
        }
    }

    /// The error without the layers that it came through, also where an operator of another crate carried it ([`checkpoint`], `gradcheck`).
    ///
    /// [`checkpoint`]: gradewise_autograd::checkpoint
    pub fn cause(&self) -> &Self {
        match self {
            Self::Layer { source, .. } => source.cause(),
            Self::Autograd(gradewise_autograd::Error::Other(carried)) => {
                carried.downcast_ref::<Self>().map_or(self, Self::cause)
            }
            error => error,
        }
    }

    /// Whether operands were refused: a mistake of the caller, not a failure of the system.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Core(_) | Self::Argument { .. } | Self::Layer { .. } => true,
            Self::Kernels(error) => error.is_refusal(),
            Self::Autograd(gradewise_autograd::Error::Other(_)) => {
                !std::ptr::eq(self.cause(), self) && self.cause().is_refusal()
            }
            Self::Autograd(error) => error.is_refusal(),
            _ => false,
        }
    }

    /// This error in the name of the layer whose forward pass it ended, such as `MvLinear::forward`, with the shape of its input if that is one
    /// tensor, if it refuses operands; other errors are not the layer's, and stay as they are. For layers of one's own that are made of others.
    ///
    /// ```
    /// use gradewise_nn::{DType, Device, Error, Tensor, layers::{Layer, Linear}};
    /// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
    ///
    /// let readout = Linear::new(3, 1).init(&Device::Cpu, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = Tensor::ones([4, 2], DType::F32, &Device::Cpu)?;
    /// let refused = readout.forward(&x).map_err(|error| error.in_layer("Head::forward", None)).unwrap_err();
    /// assert!(refused.to_string().starts_with("Head::forward: Linear::forward of [4, 2]: matmul: "), "{refused}");
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn in_layer<'a>(
        self,
        layer: impl Into<Cow<'static, str>>,
        input: impl Into<Option<&'a gradewise_core::Shape>>,
    ) -> Self {
        if !self.is_refusal() {
            return self;
        }
        let layer = layer.into();
        match &self {
            // The layer has named itself.
            Self::Argument { operation, .. } if *operation == layer => self,
            _ => Self::Layer { layer, input: input.into().cloned(), source: Box::new(self) },
        }
    }

    /// Wraps an error of user-defined samples, models or measures.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}

/// So that functions given to `checkpoint`, `gradcheck` or `jvp` call layers with `?`.
impl From<Error> for gradewise_autograd::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Autograd(error) => error,
            Error::Kernels(error) => error.into(),
            Error::Core(error) => error.into(),
            error => Self::Other(Arc::new(error)),
        }
    }
}

/// Errors of user-defined samples, models or measures, where their types are erased.
impl From<Box<dyn std::error::Error + Send + Sync>> for Error {
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => *error,
            Err(error) => Self::Other(error),
        }
    }
}

/// A reason in words, of user-defined samples, models or measures.
impl From<String> for Error {
    fn from(reason: String) -> Self {
        Self::other(reason)
    }
}

/// Runs the forward pass of a layer; operands that it refuses are refused in the layer's name, such as `MvLinear::forward`. The layer that
/// the caller called is named first, then those within it.
///
/// # Errors
/// Those of `forward`: refused operands as [`Error::in_layer`] names them, others as they are.
pub fn in_layer<T>(layer: &'static str, forward: impl FnOnce() -> Result<T>) -> Result<T> {
    forward().map_err(|error| error.in_layer(layer, None))
}

/// As [`in_layer`], for a layer whose input is one tensor.
pub(crate) fn in_layer_of<T>(
    layer: &'static str,
    input: &gradewise_autograd::Tensor,
    forward: impl FnOnce() -> Result<T>,
) -> Result<T> {
    forward().map_err(|error| error.in_layer(layer, input.shape()))
}

/// Refuses arguments that are zero, naming the first.
///
/// # Errors
/// [`Error::Argument`].
pub fn at_least_one(operation: &'static str, arguments: &[(&'static str, usize)]) -> Result<()> {
    match arguments.iter().find(|(_, value)| *value == 0) {
        Some(&(argument, _)) => Err(Error::Argument {
            operation,
            argument,
            actual: "0".to_owned(),
            expected: "at least 1".to_owned(),
        }),
        None => Ok(()),
    }
}
