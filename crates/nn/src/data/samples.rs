//! Data sets as training and evaluation see them.

use super::{
    Batch,
    loader::{BatchOrder, Prefetch},
};
use crate::{Placement, Result};
use std::sync::Arc;

/// Batches prepared ahead of their use.
const AHEAD: usize = 2;

/// A data set that batches are made of.
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_kernels::{Array, Device};
/// use gradewise_nn::{Placement, Result, data::{Samples, for_each_batch}};
///
/// /// Numbers and their squares.
/// struct Squares(Vec<f64>);
///
/// impl Samples for Squares {
///     type Batch = (Tensor, Tensor);
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
///
///     fn batch(&self, indices: &[usize], place: &Placement) -> Result<Self::Batch> {
///         let x: Vec<f64> = indices.iter().map(|&index| self.0[index]).collect();
///         let x = Tensor::new(Array::from_f64(&x, [x.len(), 1], place.dtype, &place.device)?);
///         Ok((x.clone(), x.square()?))
///     }
/// }
///
/// let (data, mut sizes) = (Squares(vec![1.0, 2.0, 3.0]), Vec::new());
/// for_each_batch(&data, 2, &Placement::from(&Device::Cpu), |(x, _)| {
///     sizes.push(x.shape()[0]);
///     Ok(())
/// })?;
/// assert_eq!(sizes, [2, 1]);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
pub trait Samples: Send + Sync + 'static {
    /// The batches that the model takes as input.
    type Batch: Batch + Send + 'static;

    /// Number of samples.
    fn len(&self) -> usize;

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of each sample, if they differ in length: batches of like lengths are then formed, in which little is padding.
    fn lengths(&self) -> Option<Vec<u32>> {
        None
    }

    /// The samples at `indices`, in that order, each below [`len`](Self::len); repeats are allowed.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<Self::Batch>;
}

/// Batches prepared by a background thread, without end, from batch number `first` on.
///
/// # Errors
/// [`Error::Worker`](crate::Error::Worker) if there is no thread to be had; later errors arrive as items.
pub fn batches<D: Samples>(
    data: Arc<D>,
    order: &BatchOrder,
    first: u64,
    placement: &Placement,
) -> Result<Prefetch<D::Batch>> {
    let placement = placement.clone();
    let indices = order.batches_from(first);
    Prefetch::new(AHEAD, indices.map(move |indices| data.batch(&indices, &placement)))
}

/// The numbers of `count` samples for a batch that takes as much memory as any: the longest ones, or the first if they do not differ in length;
/// again and again where there are fewer.
pub fn longest<D: Samples>(data: &D, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..data.len()).collect();
    if let Some(lengths) = data.lengths() {
        order.sort_by_key(|&sample| std::cmp::Reverse(lengths[sample]));
    }
    order.into_iter().cycle().take(count).collect()
}

/// Calls `work` with all samples in order, `batch_size` at a time. Callers that only evaluate should do so under
/// [`no_grad`](gradewise_autograd::no_grad).
///
/// If a batch runs out of memory, its samples are tried again in batches of half the size, as are all later samples. `work` must therefore
/// keep no result of a batch before it has finished that batch.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for a batch size of zero; those of `work`; out of memory with a single sample.
pub fn for_each_batch<D: Samples>(
    data: &D,
    batch_size: usize,
    placement: &Placement,
    mut work: impl FnMut(&D::Batch) -> Result<()>,
) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let batches = BatchOrder::sequential(data.len(), batch_size)?.one_epoch(0);
    for_each_group(data, batches, placement, |_, batch| work(batch))
}

/// Calls `work` with the samples of each of these batches, and their indices. Memory is as for [`for_each_batch`].
///
/// # Errors
/// Those of `work`; out of memory with a single sample.
pub fn for_each_group<D: Samples>(
    data: &D,
    groups: impl IntoIterator<Item = Vec<usize>>,
    placement: &Placement,
    mut work: impl FnMut(&[usize], &D::Batch) -> Result<()>,
) -> Result<()> {
    let mut size = usize::MAX;
    for indices in groups {
        let mut rest = &indices[..];
        while !rest.is_empty() {
            let (some, others) = rest.split_at(size.min(rest.len()));
            match data.batch(some, placement).and_then(|batch| work(some, &batch)) {
                Ok(()) => rest = others,
                Err(error) if error.is_out_of_memory() && some.len() > 1 => size = some.len() / 2,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use gradewise_kernels::{DType, Device};
    use std::cell::RefCell;

    /// Numbers that are their own samples.
    struct Numbers(usize);

    struct Given(Vec<usize>);

    impl Batch for Given {
        fn to_device(&self, _: &Device) -> Result<Self> {
            Ok(Self(self.0.clone()))
        }

        fn overwrite(&self, _: &Self) -> Result<bool> {
            Ok(false)
        }
    }

    impl Samples for Numbers {
        type Batch = Given;

        fn len(&self) -> usize {
            self.0
        }

        fn batch(&self, indices: &[usize], _: &Placement) -> Result<Given> {
            Ok(Given(indices.to_vec()))
        }
    }

    /// Numbers as long as they are odd: 1, 3, 5, …, and 0 where they are even.
    struct Odd(usize);

    impl Samples for Odd {
        type Batch = Given;

        fn len(&self) -> usize {
            self.0
        }

        fn lengths(&self) -> Option<Vec<u32>> {
            Some((0..self.0 as u32).map(|k| k * (k % 2)).collect())
        }

        fn batch(&self, indices: &[usize], _: &Placement) -> Result<Given> {
            Ok(Given(indices.to_vec()))
        }
    }

    #[test]
    fn the_largest_batch_has_the_longest_samples() {
        assert_eq!(longest(&Numbers(3), 5), [0, 1, 2, 0, 1]);
        assert_eq!(longest(&Odd(8), 3), [7, 5, 3]);
        assert!(longest(&Odd(0), 3).is_empty());
    }

    fn out_of_memory() -> Error {
        let (operation, holders) = ("test", Vec::new());
        gradewise_kernels::Error::OutOfMemory { operation, requested: 1, allocated: 0, reserved: 0, holders }
            .into()
    }

    #[test]
    fn batches_that_do_not_fit_are_halved_and_none_is_left_out_or_seen_twice() {
        let host = Placement::new(&Device::Cpu, DType::F32);
        for (len, batch, room) in [(10, 4, 4), (10, 4, 3), (23, 8, 1), (5, 100, 2), (1, 1, 1), (0, 3, 1)] {
            let (seen, largest) = (RefCell::new(Vec::new()), RefCell::new(0));
            for_each_batch(&Numbers(len), batch, &host, |given| {
                if given.0.len() > room {
                    return Err(out_of_memory());
                }
                seen.borrow_mut().extend_from_slice(&given.0);
                largest.replace_with(|most| given.0.len().max(*most));
                Ok(())
            })
            .unwrap();
            assert_eq!(seen.into_inner(), (0..len).collect::<Vec<_>>());
            // Halves, not single samples.
            assert!(2 * largest.into_inner() >= room.min(batch).min(len), "{len} {batch} {room}");
        }
    }

    #[test]
    fn what_does_not_fit_alone_is_an_error() {
        let host = Placement::new(&Device::Cpu, DType::F32);
        let error = for_each_batch(&Numbers(5), 4, &host, |_| Err(out_of_memory())).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    }
}
