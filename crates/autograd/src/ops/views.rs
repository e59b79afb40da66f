//! Views: other shapes of the same data.

use super::prelude::*;
use crate::formula::placed;
use std::ops::Range;

/// Features, rows and a leading axis.
fn stack(sizes: &Sizes) -> [usize; 3] {
    [2, sizes.batch, sizes.features]
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Reshape {
    #[serde(with = "attributes::shape")]
    shape: Shape,
}

impl Operation for Reshape {
    const NAME: &'static str = "reshape";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const TRAFFIC: Traffic = Traffic::View;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let shapes: [Shape; 2] = [[batch, 2 * features].into(), [2 * batch * features].into()];
        Ok(shapes.map(|shape| Sample::new(Reshape { shape }, [Input::normal(stack(sizes))])).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(inputs[0].reshape(&self.shape)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.reshape(context.inputs[0].shape())?)])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        Some(Formula::copy(inputs.first()?))
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Permute {
    axes: Vec<usize>,
}

impl Operation for Permute {
    const NAME: &'static str = "permute";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const TRAFFIC: Traffic = Traffic::View;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(vec![Sample::new(Permute { axes: vec![2, 0, 1] }, [Input::normal(stack(sizes))])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(inputs[0].permute(&self.axes)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        // The forward pass refused what is not a permutation.
        let mut inverse = vec![0; self.axes.len()];
        for (to, &from) in self.axes.iter().enumerate() {
            inverse[from] = to;
        }
        Ok(vec![Some(grad.permute(&inverse)?)])
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Transpose {
    axes: [usize; 2],
}

impl Operation for Transpose {
    const NAME: &'static str = "transpose";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const TRAFFIC: Traffic = Traffic::View;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok([[1, 2], [0, 2]].map(|axes| Sample::new(Transpose { axes }, [Input::normal(stack(sizes))])).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let [a, b] = self.axes;
        Ok(inputs[0].transpose(a, b)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [a, b] = self.axes;
        Ok(vec![Some(grad.transpose(a, b)?)])
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Slice {
    axis: usize,
    range: Range<usize>,
}

impl Operation for Slice {
    const NAME: &'static str = "slice";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const TRAFFIC: Traffic = Traffic::View;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let sample = |axis, range| Sample::new(Slice { axis, range }, [Input::normal(stack(sizes))]);
        Ok(vec![sample(0, 1..2), sample(1, batch / 2..batch), sample(2, features / 2..features)])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(inputs[0].slice(self.axis, self.range.clone())?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let size = context.inputs[0].shape()[self.axis];
        let embed = Embed { axis: self.axis, start: self.range.start, size };
        Ok(vec![Some(Tensor::apply(embed, &[grad])?)])
    }
}

/// The transpose of [`Slice`]: zeros with `size` entries along `axis`, and the input at `start`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Embed {
    axis: usize,
    start: usize,
    size: usize,
}

impl Operation for Embed {
    const NAME: &'static str = "embed";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const TRAFFIC: Traffic = Traffic::AsWritten;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let shape = stack(sizes);
        let sample = |axis: usize| {
            Sample::new(Embed { axis, start: axis, size: shape[axis] + 3 }, [Input::normal(shape)])
        };
        Ok([0, 1, 2].map(sample).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::pad(&inputs[0], self.axis, self.start, self.size)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let end = self.start + context.inputs[0].shape()[self.axis];
        Ok(vec![Some(grad.slice(self.axis, self.start..end)?)])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let loops = vec![placed(0, inputs.first()?, self.axis, self.start)];
        Some(Formula { start: Some(0.0), loops })
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct BroadcastTo {
    #[serde(with = "attributes::shape")]
    shape: Shape,
}

impl Operation for BroadcastTo {
    const NAME: &'static str = "broadcast_to";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const TRAFFIC: Traffic = Traffic::View;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let inputs: [Shape; 3] = [[features].into(), [batch, 1].into(), Shape::scalar()];
        let shape = || Shape::from([2, batch, features]);
        Ok(inputs.map(|input| Sample::new(BroadcastTo { shape: shape() }, [Input::normal(input)])).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(inputs[0].broadcast_to(&self.shape)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.sum_to(context.inputs[0].shape())?)])
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Contiguous;

impl Operation for Contiguous {
    const NAME: &'static str = "contiguous";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const SHOWS_INPUT: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(vec![Sample::new(Contiguous, [Input::normal(stack(sizes))])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(inputs[0].contiguous()?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.clone())])
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        Some(Formula::copy(inputs.first()?))
    }
}

impl Tensor {
    /// The same elements in another shape; copies if the data is not contiguous.
    ///
    /// # Errors
    /// A shape with another number of elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        Self::apply(Reshape { shape: shape.into() }, &[self])
    }

    /// The axes in another order: axis `i` of the result is axis `axes[i]`.
    ///
    /// # Errors
    /// `axes` is not a permutation.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        Self::apply(Permute { axes: axes.to_vec() }, &[self])
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// An axis out of range.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        Self::apply(Transpose { axes: [a, b] }, &[self])
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
        Self::apply(Slice { axis, range: start..end }, &[self])
    }

    /// The data repeated along axes of size 1 and new leading axes, without a copy.
    ///
    /// # Errors
    /// A shape this one does not broadcast to.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<Tensor> {
        Self::apply(BroadcastTo { shape: shape.clone() }, &[self])
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
        Self::apply(Contiguous, &[self])
    }
}
