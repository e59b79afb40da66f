//! mv_silu on the CPU.

use crate::{
    cpu::simd::{LANES, Lanes, Real, accumulate, mul_add},
    ops::clifford::algebra::{
        lanewise::Lanewise,
        program::Programs,
        tile::{Tile, quadratic_form},
    },
};

/// Grade k times σ(a_k·u_k + b_k), with u_0 the scalar part and u_k = q(x⁽ᵏ⁾) otherwise.
pub(crate) struct MvSilu;

/// u_k of each lane.
#[inline(always)]
fn invariant<T: Real, const FMA: bool, const BLADES: usize>(
    tables: &Programs,
    grade: usize,
    x: &Tile<T, BLADES>,
) -> Lanes<T> {
    if grade == 0 { x[0] } else { quadratic_form::<T, FMA, BLADES>(tables, grade, x) }
}

impl<T: Real> Lanewise<T> for MvSilu {
    #[inline(always)]
    fn forward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        out: &mut Tile<T, BLADES>,
    ) {
        let (a, b) = params.split_at(params.len() / 2);
        for (grade, (a, b)) in a.iter().zip(b).enumerate() {
            let mut s = invariant::<T, FMA, BLADES>(tables, grade, x);
            for lane in 0..LANES {
                s[lane] = mul_add::<T, FMA>(a[lane], s[lane], b[lane]).sigmoid::<FMA>();
            }
            for blade in tables.blades_of_grade[grade].clone() {
                let (x, out) = (&x[blade & (BLADES - 1)], &mut out[blade & (BLADES - 1)]);
                for lane in 0..LANES {
                    out[lane] = x[lane] * s[lane];
                }
            }
        }
    }

    #[inline(always)]
    fn backward<const FMA: bool, const BLADES: usize>(
        tables: &Programs,
        params: &[Lanes<T>],
        x: &Tile<T, BLADES>,
        grad: &mut Tile<T, BLADES>,
        sums: &mut [Lanes<T>],
    ) {
        let grades = params.len() / 2;
        let (a, b) = params.split_at(grades);
        let (sum_a, sum_b) = sums.split_at_mut(grades);
        for grade in 0..grades {
            let (a, b) = (&a[grade], &b[grade]);
            let u = invariant::<T, FMA, BLADES>(tables, grade, x);
            let mut dot = [T::zero(); LANES];
            for blade in tables.blades_of_grade[grade].clone() {
                accumulate::<T, FMA>(&mut dot, &grad[blade & (BLADES - 1)], &x[blade & (BLADES - 1)]);
            }
            let (mut s, mut pull) = ([T::zero(); LANES], [T::zero(); LANES]);
            for lane in 0..LANES {
                s[lane] = mul_add::<T, FMA>(a[lane], u[lane], b[lane]).sigmoid::<FMA>();
                let slope = s[lane] * (T::one() - s[lane]) * dot[lane];
                sum_a[grade][lane] = mul_add::<T, FMA>(slope, u[lane], sum_a[grade][lane]);
                sum_b[grade][lane] += slope;
                pull[lane] = slope * a[lane];
            }
            if grade == 0 {
                for lane in 0..LANES {
                    grad[0][lane] = mul_add::<T, FMA>(grad[0][lane], s[lane], pull[lane]);
                }
                continue;
            }
            for blade in tables.blades_of_grade[grade].clone() {
                let (x, grad) = (&x[blade & (BLADES - 1)], &mut grad[blade & (BLADES - 1)]);
                let twice_metric = T::narrow(2.0 * f64::from(tables.metric[blade]));
                for lane in 0..LANES {
                    grad[lane] = mul_add::<T, FMA>(pull[lane] * twice_metric, x[lane], grad[lane] * s[lane]);
                }
            }
        }
    }
}
