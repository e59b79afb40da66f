//! Choices that change how fast an operator is, not what it computes.
//!
//! Matrix products on devices of compute capability 9.0 can be computed in tiles of several shapes. Which one is fastest depends
//! on sizes and layouts; the library estimates it. [`Tile::scope`] overrides the estimate, for measuring.

use std::cell::Cell;

thread_local! {
    static TILE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A tile of a matrix product: what a block computes at a time, and how many blocks share an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Tile {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Blocks of a cluster, which share the tile of the second operand.
    pub cluster: usize,
    /// Steps along the sum that are in flight.
    pub stages: usize,
}

impl Tile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::new(256, 2, 4), Self::new(256, 1, 4), Self::new(128, 1, 5)];

    const fn new(columns: usize, cluster: usize, stages: usize) -> Self {
        Self { rows: 128, columns, cluster, stages }
    }

    /// Bytes of shared memory of a block: `stages` buffers of 128 bytes for each row and column, two of 16 KiB for results on
    /// their way out, and what is needed to start at a multiple of 1024.
    ///
    /// ```
    /// use gradewise_kernels::tuning::Tile;
    /// assert!(Tile::ALL.iter().all(|tile| tile.shared_bytes() <= 227 << 10), "what a block of compute capability 9.0 may have");
    /// ```
    #[must_use]
    pub const fn shared_bytes(self) -> usize {
        self.stages * (self.rows + self.columns) * 128 + (32 << 10) + 1024
    }

    /// Runs `f` with this tile for every product of this thread that tiles can compute, whatever is fastest.
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<usize>);
        impl Drop for Restore {
            fn drop(&mut self) {
                TILE.set(self.0);
            }
        }
        let _restore = Restore(TILE.replace(Self::ALL.iter().position(|tile| *tile == self)));
        f()
    }

    /// The number in [`ALL`](Self::ALL) of the tile that was asked for.
    pub(crate) fn forced() -> Option<usize> {
        TILE.get()
    }
}
