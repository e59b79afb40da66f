//! Masks: choosing between two tensors, and dropout.

use super::prelude::*;
use crate::formula::Update;

#[derive(Serialize, Deserialize)]
pub(crate) struct Select {
    #[serde(with = "attributes::array")]
    mask: Array,
}

impl Operation for Select {
    const NAME: &'static str = "select";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("a"), Operand::array("b")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let sample = |rows: usize, other: Shape| -> Result<Sample<Self>> {
            let values: Vec<f64> = (0..rows * features).map(|i| f64::from(i % 3 != 1)).collect();
            let mask = Array::from_f64(&values, [rows, features], DType::F64, &Device::Cpu)?;
            Ok(Sample::new(Select { mask }, [Input::normal([batch, features]), Input::normal(other)]))
        };
        Ok(vec![sample(batch, [batch, features].into())?, sample(1, [1].into())?])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::select(&beside(&self.mask, &inputs[0])?, &inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let mask = beside(&self.mask, grad.array())?;
        let zero = Tensor::zeros(Shape::scalar(), grad.dtype(), &grad.device())?;
        let chosen = |index: usize| {
            context.when_needed(index, || {
                let part = if index == 0 { grad.select(&mask, &zero)? } else { zero.select(&mask, grad)? };
                part.sum_to(context.inputs[index].shape())
            })
        };
        Ok(vec![chosen(0)?, chosen(1)?])
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let [a, b] = inputs else { return None };
        // The mask as a list over all elements, in a loop of its own.
        let shape = Shape::from(output);
        let mask: Vec<f64> = self.mask.broadcast_to(&shape).ok()?.to_f64_vec().ok()?;
        let load = |input: usize, sizes: &[usize]| {
            let strides = shape.contiguous_strides();
            let first = output.len() - sizes.len();
            let list = |axis: usize| -> std::sync::Arc<[usize]> {
                (0..mask.len()).map(|element| element / strides[axis] % output[axis]).collect()
            };
            let at = |axis: usize| match sizes[axis] {
                1 => At::fixed(0),
                _ => At::listed(0, &list(first + axis)),
            };
            Scalar::Load(input, (0..sizes.len()).map(at).collect())
        };
        let (left, right, to) = (load(0, a), load(1, b), load(0, output));
        let Scalar::Load(_, to) = to else { return None };
        let value = Scalar::Select(Box::new([Scalar::Listed(0, mask.clone().into()), left, right]));
        Some(Formula::parts(vec![Loops { sizes: vec![mask.len()], to, update: Update::Set, value }]))
    }
}

impl Tensor {
    /// This tensor where `mask` is not 0, `other` elsewhere, broadcast together. Nothing flows to what is not chosen,
    /// not even a NaN. Masks come from comparisons such as [`ops::greater`].
    ///
    /// # Errors
    /// Shapes that do not broadcast, different dtypes or devices.
    pub fn select(&self, mask: &Array, other: &Tensor) -> Result<Tensor> {
        require_beside("select", "mask", &mask.device(), self.array())?;
        Self::apply(Select { mask: mask.clone() }, &[self, other])
    }

    /// Zeroes each element with probability `p` and scales the others by 1/(1 − p) (Srivastava et al. 2014).
    ///
    /// The mask follows from `seed`, `stream` and the position of the element only: a recomputation under
    /// [`checkpoint`](crate::checkpoint) gets the same one. Use another `stream` for every layer and step:
    /// [`training_stream`](crate::training_stream) gives one in training, and none in evaluation.
    ///
    /// # Errors
    /// `p` outside [0, 1).
    pub fn dropout(&self, p: f64, (seed, stream): (u64, u64)) -> Result<Tensor> {
        let mask = ops::dropout_mask(
            self.shape(),
            p,
            ops::RandomStream { seed, stream },
            self.dtype(),
            &self.device(),
        )?;
        if p == 0.0 {
            return Ok(self.clone());
        }
        self.mul(&Tensor::new(mask))
    }
}
