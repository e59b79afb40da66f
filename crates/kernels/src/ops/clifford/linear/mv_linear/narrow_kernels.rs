//! Names, sizes and arguments of the kernels of csrc/clifford/linear/narrow.cu.

pub(super) use crate::csrc::narrow_map::{
    MOST_FEATURES, MOST_GROUPS, MOST_ROWS, PACK, PRODUCT_THREADS, SUM_THREADS, pitch, product,
    rows_of_thread, sums,
};

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
