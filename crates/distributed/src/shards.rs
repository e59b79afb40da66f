//! Which samples each process computes with.

use crate::{Error, Result};
use gradewise_nn::{
    Placement,
    data::loader::{BatchOrder, Prefetch},
    train::{Part, Samples},
};
use std::sync::Arc;

/// The part of a batch that one process computes with.
#[derive(Clone, PartialEq, Debug)]
pub struct Shard {
    /// Its samples.
    pub indices: Vec<usize>,
    /// Their share of the batch. 0 for a process that a small batch leaves without a sample: it computes with the batch's first
    /// one and counts nothing, so that it keeps in step.
    pub weight: f64,
}

/// Divides batches among processes.
///
/// The order of samples is that of one process, whatever the number of processes: a batch is cut into consecutive parts whose
/// sizes differ by one at most, and together the parts are the batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardedSampler {
    order: BatchOrder,
    rank: usize,
    world: usize,
}

impl ShardedSampler {
    /// The parts of process `rank` of `world`.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such process.
    pub fn new(order: &BatchOrder, rank: usize, world: usize) -> Result<Self> {
        if rank >= world {
            return Err(Error::Argument {
                operation: "sharded sampler",
                argument: "rank",
                actual: rank.to_string(),
                expected: format!("less than the number of processes, {world}"),
            });
        }
        Ok(Self { order: order.clone(), rank, world })
    }

    /// This process's part of a batch.
    pub fn part(&self, batch: &[usize]) -> Shard {
        let bound = |rank: usize| rank * batch.len() / self.world;
        let indices = &batch[bound(self.rank)..bound(self.rank + 1)];
        if indices.is_empty() {
            return Shard { indices: batch.first().copied().into_iter().collect(), weight: 0.0 };
        }
        Shard { indices: indices.to_vec(), weight: indices.len() as f64 / batch.len() as f64 }
    }

    /// The parts of the batches from number `step` on, without end.
    pub fn batches_from(&self, step: u64) -> impl Iterator<Item = Shard> + Send + use<> {
        let sampler = self.clone();
        self.order.batches_from(step).map(move |batch| sampler.part(&batch))
    }

    /// The parts of the batches of one pass over the data.
    pub fn one_epoch(&self, epoch: u64) -> impl Iterator<Item = Shard> + use<> {
        let sampler = self.clone();
        self.order.one_epoch(epoch).map(move |batch| sampler.part(&batch))
    }

    /// Batches prepared by a background thread, up to `ahead` before their use, without end, from batch number `first` on.
    ///
    /// # Errors
    /// If there is no thread to be had; later errors arrive as items.
    pub fn load<D: Samples>(
        &self,
        data: Arc<D>,
        first: u64,
        placement: &Placement,
        ahead: usize,
    ) -> Result<Prefetch<Part<D::Batch>>> {
        let placement = placement.clone();
        let load =
            move |Shard { indices, weight }| Ok(Part { batch: data.batch(&indices, &placement)?, weight });
        Ok(Prefetch::new(ahead, self.batches_from(first).map(load))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn the_parts_are_the_batches_of_one_process(
            samples in 1usize..200, batch in 1usize..40, world in 1usize..9, seed: u64, epoch in 0u64..4,
        ) {
            let order = BatchOrder::sequential(samples, batch).unwrap().shuffled(seed);
            let samplers: Vec<_> = (0..world).map(|rank| ShardedSampler::new(&order, rank, world).unwrap()).collect();
            let mut seen = Vec::new();
            for (step, whole) in order.one_epoch(epoch).enumerate() {
                let parts: Vec<Shard> =
                    samplers.iter().map(|sampler| sampler.one_epoch(epoch).nth(step).unwrap()).collect();
                let counted = parts.iter().filter(|part| part.weight > 0.0);
                let joined: Vec<usize> = counted.clone().flat_map(|part| part.indices.clone()).collect();
                prop_assert_eq!(&joined, &whole);
                let total: f64 = parts.iter().map(|part| part.weight).sum();
                prop_assert!((total - 1.0).abs() < 1e-12);
                let sizes: Vec<usize> = counted.map(|part| part.indices.len()).collect();
                prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
                prop_assert!(parts.iter().all(|part| !part.indices.is_empty()));
                seen.extend(joined);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..samples).collect::<Vec<_>>(), "each sample once");
        }

        #[test]
        fn the_order_does_not_depend_on_the_number_of_processes(world in 1usize..6, step in 0usize..20) {
            let order = BatchOrder::sequential(50, 12).unwrap().shuffled(3).drop_last().unwrap();
            let whole = order.batches_from(step as u64).next().unwrap();
            let joined: Vec<usize> = (0..world)
                .flat_map(|rank| ShardedSampler::new(&order, rank, world).unwrap().batches_from(step as u64).next())
                .flat_map(|part| part.indices)
                .collect();
            prop_assert_eq!(joined, whole);
        }
    }

    #[test]
    fn a_rank_that_is_none_is_refused() {
        let order = BatchOrder::sequential(4, 2).unwrap();
        assert!(ShardedSampler::new(&order, 2, 2).unwrap_err().to_string().contains("less than"));
    }
}
