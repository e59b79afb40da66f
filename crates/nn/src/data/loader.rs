//! Batches in a reproducible order, prepared ahead of their use.
//!
//! The order is a pure function of (seed, epoch), and a batch of (order, step): resuming at any step needs no state
//! but the step's number.

use crate::error::at_least_one;
use crate::{Error, Result};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

/// Batches whose samples are sorted by length together.
const POOL: usize = 64;

/// How the samples of a data set are divided into batches.
///
/// ```
/// use gradewise_nn::data::loader::BatchOrder;
///
/// let order = BatchOrder::sequential(5, 2)?.shuffled(1);
/// assert_eq!(order.batches_per_epoch(), 3);
/// // Every sample once in an epoch, in an order that follows from the seed and the number of the epoch.
/// let mut epoch: Vec<usize> = order.one_epoch(7).flatten().collect();
/// assert_eq!(epoch, order.one_epoch(7).flatten().collect::<Vec<_>>());
/// epoch.sort_unstable();
/// assert_eq!(epoch, [0, 1, 2, 3, 4]);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchOrder {
    samples: usize,
    batch_size: usize,
    shuffle: Option<u64>,
    drop_last: bool,
    lengths: Option<Arc<[u32]>>,
}

impl BatchOrder {
    /// Batches of `batch_size` consecutive samples; the last one of an epoch may be smaller.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no samples or the batch size is zero.
    pub fn sequential(samples: usize, batch_size: usize) -> Result<Self> {
        at_least_one("batch order", &[("samples", samples), ("batch_size", batch_size)])?;
        Ok(Self { samples, batch_size, shuffle: None, drop_last: false, lengths: None })
    }

    /// Draws a new permutation for every epoch from `seed`.
    pub fn shuffled(self, seed: u64) -> Self {
        Self { shuffle: Some(seed), ..self }
    }

    /// Makes batches of samples of like lengths, so that little of a batch is padding. Of the shuffled samples, each 64 batches are sorted by
    /// length and cut; then whole batches are shuffled. Every sample is seen once in an epoch, as without lengths, and the incomplete batch is
    /// of any length. Within a batch samples differ less than samples do, in all that goes with their length.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of lengths than samples.
    pub fn by_length(self, lengths: impl Into<Arc<[u32]>>) -> Result<Self> {
        let lengths = lengths.into();
        if lengths.len() < self.samples {
            return Err(Error::Argument {
                operation: "batch order",
                argument: "lengths",
                actual: format!("{} lengths", lengths.len()),
                expected: format!("one for each of {} samples", self.samples),
            });
        }
        Ok(Self { lengths: Some(lengths), ..self })
    }

    /// Leaves out the incomplete batch at the end of an epoch.
    ///
    /// # Errors
    /// [`Error::Argument`] if that leaves no batch at all.
    pub fn drop_last(self) -> Result<Self> {
        if self.batch_size > self.samples {
            return Err(Error::Argument {
                operation: "batch order",
                argument: "batch_size",
                actual: self.batch_size.to_string(),
                expected: format!(
                    "at most {}, the number of samples, when incomplete batches are left out",
                    self.samples
                ),
            });
        }
        Ok(Self { drop_last: true, ..self })
    }

    /// Number of batches in an epoch, at least 1.
    pub fn batches_per_epoch(&self) -> usize {
        if self.drop_last { self.samples / self.batch_size } else { self.samples.div_ceil(self.batch_size) }
    }

    /// The order in which epoch `epoch` visits the samples.
    pub fn epoch(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.samples).collect();
        let mut rng = self.shuffle.map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(epoch);
            rng
        });
        if let Some(rng) = &mut rng {
            order.shuffle(rng);
        }
        if let Some(lengths) = &self.lengths {
            // Sorting the incomplete batch with the rest would make it that of the longest samples.
            let rest = order.split_off(order.len() - order.len() % self.batch_size);
            for pool in order.chunks_mut(POOL * self.batch_size) {
                pool.sort_by_key(|&sample| lengths[sample]);
            }
            if let Some(rng) = &mut rng {
                let mut batches: Vec<&[usize]> = order.chunks(self.batch_size).collect();
                batches.shuffle(rng);
                order = batches.concat();
            }
            order.extend(rest);
        }
        order
    }

    /// The batches from number `step` on, counted over all epochs, without end.
    pub fn batches_from(&self, step: u64) -> Batches {
        let per_epoch = self.batches_per_epoch() as u64;
        let epoch = step / per_epoch;
        Batches { order: self.epoch(epoch), config: self.clone(), epoch, batch: (step % per_epoch) as usize }
    }

    /// The batches of one pass over the data.
    pub fn one_epoch(&self, epoch: u64) -> impl Iterator<Item = Vec<usize>> + use<> {
        self.batches_from(epoch * self.batches_per_epoch() as u64).take(self.batches_per_epoch())
    }
}

