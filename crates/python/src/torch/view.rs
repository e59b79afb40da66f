//! How operators see tensors whose axes modules keep in another order.

use gradewise_core::PerAxis;
use pyo3::{exceptions::PyValueError, prelude::*};

/// How an operator sees a tensor, without a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// As it is.
    Same,
    /// With its axes in the opposite order.
    Reversed,
    /// Without its first axis, of one element.
    Row,
    /// `[1, n, 1]` as `[n]`.
    List,
    /// `[1, 1, n]` as `[n]`.
    Last,
    /// `[rows, features, blades]` as `[blades, rows, features]`.
    Planes,
}

impl View {
    /// Shape and strides as the operator sees them. Returns whether the tensor can be seen so.
    pub fn apply(self, shape: &mut PerAxis, strides: &mut PerAxis) -> bool {
        for sizes in [&mut *strides, shape] {
            match (self, sizes.len()) {
                (Self::Same, _) => {}
                (Self::Reversed, _) => sizes.reverse(),
                (Self::Row, 1..) => _ = sizes.remove(0),
                (Self::List, 3) => *sizes = PerAxis::from_elem(sizes[1], 1),
                (Self::Last, 3) => *sizes = PerAxis::from_elem(sizes[2], 1),
                (Self::Planes, 3) => sizes.rotate_right(1),
                _ => return false,
            }
        }
        true
    }

    /// The tensors that can be seen so.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Same | Self::Reversed => "any",
            Self::Row => "[1, …]",
            Self::List => "[1, features, 1]",
            Self::Last => "[1, 1, features]",
            Self::Planes => "[rows, features, blades]",
        }
    }

    /// Shape and strides of a tensor that the operator sees with these.
    pub fn undo(self, shape: &mut PerAxis, strides: &mut PerAxis) {
        match self {
            Self::Same => {}
            Self::Reversed => {
                shape.reverse();
                strides.reverse();
            }
            Self::Row => {
                let whole = shape.iter().zip(&*strides).map(|(size, stride)| size * stride).max();
                strides.insert(0, whole.unwrap_or(1).max(1));
                shape.insert(0, 1);
            }
            Self::List => {
                let (size, stride) = (shape.iter().product(), strides.first().copied().unwrap_or(1));
                *shape = [1, size, 1].into_iter().collect();
                *strides = [(size * stride).max(1), stride, 1].into_iter().collect();
            }
            Self::Last => {
                let (size, stride) = (shape.iter().product(), strides.first().copied().unwrap_or(1));
                *shape = [1, 1, size].into_iter().collect();
                *strides = [(size * stride).max(1), (size * stride).max(1), stride].into_iter().collect();
            }
            Self::Planes => {
                shape.rotate_left(1);
                strides.rotate_left(1);
            }
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for View {
    type Error = PyErr;

    fn extract(name: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(match name.extract::<&str>()? {
            "same" => Self::Same,
            "reversed" => Self::Reversed,
            "row" => Self::Row,
            "list" => Self::List,
            "last" => Self::Last,
            "planes" => Self::Planes,
            other => {
                let message = format!("view {other:?}, expected same, reversed, row, list, last or planes");
                return Err(PyValueError::new_err(message));
            }
        })
    }
}
