//! Operations as loops over scalar formulas: what programs in other languages are written from.
//!
//! [`Operation::formula`](crate::Operation::formula) gives one for inputs of given sizes. Loops name the elements that they read and write by
//! position along each axis of the operands, whatever the memory looks like.

use std::sync::Arc;

/// A position along an axis of an operand: a loop's counter, an entry of a list at that counter, or a number, plus an offset.
#[derive(Clone, PartialEq, Debug)]
pub struct At {
    /// The loop whose counter is meant, and the list that it is looked up in, if there is one.
    pub counter: Option<(usize, Option<Arc<[usize]>>)>,
    /// What is added.
    pub offset: usize,
}

impl At {
    /// The counter of a loop.
    pub const fn counter(index: usize) -> Self {
        Self { counter: Some((index, None)), offset: 0 }
    }

    /// The counter of a loop plus an offset.
    pub const fn shifted(index: usize, offset: usize) -> Self {
        Self { counter: Some((index, None)), offset }
    }

    /// A position that does not depend on a loop.
    pub const fn fixed(offset: usize) -> Self {
        Self { counter: None, offset }
    }

    /// The entry of a list at the counter of a loop.
    pub fn listed(index: usize, list: &Arc<[usize]>) -> Self {
        Self { counter: Some((index, Some(Arc::clone(list)))), offset: 0 }
    }

    /// The counters of the first `count` loops.
    pub fn counters(count: usize) -> Vec<Self> {
        (0..count).map(Self::counter).collect()
    }
}

/// A function of one number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)] // Named as the methods of `Tensor`, which say what they are.
pub enum Function {
    Abs,
    Cos,
    Erf,
    Exp,
    Gelu,
    GeluDerivative,
    Log,
    Recip,
    Relu,
    Rsqrt,
    Sigmoid,
    Silu,
    SiluDerivative,
    Sin,
    Sqrt,
    Square,
    Tanh,
}

/// A function of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// a + b
    Add,
    /// a − b
    Sub,
    /// a·b
    Mul,
    /// a/b
    Div,
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
    /// a to the power b.
    Pow,
}

/// A formula whose value is a number.
#[derive(Clone, PartialEq, Debug)]
pub enum Scalar {
    /// A constant.
    Number(f64),
    /// The entry of a list at the counter of a loop.
    Listed(usize, Arc<[f64]>),
    /// An element of an input, by its position along each axis.
    Load(usize, Vec<At>),
    /// A function of a number.
    Unary(Function, Box<Scalar>),
    /// A function of two numbers.
    Binary(Operator, Box<[Scalar; 2]>),
    /// The second where the first is not 0, the third elsewhere.
    Select(Box<[Scalar; 3]>),
}

impl Scalar {
    /// A function of this.
    #[must_use]
    pub fn function(self, function: Function) -> Self {
        Self::Unary(function, Box::new(self))
    }

    /// A function of this and another.
    #[must_use]
    pub fn with(self, operator: Operator, other: Self) -> Self {
        Self::Binary(operator, Box::new([self, other]))
    }

    /// The sum.
    #[must_use]
    #[allow(clippy::should_implement_trait)] // Beside `with`; formulas are not numbers.
    pub fn add(self, other: Self) -> Self {
        self.with(Operator::Add, other)
    }

    /// The product.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub fn mul(self, other: Self) -> Self {
        self.with(Operator::Mul, other)
    }
}

/// What a value does to the element that it is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// Replaces it.
    Set,
    /// Is added to it.
    Add,
    /// Replaces it if it is larger.
    Max,
}

/// Nested loops that write one operand.
#[derive(Clone, PartialEq, Debug)]
pub struct Loops {
    /// How often each loop runs.
    pub sizes: Vec<usize>,
    /// The element of the output that is written, by its position along each axis.
    pub to: Vec<At>,
    /// What is done to it.
    pub update: Update,
    /// The value.
    pub value: Scalar,
}

/// An operation on inputs of known sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Formula {
    /// What all elements of the output are before the loops; `None` if the loops set each of them.
    pub start: Option<f64>,
    /// The loops, in order.
    pub loops: Vec<Loops>,
}

/// Each element of an input of these sizes where the counters of the last loops are those of its axes: the element that stands at this place
/// after broadcasting to `rank` axes.
fn broadcast(input: usize, sizes: &[usize], rank: usize) -> Scalar {
    let first = rank - sizes.len();
    let at = |(axis, &size): (usize, &usize)| match size {
        1 => At::fixed(0),
        _ => At::counter(first + axis),
    };
    Scalar::Load(input, sizes.iter().enumerate().map(at).collect())
}

impl Formula {
    /// Elements of the output that depend on those of the inputs at the same place, after broadcasting.
    pub fn elementwise(
        inputs: &[&[usize]],
        output: &[usize],
        value: impl FnOnce(Vec<Scalar>) -> Scalar,
    ) -> Self {
        let loads =
            inputs.iter().enumerate().map(|(index, sizes)| broadcast(index, sizes, output.len())).collect();
        let loops = Loops {
            sizes: output.to_vec(),
            to: At::counters(output.len()),
            update: Update::Set,
            value: value(loads),
        };
        Self { start: None, loops: vec![loops] }
    }

    /// A function of each element of the only input.
    pub fn unary(output: &[usize], value: impl FnOnce(Scalar) -> Scalar) -> Self {
        Self::elementwise(&[output], output, |mut loads| value(loads.remove(0)))
    }

    /// The elements of the only input in row-major order, in other sizes.
    pub fn copy(input: &[usize]) -> Self {
        Self::unary(input, |x| x)
    }

    /// The sum, over all loops, of the values that belong to an element.
    pub fn sum(sizes: Vec<usize>, to: Vec<At>, value: Scalar) -> Self {
        Self { start: Some(0.0), loops: vec![Loops { sizes, to, update: Update::Add, value }] }
    }

    /// The output is made of parts, each written by its own loops.
    pub fn parts(loops: Vec<Loops>) -> Self {
        Self { start: None, loops }
    }

    /// The largest of the values that belong to an element.
    pub fn max(sizes: Vec<usize>, to: Vec<At>, value: Scalar) -> Self {
        Self { start: Some(f64::NEG_INFINITY), loops: vec![Loops { sizes, to, update: Update::Max, value }] }
    }

    /// Whether it only moves elements of one input, so that whoever reads the output can read the input instead.
    pub(crate) fn moves_elements(&self) -> bool {
        matches!(&self.loops[..], [Loops { update: Update::Set, value: Scalar::Load(..), .. }])
            && self.start.is_none()
    }
}

/// A part of an output that is a copy of an input of these sizes, moved by `offset` along `axis`.
pub(crate) fn placed(input: usize, sizes: &[usize], axis: usize, offset: usize) -> Loops {
    let mut to = At::counters(sizes.len());
    if let Some(at) = to.get_mut(axis) {
        at.offset = offset;
    }
    let value = Scalar::Load(input, At::counters(sizes.len()));
    Loops { sizes: sizes.to_vec(), to, update: Update::Set, value }
}
