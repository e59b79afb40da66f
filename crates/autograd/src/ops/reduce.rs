//! Reductions.

use super::prelude::*;

/// `shape` with the reduced axes as 1.
fn kept(shape: &Shape, axes: &[usize]) -> Shape {
    let mut sizes = shape.to_vec();
    for &axis in axes {
        sizes[axis] = 1;
    }
    Shape::from(sizes)
}

/// Axes to reduce in samples of three axes, and whether they stay.
const REDUCED: [(&[usize], bool); 4] = [(&[0, 2], true), (&[1], false), (&[2], true), (&[0, 1, 2], false)];

/// The elements of an input of these sizes, one for each position of the loops, and the positions of the output's axes where `axes` are
/// reduced.
fn reduced(sizes: &[usize], axes: &[usize], keep: bool) -> (Vec<At>, Scalar) {
    let to = (0..sizes.len()).filter_map(|axis| match axes.contains(&axis) {
        false => Some(At::counter(axis)),
        true => keep.then_some(At::fixed(0)),
    });
    (to.collect(), Scalar::Load(0, At::counters(sizes.len())))
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Sum {
    axes: Vec<usize>,
    keep: bool,
}

impl Operation for Sum {
    const NAME: &'static str = "sum";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let input = Input::normal([2, sizes.batch, sizes.features]);
        let sample =
            |(axes, keep): (&[usize], bool)| Sample::new(Sum { axes: axes.to_vec(), keep }, [input.clone()]);
        Ok(REDUCED.map(sample).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::sum(&inputs[0], &self.axes, self.keep)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let shape = context.inputs[0].shape();
        Ok(vec![Some(grad.reshape(kept(shape, &self.axes))?.broadcast_to(shape)?)])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let sizes = inputs.first()?;
        let (to, value) = reduced(sizes, &self.axes, self.keep);
        Some(Formula::sum(sizes.to_vec(), to, value))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Max {
    axes: Vec<usize>,
    keep: bool,
}

impl Operation for Max {
    const NAME: &'static str = "max";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        // Of no elements there is no largest.
        let input = Input::with([2, sizes.batch.max(1), sizes.features], Values::Distinct);
        let sample =
            |(axes, keep): (&[usize], bool)| Sample::new(Max { axes: axes.to_vec(), keep }, [input.clone()]);
        Ok(REDUCED.map(sample).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::max_over(&inputs[0], &self.axes, self.keep)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = &context.inputs[0];
        let shape = kept(x.shape(), &self.axes);
        let largest = context.output.detach().reshape(shape.clone())?;
        let hits = Tensor::new(ops::equal(x.array(), largest.array())?);
        let share = hits.div(&hits.sum(&self.axes, true)?)?;
        Ok(vec![Some(grad.reshape(shape)?.mul(&share)?)])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let sizes = inputs.first()?;
        let (to, value) = reduced(sizes, &self.axes, self.keep);
        Some(Formula::max(sizes.to_vec(), to, value))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct CumSum {
    axis: usize,
    reverse: bool,
}

impl Operation for CumSum {
    const NAME: &'static str = "cumsum";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let sample = |(axis, reverse)| Sample::new(CumSum { axis, reverse }, [Input::normal(matrix(sizes))]);
        Ok([(0, false), (1, true)].map(sample).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::cumsum(&inputs[0], self.axis, self.reverse)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.cumsum(self.axis, !self.reverse)?)])
    }

    /// The product with the triangular matrix of ones.
    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let sizes = inputs.first()?;
        let (rank, size) = (sizes.len(), *sizes.get(self.axis)?);
        // The last loop goes over the pairs of an element and one that it is a summand of.
        let pairs = (0..size).flat_map(|to| (0..size).map(move |from| (from, to)));
        let (from, to): (Vec<usize>, Vec<usize>) =
            pairs.filter(|(from, to)| if self.reverse { from >= to } else { from <= to }).unzip();
        let mut loops = sizes.to_vec();
        loops[self.axis] = 1;
        loops.push(from.len());
        let at = |list: Vec<usize>| {
            let mut at = At::counters(rank);
            at[self.axis] = At::listed(rank, &list.into());
            at
        };
        Some(Formula::sum(loops, at(to), Scalar::Load(0, at(from))))
    }
}

/// The gradient of broadcasting.
#[derive(Serialize, Deserialize)]
pub(crate) struct SumTo {
    #[serde(with = "attributes::shape")]
    shape: Shape,
}

impl Operation for SumTo {
    const NAME: &'static str = "sum_to";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let shapes: [Shape; 3] = [[batch, 1].into(), [features].into(), Shape::scalar()];
        let sample = |shape| Sample::new(SumTo { shape }, [Input::normal([2, batch, features])]);
        Ok(shapes.map(sample).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::sum_to(&inputs[0], &self.shape)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.broadcast_to(context.inputs[0].shape())?)])
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let sizes = inputs.first()?;
        let first = sizes.len() - output.len();
        let to =
            |(axis, &size): (usize, &usize)| if size == 1 { At::fixed(0) } else { At::counter(first + axis) };
        let value = Scalar::Load(0, At::counters(sizes.len()));
        Some(Formula::sum(sizes.to_vec(), output.iter().enumerate().map(to).collect(), value))
    }
}

impl Tensor {
    /// The sum over `axes`, which stay as size 1 if `keep`.
    ///
    /// # Errors
    /// An axis out of range or twice.
    pub fn sum(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        Self::apply(Sum { axes: axes.to_vec(), keep }, &[self])
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
    /// An axis out of range or twice; a result that would be the mean of no elements.
    pub fn mean(&self, axes: &[usize], keep: bool) -> Result<Tensor> {
        let sum = self.sum(axes, keep)?;
        let count: usize = axes.iter().map(|&axis| self.shape()[axis]).product();
        if count == 0 && sum.shape().elements() > 0 {
            let message = format!(
                "shape {} has no elements along axes {axes:?}, and nothing has no mean",
                self.shape()
            );
            return Err(Error::Argument { operation: "mean", message });
        }
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
        Self::apply(Max { axes: axes.to_vec(), keep }, &[self])
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
        Self::apply(CumSum { axis, reverse }, &[self])
    }

    /// Sums over the axes along which `shape` would be broadcast to this shape: the gradient of broadcasting.
    ///
    /// # Errors
    /// `shape` does not broadcast to this shape.
    pub fn sum_to(&self, shape: &Shape) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        Self::apply(SumTo { shape: shape.clone() }, &[self])
    }
}
