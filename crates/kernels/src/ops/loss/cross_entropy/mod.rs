//! Cross-entropy of logits with class numbers.

mod cpu;
mod cuda;

use crate::{Array, Device, Error, Index, Result, array::require_axis, cpu::element::with_element};
use gradewise_core::{DType, Error as CoreError, Shape};

/// Options of a cross-entropy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CrossEntropyOptions {
    /// The ignored class, such as that of padding; it may be one past the last class.
    pub ignore: Option<usize>,
    /// ε: the target is 1 − ε at its class and ε/classes everywhere (Szegedy et al. 2016, arXiv:1512.00567).
    pub label_smoothing: f64,
}

/// A cross-entropy and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct CrossEntropy {
    /// The mean over the rows that count, 0 if none does: a scalar in the dtype of the logits or, where that has 16 bits, in
    /// f32.
    pub loss: Array,
    /// log Σ eˣ of each row, in double precision.
    pub log_sum_exp: Array,
    /// The number of rows that count, at least 1: a scalar in double precision.
    pub count: Array,
}

const NAME: &str = "cross_entropy";

/// Contiguous logits as `rows` rows of `classes`.
struct Logits {
    array: Array,
    rows: usize,
    classes: usize,
}

fn check(x: &Array, targets: &Index, options: &CrossEntropyOptions) -> Result<Logits> {
    require_axis(NAME, 0, x.shape())?;
    let classes = x.dims()[x.rank() - 1];
    let rows = x.dims()[..x.rank() - 1].iter().product();
    let shape_error = |argument, actual: Shape, expected: String, reason: &str| {
        Err(CoreError::Shape { operation: NAME, argument, actual, expected, reason: reason.to_owned() }
            .into())
    };
    if targets.len() != rows {
        let actual = Shape::from([targets.len()]);
        return shape_error("targets", actual, format!("[{rows}]"), "one class for each row of the logits");
    }
    if targets.bound() > classes && !(targets.bound() == classes + 1 && options.ignore == Some(classes)) {
        let reason = "there is a logit for each class that targets may name and that is not ignored";
        return shape_error("x", x.shape().clone(), format!("[…, {}]", targets.bound()), reason);
    }
    x.require_beside(targets.device(), NAME, "targets")?;
    if !(0.0..=1.0).contains(&options.label_smoothing) {
        return Err(Error::Argument {
            operation: NAME,
            argument: "label_smoothing",
            actual: options.label_smoothing.to_string(),
            expected: "in [0, 1]",
        });
    }
    Ok(Logits { array: x.contiguous()?, rows, classes })
}

/// The mean over rows of −Σ t·log softmax(x), for logits `x` `[…, classes]` and targets t that are 1 at a class each. A row whose
/// target is ignored does not count. Logits of −∞ have probability 0.
///
/// # Errors
/// Another number of targets than rows, classes without logits, another device, a smoothing outside [0, 1].
pub fn cross_entropy(x: &Array, targets: &Index, options: &CrossEntropyOptions) -> Result<CrossEntropy> {
    let logits = check(x, targets, options)?;
    let parts = if let (Device::Cuda(device), Some(lists)) = (x.device(), targets.resident()) {
        cuda::forward(&device, &logits, lists, options)?
    } else {
        let lists = targets.lists()?;
        with_element!(x.dtype(), NAME, T => {
            let x = logits.array.as_slice::<T>()?;
            Array::build([3, logits.rows], &Device::Cpu, |out: &mut [f64]| {
                cpu::forward(x, logits.classes, &lists.values, options, out);
            })?
        })
    };
    let row = |row: usize| parts.slice(0, row..row + 1)?.reshape([logits.rows]);
    let count = crate::ops::clamp(&crate::ops::sum(&row(1)?, &[0], false)?, 1.0, f64::INFINITY)?;
    let loss =
        crate::ops::div(&crate::ops::sum(&row(0)?, &[0], false)?, &count)?.cast(x.dtype().accumulator())?;
    Ok(CrossEntropy { loss, log_sum_exp: row(2)?, count })
}

/// The gradient of the logits, given that of the loss.
///
/// # Errors
/// As [`cross_entropy`]; if `forward` is not of these logits, or `grad` not a scalar like the loss.
pub fn cross_entropy_backward(
    x: &Array,
    targets: &Index,
    options: &CrossEntropyOptions,
    forward: &CrossEntropy,
    grad: &Array,
) -> Result<Array> {
    let logits = check(x, targets, options)?;
    grad.require_like(&forward.loss, NAME, "grad")?;
    grad.require_shape(NAME, "grad", &[], || "the loss is a scalar".to_owned())?;
    let log_sum_exp = forward.log_sum_exp.contiguous()?;
    log_sum_exp.require_shape(NAME, "log_sum_exp", &[logits.rows], || "one entry for each row".to_owned())?;
    let (actual, expected) = (log_sum_exp.dtype(), DType::F64);
    if actual != expected {
        return Err(CoreError::DType { operation: NAME, argument: "log_sum_exp", actual, expected }.into());
    }
    for (argument, array) in [("log_sum_exp", &log_sum_exp), ("count", &forward.count)] {
        x.require_beside(&array.device(), NAME, argument)?;
    }
    forward.count.require_shape(NAME, "count", &[], || "one number for all rows".to_owned())?;
    let scale = crate::ops::div(&grad.cast(DType::F64)?, &forward.count)?;
    if let (Device::Cuda(device), Some(lists)) = (x.device(), targets.resident()) {
        return cuda::backward(&device, &logits, lists, options, &log_sum_exp, &scale);
    }
    let (lists, scale) = (targets.lists()?, scale.item()?);
    with_element!(x.dtype(), NAME, T => {
        let (source, log_sum_exp) = (logits.array.as_slice::<T>()?, log_sum_exp.as_slice::<f64>()?);
        Array::build(x.shape(), &Device::Cpu, |out: &mut [T]| {
            cpu::backward(source, logits.classes, &lists.values, options, log_sum_exp, scale, out);
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backward_pass_takes_what_the_forward_pass_gives() {
        let cpu = &Device::Cpu;
        let x = Array::zeros([2, 3], DType::F32, cpu).unwrap();
        let targets = Index::new(&[0, 2], 3, cpu).unwrap();
        let options = CrossEntropyOptions::default();
        let forward = cross_entropy(&x, &targets, &options).unwrap();
        let grad = Array::ones([], DType::F32, cpu).unwrap();
        let backward =
            |forward: &CrossEntropy| cross_entropy_backward(&x, &targets, &options, forward, &grad);
        assert_eq!(backward(&forward).unwrap().dims(), [2, 3]);
        let narrow = forward.log_sum_exp.cast(DType::F32).unwrap();
        let error = backward(&CrossEntropy { log_sum_exp: narrow, ..forward.clone() }).unwrap_err();
        assert!(error.to_string().contains("log_sum_exp"), "{error}");
        let counts = Array::ones([2], DType::F64, cpu).unwrap();
        let error = backward(&CrossEntropy { count: counts, ..forward }).unwrap_err();
        assert!(error.to_string().contains("count"), "{error}");
    }
}
