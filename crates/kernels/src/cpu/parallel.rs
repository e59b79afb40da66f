//! Arithmetic on the threads of rayon's pool.

use crate::cpu::simd::FlushSubnormals;
use rayon::iter::{
    IndexedParallelIterator, IntoParallelIterator, ParallelIterator,
    plumbing::{Producer, ProducerCallback},
};
use std::sync::{Mutex, PoisonError};

/// Multiply-adds from which handing work to other threads pays: some tens of microseconds on one.
pub(crate) const WORTH: usize = 1 << 20;

/// Parallel work that counts subnormal numbers as zero on whatever thread runs it, as its caller does (see [`FlushSubnormals`]).
/// Operators use these instead of rayon's own `for_each` and `map`.
///
/// A single item is worked on by the calling thread: handing it to a thread of the pool and waiting takes longer than the step of a
/// small operator, and small batches run hundreds of those. What is computed does not depend on it.
///
/// Items are pieces of arrays with some microseconds of work each. They are listed before the first one is worked on, so that rayon
/// divides a range of numbers whatever the items are: its machinery is compiled once, and not for every operator, pass and dtype,
/// which was a fifth of the machine code of this crate.
pub(crate) trait Flushed: IndexedParallelIterator {
    /// [`ParallelIterator::for_each`].
    fn flushed_for_each(self, work: impl Fn(Self::Item) + Sync + Send) {
        self.flushed_for_each_if(true, work);
    }

    /// The same on the calling thread alone, unless so much is to be done that it `pays` to share it.
    fn flushed_for_each_if(self, pays: bool, work: impl Fn(Self::Item) + Sync + Send) {
        // By reference, so that the work is compiled once and not for either way of running it.
        let work: &(dyn Fn(Self::Item) + Sync) = &work;
        if !pays || self.len() <= 1 {
            return here(self, &mut |items| items.for_each(work));
        }
        let items = listed(self);
        on_the_pool(items.len(), &|index| items[index].take().into_iter().for_each(work));
    }

    /// The results for all items, in order.
    fn flushed_map<R: Send>(self, work: impl Fn(Self::Item) -> R + Sync + Send) -> Vec<R> {
        self.flushed_map_if(true, work)
    }

    /// The same on the calling thread alone, unless so much is to be done that it `pays` to share it.
    fn flushed_map_if<R: Send>(self, pays: bool, work: impl Fn(Self::Item) -> R + Sync + Send) -> Vec<R> {
        let work: &(dyn Fn(Self::Item) -> R + Sync) = &work;
        if !pays || self.len() <= 1 {
            let mut results = Vec::new();
            here(self, &mut |items| results.extend(items.map(work)));
            return results;
        }
        let items = listed(self);
        let results: Vec<Slot<R>> = items.iter().map(|_| Slot::default()).collect();
        on_the_pool(items.len(), &|index| {
            if let Some(item) = items[index].take() {
                results[index].put(work(item));
            }
        });
        results.into_iter().filter_map(|slot| slot.take()).collect()
    }
}

impl<I: IndexedParallelIterator> Flushed for I {}

/// A value that one thread stores and one thread takes. The lock is never contended, so it costs some nanoseconds.
struct Slot<T>(Mutex<Option<T>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Slot<T> {
    fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The items of parallel work, each to be taken once.
fn listed<I: IndexedParallelIterator>(work: I) -> Vec<Slot<I::Item>> {
    let mut slots = Vec::with_capacity(work.len());
    here(work, &mut |items| slots.extend(items.map(|item| Slot(Mutex::new(Some(item))))));
    slots
}

/// Calls `work` with the numbers from 0 to before `count`, on the threads of the pool.
fn on_the_pool(count: usize, work: &(dyn Fn(usize) + Sync)) {
    (0..count).into_par_iter().for_each(|index| {
        let _flush = FlushSubnormals::enter();
        work(index);
    });
}

/// Hands all items to `work` on the calling thread. By reference, so that it is compiled once for each kind of items.
fn here<I: IndexedParallelIterator>(items: I, work: &mut dyn FnMut(&mut dyn Iterator<Item = I::Item>)) {
    items.with_producer(Here(work));
}

struct Here<'a, T>(&'a mut dyn FnMut(&mut dyn Iterator<Item = T>));

impl<T> ProducerCallback<T> for Here<'_, T> {
    type Output = ();

    fn callback<P: Producer<Item = T>>(self, producer: P) {
        let _flush = FlushSubnormals::enter();
        (self.0)(&mut producer.into_iter());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::thread::{self, ThreadId};

    fn threads(count: usize, pays: bool) -> Vec<ThreadId> {
        (0..count).into_par_iter().flushed_map_if(pays, |_| thread::current().id())
    }

    #[test]
    fn little_work_stays_on_the_calling_thread() {
        let own = thread::current().id();
        assert_eq!(threads(1, true), [own]);
        assert_eq!(threads(3, false), [own; 3]);
        assert!(threads(64, true).iter().all(|&thread| thread != own), "the pool has threads of its own");
        assert!(threads(0, true).is_empty());
    }

    #[test]
    fn results_are_in_order_wherever_they_are_computed() {
        for (count, pays) in [(0, true), (1, true), (1000, true), (1000, false)] {
            let squares = (0..count).into_par_iter().flushed_map_if(pays, |n| n * n);
            assert_eq!(squares, (0..count).map(|n| n * n).collect::<Vec<_>>());
            let mut out = vec![0; count];
            out.par_iter_mut().enumerate().flushed_for_each_if(pays, |(n, out)| *out = n * n);
            assert_eq!(out, squares);
        }
    }

    #[test]
    fn subnormals_are_zero_on_every_thread() {
        let smallest = std::hint::black_box(f32::MIN_POSITIVE);
        for count in [1, 64] {
            let halves = (0..count).into_par_iter().flushed_map(|_| std::hint::black_box(smallest) * 0.5);
            assert!(halves.iter().all(|&half| half == 0.0), "{count}");
        }
    }
}
