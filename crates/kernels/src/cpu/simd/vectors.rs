//! Vector registers by name, for code that must stay in them: straight-line programs and matrix products.

use super::{LANES, Lanes};
use crate::Element;
use pulp::Simd;

/// A type whose elements fill the vector registers of an instruction set `S`.
///
/// Every function is compiled for `S` where it is inlined into a kernel that [`dispatch`](super::dispatch) runs.
pub trait Vectors: Element {
    /// A register of elements.
    type Vector<S: Simd>: Copy;

    /// The registers of a tile.
    fn parts<S: Simd>(lanes: &Lanes<Self>) -> &[Self::Vector<S>];

    /// As [`parts`](Self::parts), to write.
    fn parts_mut<S: Simd>(lanes: &mut Lanes<Self>) -> &mut [Self::Vector<S>];

    /// Elements of a register.
    fn width<S: Simd>() -> usize {
        size_of::<Self::Vector<S>>() / size_of::<Self>()
    }

    /// Registers of a tile.
    fn count<S: Simd>() -> usize {
        LANES / Self::width::<S>()
    }

    /// The first elements of `source`, as many as a register holds; missing ones are zero.
    fn load<S: Simd>(simd: S, source: &[Self]) -> Self::Vector<S>;

    /// Stores the first elements of a register, as many as `target` takes.
    fn store<S: Simd>(simd: S, target: &mut [Self], value: Self::Vector<S>);

    /// The first elements of `source`, which holds at least a register of them: one instruction, where [`load`](Self::load) branches.
    ///
    /// # Panics
    /// If `source` is shorter than a register.
    fn load_whole<S: Simd>(source: &[Self]) -> Self::Vector<S>;

    /// Stores a register as the first elements of `target`, which holds at least as many.
    ///
    /// # Panics
    /// If `target` is shorter than a register.
    fn store_whole<S: Simd>(target: &mut [Self], value: Self::Vector<S>);

    /// The same value in each element.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;

    /// a + b.
    fn plus<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// a·b.
    fn multiply<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// −a.
    fn negate<S: Simd>(simd: S, a: Self::Vector<S>) -> Self::Vector<S>;

    /// a·b + c, fused where that is one instruction.
    fn multiply_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
}

macro_rules! implement {
    ($type:ty, $vector:ident, $slices:ident, $slices_mut:ident, $load:ident, $store:ident, $splat:ident, $add:ident, $multiply:ident,
     $negate:ident, $multiply_add:ident) => {
        impl Vectors for $type {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn parts<S: Simd>(lanes: &Lanes<Self>) -> &[S::$vector] {
                S::$slices(lanes).0
            }

            #[inline(always)]
            fn parts_mut<S: Simd>(lanes: &mut Lanes<Self>) -> &mut [S::$vector] {
                S::$slices_mut(lanes).0
            }

            #[inline(always)]
            fn load<S: Simd>(simd: S, source: &[Self]) -> S::$vector {
                simd.$load(source)
            }

            #[inline(always)]
            fn store<S: Simd>(simd: S, target: &mut [Self], value: S::$vector) {
                simd.$store(target, value);
            }

            #[inline(always)]
            fn load_whole<S: Simd>(source: &[Self]) -> S::$vector {
                S::$slices(source).0[0]
            }

            #[inline(always)]
            fn store_whole<S: Simd>(target: &mut [Self], value: S::$vector) {
                S::$slices_mut(target).0[0] = value;
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }

            #[inline(always)]
            fn plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }

            #[inline(always)]
            fn multiply<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$multiply(a, b)
            }

            #[inline(always)]
            fn negate<S: Simd>(simd: S, a: S::$vector) -> S::$vector {
                simd.$negate(a)
            }

            #[inline(always)]
            fn multiply_add<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
                simd.$multiply_add(a, b, c)
            }
        }
    };
}

implement!(
    f32,
    f32s,
    as_simd_f32s,
    as_mut_simd_f32s,
    partial_load_f32s,
    partial_store_f32s,
    splat_f32s,
    add_f32s,
    mul_f32s,
    neg_f32s,
    mul_add_e_f32s
);
implement!(
    f64,
    f64s,
    as_simd_f64s,
    as_mut_simd_f64s,
    partial_load_f64s,
    partial_store_f64s,
    splat_f64s,
    add_f64s,
    mul_f64s,
    neg_f64s,
    mul_add_e_f64s
);
