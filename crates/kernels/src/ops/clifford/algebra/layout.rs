//! How the kernels walk arrays `[blades, batch, features]`.
//!
//! For each blade, batch and features form one contiguous line, so several rows can be processed as one *span*; a
//! per-feature weight then repeats with the period of the features. Spans are chosen so that they fill whole tiles of
//! [`LANES`] elements: with 28 features, 8 rows make a span of 224 = 7 tiles, where a single row would waste
//! an eighth of its vector lanes.

use crate::cpu::simd::{LANES, Lanes, Real};

/// The division of a `[blades, batch, features]` array into spans, tiles and chunks of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub batch: usize,
    pub features: usize,
    /// Rows per span.
    pub rows: usize,
    /// Tiles per span.
    pub tiles: usize,
    /// Rows per chunk: the unit of parallel work, a multiple of `rows`. A function of the shape alone, so that
    /// results do not depend on the number of threads.
    pub chunk: usize,
}

impl Layout {
    pub fn new(blades: usize, batch: usize, features: usize) -> Self {
        const MAX_ROWS: usize = 64;
        const WASTE: f64 = 0.02;
        let waste = |rows: usize| {
            let padded = (rows * features).div_ceil(LANES) * LANES;
            1.0 - (rows * features) as f64 / padded as f64
        };
        let features_or_one = features.max(1);
        let limit = (4096 / features_or_one).clamp(1, MAX_ROWS);
        let rows = (1..=limit)
            .find(|&rows| waste(rows) <= WASTE)
            .unwrap_or_else(|| (1..=limit).min_by(|&a, &b| waste(a).total_cmp(&waste(b))).unwrap_or(1));

        // Enough elements per chunk to pay for scheduling, enough chunks to share among many threads.
        const CHUNK_ELEMENTS: usize = 1 << 15;
        const MAX_CHUNKS: usize = 64;
        let rows_for_work = CHUNK_ELEMENTS.div_ceil(features_or_one * blades.max(1));
        let most = rows_for_work.max(batch.div_ceil(MAX_CHUNKS)).next_multiple_of(rows);
        // As many chunks, all of about the same length: beside a short last one, a thread would wait for most of another.
        let chunk = batch.max(1).div_ceil(batch.div_ceil(most).max(1)).next_multiple_of(rows);
        Self { batch, features, rows, tiles: (rows * features).div_ceil(LANES), chunk }
    }

    /// Elements of one blade.
    pub fn line(&self) -> usize {
        self.batch * self.features
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.batch.div_ceil(self.chunk)
    }

    /// Elements of one blade in a chunk.
    pub fn chunk_len(&self) -> usize {
        self.chunk * self.features
    }

    /// Padded elements of a span.
    pub fn padded(&self) -> usize {
        self.tiles * LANES
    }

    /// Spreads per-feature weights `[features, count]` over a span: `[tiles][count][LANES]`.
    pub fn spread<T: Real>(&self, weights: &[T], count: usize) -> Vec<Lanes<T>> {
        let mut spread = vec![[T::zero(); LANES]; self.tiles * count];
        let used = self.rows * self.features;
        let (mut one, mut line) = (vec![T::zero(); self.features], vec![T::zero(); self.padded()]);
        for index in 0..count {
            for (weight, row) in one.iter_mut().zip(weights.chunks_exact(count)) {
                *weight = row[index];
            }
            // Whole rows, then whole tiles: small batches spend as much time here as on their products.
            for row in line[..used].chunks_exact_mut(self.features.max(1)) {
                row.copy_from_slice(&one);
            }
            for (tile, lanes) in line.as_chunks::<LANES>().0.iter().enumerate() {
                spread[tile * count + index] = *lanes;
            }
        }
        spread
    }

