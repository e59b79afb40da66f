//! Choices that change how fast an operator is, not what it computes.
//!
//! Matrix products on devices of compute capability 9.0 can be computed in tiles of several shapes. Which one is fastest depends on sizes
//! and layouts. In order of precedence, the tile comes from [`Tile::scope`]; from a [`Table`] of measurements, which is read from the file
//! that `GRADEWISE_TUNING` names when a device is opened, or given to [`Table::install`]; or from the library's estimate, which takes no
//! time and is nearly always right. A different tile adds in a different order: results may differ in their last bits between tables, never
//! between runs with one.

mod table;

pub use table::{Choice, Layout, Shape, Table, TableError};

use crate::csrc::hopper_tile;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
};

thread_local! {
    static TILE: Cell<Option<Tile>> = const { Cell::new(None) };
    static RECORD: RefCell<Option<BTreeSet<Shape>>> = const { RefCell::new(None) };
}

/// Runs `work`, and returns the products of this thread that had a choice of tiles.
pub fn record<R>(work: impl FnOnce() -> R) -> (R, BTreeSet<Shape>) {
    let before = RECORD.replace(Some(BTreeSet::new()));
    let result = work();
    (result, RECORD.replace(before).unwrap_or_default())
}

/// A tile of a matrix product: what a block computes at a time, and how many blocks share an operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
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

    /// Threads of a block, of every tile.
    pub const THREADS: u32 = hopper_tile::THREADS as u32;

    const fn new(columns: usize, cluster: usize, stages: usize) -> Self {
        Self { rows: 128, columns, cluster, stages }
    }

    /// A tile that is none of [`ALL`](Self::ALL), of a kernel for something other than matrix products.
    pub(crate) const fn alone(rows: usize, columns: usize, stages: usize) -> Self {
        Self { rows, columns, cluster: 1, stages }
    }

    /// Bytes of shared memory of a block: `stages` buffers of 128 bytes for each row and column, results on their way out, and barriers.
    ///
    /// ```
    /// use gradewise_kernels::tuning::Tile;
    /// assert!(Tile::ALL.iter().all(|tile| tile.shared_bytes() <= 227 << 10), "what a block of compute capability 9.0 may have");
    /// ```
    #[must_use]
    pub const fn shared_bytes(self) -> usize {
        hopper_tile::shared(self.rows, self.columns, self.stages, 1)
    }

    /// The tile of exact `f32` products (csrc/mma/hopper_exact.cuh), of which there is one kernel for each layout.
    pub(crate) const EXACT: Self = Self::ALL[2];

    /// Bytes of shared memory of kernels of exact products, whose buffers have the second operand twice.
    pub(crate) const fn exact_shared_bytes(self) -> usize {
        hopper_tile::shared(self.rows, self.columns, hopper_tile::EXACT_STAGES, hopper_tile::EXACT_COPIES)
    }

    /// The dynamic shared memory of a kernel of matrix products by tiles.
    pub(crate) fn shared_bytes_of_kernel(kernel: &str) -> Option<usize> {
        if kernel.starts_with("gw_matmul_hopper_exact_") {
            return Some(Self::EXACT.exact_shared_bytes());
        }
        Self::of_kernel(kernel).map(Self::shared_bytes)
    }

    /// The tile that a kernel such as `gw_matmul_hopper_kk_256_2_f32` computes.
    #[must_use]
    pub fn of_kernel(kernel: &str) -> Option<Self> {
        let mut words = kernel.strip_prefix("gw_matmul_hopper_")?.split('_').skip(1);
        let mut number = || words.next()?.parse().ok();
        let (columns, cluster): (usize, usize) = (number()?, number()?);
        Self::ALL.into_iter().find(|tile| (tile.columns, tile.cluster) == (columns, cluster))
    }

    /// Runs `f` with this tile for every product of this thread that tiles can compute, whatever is fastest.
    pub fn scope<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Tile>);
        impl Drop for Restore {
            fn drop(&mut self) {
                TILE.set(self.0);
            }
        }
        let _restore = Restore(TILE.replace(Some(self)));
        f()
    }

    /// The tile in force in this thread for a product on a device of this name.
    pub(crate) fn chosen(device: &str, shape: &Shape) -> Option<Self> {
        RECORD.with_borrow_mut(|record| record.as_mut().map(|shapes| shapes.insert(*shape)));
        TILE.get().or_else(|| Table::installed(device, shape))
    }
}

impl std::fmt::Display for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.rows, self.columns, self.cluster)
    }
}

impl std::str::FromStr for Tile {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Self, TableError> {
        let found = Self::ALL.into_iter().find(|tile| tile.to_string() == text);
        found.ok_or_else(|| TableError::Tile { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_core::DType;

    #[test]
    fn kernels_name_their_tiles() {
        assert_eq!(Tile::of_kernel("gw_matmul_hopper_mkt_256_1_f32"), Some(Tile::ALL[1]));
        assert_eq!(Tile::of_kernel("gw_matmul_hopper_kk_128_1_bf16"), Some(Tile::ALL[2]));
        assert_eq!(Tile::of_kernel("gw_matmul_hopper_kk_64_1_bf16"), None);
        assert_eq!(Tile::of_kernel("gw_matmul_warp_nn_l_f32"), None);
        assert_eq!(
            Tile::shared_bytes_of_kernel("gw_matmul_hopper_kk_256_1_f32"),
            Some(Tile::ALL[1].shared_bytes())
        );
        assert_eq!(Tile::shared_bytes_of_kernel("gw_matmul_hopper_exact_kk_128_1_f32"), Some(230_400));
        assert_eq!(Tile::shared_bytes_of_kernel("gw_matmul_short_nn_f32"), None);
    }

    #[test]
    fn a_scope_goes_before_the_table_and_both_are_recorded() {
        let shape = Shape { dtype: DType::F16, layout: Layout::Nt, m: 1, n: 2, k: 3, count: 4, segments: 5 };
        let chosen = || Tile::chosen("some device", &shape);
        let (none, shapes) = record(chosen);
        assert_eq!((none, shapes), (None, BTreeSet::from([shape])));
        let mut table = Table::default();
        table.set("some device", Choice { shape, tile: Tile::ALL[1] });
        table.install();
        assert_eq!(chosen(), Some(Tile::ALL[1]));
        assert_eq!(Tile::ALL[2].scope(chosen), Some(Tile::ALL[2]));
        assert_eq!(Tile::chosen("another device", &shape), None);
        let (_, inner) = record(|| record(chosen).1);
        assert!(inner.is_empty(), "the inner record has it");
        Table::default().install();
        assert_eq!(chosen(), None);
    }
}
