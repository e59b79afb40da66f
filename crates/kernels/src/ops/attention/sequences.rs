//! Sequences that lie one after the other along the axis of tokens.

use super::NAME;
use crate::{Device, Error, Index, Result};
use gradewise_core::{Error as CoreError, Shape};
use std::ops::Range;

/// Packed sequences: where each begins along the axis of tokens, and where the last ends. A query sees the keys of its sequence only, and
/// a causal mask applies within each sequence: its last query sees its last key.
///
/// All batches are packed alike; [`lengths`](super::AttentionOptions::lengths) and masks count tokens of a batch, as ever. Sequences may be
/// empty, of queries, of keys or of both; a query whose sequence has no key gets zeros.
///
/// ```
/// use gradewise_kernels::{Device, ops::attention::Sequences};
///
/// // Sequences of 3, 0 and 2 tokens.
/// let sequences = Sequences::alike(&[0, 3, 3, 5], &Device::Cpu)?;
/// assert_eq!(sequences.count(), 3);
/// assert!(Sequences::alike(&[0, 3, 2], &Device::Cpu).is_err());
/// # Ok::<(), gradewise_kernels::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sequences {
    /// Cumulative lengths, below one more than the number of tokens.
    pub(super) queries: Index,
    pub(super) keys: Index,
}

fn checked(argument: &'static str, starts: &[usize], device: &Device) -> Result<Index> {
    let refuse =
        |actual: String, expected| Err(Error::Argument { operation: NAME, argument, actual, expected });
    let (Some(&first), Some(&last)) = (starts.first(), starts.last()) else {
        return refuse("no numbers".to_owned(), "0 and the end of each sequence");
    };
    if first != 0 {
        return refuse(format!("{first} first"), "0 first, then the end of each sequence");
    }
    if let Some(at) = starts.windows(2).position(|pair| pair[1] < pair[0]) {
        let actual = format!("{} after {}, at position {}", starts[at + 1], starts[at], at + 1);
        return refuse(actual, "cumulative lengths, which do not decrease");
    }
    Index::new(starts, last.saturating_add(1), device)
}

impl Sequences {
    /// From the cumulative lengths of queries and of keys, `[sequences + 1]` each, from 0 to the number of tokens.
    ///
    /// # Errors
    /// [`Error::Argument`] for numbers that do not begin with 0, or decrease; [`Error::Core`] for another number of sequences of keys than
    /// of queries; if the device has no memory. [`attention`](super::attention()) refuses numbers that do not end at its tokens.
    pub fn new(queries: &[usize], keys: &[usize], device: &Device) -> Result<Self> {
        if queries.len() != keys.len() {
            return Err(CoreError::Shape {
                operation: NAME,
                argument: "sequences of keys",
                actual: Shape::from([keys.len()]),
                expected: format!("[{}]", queries.len()),
                reason: "each sequence of queries has one of keys, which may be empty".to_owned(),
            }
            .into());
        }
        let of = |argument, starts| checked(argument, starts, device);
        Ok(Self { queries: of("sequences of queries", queries)?, keys: of("sequences of keys", keys)? })
    }

