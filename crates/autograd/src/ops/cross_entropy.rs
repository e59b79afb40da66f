//! Cross-entropy.

use super::require_beside;
use crate::{Attributes, BackwardContext, Error, Function, Result, Tensor};
use gradewise_kernels::{
    Array, DType, Index, Positions,
    ops::{self, CrossEntropyOptions},
};

struct CrossEntropy {
    targets: Index,
    options: CrossEntropyOptions,
}

impl Function for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn attributes(&self) -> Attributes {
        Attributes::new()
            .list("targets", self.targets.to_vec())
            .with("bound", self.targets.bound())
            .list("ignore", self.options.ignore)
            .with("label_smoothing", self.options.label_smoothing)
    }

    /// In `f32` at least.
    fn output_dtype(&self, _: &[DType], found: DType) -> DType {
        found
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let targets = self.targets.to_device(&inputs[0].device())?;
        let ops::CrossEntropy { loss, log_sum_exp, count } =
            ops::cross_entropy(&inputs[0], &targets, &self.options)?;
        Ok((loss, vec![log_sum_exp, count]))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let [log_sum_exp, count] = context.saved() else {
            return Err(Error::Argument {
                operation: self.name(),
                message: "its forward saved two arrays".into(),
            });
        };
        let (loss, x) = (context.output().clone(), &context.inputs()[0]);
        let forward = ops::CrossEntropy { loss, log_sum_exp: log_sum_exp.clone(), count: count.clone() };
        let targets = self.targets.to_device(&x.device())?;
        let gradient = ops::cross_entropy_backward(x, &targets, &self.options, &forward, grad)?;
        Ok(vec![Some(gradient)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let rank = inputs[0].shape().rank();
        let classes = inputs[0].shape()[rank - 1];
        let CrossEntropyOptions { ignore, label_smoothing } = self.options;
        let targets = self.targets.to_vec();
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
