//! Layer normalisation.

use super::prelude::*;

/// Inputs: x, then the weight and the bias that are there.
#[derive(Serialize, Deserialize)]
pub(crate) struct LayerNorm {
    weight: bool,
    bias: bool,
    #[serde(with = "attributes::number")]
    epsilon: f64,
}

impl LayerNorm {
    /// The weight and the bias among the inputs.
    fn affine<'a, T>(&self, inputs: &'a [T]) -> (Option<&'a T>, Option<&'a T>) {
        let weight = if self.weight { inputs.get(1) } else { None };
        let bias = if self.bias { inputs.last() } else { None };
        (weight, bias)
    }
}

impl Operation for LayerNorm {
    const NAME: &'static str = "layer_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] =
        &[Operand::array("x"), Operand::array("weight").optional(), Operand::array("bias").optional()];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        // Of a single feature x less its mean is 0, where the function bends with 1/√ε.
        let [batch, features] = [sizes.batch, sizes.features.max(2)];
        let sample = |weight, bias| {
            let parameters = usize::from(weight) + usize::from(bias);
            let mut inputs = vec![Input::normal([batch, features])];
            inputs.extend(vec![Input::normal([features]); parameters]);
            Sample::new(LayerNorm { weight, bias, epsilon: ops::layer_norm::EPSILON }, inputs)
        };
        Ok(vec![sample(false, false), sample(true, false), sample(false, true), sample(true, true)])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let (weight, bias) = self.affine(inputs);
        let ops::layer_norm::LayerNorm { output, mean, inverse_std } =
            ops::layer_norm(&inputs[0], weight, bias, self.epsilon)?;
        Ok(Forward { output, saved: vec![mean, inverse_std] })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let [mean, inverse_std] = context.saved(Self::NAME)?;
        let (weight, bias) = self.affine(inputs);
        let has_bias = bias.is_some();
        let gradients =
            ops::layer_norm_backward(&inputs[0], weight, has_bias, mean, inverse_std, grad.array())?;
        let mut all = vec![Some(gradients.x)];
        all.extend(self.weight.then_some(gradients.weight));
        all.extend(self.bias.then_some(gradients.bias));
        Ok(constants(all))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, (weight, bias)) = (&inputs[0], self.affine(inputs));
        let last = [x.shape().rank() - 1];
        let centred = x.sub(&x.mean(&last, true)?)?;
        let variance = centred.square()?.mean(&last, true)?;
        let mut y = centred.mul(&variance.add_scalar(self.epsilon)?.rsqrt()?)?;
        if let Some(weight) = weight {
            y = y.mul(weight)?;
        }
        match bias {
            Some(bias) => y.add(bias),
            None => Ok(y),
        }
    }
}

impl Tensor {
    /// Normalises the last axis to mean 0 and variance 1 (of the population, plus `epsilon`), then scales by `weight`
    /// and adds `bias`, both of the size of that axis (Ba et al. 2016, arXiv:1607.06450). The published ε is
    /// [`EPSILON`](gradewise_kernels::ops::layer_norm::EPSILON).
    ///
    /// # Errors
    /// A tensor of rank 0; parameters of another shape, dtype or device; an `epsilon` that is negative or NaN.
    pub fn layer_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, epsilon: f64) -> Result<Tensor> {
        if epsilon.is_nan() || epsilon < 0.0 {
            let message = format!("epsilon is {epsilon}, expected at least 0");
            return Err(Error::Argument { operation: "layer_norm", message });
        }
        let function = LayerNorm { weight: weight.is_some(), bias: bias.is_some(), epsilon };
        let inputs: Vec<&Tensor> = std::iter::once(self).chain(weight).chain(bias).collect();
        Self::apply(function, &inputs)
    }
}
