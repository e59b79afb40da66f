//! Algebras as types: the compiler knows the tables and unrolls the products.

use crate::{
    Result, Scalar, Signature,
    blade::{Rule, order_blades, product_sign},
    clifford::{CliffordAlgebra, TypeLevel, sealed::Sealed},
};
use core::{array, marker::PhantomData};

/// The Clifford algebra with `P` generators squaring to +1, `Q` to −1 and `R` to 0, as a type without a value to carry.
///
/// It is a [`CliffordAlgebra`] for P + Q + R ≤ 8; more generators do not compile:
///
/// ```compile_fail
/// use gradewise_core::{Cl, Multivector};
/// let too_many = Multivector::<Cl<9, 0, 0>, f64>::zero();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cl<const P: u8, const Q: u8, const R: u8>;

/// Cl(2,0,0), the plane.
pub type Cl2 = Cl<2, 0, 0>;
/// Cl(3,0,0), Euclidean space.
pub type Cl3 = Cl<3, 0, 0>;
/// Cl(4,0,0), Euclidean space of four dimensions.
pub type Cl4 = Cl<4, 0, 0>;
/// Cl(5,0,0), Euclidean space of five dimensions.
pub type Cl5 = Cl<5, 0, 0>;
/// Cl(1,3,0), the space-time algebra with the metric (+,−,−,−).
pub type Sta = Cl<1, 3, 0>;
/// Cl(2,0,1), projective geometric algebra of the plane; e3 is the null generator.
pub type Pga2 = Cl<2, 0, 1>;
/// Cl(3,0,1), projective geometric algebra of space; e4 is the null generator.
pub type Pga3 = Cl<3, 0, 1>;
/// Cl(4,1,0), conformal geometric algebra of space.
pub type Cga3 = Cl<4, 1, 0>;

/// The order of the N blades, which depends on N alone.
struct Order<const N: usize>;

impl<const N: usize> Order<N> {
    const TABLES: ([u16; N], [u16; N]) = {
        let (mut masks, mut positions) = ([0; N], [0; N]);
        order_blades(&mut masks, &mut positions);
        (masks, positions)
    };
}

/// The terms of one product.
struct Terms<Kept, const N: usize, const P: u8, const Q: u8, const R: u8>(PhantomData<Kept>);

impl<Kept: Rule, const N: usize, const P: u8, const Q: u8, const R: u8> Terms<Kept, N, P, Q, R> {
    /// The index of the right blade and the sign of the term, 0 where there is none; `TABLE[left][out]`.
    const TABLE: [[(u8, i8); N]; N] = {
        let (masks, positions) = Order::<N>::TABLES;
        let mut terms = [[(0, 0); N]; N];
        let mut out = 0;
        while out < N {
            let mut left = 0;
            while left < N {
                let (a, b) = (masks[left], masks[left] ^ masks[out]);
                let sign = product_sign(Signature::new(P, Q, R), a, b);
                terms[left][out] =
                    (positions[b as usize] as u8, if Kept::PRODUCT.keeps(a, b) { sign } else { 0 });
                left += 1;
            }
            out += 1;
        }
        terms
    };
}

/// One coefficient of the product.
#[inline(always)]
fn coefficient<T: Scalar, const N: usize>(
    terms: &[[(u8, i8); N]; N],
    left: &[T; N],
    right: &[T; N],
    out: usize,
) -> T {
    let mut sum = T::zero();
    for (a, row) in left.iter().zip(terms) {
        add_term(&mut sum, a, right, row[out]);
    }
    sum
}

#[inline(always)]
fn add_term<T: Scalar, const N: usize>(sum: &mut T, a: &T, right: &[T; N], (b, sign): (u8, i8)) {
    match sign {
        1 => *sum += a.clone() * right[b as usize].clone(),
        -1 => *sum -= a.clone() * right[b as usize].clone(),
        _ => {}
    }
}