    /// The transpose of [`spread`](Self::spread): adds the lanes of each feature.
    pub fn gather<T: Real>(&self, spread: &[Lanes<T>], count: usize) -> Vec<T> {
        let mut sums = vec![T::zero(); self.features * count];
        let used = self.rows * self.features;
        let (mut one, mut line) = (vec![T::zero(); self.features], vec![T::zero(); self.padded()]);
        for index in 0..count {
            for (tile, lanes) in line.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                *lanes = spread[tile * count + index];
            }
            one.fill(T::zero());
            for row in line[..used].chunks_exact(self.features.max(1)) {
                for (sum, &value) in one.iter_mut().zip(row) {
                    *sum += value;
                }
            }
            for (row, &sum) in sums.chunks_exact_mut(count).zip(&one) {
                row[index] = sum;
            }
        }
        sums
    }
}

/// The part of an array `[blades, batch, features]` that belongs to one chunk, for reading.
#[derive(Clone, Copy)]
pub(crate) struct Lines<'a, T> {
    data: &'a [T],
    stride: usize,
    start: usize,
}

impl<'a, T: Real> Lines<'a, T> {
    pub fn new(data: &'a [T], layout: &Layout, chunk: usize) -> Self {
        Self { data, stride: layout.line(), start: chunk * layout.chunk_len() }
    }

    /// The rows of a chunk in an array `[blades, batch, features]` with features of its own.
    pub fn of_features(data: &'a [T], layout: &Layout, chunk: usize, features: usize) -> Self {
        Self { data, stride: layout.batch * features, start: chunk * layout.chunk * features }
    }

    /// A chunk held by itself, `len` elements per blade.
    pub fn local(data: &'a [T], len: usize) -> Self {
        Self { data, stride: len, start: 0 }
    }

    /// `len` elements of `blade` from `position` within the chunk.
    #[inline(always)]
    pub fn get(&self, blade: usize, position: usize, len: usize) -> &'a [T] {
        &self.data[blade * self.stride + self.start + position..][..len]
    }

    /// Up to [`LANES`] elements; missing ones are zero.
    #[inline(always)]
    pub fn load(&self, blade: usize, position: usize, len: usize) -> Lanes<T> {
        load(self.get(blade, position, len))
    }
}

/// Up to [`LANES`] elements; missing ones are zero.
#[inline(always)]
pub(crate) fn load<T: Real>(source: &[T]) -> Lanes<T> {
    if let Some(full) = source.first_chunk::<LANES>() {
        return *full;
    }
    let mut lanes = [T::zero(); LANES];
    lanes[..source.len()].copy_from_slice(source);
    lanes
}

/// Stores the first `target.len()` lanes.
#[inline(always)]
pub(crate) fn store<T: Real>(target: &mut [T], lanes: &Lanes<T>) {
    if let Some(full) = target.first_chunk_mut::<LANES>() {
        *full = *lanes;
    } else {
        target.copy_from_slice(&lanes[..target.len()]);
    }
}

/// Splits an array `[blades, batch, features]` into chunks of rows: for each chunk, one slice per blade.
pub(crate) fn split_chunks<'a, T>(data: &'a mut [T], layout: &Layout) -> Vec<Vec<&'a mut [T]>> {
    let mut chunks: Vec<Vec<&'a mut [T]>> = (0..layout.chunks()).map(|_| Vec::new()).collect();
    if layout.line() == 0 {
        return chunks;
    }
    for line in data.chunks_mut(layout.line()) {
        for (chunk, part) in chunks.iter_mut().zip(line.chunks_mut(layout.chunk_len())) {
            chunk.push(part);
        }
    }
    chunks
}

/// Sums partial results pairwise in a fixed order: the result does not depend on the number of threads, and the rounding error grows only
/// with the logarithm of the number of partial results.
pub(crate) fn sum_partials<T: Real>(mut partials: Vec<Vec<T>>) -> Option<Vec<T>> {
    while partials.len() > 1 {
        let half = partials.len().div_ceil(2);
        let upper = partials.split_off(half);
        for (lower, upper) in partials.iter_mut().zip(upper) {
            for (sum, value) in lower.iter_mut().zip(upper) {
                *sum += value;
            }
        }
    }
    partials.pop()
}
