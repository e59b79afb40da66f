//! Selection along an axis and its transpose, summation by segment.

use crate::{Error, Result, Tensor};
use gradewise_core::Shape;
use gradewise_kernels::{Index, ops};

impl Tensor {
    /// The entries of `axis` that `index` names, in its order.
    ///
    /// # Errors
    /// An axis out of range, or whose size is not the bound of `index`.
    pub fn index_select(&self, axis: usize, index: &Index) -> Result<Tensor> {
        let output = ops::index_select(self.array(), axis, index)?;
        let index = index.clone();
        Tensor::from_op("index_select", output, &[self], move |_, grad| {
            Ok(vec![Some(grad.segment_sum(axis, &index)?)])
        })
    }

    /// The rows of this table `[entries, features]` that `ids` names, as `[…shape, features]`. The gradient of an entry is the sum of
    /// those of its occurrences, in a fixed order.
    ///
    /// # Errors
    /// A table of another rank, or whose entries are not the bound of `ids`; a shape that `ids` does not fill.
    pub fn embedding(&self, ids: &Index, shape: impl Into<Shape>) -> Result<Tensor> {
        let &[_, features] = self.shape().dims() else {
            let message = format!("the table has shape {}, expected [entries, features]", self.shape());
            return Err(Error::Argument { operation: "embedding", message });
        };
        let mut sizes = shape.into().to_vec();
        sizes.push(features);
        self.index_select(0, ids)?.reshape(sizes)
    }

    /// Adds the entries of `axis` that `segments` gives the same number; the result has `segments.bound()` entries.
    /// The order of the additions is fixed.
    ///
    /// # Errors
    /// An axis out of range, or whose size is not the length of `segments`.
    pub fn segment_sum(&self, axis: usize, segments: &Index) -> Result<Tensor> {
        let output = ops::segment_sum(self.array(), axis, segments)?;
        let segments = segments.clone();
        Tensor::from_op("segment_sum", output, &[self], move |_, grad| {
            Ok(vec![Some(grad.index_select(axis, &segments)?)])
        })
    }

    /// The mean of the entries of `axis` that `segments` gives the same number; an empty segment gives zeros.
    ///
    /// # Errors
    /// As [`segment_sum`](Self::segment_sum).
    pub fn segment_mean(&self, axis: usize, segments: &Index) -> Result<Tensor> {
        let sum = self.segment_sum(axis, segments)?;
        let mut shape = vec![1; sum.shape().rank()];
        shape[axis] = segments.bound();
        let weights = segments.reciprocal_counts(self.dtype())?.reshape(shape)?;
        sum.mul(&Tensor::new(weights))
    }
}
