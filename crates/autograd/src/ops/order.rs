//! Order along an axis, and elements by their position.

use crate::{Result, Tensor};
use gradewise_kernels::{
    Positions,
    ops::{self, Order},
};

impl Tensor {
    /// The elements along `axis` in order, and where they were. Equal ones stay in the order of their positions.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn sort(&self, axis: usize, order: Order) -> Result<(Tensor, Positions)> {
        let (values, positions) = ops::sort(self.array(), axis, order)?;
        Ok((self.gathered("sort", values, axis, &positions)?, positions))
    }

    /// The first `count` elements of [`sort`](Self::sort) along `axis`: with [`Order::Descending`] the greatest, in order.
    ///
    /// # Errors
    /// An axis out of range, or more elements than there are along it.
    pub fn top_k(&self, axis: usize, count: usize, order: Order) -> Result<(Tensor, Positions)> {
        let (values, positions) = ops::top_k(self.array(), axis, count, order)?;
        Ok((self.gathered("top_k", values, axis, &positions)?, positions))
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
        let output = ops::gather(self.array(), axis, positions)?;
        self.gathered("gather", output, axis, positions)
    }

    /// Zeros with `size` entries along `axis`, plus each element at its position: the transpose of [`gather`](Self::gather). The
    /// order of the additions is fixed.
    ///
    /// # Errors
    /// As [`gather`](Self::gather), with the shape of this tensor that of the positions.
    pub fn scatter_add(&self, axis: usize, positions: &Positions, size: usize) -> Result<Tensor> {
        let output = ops::scatter_add(self.array(), axis, positions, size)?;
        let positions = positions.clone();
        Tensor::from_op("scatter_add", output, &[self], move |_, grad| {
            Ok(vec![Some(grad.gather(axis, &positions)?)])
        })
    }

    /// `output`, whose elements are those of this tensor at `positions`.
    fn gathered(
        &self,
        operation: &'static str,
        output: gradewise_kernels::Array,
        axis: usize,
        positions: &Positions,
    ) -> Result<Tensor> {
        let positions = positions.clone();
        Tensor::from_op(operation, output, &[self], move |context, grad| {
            let size = context.inputs[0].shape()[axis];
            Ok(vec![Some(grad.scatter_add(axis, &positions, size)?)])
        })
    }
}
