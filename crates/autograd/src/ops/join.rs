//! Joining tensors.

use super::prelude::*;
use crate::formula::placed;

/// Tensors one after the other.
#[derive(Serialize, Deserialize)]
pub(crate) struct Concat {
    axis: usize,
}

impl Operation for Concat {
    const NAME: &'static str = "concat";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("parts").repeated()];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        Ok(vec![
            Sample::new(Concat { axis: 1 }, [1, features, 2].map(|columns| Input::normal([batch, columns]))),
            Sample::new(Concat { axis: 0 }, [batch, 1].map(|rows| Input::normal([rows, features]))),
        ])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::concat(&inputs.iter().collect::<Vec<_>>(), self.axis)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let mut start = 0;
        let part = |(index, input): (usize, &Tensor)| {
            let range = start..start + input.shape()[self.axis];
            start = range.end;
            context.when_needed(index, || grad.slice(self.axis, range))
        };
        context.inputs.iter().enumerate().map(part).collect()
    }

    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let mut start = 0;
        let part = |(index, sizes): (usize, &&[usize])| {
            let offset = start;
            start += sizes[self.axis];
            placed(index, sizes, self.axis, offset)
        };
        Some(Formula::parts(inputs.iter().enumerate().map(part).collect()))
    }
}

/// The tensors one after the other along `axis`; their other sizes agree.
///
/// # Errors
/// No tensors, an axis out of range, sizes, dtypes or devices that differ.
pub fn concat(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
    Tensor::apply(Concat { axis }, tensors)
}

/// Tensors of one shape along a new axis.
///
/// # Errors
/// As [`concat()`].
pub fn stack(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::Argument {
            operation: "stack",
            message: "no tensors were given; stack needs at least one".to_owned(),
        });
    };
    if let Some(other) = tensors.iter().find(|tensor| tensor.shape() != first.shape()) {
        return Err(Error::Argument {
            operation: "stack",
            message: format!("shapes differ: {} and {}", first.shape(), other.shape()),
        });
    }
    let expanded = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
    concat(&expanded.iter().collect::<Vec<_>>(), axis)
}
