//! Cross-entropy.

use super::prelude::*;
use gradewise_kernels::ops::CrossEntropyOptions;

#[derive(Serialize, Deserialize)]
pub(crate) struct CrossEntropy {
    #[serde(with = "attributes::index")]
    targets: Index,
    #[serde(with = "attributes::cross_entropy")]
    options: CrossEntropyOptions,
}

impl Operation for CrossEntropy {
    const NAME: &'static str = "cross_entropy";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [rows, classes] = matrix(sizes);
        let sample = |ignore: Option<usize>, label_smoothing| -> Result<Sample<Self>> {
            let targets = Index::new(&sizes.indices(rows, classes), classes, &Device::Cpu)?;
            let options = CrossEntropyOptions { ignore, label_smoothing };
            Ok(Sample::new(CrossEntropy { targets, options }, [Input::normal([rows, classes])]))
        };
        Ok(vec![sample(None, 0.0)?, sample(Some(0), 0.1)?])
    }

    /// In `f32` at least.
    fn output_dtype(&self, _: &[DType], computed: DType) -> DType {
        computed
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let targets = self.targets.to_device(&inputs[0].device())?;
        let ops::CrossEntropy { loss, log_sum_exp, count } =
            ops::cross_entropy(&inputs[0], &targets, &self.options)?;
        Ok(Forward { output: loss, saved: vec![log_sum_exp, count] })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [log_sum_exp, count] = context.saved(Self::NAME)?.clone();
        let x = context.inputs[0].array();
        let forward = ops::CrossEntropy { loss: context.output.array().clone(), log_sum_exp, count };
        let targets = self.targets.to_device(&x.device())?;
        let gradient = ops::cross_entropy_backward(x, &targets, &self.options, &forward, grad.array())?;
        Ok(constants([Some(gradient)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let rank = inputs[0].shape().rank();
        let classes = inputs[0].shape()[rank - 1];
        let CrossEntropyOptions { ignore, label_smoothing } = self.options;
        let targets = self.targets.to_vec()?;
        let rows = targets.len();
        let counts: Vec<f64> = targets.iter().map(|&target| f64::from(Some(target) != ignore)).collect();
        let total = counts.iter().sum::<f64>().max(1.0);
        // A class that is ignored may be one past the last.
        let classes_of_rows: Vec<usize> =
            targets.iter().map(|&target| target.min(classes.max(1) - 1)).collect();
        let device = inputs[0].device();
        let positions = Positions::new(&classes_of_rows, [rows, 1], classes, &device)?;
        let wide = if inputs[0].dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let weights = Tensor::new(Array::from_f64(&counts, [rows, 1], wide, &device)?);
        let logs = inputs[0].reshape([rows, classes])?.cast(wide)?.log_softmax(1)?;
        let mut losses = logs.gather(1, &positions)?.mul_scalar(label_smoothing - 1.0)?;
        if label_smoothing > 0.0 {
            losses = losses.sub(&logs.mean(&[1], true)?.mul_scalar(label_smoothing)?)?;
        }
        losses.mul(&weights)?.sum_all()?.mul_scalar(1.0 / total)
    }
}

impl Tensor {
    /// The mean of −log softmax at the target over rows of these logits `[…, classes]`, a scalar (in f32 where the logits have 16
    /// bits); one target for each row. Rows whose target is ignored do not count; if none does, the result is 0.
    ///
    /// # Errors
    /// Another number of targets than rows, classes without logits, another device, a smoothing outside [0, 1].
    pub fn cross_entropy(&self, targets: &Index, options: &CrossEntropyOptions) -> Result<Tensor> {
        require_beside("cross_entropy", "targets", targets.device(), self.array())?;
        Self::apply(CrossEntropy { targets: targets.clone(), options: *options }, &[self])
    }
}
