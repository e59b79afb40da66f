//! What an operation reads and leaves: its inputs by name, and the sizes of its output and of what its forward pass keeps. Front ends of
//! other languages, checks and messages take theirs from here.

use gradewise_core::Shape;
use std::fmt;

/// One of the inputs of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operand {
    /// The name in messages and in front ends.
    pub name: &'static str,
    /// What its axes are.
    pub role: Role,
    /// Whether there has to be one.
    pub presence: Presence,
    /// Whether it may be in `f32` where features have 16 bits: a parameter that mixed precision leaves as it is.
    pub may_be_wide: bool,
    /// Whether its gradient is part of one array, in which the gradients of such operands follow each other, each from a multiple of 4
    /// elements on. They are adjacent among the operands.
    pub is_packed: bool,
}

/// What the axes of an operand are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// `[…, rows, features]` of rank 3: each row is computed by itself, so that several batches can be one.
    Rows,
    /// Shared by all rows.
    Parameter,
    /// Whatever the operation says.
    Any,
}

/// How often an operand may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Once.
    Required,
    /// Once or not at all. Operands behind one that is left out are left out, too.
    Optional,
    /// Any number of times.
    Repeated,
}

impl Operand {
    const fn new(name: &'static str, role: Role) -> Self {
        Self { name, role, presence: Presence::Required, may_be_wide: false, is_packed: false }
    }

    /// An array of any kind.
    pub const fn array(name: &'static str) -> Self {
        Self::new(name, Role::Any)
    }

    /// Features `[…, rows, features]`.
    pub const fn rows(name: &'static str) -> Self {
        Self::new(name, Role::Rows)
    }

    /// A parameter that all rows share.
    pub const fn parameter(name: &'static str) -> Self {
        Self::new(name, Role::Parameter)
    }

    /// The same, which may be left out.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.presence = Presence::Optional;
        self
    }

    /// The same, any number of times.
    #[must_use]
    pub const fn repeated(mut self) -> Self {
        self.presence = Presence::Repeated;
        self
    }

    /// The same, which may be in `f32` where features have 16 bits, with its gradient beside those of its like.
    #[must_use]
    pub const fn wide_and_packed(mut self) -> Self {
        (self.may_be_wide, self.is_packed) = (true, true);
        self
    }
}

/// `x`, or `bias?` for one that may be left out.
impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        f.write_str(match self.presence {
            Presence::Required => "",
            Presence::Optional => "?",
            Presence::Repeated => "…",
        })
    }
}

/// The fewest and the most inputs.
pub const fn arity(operands: &[Operand]) -> (usize, usize) {
    let (mut fewest, mut most, mut index) = (0, 0usize, 0);
    while index < operands.len() {
        match operands[index].presence {
            Presence::Required => {
                fewest += 1;
                most = most.saturating_add(1);
            }
            Presence::Optional => most = most.saturating_add(1),
            Presence::Repeated => most = usize::MAX,
        }
        index += 1;
    }
    (fewest, most)
}

/// The size of an axis of an output, in terms of the inputs: what a program needs that is compiled before the sizes are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Axis {
    /// That of an axis of an input, counted from the end where it is negative.
    Of {
        /// The number of the input.
        operand: usize,
        /// The axis.
        axis: isize,
    },
    /// A number that follows from the attributes.
    Size(usize),
}

impl Axis {
    /// The three axes of an operand of rank 3.
    pub const fn all_of(operand: usize) -> [Self; 3] {
        [Self::Of { operand, axis: 0 }, Self::Of { operand, axis: 1 }, Self::Of { operand, axis: 2 }]
    }

    /// The first two axes of the first operand, and the last one of another: features that a matrix makes others of.
    pub const fn columns_of(operand: usize) -> [Self; 3] {
        let [blades, rows, _] = Self::all_of(0);
        [blades, rows, Self::Of { operand, axis: -1 }]
    }

    /// The sizes of `axes` for inputs of these shapes; `None` where an input or an axis is missing.
    pub fn sizes(axes: &[Self], shapes: &[&[usize]]) -> Option<Shape> {
        let size = |axis: &Self| match *axis {
            Self::Size(size) => Some(size),
            Self::Of { operand, axis } => {
                let shape = shapes.get(operand)?;
                let end = if axis < 0 { shape.len() } else { 0 };
                shape.get(end.checked_add_signed(axis)?).copied()
            }
        };
        axes.iter().map(size).collect::<Option<Vec<usize>>>().map(Shape::from)
    }
}

/// An array that a forward pass leaves for its backward pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavedArray {
    /// The name in front ends.
    pub name: &'static str,
    /// Whether it is in `f32` where the features have 16 bits.
    pub is_wide: bool,
    /// Whether it is left by kernels that not all devices, dtypes and sizes have; see [`serves`](crate::Operation::serves).
    pub needs_kernels: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_inputs_follow_from_the_operands() {
        let [x, w, bias] =
            [Operand::rows("x"), Operand::parameter("w"), Operand::parameter("bias").optional()];
        assert_eq!(arity(&[x, w]), (2, 2));
        assert_eq!(arity(&[x, w, bias]), (2, 3));
        assert_eq!(arity(&[x, Operand::array("more").repeated()]), (1, usize::MAX));
        assert_eq!(format!("{x} {bias}"), "x bias?");
    }

    #[test]
    fn axes_are_counted_from_either_end() {
        let shapes: [&[usize]; 2] = [&[8, 5, 3], &[4, 3, 7]];
        assert_eq!(Axis::sizes(&Axis::columns_of(1), &shapes).as_deref(), Some(&[8, 5, 7][..]));
        assert_eq!(
            Axis::sizes(&[Axis::Size(2), Axis::Of { operand: 0, axis: -2 }], &shapes).as_deref(),
            Some(&[2, 5][..])
        );
        for axis in [3, -4] {
            assert_eq!(Axis::sizes(&[Axis::Of { operand: 0, axis }], &shapes), None);
        }
        assert_eq!(Axis::sizes(&Axis::all_of(2), &shapes), None);
    }
}
