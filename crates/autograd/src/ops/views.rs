//! Views: other shapes of the same data.

use crate::{Result, Tensor};
use gradewise_core::Shape;
use gradewise_kernels::ops;
use std::ops::Range;

impl Tensor {
    /// The same data under a new name in the graph: gradients pass through.
    pub(crate) fn alias(&self) -> Tensor {
        Tensor::with_history("alias", self.array().clone(), &[self], |_, grad| Ok(vec![Some(grad.clone())]))
    }

    /// The same elements in another shape; copies if the data is not contiguous.
    ///
    /// # Errors
    /// A shape with another number of elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        let output = self.array().reshape(shape)?;
        Tensor::from_op("reshape", output, &[self], |context, grad| {
            Ok(vec![Some(grad.reshape(context.inputs[0].shape())?)])
        })
    }

    /// The axes in another order: axis `i` of the result is axis `axes[i]`.
    ///
    /// # Errors
    /// `axes` is not a permutation.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        let output = self.array().permute(axes)?;
        let mut inverse = vec![0; axes.len()];
        for (to, &from) in axes.iter().enumerate() {
            inverse[from] = to;
        }
        Tensor::from_op("permute", output, &[self], move |_, grad| Ok(vec![Some(grad.permute(&inverse)?)]))
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        let output = self.array().transpose(a, b)?;
        Tensor::from_op("transpose", output, &[self], move |_, grad| Ok(vec![Some(grad.transpose(a, b)?)]))
    }

    /// The part of `axis` in `range`.
    ///
    /// # Errors
    /// A range outside the axis.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Tensor> {
        let output = self.array().slice(axis, range.clone())?;
        Tensor::from_op("slice", output, &[self], move |context, grad| {
            Ok(vec![Some(grad.embed(context.inputs[0].shape(), axis, range.start)?)])
        })
    }

    /// The transpose of [`slice`](Self::slice): zeros of `shape` with this tensor at `start` along `axis`.
    fn embed(&self, shape: &Shape, axis: usize, start: usize) -> Result<Tensor> {
        let size = self.shape()[axis];
        let output = ops::pad(self.array(), axis, start, shape[axis])?;
        Tensor::from_op("embed", output, &[self], move |_, grad| {
            Ok(vec![Some(grad.slice(axis, start..start + size)?)])
        })
    }

    /// The data repeated along axes of size 1 and new leading axes, without a copy.
    ///
    /// # Errors
    /// A shape this one does not broadcast to.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<Tensor> {
        let output = self.array().broadcast_to(shape)?;
        Tensor::from_op("broadcast_to", output, &[self], |context, grad| {
            Ok(vec![Some(grad.sum_to(context.inputs[0].shape())?)])
        })
    }

    /// A new axis of size 1.
    ///
    /// # Errors
    /// An axis beyond the rank.
    pub fn unsqueeze(&self, axis: usize) -> Result<Tensor> {
        let shape = self.array().unsqueeze(axis)?.shape().clone();
        self.reshape(shape)
    }

    /// Without an axis of size 1.
    ///
    /// # Errors
    /// An axis out of range or of another size.
    pub fn squeeze(&self, axis: usize) -> Result<Tensor> {
        let shape = self.array().squeeze(axis)?.shape().clone();
        self.reshape(shape)
    }

    /// The same values with adjacent elements; free if they are adjacent already.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.array().is_contiguous() {
            return Ok(self.clone());
        }
        let output = self.array().contiguous()?;
        Tensor::from_op("contiguous", output, &[self], |_, grad| Ok(vec![Some(grad.clone())]))
    }
}
