//! Selection along an axis and its transpose, summation by segment.

use super::require_beside;
use crate::{Attributes, Error, Result, Tensor};
use gradewise_core::Shape;
use gradewise_kernels::{Array, Index, ops};

fn of_index(axis: usize, index: &Index) -> Attributes {
    Attributes::new().with("axis", axis).list("index", index.to_vec()).with("bound", index.bound())
}

impl Tensor {
    /// The entries of `axis` that `index` names, in its order.
    ///
    /// # Errors
    /// An axis out of range, or whose size is not the bound of `index`.
    pub fn index_select(&self, axis: usize, index: &Index) -> Result<Tensor> {
        require_beside("index_select", "index", index.device(), self.array())?;
        let (index, told, given) = (index.clone(), index.clone(), index.clone());
        let attributes = move || of_index(axis, &told);
        let forward =
            move |x: &[Array]| Ok(ops::index_select(&x[0], axis, &given.to_device(&x[0].device())?)?);
        Tensor::operate("index_select", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.segment_sum(axis, &index.to_device(&grad.device())?)?)])
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
        require_beside("segment_sum", "segments", segments.device(), self.array())?;
        let (segments, told, given) = (segments.clone(), segments.clone(), segments.clone());
        let attributes = move || of_index(axis, &told);
        let forward =
            move |x: &[Array]| Ok(ops::segment_sum(&x[0], axis, &given.to_device(&x[0].device())?)?);
        Tensor::operate("segment_sum", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.index_select(axis, &segments.to_device(&grad.device())?)?)])
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
        let weights = segments.reciprocal_counts(sum.dtype())?.reshape(shape)?;
        sum.mul(&Tensor::new(weights))
    }
}
