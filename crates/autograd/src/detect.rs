//! The search for the operation that makes NaN or infinities.

use crate::{
    Anomaly, Error, Result, Tensor,
    observe::{Event, Observer, observe},
};

/// Runs `body`, in which the first operation that makes a NaN, or an infinity out of finite numbers, forward or backward, fails
/// with [`Error::Anomaly`]. Infinities that an operation was given (a mask of −∞) may pass through it.
///
/// Every result is read once more, and a GPU is synchronised after each operation: expect twice the time on the CPU, and several
/// times that on a GPU whose operations are short.
///
/// ```
/// use gradewise_autograd::{Error, Tensor, detect_anomalies};
/// use gradewise_kernels::Device;
///
/// let x = Tensor::from_slice(&[1.0f32, -1.0], [2], &Device::Cpu)?;
/// let error = detect_anomalies(|| x.log()?.sum_all()).unwrap_err();
/// assert!(matches!(&error, Error::Anomaly(anomaly) if anomaly.operation == "log"));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// Whatever `body` returns.
pub fn detect_anomalies<R>(body: impl FnOnce() -> R) -> R {
    observe(Anomalies, body).0
}

/// Stops at the first operation that makes a NaN or an infinity.
struct Anomalies;

fn described(index: usize, tensor: &Tensor) -> String {
    match tensor.operation() {
        Some(operation) => format!("input {index}, from `{operation}`"),
        None if tensor.is_grad_required() => format!("input {index}, a parameter"),
        None => format!("input {index}"),
    }
}

impl Observer for Anomalies {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        for result in &event.outputs {
            let found = result.validate()?;
            if found.nan + found.infinite == 0 {
                continue;
            }
            let mut sources: Vec<(String, &Tensor)> = event
                .inputs
                .iter()
                .enumerate()
                .map(|(index, input)| (described(index, input), *input))
                .collect();
            sources.extend(event.arriving.map(|gradient| ("gradient of the output".to_owned(), gradient)));
            let (mut inherited, mut infinite) = (false, false);
            for (_, source) in &sources {
                let found = source.array().validate()?;
                inherited |= found.nan > 0;
                infinite |= found.infinite > 0;
            }
            if found.nan == 0 && (infinite || inherited) {
                continue;
            }
            // Copies preserve the bits of poisoned elements: only a NaN that no source had is looked for.
            let unwritten = if found.nan > 0 && !inherited { result.unwritten()? } else { 0 };
            let summarised =
                |(name, source): (String, &Tensor)| Ok((name, source.array().summary()?.to_string()));
            return Err(Error::Anomaly(Box::new(Anomaly {
                operation: event.operation,
                pass: event.pass,
                within: event.within,
                nan: found.nan,
                infinite: found.infinite,
                unwritten,
                result: result.summary()?.to_string(),
                sources: sources.into_iter().map(summarised).collect::<Result<_>>()?,
                leaves: event.leaves(),
                inherited,
                trail: event.trail(),
            })));
        }
        Ok(())
    }
}