    /// As [`new`](Self::new) with the same lengths of queries and keys: tokens that attend to each other.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn alike(starts: &[usize], device: &Device) -> Result<Self> {
        let queries = checked("sequences", starts, device)?;
        Ok(Self { keys: queries.clone(), queries })
    }

    /// Number of sequences.
    pub fn count(&self) -> usize {
        self.queries.len() - 1
    }

    /// The cumulative lengths of queries and of keys.
    ///
    /// # Errors
    /// If a list is another library's and on a device, which has to be read.
    pub fn starts(&self) -> Result<[Vec<usize>; 2]> {
        Ok([self.queries.to_vec()?, self.keys.to_vec()?])
    }

    /// The device of the numbers.
    pub fn device(&self) -> &Device {
        self.queries.device()
    }

    /// The same sequences on another device.
    ///
    /// # Errors
    /// If the device has no memory.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        let queries = self.queries.to_device(device)?;
        let keys = if self.keys.is(&self.queries) { queries.clone() } else { self.keys.to_device(device)? };
        Ok(Self { queries, keys })
    }

    /// Replaces the lengths by those of `source` for every clone: captured work that reads them sees the new ones. Returns `false` and
    /// changes nothing if the number of sequences or of tokens differs.
    ///
    /// # Errors
    /// From the device; inside a capture.
    pub fn overwrite(&self, source: &Self) -> Result<bool> {
        let sizes = |of: &Self| [&of.queries, &of.keys].map(|index| (index.len(), index.bound()));
        // The list may be one, shared by queries and keys.
        let fits = sizes(self) == sizes(source)
            && (!self.queries.is(&self.keys) || source.queries.same_indices(&source.keys)?);
        Ok(fits && self.queries.overwrite(&source.queries)? && self.keys.overwrite(&source.keys)?)
    }

    /// Number of tokens of queries and of keys.
    pub(super) fn tokens(&self) -> [usize; 2] {
        [&self.queries, &self.keys].map(|index| index.bound() - 1)
    }

    /// The keys that each query sees.
    pub(super) fn spans(&self, causal: bool) -> Result<Vec<Range<usize>>> {
        let [queries, keys] = self.starts()?;
        let mut spans = Vec::with_capacity(queries.last().copied().unwrap_or(0));
        for (queries, keys) in queries.windows(2).zip(keys.windows(2)) {
            for query in queries[0]..queries[1] {
                // One past the last key, so that the last query sees the last.
                let last = (query + 1 + keys[1]).saturating_sub(queries[1]).clamp(keys[0], keys[1]);
                spans.push(keys[0]..if causal { last } else { keys[1] });
            }
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_of_cumulative_lengths_is_refused_by_name() {
        let refused = |starts: &[usize]| Sequences::alike(starts, &Device::Cpu).unwrap_err().to_string();
        assert!(refused(&[]).contains("no numbers"));
        assert!(refused(&[1, 2]).contains("0 first"));
        assert!(refused(&[0, 4, 3, 5]).contains("3 after 4, at position 2"));
        let error = Sequences::new(&[0, 1, 2], &[0, 2], &Device::Cpu).unwrap_err().to_string();
        assert!(error.contains("each sequence of queries has one of keys"), "{error}");
    }

    #[test]
    fn spans_stay_within_their_sequence() {
        let sequences = Sequences::new(&[0, 3, 3, 4, 6], &[0, 2, 5, 5, 8], &Device::Cpu).unwrap();
        assert_eq!(sequences.spans(false).unwrap(), [0..2, 0..2, 0..2, 5..5, 5..8, 5..8]);
        assert_eq!(sequences.spans(true).unwrap(), [0..0, 0..1, 0..2, 5..5, 5..7, 5..8]);
    }

    #[test]
    fn overwriting_changes_every_clone_or_nothing() {
        let sequences = Sequences::alike(&[0, 1, 4], &Device::Cpu).unwrap();
        let clone = sequences.clone();
        assert!(sequences.overwrite(&Sequences::alike(&[0, 3, 4], &Device::Cpu).unwrap()).unwrap());
        assert_eq!(clone.starts().unwrap(), [[0, 3, 4], [0, 3, 4]]);
        let others = [(&[0, 3, 5][..], &[0, 3, 5][..]), (&[0, 4], &[0, 4]), (&[0, 3, 4], &[0, 2, 4])];
        for (queries, keys) in others {
            let other = Sequences::new(queries, keys, &Device::Cpu).unwrap();
            assert!(!sequences.overwrite(&other).unwrap(), "{queries:?}, {keys:?}");
            assert_eq!(clone.starts().unwrap(), [[0, 3, 4], [0, 3, 4]]);
        }
    }
}