/// An endless iterator over batches: the indices of their samples.
#[derive(Clone, Debug)]
pub struct Batches {
    config: BatchOrder,
    order: Vec<usize>,
    epoch: u64,
    batch: usize,
}

impl Iterator for Batches {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        if self.batch == self.config.batches_per_epoch() {
            self.epoch += 1;
            self.batch = 0;
            self.order = self.config.epoch(self.epoch);
        }
        let start = self.batch * self.config.batch_size;
        let end = (start + self.config.batch_size).min(self.order.len());
        self.batch += 1;
        Some(self.order[start..end].to_vec())
    }
}

/// Runs a fallible iterator on a background thread, up to `depth` items ahead of its consumer.
///
/// Items arrive in order. The first error is passed on and ends the iteration, and so does a panic of the iterator,
/// as [`Error::Worker`]. Dropping the value stops the thread and waits for it.
#[derive(Debug)]
pub struct Prefetch<T> {
    receiver: Option<Receiver<Result<T>>>,
    worker: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Starts the thread. A `depth` of 0 hands items over one by one as they are asked for.
    ///
    /// # Errors
    /// [`Error::Worker`] if the system refuses another thread.
    pub fn new<I>(depth: usize, items: I) -> Result<Self>
    where
        I: Iterator<Item = Result<T>> + Send + 'static,
    {
        let (sender, receiver) = sync_channel(depth);
        let worker = std::thread::Builder::new()
            .name("gradewise-prefetch".to_owned())
            .spawn(move || produce(items, &sender))
            .map_err(|error| Error::Worker { operation: "prefetch", reason: error.to_string() })?;
        Ok(Self { receiver: Some(receiver), worker: Some(worker) })
    }
}

