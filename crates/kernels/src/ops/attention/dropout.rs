//! Dropout of attention weights, from a counter-based generator.

use super::NAME;
use crate::{
    Array, Device, Error, Result,
    ops::{
        RandomStream,
        pointwise::dropout::philox::{self, LANES},
    },
};
use gradewise_core::DType;
use std::ops::Range;

/// Dropout of the weights: each is dropped with probability [`p`](Self::p) after the softmax, and those kept are scaled by 1/(1 − p)
/// (Srivastava et al. 2014).
///
/// Whether a weight is dropped depends on `random`, the head, the query and the key only: both passes, any device and any kernel drop the
/// same. Tokens of packed sequences count from the first token of all.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionDropout {
    /// The probability, at least 0 and less than 1. It is rounded to a multiple of 2⁻¹⁶, also in the scale.
    pub p: f64,
    /// Which random numbers decide.
    pub random: RandomStream,
}

/// Bits that decide about one weight.
const BITS: u32 = 16;

impl AttentionDropout {
    pub(super) fn check(&self) -> Result<()> {
        if (0.0..1.0).contains(&self.p) {
            return Ok(());
        }
        let actual = self.p.to_string();
        Err(Error::Argument { operation: NAME, argument: "dropout.p", actual, expected: "in [0, 1)" })
    }

    /// A weight is dropped if its random bits are below this.
    pub(super) fn threshold(&self) -> u16 {
        (self.p * f64::from(1u32 << BITS)).round() as u16
    }

    /// The factor of the weights that are kept.
    pub(super) fn kept(&self) -> f64 {
        1.0 / (1.0 - f64::from(self.threshold()) / f64::from(1u32 << BITS))
    }

    pub(super) fn round_keys(&self) -> [[u32; 2]; 10] {
        philox::round_keys(self.random.seed)
    }

    /// The mask: 0 where a weight is dropped, the factor of kept ones elsewhere. `[batch, heads, queries, keys]`, for the re-expression of
    /// attention in other operators; attention itself has no such array.
    ///
    /// # Errors
    /// A probability outside of [0, 1); a dtype that the device does not serve, or no memory.
    pub fn mask(&self, shape: [usize; 4], dtype: DType, device: &Device) -> Result<Array> {
        self.check()?;
        let [batch, heads, queries, keys] = shape;
        let kept = self.kept();
        let mut values = Array::zeros(shape, DType::F64, &Device::Cpu)?;
        let data = values.as_mut_slice::<f64>()?;
        data.fill(kept);
        for head in 0..batch * heads {
            let dropping = Dropping::new(self, head);
            let head = &mut data[head * queries * keys..][..queries * keys];
            for first in (0..queries).step_by(Dropping::TILE) {
                for key in (0..keys).step_by(Dropping::TILE) {
                    let rows = first..(first + Dropping::TILE).min(queries);
                    let columns = key..(key + Dropping::TILE).min(keys);
                    let dropped = dropping.tile(rows.clone(), columns.clone());
                    for (query, bits) in rows.zip(dropped) {
                        for (at, value) in head[query * keys..][columns.clone()].iter_mut().enumerate() {
                            if bits >> at & 1 != 0 {
                                *value = 0.0;
                            }
                        }
                    }
                }
            }
        }
        values.cast(dtype)?.to_device(device)
    }
}

/// What one head drops; `Dropping` of csrc/attention/dropout.cuh.
pub(super) struct Dropping {
    seed: u64,
    stream: u64,
    threshold: u32,
}

impl Dropping {
    /// Queries and keys of a tile, at most.
    pub const TILE: usize = 64;

    /// `head` counts over all batches.
    pub fn new(dropout: &AttentionDropout, head: usize) -> Self {
        let RandomStream { seed, stream } = dropout.random;
        let words = philox::random(head as u64, stream, seed).map(|word| u64::from(word[0]));
        Self { seed, stream: words[0] | words[1] << 32, threshold: dropout.threshold().into() }
    }

