//! Arithmetic on the threads of rayon's pool.

use crate::simd::FlushSubnormals;
use rayon::iter::{Map, ParallelIterator};

/// Parallel work that counts subnormal numbers as zero on whatever thread runs it, as its caller does (see [`FlushSubnormals`]).
/// Operators use these instead of rayon's own `for_each` and `map`.
pub(crate) trait Flushed: ParallelIterator {
    /// [`ParallelIterator::for_each`].
    fn flushed_for_each(self, work: impl Fn(Self::Item) + Sync + Send) {
        self.for_each(|item| {
            let _flush = FlushSubnormals::enter();
            work(item);
        });
    }

    /// [`ParallelIterator::map`].
    fn flushed_map<R: Send, F: Fn(Self::Item) -> R + Sync + Send>(
        self,
        work: F,
    ) -> Map<Self, impl Fn(Self::Item) -> R + Sync + Send> {
        self.map(move |item| {
            let _flush = FlushSubnormals::enter();
            work(item)
        })
    }
}

impl<I: ParallelIterator> Flushed for I {}