/// The product on arrays. `P + Q + R = log₂ N`.
#[inline]
fn product<Kept: Rule, T: Scalar, const N: usize, const P: u8, const Q: u8, const R: u8>(
    left: &[T; N],
    right: &[T; N],
) -> [T; N] {
    let terms = &Terms::<Kept, N, P, Q, R>::TABLE;
    let mut product = array::from_fn(|_| T::zero());
    // Up to 16 blades the coefficients are written out, so that the optimizer meets each with a constant index and
    // folds the table away; it does not unroll two nested loops by itself.
    macro_rules! coefficients {
        ($($out:literal)*) => {
            $(if $out < N {
                product[$out] = coefficient(terms, left, right, $out);
            })*
        };
    }
    if N <= 16 {
        coefficients!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    } else {
        for (a, row) in left.iter().zip(terms) {
            for (sum, &term) in product.iter_mut().zip(row) {
                add_term(sum, a, right, term);
            }
        }
    }
    product
}

impl<const P: u8, const Q: u8, const R: u8> Sealed for Cl<P, Q, R> {}

macro_rules! implement {
    ($p:literal, $q:literal, $r:literal) => {
        impl CliffordAlgebra for Cl<$p, $q, $r> {
            type Coefficients<T: Scalar> = [T; 1 << ($p + $q + $r)];
            type Checked<X> = X;

            #[inline]
            fn signature(&self) -> Signature {
                Self::SIGNATURE
            }

            #[inline]
            fn into_result<X>(checked: X) -> Result<X> {
                Ok(checked)
            }

            #[inline]
            fn checked<X>(&self, _: &Self, _: &'static str, operation: impl FnOnce() -> X) -> X {
                operation()
            }

            #[inline]
            fn masks(&self) -> &[u16] {
                &Order::<{ 1 << ($p + $q + $r) }>::TABLES.0
            }

            #[inline]
            fn positions(&self) -> &[u16] {
                &Order::<{ 1 << ($p + $q + $r) }>::TABLES.1
            }

            #[inline]
            fn coefficients<T: Scalar>(&self, coefficient: impl FnMut(usize) -> T) -> Self::Coefficients<T> {
                array::from_fn(coefficient)
            }

            #[inline]
            fn product<Kept: Rule, T: Scalar>(
                &self,
                left: &Self::Coefficients<T>,
                right: &Self::Coefficients<T>,
            ) -> Self::Coefficients<T> {
                product::<Kept, T, { 1 << ($p + $q + $r) }, $p, $q, $r>(left, right)
            }
        }

        impl TypeLevel for Cl<$p, $q, $r> {
            const SIGNATURE: Signature = Signature::new($p, $q, $r);
            const ALGEBRA: Self = Self;

            #[inline]
            fn unwrap<X>(checked: X) -> X {
                checked
            }
        }
    };
}

/// Implements the traits for every (p, q, r) with p + q + r ≤ 8.
///
/// Stable Rust cannot size an array by `1 << (P + Q + R)` of generic parameters, so each algebra has an
/// implementation of its own; the lists of q and r grow by one while p and q shrink by one.
macro_rules! every_signature {
    (p: [] $qs:tt $more:tt) => {};
    (p: [$p:literal $($ps:literal)*] [$($qs:literal)*] [$next:literal $($more:literal)*]) => {
        every_signature!(q: $p [$next $($qs)*] [] [0 1 2 3 4 5 6 7 8]);
        every_signature!(p: [$($ps)*] [$next $($qs)*] [$($more)*]);
    };
    (q: $p:literal [] $rs:tt $more:tt) => {};
    (q: $p:literal [$q:literal $($qs:literal)*] [$($rs:literal)*] [$next:literal $($more:literal)*]) => {
        implement!($p, $q, $next);
        $(implement!($p, $q, $rs);)*
        every_signature!(q: $p [$($qs)*] [$next $($rs)*] [$($more)*]);
    };
}

every_signature!(p: [8 7 6 5 4 3 2 1 0] [] [0 1 2 3 4 5 6 7 8]);
