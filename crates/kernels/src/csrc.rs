//! What kernels and launchers agree on, as the headers csrc/**/*_launch.cuh say: threads, tiles and shared memory, a module for each namespace.
//! The build translates them (build/launch_headers.rs), so that each number and formula stands once, beside its kernel.

include!(concat!(env!("OUT_DIR"), "/csrc.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, of shapes that are launched.
    #[test]
    fn formulas_say_what_kernels_are_launched_with() {
        assert_eq!(warp_tile::shared(128, 64, 0, 0, 4), 59_392);
        for transposed in [[0, 0], [0, 1], [1, 0]] {
            let [of_32_bits, of_16_bits] =
                [4, 2].map(|size| warp_tile::shared(64, 32, transposed[0], transposed[1], size));
            assert_eq!(of_32_bits, of_16_bits);
        }
        assert_eq!(warp_tile::shared(64, 32, 0, 1, 4), 30_720);
        assert_eq!(warp_tile::shared(128, 64, 1, 0, 4), 53_248);
        assert_eq!(hopper_tile::shared(128, 256, 4, 1), 230_400);
        assert_eq!(
            hopper_tile::shared(128, 96, hopper_tile::EXACT_STAGES, hopper_tile::EXACT_COPIES),
            197_632
        );
        assert_eq!(attention_simt::shared(0, 64, 4), (2 * 32 * 65 + 32 * 33) * 4);
        assert_eq!(attention_simt::shared(1, 64, 8), (3 * 16 * 65 + 16 * 17) * 8);
        assert_eq!(attention_hopper::backward_rows(0, 64), 192);
        assert_eq!(product_persistent::blocks(32, 0), 3);
        assert_eq!(narrow_map::pitch(5), 12);
        assert_eq!(heads::shared(2, 4, 10, 4), 32 + (2 * 4 * 11 + 1024 + 12) * 4 + 40);
        assert_eq!(block_simt::weights(16, 10, 32), 0);
        assert_eq!(streamed_rows::shared(2, 8, 100), 2 * 512 * 8 * 16 + 100);
    }
}
