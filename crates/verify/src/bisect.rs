//! Finds a faulty operation: compares every operation of a computation, forward and backward, with the same operation on the same inputs on
//! the CPU in double precision.
//!
//! [`Bisection`] is an observer: it stops at the first operation whose result or gradient exceeds its tolerance.
//! [`Deviant::write`] saves that operation with its inputs, and [`replay`] runs it again.

use super::{Tolerance, relative_error};
use gradewise_autograd::{
    Attributes, BackwardOptions, Error, Result, Tensor, grad,
    observe::{Event, Observer, Pass},
    registry::{self, rerun},
};
use gradewise_core::DType;
use gradewise_kernels::{Array, Compute, Device};
use gradewise_nn::checkpoint::TensorFile;
use std::{fmt, path::Path};

/// The error of a result against the reference, and its tolerance.
#[derive(Clone, Debug, PartialEq)]
pub struct Distance {
    /// ‖result − reference‖ / ‖reference‖.
    pub error: f64,
    /// The largest error that passes.
    pub tolerance: f64,
    /// The error of the CPU in `f32`, if it was computed: ill conditioning is not the operation's fault, so this error widens the
    /// tolerance.
    pub f32_error: Option<f64>,
}

impl Distance {
    /// Whether the error is within the tolerance; `false` for NaN.
    pub fn passes(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// An operation whose result exceeds its tolerance, with everything needed to run it again.
#[derive(Clone, Debug)]
pub struct Deviant {
    /// The operation.
    pub operation: String,
    /// The pass.
    pub pass: Pass,
    /// The operation whose backward rule called it, if any.
    pub within: Option<String>,
    /// In a backward pass, the index of the input whose gradient deviates.
    pub position: usize,
    /// The error and the tolerance.
    pub distance: Distance,
    /// The operation's non-tensor attributes.
    pub attributes: Attributes,
    /// The operations that led to it, the latest first.
    pub trail: Vec<&'static str>,
    /// The number of earlier results that agreed.
    pub agreed: usize,
    /// The device it ran on.
    pub device: Device,
    inputs: Vec<Array>,
    arriving: Option<Array>,
    actual: Array,
    reference: Array,
}

impl fmt::Display for Deviant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, pass, position, distance, .. } = self;
        match pass {
            Pass::Forward => write!(f, "`{operation}` forward: its output")?,
            Pass::Backward => write!(f, "`{operation}` backward: the gradient of input {position}")?,
        }
        let (shape, dtype) = (self.actual.shape(), self.actual.dtype());
        let (error, tolerance) = (distance.error, distance.tolerance);
        write!(
            f,
            ", {dtype} {shape} on {}, is {error:.1e} from the reference, past {tolerance:.1e}",
            self.device
        )?;
        if let Some(within) = &self.within {
            write!(f, "\n  within the backward pass of `{within}`")?;
        }
        if let Some(own) = distance.f32_error {
            write!(f, "\n  the reference in f32 is {own:.1e} from itself in f64")?;
        }
        for (index, input) in self.inputs.iter().enumerate() {
            write!(f, "\n  input {index}: {} {}", input.dtype(), input.shape())?;
        }
        if !self.attributes.is_empty() {
            write!(f, "\n  attributes: {}", self.attributes)?;
        }
        if !self.trail.is_empty() {
            write!(f, "\n  computed through {}", self.trail.join(" ← "))?;
        }
        let (at, actual, expected) = self.worst();
        write!(f, "\n  furthest apart at element {at}: {actual:e} instead of {expected:e}")?;
        write!(f, "\n  {} results before it agree", self.agreed)
    }
}

impl Deviant {
    /// The element with the largest error: its position, its value, the reference.
    fn worst(&self) -> (usize, f64, f64) {
        let (actual, expected) =
            (self.actual.to_f64_vec().unwrap_or_default(), self.reference.to_f64_vec().unwrap_or_default());
        let off = |(a, b): (f64, f64)| if (a - b).is_nan() { f64::INFINITY } else { (a - b).abs() };
        let pairs = actual.into_iter().zip(expected).enumerate();
        pairs
            .max_by(|a, b| off(a.1).total_cmp(&off(b.1)))
            .map_or((0, f64::NAN, f64::NAN), |(at, (a, b))| (at, a, b))
    }

