//! Compares the results of one computation in two precisions, operation by operation.

use super::relative_error;
use gradewise_autograd::{
    Result, TensorId,
    observe::{Event, Observer, Pass},
};
use gradewise_core::DType;
use std::collections::{BTreeMap, HashMap};

/// A recorded result of an operation.
#[derive(Clone, Debug)]
struct Kept {
    operation: &'static str,
    pass: Pass,
    /// The parameters it read.
    parameters: Vec<String>,
    /// The number of earlier results of the same operation with the same parameters.
    ordinal: usize,
    position: usize,
    dtype: DType,
    values: Vec<f32>,
    zeros: f64,
}

type Key = (&'static str, Pass, Vec<String>, usize, usize);

/// Records the results of a computation, forward and backward. Conversions and views are omitted: they differ between precisions and
/// compute nothing.
#[derive(Debug)]
pub struct Recording {
    names: HashMap<TensorId, String>,
    results: Vec<Kept>,
    counts: BTreeMap<(&'static str, Pass, Vec<String>), usize>,
}

/// Operations that compute nothing and are not recorded.
const SILENT: [&str; 9] =
    ["cast", "reshape", "permute", "transpose", "slice", "contiguous", "broadcast_to", "embed", "alias"];

impl Recording {
    /// A recording with these names of parameters.
    pub fn new(names: impl IntoIterator<Item = (TensorId, String)>) -> Self {
        Self { names: names.into_iter().collect(), results: Vec::new(), counts: BTreeMap::new() }
    }

    /// Number of results.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// Compares the results of this recording with those of `reference`, in the order of computation. Results that only one of them has,
    /// such as those of a kernel for a single dtype, are omitted.
    pub fn compare(&self, reference: &Self) -> Vec<Divergence> {
        let known: HashMap<Key, &Kept> =
            reference.results.iter().map(|result| (result.key(), result)).collect();
        let beside = |result: &Kept| {
            let expected =
                known.get(&result.key()).filter(|other| other.values.len() == result.values.len())?;
            let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
            Some(Divergence {
                operation: result.operation,
                pass: result.pass,
                position: result.position,
                parameters: result.parameters.clone(),
                dtype: result.dtype,
                error: relative_error(&wide(&result.values), &wide(&expected.values)),
                zeros: (result.zeros, expected.zeros),
            })
        };
        self.results.iter().filter_map(beside).collect()
    }
}

impl Kept {
    fn key(&self) -> Key {
        (self.operation, self.pass, self.parameters.clone(), self.ordinal, self.position)
    }
}

impl Observer for Recording {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        if event.within.is_some() || SILENT.contains(&event.operation) {
            return Ok(());
        }
        let parameters: Vec<String> =
            event.leaves().into_iter().flatten().filter_map(|leaf| self.names.get(&leaf).cloned()).collect();
        let count = self.counts.entry((event.operation, event.pass, parameters.clone())).or_default();
        let ordinal = *count;
        *count += 1;
        for (&output, &position) in event.outputs.iter().zip(&event.positions) {
            let values: Vec<f32> = output.to_f64_vec()?.into_iter().map(|value| value as f32).collect();
            let zeros =
                values.iter().filter(|&&value| value == 0.0).count() as f64 / values.len().max(1) as f64;
            self.results.push(Kept {
                operation: event.operation,
                pass: event.pass,
                parameters: parameters.clone(),
                ordinal,
                position,
                dtype: output.dtype(),
                values,
                zeros,
            });
        }
        Ok(())
    }
}

/// A result in two precisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Divergence {
    /// The operation.
    pub operation: &'static str,
    /// The pass.
    pub pass: Pass,
    /// In a backward pass, the index of the input whose gradient this is.
    pub position: usize,
    /// The parameters that the operation read.
    pub parameters: Vec<String>,
    /// The dtype of the compared result.
    pub dtype: DType,
    /// ‖result − reference‖ / ‖reference‖.
    pub error: f64,
    /// The fractions of zero elements in the result and in the reference.
    pub zeros: (f64, f64),
}

impl Divergence {
    /// The layer that the operation belongs to, if it reads parameters ([`layer_of`]).
    pub fn layer(&self) -> Option<&str> {
        layer_of(&self.parameters)
    }
}

/// The layer of parameters with these names: their common path. `None` without parameters.
pub fn layer_of(parameters: &[String]) -> Option<&str> {
    let first = parameters.first()?;
    let common = parameters.iter().fold(first.len(), |length, name| {
        first.bytes().zip(name.bytes()).take(length).take_while(|(a, b)| a == b).count()
    });
    let path = if parameters.len() == 1 { first.as_str() } else { &first[..common] };
    Some(path.rsplit_once('.').map_or(first.as_str(), |(layer, _)| layer))
}

/// The first result of a pass whose error is above `threshold`, or is NaN.
pub fn first_beyond(divergences: &[Divergence], pass: Pass, threshold: f64) -> Option<&Divergence> {
    divergences.iter().find(|d| d.pass == pass && (d.error.is_nan() || d.error > threshold))
}
