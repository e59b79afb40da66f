//! mv_normalization on the CPU.

use crate::{
    ops::clifford::{
        lanewise::Lanewise,
        program::Programs,
        tile::{Tile, normalize, normalize_gradient},
    },
    simd::{Lanes, Real, map},
};

/// x⁽ᵏ⁾ / (σ(a_k)(‖x⁽ᵏ⁾‖ − 1) + 1 + 1e-6).
pub(crate) struct MvNormalization;

/// More grades than any algebra has.
const MAX_GRADES: usize = gradewise_core::MAX_DIMENSION + 1;

/// σ(a_k) of each grade.
#[inline(always)]
fn sigmoids<T: Real, const FMA: bool>(params: &[Lanes<T>]) -> [Lanes<T>; MAX_GRADES] {
    let mut s = [[T::zero(); crate::simd::LANES]; MAX_GRADES];
    for (s, a) in s.iter_mut().zip(params) {
        *s = map(a, |a| a.sigmoid::<FMA>());
    }
    s
}

impl<T: Real> Lanewise<T> for MvNormalization {
    #[inline(always)]
    fn forward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &mut Tile<T, BLADES>,
    ) {
        let s = sigmoids::<T, FMA>(params);
        normalize::<T, FMA, BLADES>(tables, x, &s[..params.len()]);
    }

    #[inline(always)]
    fn backward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        grad: &mut Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    ) {
        let s = sigmoids::<T, FMA>(params);
        normalize_gradient::<T, FMA, BLADES>(tables, x, &s[..params.len()], grad, sums);
    }
}
