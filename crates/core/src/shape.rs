//! Shapes of arrays: sizes, contiguous strides, broadcasting.

use crate::{Error, PerAxis, Result};
use alloc::vec::Vec;
use core::{fmt, ops::Deref};

/// The sizes of an array along its axes, outermost first (row-major). Rank 0 is a scalar with one element.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(PerAxis);

impl Shape {
    /// The shape of a scalar: rank 0, one element.
    pub const fn scalar() -> Self {
        Self(PerAxis::new())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements: the product of the sizes, 1 for a scalar.
    ///
    /// Saturates at `usize::MAX`, so an impossible shape fails at allocation rather than wrapping to a small one.
    pub fn elements(&self) -> usize {
        self.0.iter().fold(1usize, |product, &size| product.saturating_mul(size))
    }

    /// The sizes as a slice.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Row-major strides in elements.
    pub fn contiguous_strides(&self) -> PerAxis {
        let mut strides = PerAxis::from_elem(1, self.rank());
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(self.0[axis]);
        }
        strides
    }

    /// The shape both operands take when broadcast together (NumPy's rule: aligned at the last axis, sizes of 1
    /// stretch).
    ///
    /// # Errors
    /// [`Error::Broadcast`] when a pair of sizes differs and neither is 1.
    pub fn broadcast(&self, other: &Self, operation: &'static str) -> Result<Self> {
        let rank = self.rank().max(other.rank());
        let size = |shape: &Self, axis: usize| {
            let missing = rank - shape.rank();
            if axis < missing { 1 } else { shape.0[axis - missing] }
        };
        (0..rank)
            .map(|axis| match (size(self, axis), size(other, axis)) {
                (a, b) if a == b => Ok(a),
                (1, b) => Ok(b),
                (a, 1) => Ok(a),
                _ => Err(Error::Broadcast { operation, left: self.clone(), right: other.clone() }),
            })
            .collect::<Result<PerAxis>>()
            .map(Self)
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<Vec<usize>> for Shape {
    fn from(sizes: Vec<usize>) -> Self {
        Self(sizes.into())
    }
}

impl From<PerAxis> for Shape {
    fn from(sizes: PerAxis) -> Self {
        Self(sizes)
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Self {
        Self(sizes.into_iter().collect())
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Self {
        Self(sizes.into())
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        shape.clone()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        Self(sizes[..].into())
    }
}

impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self.0[..] == other[..]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        for (axis, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if axis == 0 { "" } else { ", " })?;
        }
        write!(f, "]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
