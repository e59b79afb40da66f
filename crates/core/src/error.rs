//! Errors of the algebra and of shapes.

use crate::{Blade, DType, MAX_DIMENSION, Shape, Signature};
use alloc::string::String;
use core::fmt;

/// The result of a fallible operation of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Errors that involve no device: of signatures, multivectors, shapes and dtypes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// More generators than the tables support.
    TooManyGenerators {
        /// The signature asked for.
        signature: Signature,
    },
    /// Text that is not a signature.
    InvalidSignature {
        /// The text as given.
        text: String,
    },
    /// Squares of generators that are no metric.
    InvalidMetric {
        /// The squares as given.
        text: String,
    },
    /// Two values of different algebras met in one operation.
    AlgebraMismatch {
        /// The operation that refused.
        operation: &'static str,
        /// Signature of the left operand.
        left: Signature,
        /// Signature of the right operand.
        right: Signature,
    },
    /// An index outside its range.
    Index {
        /// The operation that refused.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// The index given.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// An operation without a result for this operand, such as the inverse of a null vector.
    Undefined {
        /// The operation that refused.
        operation: &'static str,
        /// What the operand lacks, and what to do instead.
        reason: &'static str,
    },
    /// Text that is not a blade.
    InvalidBlade {
        /// The text as given.
        text: String,
    },
    /// A blade with generators that the algebra does not have.
    NoSuchBlade {
        /// The operation that refused.
        operation: &'static str,
        /// The blade asked for.
        blade: Blade,
        /// The algebra without it.
        signature: Signature,
    },
    /// Text that is not a multivector.
    InvalidMultivector {
        /// The text as given.
        text: String,
        /// The algebra it was read for.
        signature: Signature,
        /// Where reading stopped, in characters counted from 1.
        position: usize,
        /// What was found there.
        reason: String,
    },
    /// A shape other than the one an operation needs.
    Shape {
        /// The operation that refused.
        operation: &'static str,
        /// Name of the argument as in the operation's documentation.
        argument: &'static str,
        /// The shape it has.
        actual: Shape,
        /// The shape it should have, in numbers where they are known and names where they are free.
        expected: String,
        /// Why: where the expected numbers come from.
        reason: String,
    },
    /// Shapes that cannot be broadcast together.
    Broadcast {
        /// The operation that refused.
        operation: &'static str,
        /// Left shape.
        left: Shape,
        /// Right shape.
        right: Shape,
    },
    /// An axis outside the shape.
    Axis {
        /// The operation that refused.
        operation: &'static str,
        /// The axis asked for.
        axis: usize,
        /// The shape.
        shape: Shape,
    },
    /// A dtype other than the one an operation needs.
    DType {
        /// The operation that refused.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// The dtype it has.
        actual: DType,
        /// The dtype it should have.
        expected: DType,
    },
    /// Text that is not a dtype.
    InvalidDType {
        /// The text as given.
        text: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyGenerators { signature } => {
                write!(
                    f,
                    "{signature} has {} generators; at most {MAX_DIMENSION} are supported",
                    signature.dimension()
                )
            }
            Self::InvalidSignature { text } => {
                write!(f, "`{text}` is not a signature; write p,q,r such as 3,0,0 or Cl(1,3,0)")
            }
            Self::InvalidMetric { text } => write!(
                f,
                "`{text}` is not a metric; write the squares of 1 to {MAX_DIMENSION} generators, each 1, -1 or 0, such as -1,1,1"
            ),
            Self::AlgebraMismatch { operation, left, right } => {
                write!(f, "{operation}: the operands belong to different algebras, {left} and {right}")
            }
            Self::Index { operation, argument, index, count } => {
                write!(f, "{operation}: `{argument}` is {index}; there are {count}, counted from 0")
            }
            Self::Undefined { operation, reason } => {
                write!(f, "{operation}: no result exists or no closed form gives it: {reason}")
            }
            Self::InvalidBlade { text } => write!(
                f,
                "`{text}` is not a blade; write `1` or `e` and generators from 1 to 8 in ascending order, such as e13"
            ),
            Self::NoSuchBlade { operation, blade, signature } => {
                let dimension = signature.dimension();
                write!(f, "{operation}: {signature} has no blade {blade}; it has {dimension} generators")
            }
            Self::InvalidMultivector { text, signature, position, reason } => write!(
                f,
                "`{text}` is not a multivector of {signature}: at character {position}, {reason}; \
                 write sums of blades such as `1 + 2e1 - e12`, with parentheses around exponents and fractions"
            ),
            Self::Shape { operation, argument, actual, expected, reason } => {
                write!(f, "{operation}: `{argument}` has shape {actual}, expected {expected} ({reason})")
            }
            Self::Broadcast { operation, left, right } => write!(
                f,
                "{operation}: shapes {left} and {right} cannot be broadcast together; \
                 from the right, each pair of sizes must be equal or contain a 1"
            ),
            Self::Axis { operation, axis, shape } => {
                write!(
                    f,
                    "{operation}: axis {axis} is out of range for shape {shape} of rank {}",
                    shape.rank()
                )
            }
            Self::DType { operation, argument, actual, expected } => {
                write!(f, "{operation}: `{argument}` has dtype {actual}, expected {expected}")
            }
            Self::InvalidDType { text } => write!(f, "`{text}` is not a dtype; choose f64, f32, bf16 or f16"),
        }
    }
}

impl core::error::Error for Error {}
