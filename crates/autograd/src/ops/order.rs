//! Order along an axis, and elements by their position.

use super::require_beside;
use crate::{Attributes, Result, Tensor};
use gradewise_kernels::{
    Array, Positions,
    ops::{self, Order},
};

fn of_positions(axis: usize, positions: &Positions) -> Attributes {
    let values = positions.to_vec().unwrap_or_default();
    Attributes::new()
        .with("axis", axis)
        .list("positions", values)
        .list("shape", positions.shape().iter())
        .with("bound", positions.bound())
}

impl Tensor {
    /// The elements along `axis` in order, and where they were. Equal ones stay in the order of their positions.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn sort(&self, axis: usize, order: Order) -> Result<(Tensor, Positions)> {
        let (_, positions) = ops::sort(self.array(), axis, order)?;
        Ok((self.gathered("sort", axis, &positions)?, positions))
    }

    /// The first `count` elements of [`sort`](Self::sort) along `axis`: with [`Order::Descending`] the greatest, in order.
    ///
    /// # Errors
    /// An axis out of range, or more elements than there are along it.
    pub fn top_k(&self, axis: usize, count: usize, order: Order) -> Result<(Tensor, Positions)> {
        let (_, positions) = ops::top_k(self.array(), axis, count, order)?;
        Ok((self.gathered("top_k", axis, &positions)?, positions))
    }

    /// Where along `axis` the greatest element is, the first of several; NaN is greater than every number.
    ///
    /// # Errors
    /// An axis that is out of range or empty.
    pub fn argmax(&self, axis: usize) -> Result<Positions> {
        Ok(ops::argmax(self.array(), axis)?)
    }

    /// Where along `axis` the least element is, the first of several; NaN is less than every number.
    ///
    /// # Errors
    /// As [`argmax`](Self::argmax).
    pub fn argmin(&self, axis: usize) -> Result<Positions> {
        Ok(ops::argmin(self.array(), axis)?)
    }

    /// The elements at `positions` along `axis`: out[…, p, …] = self[…, positions[…, p, …], …]. All other sizes agree.
    ///
    /// # Errors
    /// An axis out of range, sizes that differ, positions past the end, another device.
    pub fn gather(&self, axis: usize, positions: &Positions) -> Result<Tensor> {
        self.gathered("gather", axis, positions)
    }

    /// Zeros with `size` entries along `axis`, plus each element at its position: the transpose of [`gather`](Self::gather). The
    /// order of the additions is fixed.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), with the shape of this tensor that of the positions.
    pub fn scatter_add(&self, axis: usize, positions: &Positions, size: usize) -> Result<Tensor> {
        require_beside("scatter_add", "positions", &positions.device(), self.array())?;
        let (positions, told, given) = (positions.clone(), positions.clone(), positions.clone());
        let attributes = move || of_positions(axis, &told).with("size", size);
        let forward =
            move |x: &[Array]| Ok(ops::scatter_add(&x[0], axis, &given.to_device(&x[0].device())?, size)?);
        Tensor::operate("scatter_add", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.gather(axis, &positions.to_device(&grad.device())?)?)])
        })
    }

    /// The elements of this tensor at `positions`.
    fn gathered(&self, operation: &'static str, axis: usize, positions: &Positions) -> Result<Tensor> {
        require_beside(operation, "positions", &positions.device(), self.array())?;
        let (positions, told, given) = (positions.clone(), positions.clone(), positions.clone());
        let attributes = move || of_positions(axis, &told);
        let forward = move |x: &[Array]| Ok(ops::gather(&x[0], axis, &given.to_device(&x[0].device())?)?);
        Tensor::operate(operation, &[self], attributes, forward, move |context, grad| {
            let size = context.inputs[0].shape()[axis];
            Ok(vec![Some(grad.scatter_add(axis, &positions.to_device(&grad.device())?, size)?)])
        })
    }
}
