//! Selection along an axis and its transpose, summation by segment.

use super::prelude::*;
use crate::formula::Update;

#[derive(Serialize, Deserialize)]
pub(crate) struct IndexSelect {
    axis: usize,
    #[serde(with = "attributes::index")]
    index: Index,
}

impl Operation for IndexSelect {
    const NAME: &'static str = "index_select";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const TRAFFIC: Traffic = Traffic::AsWritten;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let shape = [2, sizes.batch, sizes.features];
        let sample = |axis: usize| -> Result<Sample<Self>> {
            let bound = shape[axis];
            let index = Index::new(&sizes.indices(bound + 2, bound), bound, &Device::Cpu)?;
            Ok(Sample::new(IndexSelect { axis, index }, [Input::normal(shape)]))
        };
        Ok(vec![sample(0)?, sample(1)?, sample(2)?])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let index = self.index.to_device(&inputs[0].device())?;
        Ok(ops::index_select(&inputs[0], self.axis, &index)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.segment_sum(self.axis, &self.index.to_device(&grad.device())?)?)])
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let list = self.index.to_vec().ok()?;
        let mut from = At::counters(inputs.first()?.len());
        *from.get_mut(self.axis)? = At::listed(self.axis, &list.into());
        let (to, value) = (At::counters(output.len()), Scalar::Load(0, from));
        Some(Formula::parts(vec![Loops { sizes: output.to_vec(), to, update: Update::Set, value }]))
    }
}

/// The transpose of [`IndexSelect`].
#[derive(Serialize, Deserialize)]
pub(crate) struct SegmentSum {
    axis: usize,
    #[serde(with = "attributes::index")]
    index: Index,
}

impl Operation for SegmentSum {
    const NAME: &'static str = "segment_sum";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let shape = [2, sizes.batch, sizes.features];
        let sample = |axis: usize| -> Result<Sample<Self>> {
            // The last segment is empty.
            let (count, bound) = (shape[axis], 4);
            let index = Index::new(&sizes.indices(count, bound - 1), bound, &Device::Cpu)?;
            Ok(Sample::new(SegmentSum { axis, index }, [Input::normal(shape)]))
        };
        Ok(vec![sample(0)?, sample(1)?, sample(2)?])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let index = self.index.to_device(&inputs[0].device())?;
        Ok(ops::segment_sum(&inputs[0], self.axis, &index)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.index_select(self.axis, &self.index.to_device(&grad.device())?)?)])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let sizes = inputs.first()?;
        let mut to = At::counters(sizes.len());
        *to.get_mut(self.axis)? = At::listed(self.axis, &self.index.to_vec().ok()?.into());
        Some(Formula::sum(sizes.to_vec(), to, Scalar::Load(0, At::counters(sizes.len()))))
    }
}

impl Tensor {
    /// The entries of `axis` that `index` names, in its order.
    ///
    /// # Errors
    /// An axis out of range, or whose size is not the bound of `index`.
    pub fn index_select(&self, axis: usize, index: &Index) -> Result<Tensor> {
        require_beside("index_select", "index", index.device(), self.array())?;
        Self::apply(IndexSelect { axis, index: index.clone() }, &[self])
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
        Self::apply(SegmentSum { axis, index: segments.clone() }, &[self])
    }

    /// The mean of the entries of `axis` that `segments` gives the same number; an empty segment gives zeros.
    ///
    /// # Errors
    /// As [`segment_sum`](Self::segment_sum).
    pub fn segment_mean(&self, axis: usize, segments: &Index) -> Result<Tensor> {
        let (sizes, length) = (self.shape(), segments.len());
        if sizes.get(axis) != Some(&length) {
            let message = format!(
                "`x` has shape {sizes}, expected an axis {axis} of size {length}, that of the list of segments"
            );
            return Err(Error::Argument { operation: "segment_mean", message });
        }
        let sum = self.segment_sum(axis, segments)?;
        let mut shape = vec![1; sum.shape().rank()];
        shape[axis] = segments.bound();
        let weights = segments.reciprocal_counts(sum.dtype())?.reshape(shape)?;
        sum.mul(&Tensor::new(weights))
    }
}