    /// Writes inputs, the arriving gradient, the result and the reference to a safetensors file, whose metadata describe the operation.
    ///
    /// # Errors
    /// From the device or from writing.
    pub fn write(&self, path: &Path) -> gradewise_nn::Result<()> {
        let mut file = TensorFile::new();
        for (index, input) in self.inputs.iter().enumerate() {
            file.insert_array(format!("in.{index}"), input)?;
        }
        if let Some(arriving) = &self.arriving {
            file.insert_array("cotangent", arriving)?;
        }
        file.insert_array("actual", &self.actual)?;
        file.insert_array("reference", &self.reference)?;
        for (key, value) in [
            ("attributes", self.attributes.to_json()),
            ("bisect", self.operation.clone()),
            ("pass", self.pass.to_string()),
            ("position", self.position.to_string()),
            ("device", self.device.to_string()),
            ("error", format!("{:e}", self.distance.error)),
            ("tolerance", format!("{:e}", self.distance.tolerance)),
        ] {
            file.metadata.insert(key.to_owned(), value);
        }
        file.write(path)
    }
}

/// An observer that stops at the first operation that exceeds its tolerance.
#[derive(Debug, Default)]
pub struct Bisection {
    /// The operation that was found.
    pub found: Option<Box<Deviant>>,
    /// The number of results that agree.
    pub agreed: usize,
    /// Of the results that agree, the one closest to its tolerance: operation, pass, distance.
    pub nearest: Option<(&'static str, Pass, Distance)>,
}

/// The message of the error with which [`Bisection`] ends a computation.
const FOUND: &str = "an operation is past its tolerance";

impl Bisection {
    /// Whether a computation ended because the observer found a deviating operation.
    pub fn ended<T>(&self, result: &gradewise_nn::Result<T>) -> bool {
        self.found.is_some() && result.is_err()
    }
}

impl Observer for Bisection {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        let Some(reference) = event.reference(DType::F64)? else { return Ok(()) };
        let mut single: Option<Option<Vec<Array>>> = None;
        for (index, (&actual, reference)) in event.outputs.iter().zip(&reference).enumerate() {
            let mut distance = measure(event.operation, actual, reference, None)?;
            if !distance.passes() && actual.dtype() != DType::F64 {
                if single.is_none() {
                    single = Some(event.reference(DType::F32)?);
                }
                let own = single.as_ref().and_then(Option::as_ref).and_then(|arrays| arrays.get(index));
                distance = measure(event.operation, actual, reference, own)?;
            }
            if distance.passes() {
                self.agreed += 1;
                let share = |distance: &Distance| distance.error / distance.tolerance;
                if self.nearest.as_ref().is_none_or(|(.., nearest)| share(&distance) > share(nearest)) {
                    self.nearest = Some((event.operation, event.pass, distance));
                }
                continue;
            }
            self.found = Some(Box::new(Deviant {
                operation: event.operation.to_owned(),
                pass: event.pass,
                within: event.within.map(str::to_owned),
                position: event.positions.get(index).copied().unwrap_or(0),
                distance,
                attributes: event.attributes()?,
                trail: event.trail(),
                agreed: self.agreed,
                device: actual.device(),
                inputs: event.inputs.iter().map(|input| input.array().clone()).collect(),
                arriving: event.arriving.map(|gradient| gradient.array().clone()),
                actual: actual.clone(),
                reference: reference.clone(),
            }));
            return Err(Error::Argument { operation: event.operation, message: FOUND.to_owned() });
        }
        Ok(())
    }
}

/// The distance of a result from the reference in double precision, given the reference in `f32`, if it was computed.
fn measure(operation: &str, actual: &Array, reference: &Array, single: Option<&Array>) -> Result<Distance> {
    let expected = reference.to_f64_vec()?;
    let f32_error =
        single.map(|single| Ok::<_, Error>(distance(&single.to_f64_vec()?, &expected))).transpose()?;
    let has_products = registry::find(operation).is_some_and(|entry| entry.has_matrix_products());
    let table = Tolerance::of(actual.dtype(), Compute::current(), has_products);
    let tolerance = table.scaled(f32_error);
    Ok(Distance { error: distance(&actual.to_f64_vec()?, &expected), tolerance, f32_error })
}

/// The relative error, ignoring elements that are NaN on both sides or the same infinity on both sides.
fn distance(actual: &[f64], expected: &[f64]) -> f64 {
    if actual.len() != expected.len() {
        return f64::INFINITY;
    }
    let counts = |(a, b): &(f64, f64)| !(b.is_nan() && a.is_nan()) && (b.is_finite() || a != b);
    let (a, b): (Vec<f64>, Vec<f64>) =
        actual.iter().copied().zip(expected.iter().copied()).filter(counts).unzip();
    relative_error(&a, &b)
}

