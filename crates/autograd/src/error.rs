//! Errors of the gradient engine.

use gradewise_core::Shape;
use std::sync::Arc;

/// The result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong while building or differentiating a graph.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operator refused its arguments.
    #[error(transparent)]
    Kernel(#[from] gradewise_kernels::Error),
    /// Backward from something that has no history.
    #[error(
        "backward: the tensor of shape {shape} has no history: none of its inputs requires a gradient, or it was \
         computed under no_grad; mark inputs with requires_grad()"
    )]
    NoHistory {
        /// Shape of the tensor.
        shape: Shape,
    },
    /// Backward from a tensor with several elements, without saying in which direction.
    #[error(
        "backward: the tensor has shape {shape}, not one element; reduce it (sum, mean) or give a seed gradient of \
         that shape"
    )]
    NotScalar {
        /// Shape of the tensor.
        shape: Shape,
    },
    /// A gradient was asked for a tensor that requires none.
    #[error(
        "gradient: the tensor of shape {shape} does not require a gradient; create it with requires_grad()"
    )]
    NotRequired {
        /// Shape of the tensor.
        shape: Shape,
    },
    /// A gradient was asked for a tensor that took no part in the computation.
    #[error(
        "gradient: the tensor of shape {shape} is not part of this graph: it did not contribute to the result that was \
         differentiated, or the gradients belong to another graph"
    )]
    NotInGraph {
        /// Shape of the tensor.
        shape: Shape,
    },
    /// A gradient was asked for an intermediate result, which is not kept.
    #[error(
        "gradient: the tensor of shape {shape} is an intermediate result of `{operation}`, whose gradient is not kept; \
         use grad(output, inputs) to differentiate with respect to it"
    )]
    Intermediate {
        /// Shape of the tensor.
        shape: Shape,
        /// The operation that made it.
        operation: &'static str,
    },
    /// A backward rule returned a gradient of the wrong shape, or too few of them.
    #[error("backward of `{operation}`: gradient {index} has shape {actual}, its input has {expected}")]
    GradientShape {
        /// The operation.
        operation: &'static str,
        /// Which input.
        index: usize,
        /// Shape of the gradient.
        actual: Shape,
        /// Shape of the input.
        expected: Shape,
    },
    /// A backward rule returned a gradient of another dtype, or on another device, than its input.
    #[error(
        "backward of `{operation}`: gradient {index} is {actual}, its input is {expected}; convert it with cast and to_device"
    )]
    GradientPlace {
        /// The operation.
        operation: &'static str,
        /// Which input.
        index: usize,
        /// Dtype and device of the gradient.
        actual: String,
        /// Dtype and device of the input.
        expected: String,
    },
    /// A backward rule gave an operator operands that it refused.
    #[error("backward of `{operation}`: {source}")]
    Backward {
        /// The operation.
        operation: &'static str,
        /// What was refused.
        source: Box<Error>,
    },
    /// A gradient or a tangent that the caller gave is not of the shape, dtype and device of its tensor.
    #[error(
        "{what} is {actual}, its tensor is {expected}; reshape it, or convert it with cast and to_device"
    )]
    GivenGradient {
        /// What was given, such as the seed of a backward pass.
        what: String,
        /// Its shape, dtype and device.
        actual: String,
        /// Those of the tensor.
        expected: String,
    },
    /// A backward rule returned a number of gradients other than its number of inputs.
    #[error("backward of `{operation}` returned {actual} gradients for {expected} inputs")]
    GradientCount {
        /// The operation.
        operation: &'static str,
        /// Number of gradients.
        actual: usize,
        /// Number of inputs.
        expected: usize,
    },
    /// A second derivative through a function that defines only its first.
    #[error(
        "`{operation}` has no second derivative: implement Operation::reexpress in terms of differentiable operations"
    )]
    NotTwiceDifferentiable {
        /// The function.
        operation: &'static str,
    },
    /// Backward and central differences disagree.
    #[error("gradcheck: {deviation} ({checked} elements were compared; this one deviates most)")]
    GradientMismatch {
        /// The element that deviates most.
        deviation: Box<crate::Deviation>,
        /// Number of elements compared.
        checked: usize,
    },
    /// Central differences do not show whether a gradient is right.
    #[error(
        "gradcheck: {deviation}; the function is nearly singular there: central differences of all steps are uncertain by {error:e}, so \
         nothing follows for the gradient; choose inputs farther from the singularity, such as those of another seed"
    )]
    IllConditioned {
        /// The element, with the best of the differences.
        deviation: Box<crate::Deviation>,
        /// The error of that difference, estimated.
        error: f64,
    },
    /// Gradients differ by whether their graph is recorded: a fused backward and its re-expression disagree.
    #[error(
        "gradgradcheck: input {input}, element {element:?}: the gradient is {plain:e}, but {recorded:e} when its graph \
         is recorded; backward and reexpress of the operation disagree"
    )]
    ReexpressionMismatch {
        /// Which input.
        input: usize,
        /// Position of the element.
        element: Vec<usize>,
        /// The gradient without its graph.
        plain: f64,
        /// The gradient with its graph.
        recorded: f64,
    },
    /// A check of a sample of an operation failed.
    #[error("{sample}: {error}")]
    Sample {
        /// The operation, its attributes and the shapes of its inputs.
        sample: String,
        /// What is wrong.
        #[source]
        error: Box<Error>,
    },
    /// An operation made a NaN or an infinity, see [`detect_anomalies`](crate::detect_anomalies).
    #[error("{0}")]
    Anomaly(Box<crate::Anomaly>),
    /// An operation that programs in other languages cannot be written from, see [`program::record`](crate::program::record).
    #[error(
        "`{operation}`{layer} cannot be recorded as a program: {reason}; implement Operation::formula or Operation::reexpress"
    )]
    NoFormula {
        /// The operation.
        operation: &'static str,
        /// The parameter that was read last, as ` at name`; empty if none was.
        layer: String,
        /// What is missing.
        reason: String,
    },
    /// A computation that does another thing for other numbers, so that it is no program of fixed size.
    #[error(
        "`{operation}` cannot be recorded as a program: {reason}; what depends on the numbers themselves, such as a list of neighbours, \
         must be an input"
    )]
    DependsOnNumbers {
        /// The operation.
        operation: &'static str,
        /// What depends on them.
        reason: String,
    },
    /// The work was stopped, see [`stoppable`](crate::stoppable).
    #[error("the work was stopped")]
    Stopped,
    /// An error of somebody's own function, observer or replacement, as [`Error::other`] makes it.
    #[error(transparent)]
    Other(Arc<dyn std::error::Error + Send + Sync>),
    /// Arguments that an operation of this crate cannot take.
    #[error("{operation}: {message}")]
    Argument {
        /// The operation.
        operation: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
}

