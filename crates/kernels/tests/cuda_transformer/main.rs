//! The steps of geometric-algebra transformers on feature planes, on a GPU.

#[path = "../common/mod.rs"]
mod common;
mod equi_linear;
mod norms;

use equi_linear::{few_rows_take_one_launch_forward_and_three_backward, maps_agree_with_double_precision};
use norms::{channel_norms_agree_with_double_precision, joint_norms_agree_with_double_precision};

gradewise_testing::main!(
    maps_agree_with_double_precision,
    few_rows_take_one_launch_forward_and_three_backward,
    channel_norms_agree_with_double_precision,
    joint_norms_agree_with_double_precision,
);