    /// For each query a bit for each key: whether the weight is dropped. Both ranges begin at a multiple of 16 and have at most
    /// [`TILE`](Self::TILE) tokens.
    pub fn tile(&self, queries: Range<usize>, keys: Range<usize>) -> [u64; Self::TILE] {
        let mut rows = [0; Self::TILE];
        // Blocks of 16 tokens have 8 groups of queries and 4 of keys.
        for first in (queries.start / 2..queries.end.div_ceil(16) * 8).step_by(LANES) {
            for key_group in keys.start / 4..keys.end.div_ceil(16) * 4 {
                let words = philox::random(first as u64 | (key_group as u64) << 32, self.stream, self.seed);
                let key = key_group / 4 * 16 + key_group % 4 * 2;
                for (word, lanes) in words.into_iter().enumerate() {
                    for (lane, bits) in lanes.into_iter().enumerate() {
                        let group = first + lane;
                        let query = group / 8 * 16 + group % 8 + word % 2 * 8;
                        let Some(row) = rows.get_mut(query - queries.start) else { continue };
                        for half in 0..2 {
                            let at = key + word / 2 * 8 + half - keys.start;
                            let dropped = (bits >> (BITS * half as u32) & 0xffff) < self.threshold;
                            *row |= u64::from(dropped) << at;
                        }
                    }
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropout(p: f64, seed: u64, stream: u64) -> AttentionDropout {
        AttentionDropout { p, random: RandomStream { seed, stream } }
    }

    /// A weight at a time, from the definition.
    #[test]
    fn tiles_are_the_definition() {
        let of = dropout(0.3, 7, 1 << 45 | 3);
        let (head, sizes) = (5, [130usize, 75]);
        let mask = of.mask([2, 3, sizes[0], sizes[1]], DType::F64, &Device::Cpu).unwrap();
        let mask = mask.to_vec::<f64>().unwrap();
        let first = |counter: u64, stream: u64| philox::random(counter, stream, 7).map(|word| word[0]);
        let words = first(head, of.random.stream);
        let stream = u64::from(words[0]) | u64::from(words[1]) << 32;
        for query in 0..sizes[0] {
            for key in 0..sizes[1] {
                let group = (query / 16 * 8 + query % 8) as u64 | ((key / 16 * 4 + key % 8 / 2) as u64) << 32;
                let word = first(group, stream)[query / 8 % 2 + key / 8 % 2 * 2];
                let bits = if key % 2 == 0 { word & 0xffff } else { word >> 16 };
                let expected = if f64::from(bits) < 0.3 * 65536.0 { 0.0 } else { of.kept() };
                let found = mask[(head as usize * sizes[0] + query) * sizes[1] + key];
                assert!(found == expected, "query {query}, key {key}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn as_many_are_dropped_as_probability_says_in_every_head_row_and_column() {
        for p in [0.1, 0.5, 0.9] {
            let sizes = [2, 2, 256, 320];
            let mask =
                dropout(p, 11, 1).mask(sizes, DType::F64, &Device::Cpu).unwrap().to_vec::<f64>().unwrap();
            let share = |values: &mut dyn Iterator<Item = f64>| {
                let (mut dropped, mut count) = (0.0, 0.0);
                for value in values {
                    dropped += f64::from(value == 0.0);
                    count += 1.0;
                }
                // Standard deviations from the expectation.
                (dropped - p * count) / (count * p * (1.0 - p)).sqrt()
            };
            let of_all = share(&mut mask.iter().copied());
            assert!(of_all.abs() < 4.0, "{of_all}");
            for row in mask.chunks(320) {
                assert!(share(&mut row.iter().copied()).abs() < 5.0);
            }
            for column in 0..320 {
                assert!(share(&mut mask.iter().skip(column).step_by(320).copied()).abs() < 5.0);
            }
            // Adjacent weights, those that share a counter, and heads are independent.
            for distance in [1, 8, 320, 8 * 320, 256 * 320] {
                let both = mask.iter().zip(&mask[distance..]);
                let (mut together, mut count) = (0.0, 0.0);
                for (a, b) in both {
                    together += f64::from(*a == 0.0 && *b == 0.0);
                    count += 1.0;
                }
                let of_both = p * p;
                let off = (together - of_both * count) / (count * of_both * (1.0 - of_both)).sqrt();
                assert!(off.abs() < 6.0, "{off} at {distance}");
            }
        }
    }

    #[test]
    fn seeds_and_streams_draw_masks_of_their_own() {
        let mask = |seed, stream| {
            dropout(0.5, seed, stream)
                .mask([1, 2, 33, 40], DType::F64, &Device::Cpu)
                .unwrap()
                .to_vec::<f64>()
                .unwrap()
        };
        assert_eq!(mask(1, 2), mask(1, 2));
        for other in [mask(1, 3), mask(2, 2), mask(2, 1)] {
            let differ = mask(1, 2).iter().zip(&other).filter(|(a, b)| a != b).count();
            assert!((1000..1640).contains(&differ), "{differ} of 2640");
        }
    }

    #[test]
    fn probability_is_rounded_and_its_scale_with_it() {
        let of = dropout(0.1, 0, 0);
        assert_eq!(of.threshold(), 6554);
        assert!((of.kept() - 1.0 / (1.0 - 6554.0 / 65536.0)).abs() < 1e-15);
        assert_eq!(dropout(0.999_999_9, 0, 0).threshold(), u16::MAX);
        assert_eq!(dropout(1e-6, 0, 0).threshold(), 0);
        for p in [1.0, -0.1, f64::NAN] {
            assert!(dropout(p, 0, 0).mask([1; 4], DType::F64, &Device::Cpu).is_err());
        }
    }
}
