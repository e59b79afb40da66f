//! Memory that grows from iteration to iteration.

use super::{Bytes, Holder, census};
use crate::{Device, Result};
use std::{collections::HashMap, fmt};

/// Growth that is reported.
const THRESHOLD: f64 = 0.1;
/// Observations before anything is said.
const FEWEST: usize = 6;
/// Observations that are kept; of more, every other one goes, and from then on as many calls are passed over.
const MOST: usize = 48;
/// Suspects that are named.
const SUSPECTS: usize = 5;

/// What an iteration left alive.
#[derive(Clone, Debug)]
struct Observation {
    iteration: u64,
    allocated: usize,
    holders: HashMap<&'static str, (usize, usize)>,
}

/// Looks at a device's memory once an iteration, or every so many, at the same place each time, and notices growth.
///
/// What is alive at that place should not change from iteration to iteration: parameters, the optimiser's state, the data. It is
/// reported when the least of the last third of the observations is more than a tenth above the greatest of the first third; so
/// neither one large batch nor a saw-tooth is.
#[derive(Debug)]
pub struct LeakWatcher {
    device: Device,
    seen: Vec<Observation>,
    /// Calls, and how many there are for each observation.
    calls: u64,
    stride: u64,
    mark: u64,
}

/// Growth.
#[derive(Clone, Debug, PartialEq)]
pub struct Leak {
    /// Iteration and bytes at the first observation.
    pub from: (u64, usize),
    /// Iteration and bytes at the last one.
    pub to: (u64, usize),
    /// Bytes for each iteration: the least-squares slope of all observations.
    pub slope: f64,
    /// What grew, by the operation that made it, the most first.
    pub suspects: Vec<Suspect>,
    /// What was made since and is alive, if a [`census`] is taken, the largest first.
    pub living: Vec<census::Group>,
}

/// An operation whose results grow in number or size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The operation.
    pub operation: &'static str,
    /// More arrays than before.
    pub arrays: i64,
    /// More bytes than before.
    pub bytes: i64,
}

impl LeakWatcher {
    /// Watches the arrays of a device.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), seen: Vec::new(), calls: 0, stride: 1, mark: census::mark() }
    }

    /// Looks after iteration `iteration`; growth is reported once, and again when it has gone on as much from there.
    ///
    /// # Errors
    /// From the device.
    pub fn see(&mut self, iteration: u64) -> Result<Option<Leak>> {
        self.calls += 1;
        if !(self.calls - 1).is_multiple_of(self.stride) {
            return Ok(None);
        }
        let allocated = self.device.memory()?.allocated;
        let holders = self.device.memory_holders();
        let count = |holder: Holder| (holder.operation, (holder.arrays, holder.bytes));
        self.seen.push(Observation {
            iteration,
            allocated,
            holders: holders.into_iter().map(count).collect(),
        });
        if self.seen.len() > MOST {
            (self.calls, self.stride) = (1, 2 * self.stride);
            let mut position = 0;
            // The first and the last stay.
            self.seen.retain(|_| {
                position += 1;
                position % 2 == 1
            });
        }
        let leak = self.leak();
        if leak.is_some() {
            self.seen.drain(..self.seen.len() - 1);
            (self.calls, self.stride) = (1, 1);
            self.mark = census::mark();
        }
        Ok(leak)
    }

    fn leak(&self) -> Option<Leak> {
        let third = self.seen.len() / 3;
        if self.seen.len() < FEWEST {
            return None;
        }
        let allocated = |seen: &[Observation]| seen.iter().map(|o| o.allocated).collect::<Vec<_>>();
        let before = allocated(&self.seen[..third]).into_iter().max()?;
        let after = allocated(&self.seen[self.seen.len() - third..]).into_iter().min()?;
        if (after as f64) <= before as f64 * (1.0 + THRESHOLD) {
            return None;
        }
        // What grew once, such as by batches of an evaluation that stay on the device, is no leak: a leak goes on to the end.
        let (early, late) = self.seen[self.seen.len() - third..].split_at(third / 2);
        if allocated(early).into_iter().max()? >= allocated(late).into_iter().min()? {
            return None;
        }
        let (first, last) = (self.seen.first()?, self.seen.last()?);
        let mut suspects: Vec<Suspect> = last
            .holders
            .iter()
            .map(|(&operation, &(arrays, bytes))| {
                let (arrays_before, bytes_before) = first.holders.get(operation).copied().unwrap_or_default();
                let difference = |now: usize, before: usize| now as i64 - before as i64;
                let (arrays, bytes) = (difference(arrays, arrays_before), difference(bytes, bytes_before));
                Suspect { operation, arrays, bytes }
            })
            .filter(|suspect| suspect.bytes > 0)
            .collect();
        suspects.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.operation.cmp(b.operation)));
        suspects.truncate(SUSPECTS);
        let name = self.device.to_string();
        let living = census::live();
        let since = living.iter().filter(|entry| entry.number >= self.mark && entry.device == name);
        let mut living = census::grouped(since);
        living.truncate(SUSPECTS);
        Some(Leak {
            from: (first.iteration, first.allocated),
            to: (last.iteration, last.allocated),
            slope: slope(&self.seen),
            suspects,
            living,
        })
    }
}

fn slope(seen: &[Observation]) -> f64 {
    let count = seen.len() as f64;
    let mean = |value: fn(&Observation) -> f64| seen.iter().map(value).sum::<f64>() / count;
    let (x, y) = (mean(|o| o.iteration as f64), mean(|o| o.allocated as f64));
    let sum = |value: &dyn Fn(&Observation) -> f64| seen.iter().map(value).sum::<f64>();
    let covariance = sum(&|o| (o.iteration as f64 - x) * (o.allocated as f64 - y));
    covariance / sum(&|o| (o.iteration as f64 - x).powi(2))
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, slope, suspects, living } = self;
        write!(
            f,
            "memory grows: {} after iteration {}, {} after {}, {} each; by the operation that made it: ",
            Bytes(from.1),
            from.0,
            Bytes(to.1),
            to.0,
            Bytes(slope.max(0.0) as usize)
        )?;
        for (position, Suspect { operation, arrays, bytes }) in suspects.iter().enumerate() {
            let separator = if position > 0 { ", " } else { "" };
            write!(
                f,
                "{separator}`{operation}` +{} in {arrays:+} arrays",
                Bytes(bytes.unsigned_abs() as usize)
            )?;
        }
        write!(f, "; something keeps results, or a loss with its history, beyond the iteration")?;
        for group in living {
            write!(f, "\n  {group}")?;
        }
        Ok(())
    }
}
