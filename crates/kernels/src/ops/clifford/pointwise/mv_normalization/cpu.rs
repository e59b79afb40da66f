//! mv_normalization and cs_grade_norm on the CPU.

use crate::{
    cpu::simd::{Lanes, Real},
    ops::clifford::algebra::{
        lanewise::Lanewise,
        program::Programs,
        tile::{Tile, normalize, normalize_gradient},
    },
};

/// x⁽ᵏ⁾ / (σ(a_k)(‖x⁽ᵏ⁾‖ − 1) + 1 + 1e-6). Its parameters are σ(a_k) and σ(−a_k). With CLAMPED, norms are 0.1 at least.
pub(crate) struct MvNormalization<const CLAMPED: bool>;

impl<T: Real, const CLAMPED: bool> Lanewise<T> for MvNormalization<CLAMPED> {
    #[inline(always)]
    fn forward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        out: &mut Tile<T, BLADES>,
    ) {
        normalize::<T, FMA, BLADES, CLAMPED>(tables, x, params, out);
    }

    #[inline(always)]
    fn backward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        grad: &mut Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    ) {
        normalize_gradient::<T, FMA, BLADES, CLAMPED>(tables, x, params, grad, sums);
    }
}
