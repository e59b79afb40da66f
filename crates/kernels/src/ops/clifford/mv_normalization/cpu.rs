//! mv_normalization on the CPU.

use crate::{
    ops::clifford::{
        lanewise::Lanewise,
        program::Programs,
        tile::{Tile, normalize, normalize_gradient},
    },
    simd::{Lanes, Real},
};

/// x⁽ᵏ⁾ / (σ(a_k)(‖x⁽ᵏ⁾‖ − 1) + 1 + 1e-6). Its parameters are σ(a_k) and σ(−a_k).
pub(crate) struct MvNormalization;

impl<T: Real> Lanewise<T> for MvNormalization {
    #[inline(always)]
    fn forward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        out: &mut Tile<T, BLADES>,
    ) {
        normalize::<T, FMA, BLADES>(tables, x, params, out);
    }

    #[inline(always)]
    fn backward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        grad: &mut Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    ) {
        normalize_gradient::<T, FMA, BLADES>(tables, x, params, grad, sums);
    }
}
