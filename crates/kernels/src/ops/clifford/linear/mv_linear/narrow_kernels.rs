//! Names, sizes and arguments of the kernels of csrc/clifford/linear/narrow.cu.

/// Most features of either side, and most groups of rows, as in the kernels.
pub(super) const MOST_FEATURES: usize = 32;
pub(super) const MOST_GROUPS: usize = 15;

/// Threads of a block of products and of one of sums, and most rows of a tile, as in the kernels.
pub(super) const PRODUCT_THREADS: usize = 128;
pub(super) const SUM_THREADS: usize = 256;
pub(super) const MOST_ROWS: usize = 256;

/// Elements of a pack of 16 bytes, and of a side of the patch of a matrix that a thread of a sum has.
pub(super) const PACK: usize = 4;

/// Results to a row that a product has room for, and its kernels for short sums and for others.
pub(super) const WIDTHS: [usize; 5] = [8, 12, 16, 24, 32];
pub(super) const SHORT_PRODUCTS: [&str; 5] = [
    "mv_linear_narrow_short_8",
    "mv_linear_narrow_short_12",
    "mv_linear_narrow_short_16",
    "mv_linear_narrow_short_24",
    "mv_linear_narrow_short_32",
];
pub(super) const LONG_PRODUCTS: [&str; 5] = [
    "mv_linear_narrow_long_8",
    "mv_linear_narrow_long_12",
    "mv_linear_narrow_long_16",
    "mv_linear_narrow_long_24",
    "mv_linear_narrow_long_32",
];
pub(super) const SUMS: &str = "mv_linear_narrow_grad";

/// Elements from a row in shared memory to the next.
pub(super) const fn pitch(features: usize) -> usize {
    (features.div_ceil(PACK) | 1) * PACK
}

/// `NarrowMap` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::NoUninit)]
pub(super) struct Map {
    pub x: u64,
    pub out: u64,
    pub w: u64,
    pub bias: u64,
    pub batch: u64,
    pub biased: u64,
    pub inputs: i32,
    pub outputs: i32,
    pub in_step: i32,
    pub out_step: i32,
    pub packs_in: i32,
    pub packs_out: i32,
    pub adds: i32,
    pub groups: i32,
    pub first: [i32; MOST_GROUPS + 1],
    pub tiles: [i32; MOST_GROUPS + 1],
}

/// `NarrowGradients` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::NoUninit)]
pub(super) struct Sums {
    pub x: u64,
    pub grad: u64,
    pub sums: u64,
    pub batch: u64,
    pub biased: u64,
    pub count: u64,
    pub bias_at: u64,
    pub inputs: i32,
    pub outputs: i32,
    pub packs_in: i32,
    pub packs_out: i32,
    pub rows: i32,
    pub unused: i32,
    pub first: [i32; MOST_GROUPS + 1],
}
