//! Reductions.

use crate::{Attributes, Result, Tensor};
use gradewise_core::Shape;
use gradewise_kernels::{Array, ops};

/// `shape` with the reduced axes as 1.
fn kept(shape: &Shape, axes: &[usize]) -> Shape {
    let mut sizes = shape.to_vec();
    for &axis in axes {
        sizes[axis] = 1;
    }
    Shape::from(sizes)
}

impl Tensor {
    /// The sum over `axes`, which stay as size 1 if `keep`.
    ///
    /// # Errors
    /// An axis out of range or twice.
    pub fn sum(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        let axes = axes.to_vec();
        let (given, told) = (axes.clone(), axes.clone());
        let attributes = move || Attributes::new().list("axes", &told).with("keep", keep);
        let forward = move |x: &[Array]| Ok(ops::sum(&x[0], &given, keep)?);
        Tensor::operate("sum", &[self], attributes, forward, move |context, grad| {
            let shape = context.inputs[0].shape();
            Ok(vec![Some(grad.reshape(kept(shape, &axes))?.broadcast_to(shape)?)])
        })
    }

    /// The sum of all elements, a scalar.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn sum_all(&self) -> Result<Tensor> {
        self.sum(&(0..self.shape().rank()).collect::<Vec<_>>(), false)
    }

    /// The mean over `axes`, which stay as size 1 if `keep`.
    ///
    /// # Errors
    /// An axis out of range or twice.
    pub fn mean(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        let sum = self.sum(axes, keep)?;
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        sum.mul_scalar(1.0 / count as f64)
    }

    /// The mean of all elements, a scalar.
    ///
    /// # Errors
    /// The device has no memory.
    pub fn mean_all(&self) -> Result<Tensor> {
        self.mean(&(0..self.shape().rank()).collect::<Vec<_>>(), false)
    }

    /// The largest element over `axes`, which stay as size 1 if `keep`. Equal largest elements share the gradient.
    ///
    /// # Errors
    /// An axis out of range or twice, or an axis of size 0.
    pub fn max(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        let axes = axes.to_vec();
        let (given, told) = (axes.clone(), axes.clone());
        let attributes = move || Attributes::new().list("axes", &told).with("keep", keep);
        let forward = move |x: &[Array]| Ok(ops::max_over(&x[0], &given, keep)?);
        Tensor::operate("max", &[self], attributes, forward, move |context, grad| {
            let x = &context.inputs[0];
            let shape = kept(x.shape(), &axes);
            let largest = context.output.detach().reshape(shape.clone())?;
            let hits = Tensor::new(ops::equal(x.array(), largest.array())?);
            let share = hits.div(&hits.sum(&axes, true)?)?;
            Ok(vec![Some(grad.reshape(shape)?.mul(&share)?)])
        })
    }

    /// The smallest element over `axes`, which stay as size 1 if `keep`. Equal smallest elements share the gradient.
    ///
    /// # Errors
    /// As [`max`](Self::max).
    pub fn min(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        self.neg()?.max(axes, keep)?.neg()
    }

    /// The sum of each element and those before it along `axis`; of those after it instead, if `reverse`.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn cumsum(&self, axis: usize, reverse: bool) -> Result<Tensor> {
        let attributes = move || Attributes::new().with("axis", axis).with("reverse", reverse);
        let forward = move |x: &[Array]| Ok(ops::cumsum(&x[0], axis, reverse)?);
        Tensor::operate("cumsum", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.cumsum(axis, !reverse)?)])
        })
    }

    /// Sums over the axes along which `shape` would be broadcast to this shape: the gradient of broadcasting.
    ///
    /// # Errors
    /// `shape` does not broadcast to this shape.
    pub fn sum_to(&self, shape: &Shape) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let (told, given) = (shape.clone(), shape.clone());
        let attributes = move || Attributes::new().list("shape", told.iter());
        let forward = move |x: &[Array]| Ok(ops::sum_to(&x[0], &given)?);
        Tensor::operate("sum_to", &[self], attributes, forward, |context, grad| {
            Ok(vec![Some(grad.broadcast_to(context.inputs[0].shape())?)])
        })
    }
}
