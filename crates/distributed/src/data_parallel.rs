//! Data-parallel training: the gradients of all processes, summed in buckets while the backward pass goes on.

use crate::{Communicator, Error, Group, Pending, Result};
use gradewise_kernels::{Array, DType, ops};
use gradewise_nn::{Parameter, checkpoint::TensorFile, train::Exchange};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Bytes of a bucket, at most, unless one gradient alone is larger. Measured: with smaller ones more sums run beside the backward
/// pass, and slow it down by more than they hide (docs/scaling.md).
const BUCKET: usize = 25 << 20;
/// Bytes of the first bucket, which is full soonest.
const FIRST: usize = 1 << 20;

/// Sums the gradients of all processes: the [`Exchange`] of a [`Trainer`](gradewise_nn::train::Trainer).
///
/// In the first step each process reports which parameters got gradients, in which order; all must have found the same. Buckets
/// are made in the order of rank 0, which is the reverse of the order of use, and summed in that order at every process: as soon
/// as a bucket and those before it are complete, while the backward pass computes the rest.
pub struct DataParallel {
    group: Arc<Group>,
    communicator: Arc<dyn Communicator>,
    names: Vec<String>,
    /// By position: whether the parameter has a gradient at all.
    trained: Vec<bool>,
    bytes: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In the first step: the parameters in the order in which their gradients were complete.
    order: Vec<usize>,
    plan: Option<Plan>,
    /// The gradients of the step under way, by bucket and member.
    found: Vec<Vec<Option<Array>>>,
    /// The buckets on their way.
    pending: Vec<Pending>,
    early: usize,
}

/// Which gradients travel together.
struct Plan {
    /// Positions of parameters, in the order in which buckets are summed.
    buckets: Vec<Vec<usize>>,
    /// By position of the parameter: its bucket, and where it is in it.
    places: Vec<Option<(usize, usize)>>,
    /// Whether the loss travels with the last bucket.
    loss_rides: bool,
}

/// What a process found in its first step.
#[derive(Serialize, Deserialize)]
struct Found {
    order: Vec<usize>,
    present: Vec<bool>,
}

impl DataParallel {
    /// For a model with these parameters. Every process gets rank 0's values. What was derived from other values before, as the
    /// moving average of a trainer, is not mended: [`same_state`] finds it.
    ///
    /// # Errors
    /// [`Error::Differ`] if the processes have different models; a process that is gone.
    pub fn new(
        group: &Arc<Group>,
        communicator: Arc<dyn Communicator>,
        parameters: &[(String, Parameter)],
    ) -> Result<Self> {
        let structure = |(name, parameter): &(String, Parameter)| {
            let array = parameter.array();
            format!("{name} {} {}", array.dtype(), array.shape())
        };
        same(group, "models", &parameters.iter().map(structure).collect::<Vec<_>>())?;
        for (_, parameter) in parameters {
            let values = communicator.broadcast(parameter.array().contiguous()?)?;
            parameter.set(values)?;
        }
        communicator.check()?;
        let names = parameters.iter().map(|(name, _)| name.clone()).collect();
        let trained = parameters.iter().map(|(_, parameter)| parameter.is_trained()).collect();
        let state = Mutex::default();
        Ok(Self { group: Arc::clone(group), communicator, names, trained, bytes: BUCKET, state })
    }