/// Runs on `device` the operation of a file written by [`Deviant::write`], and compares it with the reference.
///
/// # Errors
/// A file that is not such a record; an unknown operation; from the operation.
pub fn replay(path: &Path, device: &Device) -> gradewise_nn::Result<Replay> {
    let file = TensorFile::read(path)?;
    let refuse = |reason: &str| gradewise_nn::Error::Format {
        path: path.to_owned(),
        format: "record of an operation",
        reason: reason.to_owned(),
    };
    let metadata =
        |key: &str| file.metadata.get(key).ok_or_else(|| refuse(&format!("the metadata have no `{key}`")));
    let operation = metadata("bisect")?.clone();
    let backward = metadata("pass")? == "backward";
    let position: usize = metadata("position")?.parse().map_err(|_| refuse("`position` is no number"))?;
    let attributes: Attributes = metadata("attributes")?.parse()?;
    let stored = |name: &str, dtype: Option<DType>, device: &Device| -> gradewise_nn::Result<Array> {
        let tensor = file.get(name).ok_or_else(|| refuse(&format!("there is no tensor `{name}`")))?;
        let own = tensor.dtype().ok_or_else(|| refuse(&format!("`{name}` is {}", tensor.dtype_name())))?;
        // Reads the stored values before any conversion.
        Ok(file.array(name, own, &Device::Cpu)?.cast(dtype.unwrap_or(own))?.to_device(device)?)
    };
    let count = (0..).take_while(|index| file.get(&format!("in.{index}")).is_some()).count();
    let run = |dtype: Option<DType>, device: &Device| -> gradewise_nn::Result<Array> {
        let inputs = (0..count)
            .map(|index| Ok(Tensor::new(stored(&format!("in.{index}"), dtype, device)?).requires_grad()))
            .collect::<gradewise_nn::Result<Vec<_>>>()?;
        let output = rerun(&operation, &attributes, &inputs)?;
        if !backward {
            return Ok(output.array().clone());
        }
        let input =
            inputs.get(position).ok_or_else(|| refuse("`position` names an input that is not there"))?;
        let seed = Tensor::new(stored("cotangent", dtype, device)?);
        let gradient = grad(&output, &[input], &BackwardOptions::seed(seed))?.remove(0);
        gradient.map(|gradient| gradient.array().clone()).ok_or_else(|| refuse("there is no gradient"))
    };
    let actual = run(None, device)?;
    let reference = run_reference(|dtype| run(Some(dtype), &Device::Cpu), DType::F64)?;
    let single = run_reference(|dtype| run(Some(dtype), &Device::Cpu), DType::F32)?;
    let distance = measure(&operation, &actual, &reference, Some(&single))?;
    let stored_error = metadata("error")?.parse().unwrap_or(f64::NAN);
    Ok(Replay { operation, backward, position, distance, stored_error, device: device.clone() })
}

/// Runs the reference without the overrides and backend choices of this thread.
fn run_reference(
    run: impl FnOnce(DType) -> gradewise_nn::Result<Array>,
    dtype: DType,
) -> gradewise_nn::Result<Array> {
    gradewise_autograd::backend::untouched(|| run(dtype))
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The operation.
    pub operation: String,
    /// Whether its backward pass was run.
    pub backward: bool,
    /// In a backward pass, the input whose gradient was compared.
    pub position: usize,
    /// Its distance from the reference.
    pub distance: Distance,
    /// Its error when the record was written.
    pub stored_error: f64,
    /// The device it ran on.
    pub device: Device,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, position, device, distance, .. } = self;
        let verdict = if distance.passes() { "ok  " } else { "FAIL" };
        let what = if self.backward { format!("gradient of input {position}") } else { "output".to_owned() };
        write!(
            f,
            "{verdict} `{operation}` on {device}: {what} {:.1e} from the reference, tolerance {:.1e}; {:.1e} when recorded",
            distance.error, distance.tolerance, self.stored_error
        )
    }
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn infinities_and_nan_that_both_have_do_not_count() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert_eq!(distance(&[1.0, inf, nan], &[1.0, inf, nan]), 0.0);
        assert!(distance(&[1.0, -inf], &[1.0, inf]).is_nan());
        assert!(distance(&[nan, 1.0], &[2.0, 1.0]).is_nan());
        assert_eq!(distance(&[1.0], &[1.0, 2.0]), inf);
    }
}
