//! The blocks that kernels of this library are launched with.

use crate::{
    ops::fields::convolution,
    runtime::{cuda, tuning::Tile},
};

/// The dynamic shared memory of a kernel of tiles, of [`Tile::THREADS`] threads: of matrix products, or of convolutions of fields.
#[must_use]
pub fn shared_bytes_of_kernel(kernel: &str) -> Option<usize> {
    Tile::shared_bytes_of_kernel(kernel).or_else(|| convolution::shared_bytes_of_kernel(kernel))
}

/// Threads of a block for a kernel of this library, such as `gw_attention_warp_fwd_64_bf16`: those of launches whose rows fill a block;
/// shorter rows may leave some out, and rows that are held in registers take up to four times as many where they are long.
#[must_use]
pub fn threads_of_kernel(kernel: &str) -> u32 {
    if let Some(launch) = cuda::image::launch(kernel) {
        return launch.threads;
    }
    let operation = kernel.strip_prefix("gw_").unwrap_or(kernel);
    let is = |prefixes: &[&str]| prefixes.iter().any(|prefix| operation.starts_with(prefix));
    let many_blades = blades(operation).is_some_and(|blades| blades > 16);
    match () {
        () if is(&["matmul_simt_", "matmul_short_", "matmul_warp_", "attention_warp_", "sgp_bwd_v"]) => 128,
        () if is(&["field_gather_", "field_gradient_"]) => 128,
        // A warpgroup that loads, beside two that compute, or three.
        () if operation.starts_with("attention_hopper_") && operation.contains("_bwd_q_64_") => 512,
        () if is(&["attention_hopper_", "field_hopper_"]) => 384,
        () if is(&["sort_tiles_"]) => 512,
        // A warpgroup of helpers beside those that compute.
        () if is(&["sgp_sm90_fwd_"]) && !many_blades => 512 + 128,
        () if is(&["sgp_sm90_"]) => 256 + 128,
        () if is(&["sgp_persistent_"]) && many_blades => 128,
        () if is(&["sgp_four_lanes_"]) => 512,
        () if operation.contains("_streamed_4_") => 128,
        () if operation.contains("_streamed_8_") => 512,
        () => 256,
    }
}

/// The blades of the algebra that a kernel is unrolled for: 2ⁿ for the `p_q_r` before its dtype.
fn blades(operation: &str) -> Option<u32> {
    let words: Vec<&str> = operation.split('_').collect();
    let [.., p, q, r, _] = words[..] else { return None };
    let number = |word: &str| word.parse::<u32>().ok();
    1u32.checked_shl(number(p)? + number(q)? + number(r)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn kernels_of_tiles_have_dynamic_shared_memory() {
        for kernel in ["gw_matmul_hopper_kk_256_1_f32", "gw_field_hopper_forward_192_f32"] {
            assert!(shared_bytes_of_kernel(kernel).is_some_and(|bytes| bytes > 100_000), "{kernel}");
        }
        assert_eq!(shared_bytes_of_kernel("gw_gate_fwd_f32"), None);
    }

    #[test]
    fn known_launches() {
        for (kernel, threads) in [
            ("gw_gate_fwd_f32", 256),
            ("gw_matmul_warp_nn_l_bf16", 128),
            ("gw_attention_hopper_fwd_64_f16", 384),
            ("gw_attention_hopper_bwd_q_64_f16", 512),
            ("gw_attention_hopper_bwd_kv_64_f16", 384),
            ("gw_attention_hopper_bwd_q_128_bf16", 384),
            ("gw_field_hopper_forward_192_f32", 384),
            ("gw_field_gradient_warp_bf16", 128),
            ("gw_field_depthwise_f32", 256),
            ("gw_sgp_fwd_v2_3_0_0_f32", 256),
            ("gw_sgp_bwd_v1_1_3_0_f32", 128),
            ("gw_sgp_persistent_fwd_3_0_0_f32", 256),
            ("gw_sgp_persistent_bwd_4_0_1_f32", 128),
            ("gw_sgp_four_lanes_bwd_5_0_0_f32", 512),
            ("gw_sgp_sm90_fwd_1_3_0_bf16", 640),
            ("gw_sgp_sm90_fwd_4_1_0_bf16", 384),
            ("gw_sgp_sm90_bwd_3_0_0_bf16", 384),
        ] {
            assert_eq!(threads_of_kernel(kernel), threads, "{kernel}");
        }
    }

    /// The bound in the source is what the compiler plans registers for: a launch takes as many threads, but for kernels whose bound
    /// only sets their registers.
    #[test]
    fn they_agree_with_the_bounds_in_the_sources() {
        let sources = gradewise_testing::manifest_dir!().join("../../csrc");
        let mut checked = 0;
        let rooms =
            ["block", "product", "linear", "pointwise"].map(|room| sources.join("clifford").join(room));
        let folders = ["ops", "fields", "mma"].map(|folder| sources.join(folder)).into_iter().chain(rooms);
        for entry in folders.flat_map(|folder| fs::read_dir(folder).unwrap()) {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            for part in text.split("__launch_bounds__(").skip(1) {
                let bound: String = part.chars().take_while(char::is_ascii_digit).collect();
                // A word in the middle of a name that the macro is given, such as `_exact`, may be missing.
                let after = part[..part.find('{').unwrap_or(part.len())].replace("##KIND##", "");
                let (Ok(bound), Some(at)) = (bound.parse::<u32>(), after.find("gw_")) else { continue };
                let name: String =
                    after[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                // Tiles of matrix products have numbers of their own.
                if name.is_empty() || name.starts_with("gw_matmul_hopper") {
                    continue;
                }
                assert_eq!(threads_of_kernel(&format!("{name}_f32")), bound, "{name}");
                checked += 1;
            }
        }
        assert!(checked > 50, "{checked} kernels were found");
    }
}