impl From<gradewise_core::Error> for Error {
    fn from(error: gradewise_core::Error) -> Self {
        Self::Kernel(error.into())
    }
}

impl Error {
    /// Whether operands were refused, for their shapes, dtypes, devices or values: a mistake of the caller, not a failure of the system.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Kernel(error) => error.is_refusal(),
            Self::Argument { .. } | Self::Backward { .. } => true,
            _ => false,
        }
    }

    /// This error of the backward rule of `operation`, named by it.
    pub(crate) fn in_backward(self, operation: &'static str) -> Self {
        match self {
            // Checkpoints run backward passes within backward rules: the innermost operation is the one at fault.
            error @ Self::Backward { .. } => error,
            error if error.is_refusal() => Self::Backward { operation, source: Box::new(error) },
            error => error,
        }
    }

    /// An error of another kind, so that functions which are given to this crate can fail in their own way.
    ///
    /// ```
    /// use gradewise_autograd::{Error, Tensor, checkpoint};
    /// use gradewise_kernels::Device;
    ///
    /// let x = Tensor::from_slice(&[1.0f64], [1], &Device::Cpu)?;
    /// let failed = checkpoint(&[&x], |_| Err(Error::other("out of luck"))).unwrap_err();
    /// assert_eq!(failed.to_string(), "out of luck");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into().into())
    }
}