    /// With buckets of at most so many bytes.
    #[must_use]
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes;
        self
    }

    /// Number of buckets, once the first step has shown which gradients there are.
    pub fn buckets(&self) -> Option<usize> {
        self.state().plan.as_ref().map(|plan| plan.buckets.len())
    }

    /// How many buckets were on their way before the backward pass of their step was over, in all steps so far.
    pub fn early_buckets(&self) -> usize {
        self.state().early
    }

    /// What moves the gradients.
    pub fn communicator(&self) -> &Arc<dyn Communicator> {
        &self.communicator
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Agrees with all processes on the buckets.
    fn plan(&self, order: &[usize], gradients: &[Option<Array>], loss: DType) -> Result<Plan> {
        let present: Vec<bool> = gradients.iter().map(Option::is_some).collect();
        let all = self.group.all_gather_values(&Found { order: order.to_vec(), present })?;
        let mut unused = Vec::new();
        for (position, name) in self.names.iter().enumerate() {
            let has = |found: &Found| found.present.get(position).copied().unwrap_or_default();
            let lacking: Vec<usize> = (0..all.len()).filter(|&rank| !has(&all[rank])).collect();
            if lacking.len() == all.len() {
                if self.trained[position] {
                    unused.push(name.as_str());
                }
            } else if let Some(rank) = lacking.first() {
                return Err(Error::Unused {
                    parameter: name.clone(),
                    problem: format!("has no gradient at rank {rank}, and has one at others"),
                });
            }
        }
        if !unused.is_empty() && self.group.rank() == 0 {
            let (count, names) = (unused.len(), unused.join("`, `"));
            tracing::warn!(
                "the loss depends on {count} parameters at no process, which stay as they are: `{names}`"
            );
        }
        let first = all.first().map(|found| found.order.as_slice()).unwrap_or_default();
        // Those that only earlier batches of the step reached were not seen by the last pass.
        let late = (0..gradients.len()).rev().filter(|position| !first.contains(position));
        let order: Vec<usize> = first.iter().copied().chain(late).collect();
        let sizes: Vec<Option<(usize, DType)>> = gradients
            .iter()
            .map(|gradient| gradient.as_ref().map(|g| (g.elements() * g.dtype().size(), g.dtype())))
            .collect();
        let buckets = buckets(&order, &sizes, self.bytes);
        let mut places = vec![None; gradients.len()];
        for (bucket, members) in buckets.iter().enumerate() {
            for (member, &position) in members.iter().enumerate() {
                places[position] = Some((bucket, member));
            }
        }
        let last = buckets.last().and_then(|members| sizes[*members.first()?]);
        Ok(Plan { buckets, places, loss_rides: last.is_some_and(|(_, dtype)| dtype == loss) })
    }

    /// Sends off the buckets that are complete, in their order.
    fn send(&self, state: &mut State, loss: Option<&Array>) -> Result<()> {
        let Some(plan) = &state.plan else { return Ok(()) };
        while let Some(found) = state.found.get(state.pending.len()) {
            let last = state.pending.len() + 1 == plan.buckets.len();
            let rider = if last && plan.loss_rides { loss } else { None };
            if !found.iter().all(Option::is_some) || (last && plan.loss_rides && loss.is_none()) {
                return Ok(());
            }
            let flat = |array: &Array| Ok(array.contiguous()?.reshape([array.elements()])?);
            let parts = found.iter().flatten().chain(rider).map(flat).collect::<Result<Vec<_>>>()?;
            let joined = match parts.as_slice() {
                [one] => one.clone(),
                parts => ops::concat(&parts.iter().collect::<Vec<_>>(), 0)?,
            };
            state.pending.push(self.communicator.all_reduce(joined)?);
        }
        Ok(())
    }

    fn unused(&self, position: usize, problem: &str) -> Error {
        let rank = self.group.rank();
        let problem = format!("{problem} at rank {rank}, other than in the first step");
        Error::Unused { parameter: self.names[position].clone(), problem }
    }

    fn take_ready(&self, position: usize, gradient: &Array) -> Result<()> {
        let mut guard = self.state();
        let state = &mut *guard;
        let Some(plan) = &state.plan else {
            state.order.push(position);
            return Ok(());
        };
        let Some((bucket, member)) = plan.places[position] else {
            return Err(self.unused(position, "has a gradient"));
        };
        if state.found.is_empty() {
            state.found = plan.buckets.iter().map(|members| vec![None; members.len()]).collect();
        }
        state.found[bucket][member] = Some(gradient.clone());
        self.send(state, None)
    }

    fn take_all(&self, loss: &Array, gradients: &mut [Option<Array>]) -> Result<Array> {
        let mut guard = self.state();
        let state = &mut *guard;
        if state.plan.is_none() {
            let order = std::mem::take(&mut state.order);
            state.plan = Some(self.plan(&order, gradients, loss.dtype())?);
        }
        let Some(plan) = &state.plan else { unreachable!("just made") };
        if state.found.is_empty() {
            state.found = plan.buckets.iter().map(|members| vec![None; members.len()]).collect();
        }
        for (position, gradient) in gradients.iter().enumerate() {
            match (plan.places[position], gradient) {
                (Some((bucket, member)), Some(gradient)) => {
                    state.found[bucket][member].get_or_insert_with(|| gradient.clone());
                }
                (Some(_), None) => return Err(self.unused(position, "has no gradient")),
                (None, Some(_)) => return Err(self.unused(position, "has a gradient")),
                (None, None) => {}
            }
        }
        state.early += state.pending.len();
        self.send(state, Some(loss))?;
        let Some(plan) = &state.plan else { unreachable!("as above") };
        let alone =
            if plan.loss_rides { None } else { Some(self.communicator.all_reduce(loss.reshape([1])?)?) };
        let mut total = None;
        state.found.clear();
        for (members, pending) in plan.buckets.iter().zip(state.pending.drain(..)) {
            let sum = pending.wait()?;
            let mut start = 0;
            for &position in members {
                let Some(gradient) = &mut gradients[position] else { continue };
                let end = start + gradient.elements();
                *gradient = sum.slice(0, start..end)?.reshape(gradient.shape())?;
                start = end;
            }
            if start < sum.elements() {
                total = Some(sum.slice(0, start..start + 1)?);
            }
        }
        let total = match (total, alone) {
            (_, Some(alone)) => alone.wait()?,
            (Some(total), None) => total,
            (None, None) => unreachable!("the loss travelled one way or the other"),
        };
        Ok(total.reshape(loss.shape())?)
    }

    /// What a failed step leaves behind is of no use to the next.
    fn or_forget<T>(&self, result: Result<T>) -> Result<T, gradewise_nn::Error> {
        result.map_err(|error| {
            let mut state = self.state();
            state.found.clear();
            state.pending.clear();
            state.order.clear();
            error.into()
        })
    }
}

