//! What is said of an operation besides how it is computed: precision class, derivatives, memory traffic and arithmetic.

use crate::{Error, Result};
use gradewise_kernels::Array;
use std::{fmt, str::FromStr};

/// In which precision an operation runs under [`autocast`](crate::autocast()).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Inputs in the 16-bit dtype of the policy: for operations whose time goes into products, which have half of the memory
    /// to move then, and tensor cores.
    Short,
    /// Inputs of 16 bits in `f32`: for sums, norms, exponentials and losses.
    Full,
    /// Inputs as they come; in `f32` if their dtypes differ: for operations that neither add up nor magnify.
    Widest,
    /// The first input as it comes, the others in its dtype: for operations that put what belongs to it beside it.
    First,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 4] = [Self::Short, Self::Full, Self::Widest, Self::First];

    /// The name in settings and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "16-bit",
            Self::Full => "f32",
            Self::Widest => "widest",
            Self::First => "first",
        }
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|rule| rule.name() == text);
        found.ok_or_else(|| Error::Argument {
            operation: "autocast",
            message: format!("there is no rule `{text}`; there are {}", Self::names()),
        })
    }
}

/// How an operation is differentiated twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Derivative {
    /// The backward rule is written in differentiable operations, so its result has a history of its own.
    Differentiable,
    /// The backward rule runs kernels. Where the graph of the gradient is recorded, the re-expression is differentiated instead.
    Reexpressed,
}

/// What an operation reads of its inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Every element of every input.
    Whole,
    /// As much of its inputs as it writes.
    AsWritten,
    /// Nothing: the output is a view of the input.
    View,
}

/// The arithmetic of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    /// Operations of matrix products, two for each multiply-add.
    pub matrix_flops: u64,
    /// Operations of products that are evaluated element by element, three for each weighted term.
    pub element_flops: u64,
}

/// The result of a forward pass.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The output.
    pub output: Array,
    /// Arrays that the backward pass reads again.
    pub saved: Vec<Array>,
}

impl From<Array> for Forward {
    fn from(output: Array) -> Self {
        Self { output, saved: Vec::new() }
    }
}
