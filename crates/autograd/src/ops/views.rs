//! Views: other shapes of the same data.

use crate::{Attributes, Result, Tensor};
use gradewise_core::Shape;
use gradewise_kernels::{Array, ops};
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
        let shape = shape.into();
        let told = shape.clone();
        let attributes = move || Attributes::new().list("shape", told.iter());
        let forward = move |x: &[Array]| Ok(x[0].reshape(&shape)?);
        Tensor::operate("reshape", &[self], attributes, forward, |context, grad| {
            Ok(vec![Some(grad.reshape(context.inputs[0].shape())?)])
        })
    }

    /// The axes in another order: axis `i` of the result is axis `axes[i]`.
    ///
    /// # Errors
    /// `axes` is not a permutation.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        let (told, given) = (axes.to_vec(), axes.to_vec());
        let mut inverse = vec![0; axes.len()];
        for (to, &from) in axes.iter().enumerate() {
            // What is no permutation is refused below.
            if let Some(place) = inverse.get_mut(from) {
                *place = to;
            }
        }
        let attributes = move || Attributes::new().list("axes", &told);
        let forward = move |x: &[Array]| Ok(x[0].permute(&given)?);
        Tensor::operate("permute", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.permute(&inverse)?)])
        })
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        let attributes = move || Attributes::new().list("axes", [a, b]);
        let forward = move |x: &[Array]| Ok(x[0].transpose(a, b)?);
        Tensor::operate("transpose", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.transpose(a, b)?)])
        })
    }

    /// The part of `axis` in `range`; this tensor itself if that is all of it.
    ///
    /// # Errors
    /// A range outside the axis.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Tensor> {
        let Range { start, end } = range;
        if start == 0 && self.shape().get(axis) == Some(&end) {
            return Ok(self.clone());
        }
        let attributes = move || Attributes::new().with("axis", axis).list("range", [start, end]);
        let forward = move |x: &[Array]| Ok(x[0].slice(axis, start..end)?);
        Tensor::operate("slice", &[self], attributes, forward, move |context, grad| {
            Ok(vec![Some(grad.embed(context.inputs[0].shape(), axis, start)?)])
        })
    }

    /// The transpose of [`slice`](Self::slice): zeros of `shape` with this tensor at `start` along `axis`.
    pub(crate) fn embed(&self, shape: &Shape, axis: usize, start: usize) -> Result<Tensor> {
        let size = self.shape()[axis];
        let whole = shape[axis];
        let attributes =
            move || Attributes::new().with("axis", axis).with("start", start).with("size", whole);
        let forward = move |x: &[Array]| Ok(ops::pad(&x[0], axis, start, whole)?);
        Tensor::operate("embed", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.slice(axis, start..start + size)?)])
        })
    }

    /// The data repeated along axes of size 1 and new leading axes, without a copy.
    ///
    /// # Errors
    /// A shape this one does not broadcast to.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<Tensor> {
        let (told, given) = (shape.clone(), shape.clone());
        let attributes = move || Attributes::new().list("shape", told.iter());
        let forward = move |x: &[Array]| Ok(x[0].broadcast_to(&given)?);
        Tensor::operate("broadcast_to", &[self], attributes, forward, |context, grad| {
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
        let forward = |x: &[Array]| Ok(x[0].contiguous()?);
        Tensor::operate("contiguous", &[self], Attributes::new, forward, |_, grad| {
            Ok(vec![Some(grad.clone())])
        })
    }
}
