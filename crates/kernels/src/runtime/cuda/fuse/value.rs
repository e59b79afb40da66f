//! What operators describe of the values that they compute, so that kernels can be generated for several of them.

use crate::{
    DType,
    runtime::cuda::{Args, Grid, Kernel, memory::Buffer},
};
use gradewise_core::PerAxis;
use std::sync::Arc;

/// A strided view of an array on a device, as an operand. Its axes are merged where they can be.
#[derive(Clone)]
pub(crate) struct Operand {
    pub buffer: Arc<Buffer>,
    pub dtype: DType,
    /// The first element.
    pub offset: usize,
    pub sizes: PerAxis,
    pub strides: PerAxis,
}

impl Operand {
    /// Whether position i of the view is element `offset + i` of the buffer.
    pub fn is_contiguous(&self) -> bool {
        matches!((&self.sizes[..], &self.strides[..]), ([], _) | ([_], [1]))
    }
}

/// Sizes and strides, merged, of a part of the axes of a view.
#[derive(Clone)]
pub(crate) struct Axes {
    pub sizes: PerAxis,
    pub strides: PerAxis,
}

/// Columns of a joined array that come from one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Columns {
    pub start: usize,
    pub count: usize,
}

/// Positions grouped by segment: the addresses of `starts` and `order` of an index, and its [parts](crate::Index::parts).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Groups {
    pub starts: u64,
    pub order: u64,
    pub parts: usize,
}

/// How an element of a value follows from elements of its operands. Operands are views of the shape of the value unless said otherwise;
/// functions are those of csrc/gradewise/functions.cuh.
#[derive(Clone)]
pub(crate) enum Function {
    /// A function of one number, with its parameters.
    Unary { name: String, parameters: [f64; 2] },
    /// A function of two numbers.
    Binary { name: String },
    /// The second operand where the first is not 0, else the third.
    Choose,
    /// The sum of the operands, from the first to the last.
    Sum,
    /// The same number everywhere, by its bits.
    Constant { bits: u64 },
    /// The operand itself.
    Copy,
    /// The operand, in another dtype.
    Cast,
    /// `scale` times the sum of `count` elements in double precision. The operand is where the first one is.
    Reduce { kept: Axes, reduced: Axes, count: usize, scale: f64 },
    /// Rows of `row` elements whose columns come from the operands, each a view of `[rows, count]`; zeros elsewhere.
    Join { row: usize, parts: Vec<Columns> },
    /// Row `index[p]` of `[outer, bound, inner]` for row p of `[outer, count, inner]`. `parts` is that of the index.
    Select { index: u64, parts: usize, count: usize, bound: usize, inner: usize },
    /// The difference of the rows of both ends of an edge: `[outer, nodes, features]` to `[outer, edges, features]`. `parts` is that of both
    /// lists.
    Difference { to: u64, from: u64, parts: usize, edges: usize, nodes: usize, features: usize },
    /// The sum of the rows of each segment in double precision: `[outer, count, inner]` to `[outer, segments, inner]`.
    SegmentSum { groups: Groups, segments: usize, count: usize, inner: usize },
    /// The sum of the rows of edges that arrive at a node, less that of those that leave it: `[outer, edges, features]` to
    /// `[outer, nodes, features]`.
    NetInflow { arriving: Groups, leaving: Groups, nodes: usize, edges: usize, features: usize },
}

impl Function {
    /// Whether it reads the lists of an index.
    pub fn reads_lists(&self) -> bool {
        matches!(
            self,
            Self::Select { .. } | Self::Difference { .. } | Self::SegmentSum { .. } | Self::NetInflow { .. }
        )
    }

    /// How many elements of an operand one element takes, on average.
    pub fn elements_read(&self) -> f64 {
        match *self {
            Self::Reduce { count, .. } => count as f64,
            Self::SegmentSum { segments, count, .. } => count as f64 / segments.max(1) as f64,
            Self::NetInflow { nodes, edges, .. } => 2.0 * edges as f64 / nodes.max(1) as f64,
            Self::Difference { .. } => 2.0,
            _ => 1.0,
        }
    }

    /// How many elements of the operand a thread takes one after the other, on average; 1 for what is no loop.
    pub fn looped(&self) -> f64 {
        match self {
            Self::Reduce { .. } | Self::SegmentSum { .. } | Self::NetInflow { .. } => self.elements_read(),
            _ => 1.0,
        }
    }

    /// Work for one element, beside that for its operands, in units of a multiplication.
    pub fn work(&self) -> f64 {
        const TRANSCENDENTAL: [&str; 11] = [
            "kExp",
            "kLog",
            "kSin",
            "kCos",
            "kTanh",
            "kErf",
            "kSigmoid",
            "kSilu",
            "kSiluDerivative",
            "kGelu",
            "kGeluDerivative",
        ];
        const ROOTS: [&str; 5] = ["kPow", "kSqrt", "kRsqrt", "kRecip", "kDiv"];
        match self {
            Self::Unary { name, .. } | Self::Binary { name } if TRANSCENDENTAL.contains(&name.as_str()) => {
                16.0
            }
            Self::Unary { name, .. } | Self::Binary { name } if ROOTS.contains(&name.as_str()) => 8.0,
            _ => self.elements_read().max(1.0),
        }
    }
}

/// The launch of the operator's own kernel, which computes a value alone. Its arguments are addresses, of arrays that the value keeps.
pub(crate) struct Own {
    pub kernel: Kernel,
    pub grid: Grid,
    pub args: Args<'static>,
}

/// A value that no kernel has computed yet.
pub(crate) struct Value {
    /// The operator that it is the result of.
    pub operation: &'static str,
    pub function: Function,
    pub operands: Vec<Operand>,
    /// Where it goes: all elements of a new array, from its first one on.
    pub out: Arc<Buffer>,
    pub dtype: DType,
    pub elements: usize,
    pub own: Own,
}

/// What an operator says of a launch: what it computes, from what, into what.
pub(crate) struct Description {
    pub function: Function,
    pub operands: Vec<Operand>,
    pub out: Arc<Buffer>,
    pub dtype: DType,
    pub elements: usize,
}
