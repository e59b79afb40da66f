//! Coefficients by the names of their blades.

use super::Multivector;
use crate::{Blade, CliffordAlgebra, Error, Result, Scalar, TypeLevel};
use core::ops::{Index, IndexMut};

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The coefficient of `blade`, or `None` if the algebra has no such blade.
    #[inline]
    pub fn get(&self, blade: Blade) -> Option<&T> {
        let position = *self.algebra.positions().get(usize::from(blade.mask()))?;
        self.coefficients().get(usize::from(position))
    }

    /// The coefficient of `blade`, to be changed, or `None` if the algebra has no such blade.
    #[inline]
    pub fn get_mut(&mut self, blade: Blade) -> Option<&mut T> {
        let position = *self.algebra.positions().get(usize::from(blade.mask()))?;
        self.coefficients_mut().get_mut(usize::from(position))
    }

    /// `value` times `blade`, in `algebra`.
    ///
    /// # Errors
    /// [`Error::NoSuchBlade`] if `algebra` has no such blade.
    pub fn basis_in(algebra: &A, blade: Blade, value: T) -> Result<Self> {
        let mut result = Self::zero_in(algebra);
        let signature = algebra.signature();
        match result.get_mut(blade) {
            Some(coefficient) => *coefficient = value,
            None => {
                return Err(Error::NoSuchBlade { operation: "multivector from a blade", blade, signature });
            }
        }
        Ok(result)
    }
}

/// The coefficient of a blade.
///
/// # Panics
/// If the algebra has no such blade, as with any index out of range; [`Multivector::get`] does not.
impl<A: CliffordAlgebra, T: Scalar> Index<Blade> for Multivector<A, T> {
    type Output = T;

    #[inline]
    fn index(&self, blade: Blade) -> &T {
        match self.get(blade) {
            Some(coefficient) => coefficient,
            None => panic!("{} has no blade {blade}", self.algebra.signature()),
        }
    }
}

impl<A: CliffordAlgebra, T: Scalar> IndexMut<Blade> for Multivector<A, T> {
    #[inline]
    fn index_mut(&mut self, blade: Blade) -> &mut T {
        let signature = self.algebra.signature();
        match self.get_mut(blade) {
            Some(coefficient) => coefficient,
            None => panic!("{signature} has no blade {blade}"),
        }
    }
}

macro_rules! coefficients {
    ($($method:ident $blade:ident)*) => {
        /// Coefficients by name, of algebras up to five generators. A blade that the algebra does not have does not
        /// compile:
        ///
        /// ```compile_fail
        /// use gradewise_core::{Cl3, Multivector};
        /// let x = Multivector::<Cl3, f64>::zero().e14();
        /// ```
        impl<A: TypeLevel, T: Scalar> Multivector<A, T> {
            $(
                #[doc = concat!("The coefficient of `", stringify!($method), "`.")]
                #[inline]
                pub fn $method(&self) -> T {
                    const { assert!(Blade::$blade.dimension() <= A::SIGNATURE.dimension(), "the algebra has this blade") };
                    self[Blade::$blade].clone()
                }
            )*
        }
    };
}

coefficients! {
    e1 E1 e2 E2 e3 E3 e4 E4 e5 E5
    e12 E12 e13 E13 e14 E14 e15 E15 e23 E23 e24 E24 e25 E25 e34 E34 e35 E35 e45 E45
    e123 E123 e124 E124 e125 E125 e134 E134 e135 E135 e145 E145 e234 E234 e235 E235 e245 E245 e345 E345
    e1234 E1234 e1235 E1235 e1245 E1245 e1345 E1345 e2345 E2345
    e12345 E12345
}
