//! Losses. Each returns a scalar.
//!
//! Predictions and targets have the same shape: broadcasting would pair every prediction with every target wherever one of them lacks an
//! axis, and train on a number that means nothing.

use crate::{Error, Result};
use gradewise_autograd::Tensor;

/// Refuses a target of another shape than the prediction's.
fn require_same_shape(operation: &'static str, prediction: &Tensor, target: &Tensor) -> Result<()> {
    let (actual, expected) = (target.shape(), prediction.shape());
    if actual == expected {
        return Ok(());
    }
    let bring = if actual.elements() == expected.elements() { "reshape" } else { "broadcast_to" };
    Err(Error::Argument {
        operation,
        argument: "target",
        actual: format!("of shape {actual}"),
        expected: format!(
            "the shape of the prediction, {expected}; bring one of them to it by {bring}, if that is meant"
        ),
    })
}

/// The mean of (prediction − target)² over all elements.
///
/// # Errors
/// [`Error::Argument`] for different shapes; different dtypes or devices.
pub fn mean_squared_error(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    require_same_shape("mean_squared_error", prediction, target)?;
    Ok(prediction.mean_squared_error(target)?)
}

/// The mean of |prediction − target| over all elements.
///
/// # Errors
/// As [`mean_squared_error`].
pub fn mean_absolute_error(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    require_same_shape("mean_absolute_error", prediction, target)?;
    Ok(prediction.sub(target)?.abs()?.mean_all()?)
}

/// The mean of the Huber loss: ½d² where |d| ≤ `delta`, `delta`·(|d| − ½`delta`) beyond (Huber 1964).
///
/// # Errors
/// As [`mean_squared_error`]; a `delta` that is not greater than 0.
pub fn huber(prediction: &Tensor, target: &Tensor, delta: f64) -> Result<Tensor> {
    if delta.is_nan() || delta <= 0.0 {
        return Err(Error::Argument {
            operation: "huber",
            argument: "delta",
            actual: delta.to_string(),
            expected: "greater than 0: the distance at which the loss turns from square to linear".to_owned(),
        });
    }
    require_same_shape("huber", prediction, target)?;
    let distance = prediction.sub(target)?;
    let near = distance.clamp(-delta, delta)?;
    // near·(d − ½near) is both branches at once.
    Ok(near.mul(&distance.sub(&near.mul_scalar(0.5)?)?)?.mean_all()?)
}

/// The mean of `−Σ target·log softmax(logits)` over all rows: the last axis of `logits` `[…, classes]` are the classes, the axes before it
/// number the rows. `targets` are one-hot or soft classes of the same shape.
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_kernels::Device;
/// use gradewise_nn::loss::cross_entropy;
///
/// let logits = Tensor::from_slice(&[0.0f64, 0.0, 1.0, 1.0], [1, 2, 2], &Device::Cpu)?;
/// let targets = Tensor::from_slice(&[1.0f64, 0.0, 0.0, 1.0], [1, 2, 2], &Device::Cpu)?;
/// assert!((cross_entropy(&logits, &targets)?.item()? - 2f64.ln()).abs() < 1e-12);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
///
/// # Errors
/// As [`mean_squared_error`]; logits without an axis of classes, or without a class.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let sizes: &[usize] = logits.shape();
    let classes =
        sizes.len().checked_sub(1).filter(|&axis| sizes[axis] > 0).ok_or_else(|| Error::Argument {
            operation: "cross_entropy",
            argument: "logits",
            actual: format!("of shape {}", logits.shape()),
            expected: "[…, classes], with at least one class along the last axis".to_owned(),
        })?;
    require_same_shape("cross_entropy", logits, targets)?;
    Ok(logits.log_softmax(classes)?.mul(targets)?.sum(&[classes], false)?.mean_all()?.neg()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::{DType, Device};
    use proptest::prelude::*;
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

    fn random(shape: &[usize], seed: u64) -> Tensor {
        Tensor::randn(shape.to_vec(), DType::F64, &Device::Cpu, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_loss_broadcasts(a in prop::collection::vec(1usize..4, 0..4), b in prop::collection::vec(1usize..4, 0..4)) {
            let (x, y) = (random(&a, 1), random(&b, 2));
            type Loss = fn(&Tensor, &Tensor) -> Result<Tensor>;
            let losses: [(&str, Loss); 4] = [
                ("mean_squared_error", mean_squared_error),
                ("mean_absolute_error", mean_absolute_error),
                ("huber", |x, y| huber(x, y, 1.0)),
                ("cross_entropy", cross_entropy),
            ];
            for (name, loss) in losses {
                match loss(&x, &y) {
                    Ok(value) => prop_assert!(a == b && value.shape().is_empty(), "{name} of {a:?} and {b:?}"),
                    Err(error) => {
                        let message = error.to_string();
                        prop_assert!(message.starts_with(name), "{message}");
                        prop_assert!(a != b || (name == "cross_entropy" && a.is_empty()), "{message}");
                        prop_assert!(message.contains(&x.shape().to_string()), "{message}");
                    }
                }
            }
        }

        #[test]
        fn cross_entropy_is_that_of_the_rows(rows in 1usize..4, more in 1usize..4, classes in 1usize..5, seed in 0u64..100) {
            let (logits, targets) = (random(&[rows, more, classes], seed), random(&[rows, more, classes], seed + 100));
            let flat = |x: &Tensor| x.reshape([rows * more, classes]).unwrap();
            let (deep, plain) = (cross_entropy(&logits, &targets).unwrap(), cross_entropy(&flat(&logits), &flat(&targets)).unwrap());
            prop_assert!((deep.item().unwrap() - plain.item().unwrap()).abs() < 1e-12);
        }
    }

    #[test]
    fn a_distance_that_is_none_is_refused() {
        let x = random(&[4], 1);
        for delta in [-1.0, 0.0, -0.0, f64::NAN, f64::NEG_INFINITY] {
            let message = huber(&x, &x, delta).unwrap_err().to_string();
            assert!(message.contains("`delta`") && message.contains("greater than 0"), "{message}");
        }
        let y = random(&[4], 2);
        let (all_square, half) = (huber(&x, &y, f64::INFINITY).unwrap(), mean_squared_error(&x, &y).unwrap());
        assert!((all_square.item().unwrap() - 0.5 * half.item().unwrap()).abs() < 1e-12);
    }
}