fn produce<T>(items: impl Iterator<Item = Result<T>>, sender: &SyncSender<Result<T>>) {
    for item in items {
        let failed = item.is_err();
        // Sending fails if the consumer has been dropped: the rest is not needed.
        if sender.send(item).is_err() || failed {
            return;
        }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        if let Some(Ok(item)) = self.receiver.as_ref().map(Receiver::recv) {
            if item.is_err() {
                self.receiver = None;
            }
            return Some(item);
        }
        self.receiver = None;
        let panic = self.worker.take()?.join().err()?;
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("it panicked");
        Some(Err(Error::Worker { operation: "prefetch", reason: reason.to_owned() }))
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        // Closing the channel first is what lets a worker blocked in `send` end.
        self.receiver = None;
        if let Some(worker) = self.worker.take() {
            // The consumer has been dropped, so a panic of the worker is ignored.
            let _ = worker.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_epoch_visits_every_sample_once(samples in 1usize..60, batch in 1usize..70, seed: u64, epoch in 0u64..5) {
            let order = BatchOrder::sequential(samples, batch).unwrap().shuffled(seed);
            let batches: Vec<_> = order.one_epoch(epoch).collect();
            prop_assert!(batches.iter().rev().skip(1).all(|b| b.len() == batch));
            let mut seen = batches.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..samples).collect::<Vec<_>>());
        }

        #[test]
        fn resuming_at_any_step_gives_the_same_batches(samples in 2usize..40, batch in 1usize..8, step in 0usize..50) {
            let order = BatchOrder::sequential(samples, batch.min(samples)).unwrap().shuffled(9).drop_last().unwrap();
            let straight: Vec<_> = order.batches_from(0).skip(step).take(20).collect();
            prop_assert!(straight.iter().all(|b| b.len() == batch.min(samples)));
            prop_assert_eq!(straight, order.batches_from(step as u64).take(20).collect::<Vec<_>>());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn batches_by_length_have_every_sample_once_and_can_be_resumed(
            lengths in prop::collection::vec(1u32..200, 1..300), batch in 1usize..9, seed: u64, step in 0u64..90,
        ) {
            let plain = BatchOrder::sequential(lengths.len(), batch).unwrap().shuffled(seed);
            let order = plain.clone().by_length(lengths.clone()).unwrap();
            let batches: Vec<_> = order.one_epoch(3).collect();
            let mut seen = batches.concat();
            // What is left out with `drop_last` is what the order without lengths leaves out: no length is favoured.
            prop_assert_eq!(&seen[lengths.len() / batch * batch..], &plain.epoch(3)[lengths.len() / batch * batch..]);
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            let from = order.batches_from(step).next().unwrap();
            prop_assert_eq!(from, order.batches_from(0).nth(step as usize).unwrap());
        }
    }

    /// Lengths as of jets: 20 to 140.
    #[test]
    fn batches_by_length_are_hardly_padded_and_come_in_any_order() {
        let lengths: Vec<u32> = (0..6400u32).map(|k| 20 + k * 7919 % 121).collect();
        let plain = BatchOrder::sequential(6400, 32).unwrap().shuffled(1);
        let padded = |order: &BatchOrder| -> u32 {
            let longest = |batch: Vec<usize>| batch.iter().map(|&k| lengths[k]).max().unwrap();
            order.one_epoch(0).map(|batch| 32 * longest(batch)).sum()
        };
        let order = plain.clone().by_length(lengths.clone()).unwrap();
        let needed: u32 = lengths.iter().sum();
        let (before, after) = (f64::from(padded(&plain)), f64::from(padded(&order)));
        assert!(
            before > 1.6 * f64::from(needed) && after < 1.02 * f64::from(needed),
            "{before} {after} {needed}"
        );
        let means: Vec<u32> =
            order.one_epoch(0).map(|batch| batch.iter().map(|&k| lengths[k]).sum()).collect();
        let rises = means.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((70..130).contains(&rises), "{rises} of 199: the batches are sorted");
        assert!(plain.by_length(vec![1; 6399]).unwrap_err().to_string().contains("6399 lengths"));
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let order = BatchOrder::sequential(50, 7).unwrap().shuffled(1);
        assert_ne!(order.epoch(0), order.epoch(1));
        assert_ne!(order.epoch(0), order.clone().shuffled(2).epoch(0));
        assert_eq!(
            BatchOrder::sequential(5, 2).unwrap().one_epoch(3).collect::<Vec<_>>(),
            [vec![0, 1], vec![2, 3], vec![4]]
        );
    }

    #[test]
    fn impossible_orders_are_refused() {
        assert!(BatchOrder::sequential(0, 1).is_err());
        assert!(BatchOrder::sequential(1, 0).is_err());
        assert!(BatchOrder::sequential(3, 4).unwrap().drop_last().is_err());
    }

    #[test]
    fn prefetch_keeps_the_order_and_stays_within_its_depth() {
        let produced = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&produced);
        let mut items =
            Prefetch::new(2, (0..100).map(move |i| Ok(count.fetch_max(i + 1, Ordering::SeqCst).max(i))))
                .unwrap();
        for expected in 0..100 {
            assert_eq!(items.next().unwrap().unwrap(), expected);
            // Taken so far, the channel's two, and the one being sent.
            assert!(produced.load(Ordering::SeqCst) <= expected + 1 + 2 + 1);
        }
        assert!(items.next().is_none() && items.next().is_none());
    }

    #[test]
    fn errors_and_panics_arrive_and_end_the_iteration() {
        let bad = |i: u32| {
            if i == 3 { Err(Error::Worker { operation: "test", reason: "no".into() }) } else { Ok(i) }
        };
        let mut items = Prefetch::new(8, (0..10).map(bad)).unwrap();
        assert_eq!(items.by_ref().take(3).map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(items.next().unwrap().is_err());
        assert!(items.next().is_none());
        let mut items =
            Prefetch::new(1, (0..2).map(|i| if i == 1 { panic!("spoiled sample {i}") } else { Ok(i) }))
                .unwrap();
        assert_eq!(items.next().unwrap().unwrap(), 0);
        assert!(items.next().unwrap().unwrap_err().to_string().contains("spoiled sample 1"));
        assert!(items.next().is_none());
    }

    #[test]
    fn dropping_stops_an_endless_producer() {
        let alive = Arc::new(());
        let token = Arc::clone(&alive);
        let mut items =
            Prefetch::new(1, (0u64..).map(move |i| Ok((i, Arc::strong_count(&token)).0))).unwrap();
        assert_eq!(items.next().unwrap().unwrap(), 0);
        drop(items);
        assert_eq!(Arc::strong_count(&alive), 1, "the thread has ended and dropped what it held");
    }
}
