//! Names and arguments of the kernels of csrc/clifford/linear/few_to_many.cu.

pub(super) use crate::csrc::few_features::{LANES, MOST_GRADES, THREADS, matrix, sums};

/// A function of the kernels for the widths 1, 3, 4 and 8 of the narrow side, on single elements and packs of 4, and on packs of 16 bits
/// with all the rest in f32.
pub(super) type Names = [[&'static str; 3]; 4];

macro_rules! names {
    ($function:literal, $($width:literal)*) => {
        [$([
            concat!("mv_linear_", $function, "_", $width, "x1"),
            concat!("mv_linear_", $function, "_", $width, "x4"),
            concat!("mv_linear_", $function, "_", $width, "x4_with_f32"),
        ]),*]
    };
}

pub(super) const WIDTHS: [usize; 4] = [1, 3, 4, 8];
pub(super) const SPREAD: Names = names!("few_to_many", 1 3 4 8);
pub(super) const SUMS: Names = names!("weight_grad", 1 3 4 8);
/// For a power of two.
pub(super) const COLLECT: Names = names!("many_to_few", 1 4 4 8);
/// Sums and spread in one launch, not for the widest.
pub(super) const BOTH: [[&str; 3]; 3] = names!("grads", 1 3 4);

/// `FewFeaturesMap` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::NoUninit)]
pub(super) struct Map {
    pub few: u64,
    pub many: u64,
    pub few_out: u64,
    pub many_out: u64,
    pub w: u64,
    pub bias: u64,
    pub sums: u64,
    pub batch: u64,
    pub biased: u64,
    pub grade_step: u64,
    pub few_step: u64,
    pub many_step: u64,
    pub gradients: u64,
    pub bias_at: u64,
    pub few_features: i32,
    pub many_features: i32,
    pub packs: i32,
    pub bias_side: i32,
    pub first: [i32; MOST_GRADES + 1],
}

/// `BiasSide` of the kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BiasSide {
    None,
    Few,
    Many,
}