impl Exchange for DataParallel {
    fn rank(&self) -> usize {
        self.group.rank()
    }

    fn ready(&self, position: usize, gradient: &Array) -> Result<(), gradewise_nn::Error> {
        self.or_forget(self.take_ready(position, gradient))
    }

    fn finish(&self, loss: &Array, gradients: &mut [Option<Array>]) -> Result<Array, gradewise_nn::Error> {
        self.or_forget(self.take_all(loss, gradients))
    }

    fn check(&self) -> Result<(), gradewise_nn::Error> {
        Ok(self.communicator.check()?)
    }
}

/// Divides the parameters that have gradients, in `order`, into buckets of at most `bytes` bytes and of one dtype each; the first
/// is smaller. What is larger by itself gets a bucket of its own.
fn buckets(order: &[usize], sizes: &[Option<(usize, DType)>], bytes: usize) -> Vec<Vec<usize>> {
    let mut buckets: Vec<Vec<usize>> = Vec::new();
    let (mut filled, mut of) = (0, None);
    for &position in order {
        let Some((size, dtype)) = sizes[position] else { continue };
        let limit = if buckets.len() <= 1 { bytes.min(FIRST) } else { bytes };
        match buckets.last_mut() {
            Some(bucket) if of == Some(dtype) && filled + size <= limit => {
                bucket.push(position);
                filled += size;
            }
            _ => {
                buckets.push(vec![position]);
                (filled, of) = (size, Some(dtype));
            }
        }
    }
    buckets
}

/// Refuses to go on if the processes do not hold the same numbers: weights, moments, averages, whatever `state` has.
///
/// # Errors
/// [`Error::Differ`] with the first name that differs, and where; a process that is gone.
pub fn same_state(group: &Group, state: &TensorFile) -> Result<()> {
    let hash = |(name, tensor): (&str, &gradewise_nn::checkpoint::StoredTensor)| {
        let mut hash = Sha256::new();
        for value in tensor.to_f64_vec().unwrap_or_default() {
            hash.update(value.to_bits().to_le_bytes());
        }
        let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{name} {:?} with hash {digest}", tensor.shape())
    };
    same(group, "the numbers that training goes on from", &state.iter().map(hash).collect::<Vec<_>>())
}

/// Refuses lists that differ between processes; says what rank 0 has, and another.
fn same(group: &Group, what: &'static str, own: &[String]) -> Result<()> {
    let mut hash = Sha256::new();
    for line in own {
        hash.update((line.len() as u64).to_le_bytes());
        hash.update(line);
    }
    let digest = hash.finalize().to_vec();
    let all = group.all_gather(&digest)?;
    if all.iter().all(|other| *other == all[0]) {
        return Ok(());
    }
    // Whole lists only where something is wrong.
    let all: Vec<Vec<String>> = group.all_gather_values(&own.to_vec())?;
    let by_name = |list: &[String]| -> BTreeMap<String, String> {
        list.iter()
            .filter_map(|line| line.split_once(' '))
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect()
    };
    let reference = by_name(&all[0]);
    let mut difference = "in their order".to_owned();
    'ranks: for (rank, list) in all.iter().enumerate().skip(1) {
        let theirs = by_name(list);
        for name in reference.keys().chain(theirs.keys()) {
            let text = |value: Option<&String>| value.map_or("none".to_owned(), Clone::clone);
            let (one, other) = (text(reference.get(name)), text(theirs.get(name)));
            if one != other {
                difference = format!("`{name}` is {one} at rank 0, and {other} at rank {rank}");
                break 'ranks;
            }
        }
    }
    Err(Error::Differ { what, difference })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn buckets_hold_every_gradient_once_in_order(
            sizes in proptest::collection::vec(proptest::option::of((1usize..5000, any::<bool>())), 0..40),
            bytes in 1usize..9000,
        ) {
            let sizes: Vec<Option<(usize, DType)>> = sizes
                .into_iter()
                .map(|size| size.map(|(size, double)| (size, if double { DType::F64 } else { DType::F32 })))
                .collect();
            let order: Vec<usize> = (0..sizes.len()).rev().collect();
            let buckets = buckets(&order, &sizes, bytes);
            let expected: Vec<usize> = order.iter().copied().filter(|&position| sizes[position].is_some()).collect();
            prop_assert_eq!(buckets.concat(), expected);
            for bucket in &buckets {
                let members: Vec<(usize, DType)> = bucket.iter().filter_map(|&position| sizes[position]).collect();
                prop_assert!(members.iter().all(|(_, dtype)| *dtype == members[0].1), "one dtype");
                let total: usize = members.iter().map(|(size, _)| size).sum();
                prop_assert!(total <= bytes || members.len() == 1);
            }
        }
    }

    #[test]
    fn the_first_bucket_is_small() {
        let sizes = vec![Some((FIRST / 2, DType::F32)); 8];
        let order: Vec<usize> = (0..8).collect();
        let lengths: Vec<usize> = buckets(&order, &sizes, BUCKET).iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 6]);
    }
}
