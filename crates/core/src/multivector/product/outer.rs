//! The outer product and its dual, the regressive product.

use crate::{
    CliffordAlgebra, Multivector, Scalar,
    blade::{Product, Rule},
};

/// The outer product.
pub struct Outer;

impl Rule for Outer {
    const PRODUCT: Product = Product::Outer;
    const NAME: &'static str = "outer product";
}

impl<A: CliffordAlgebra, T: Scalar> Multivector<A, T> {
    /// The outer (exterior) product a ∧ b = Σ ⟨⟨a⟩ⱼ⟨b⟩ₖ⟩ⱼ₊ₖ: the span of subspaces without a common direction.
    /// Independent of the metric.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn outer_product(&self, right: &Self) -> A::Checked<Self> {
        self.checked_product::<Outer>(right)
    }

    /// The [outer product](Self::outer_product) by its other name. `^` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    #[inline]
    pub fn wedge(&self, right: &Self) -> A::Checked<Self> {
        self.outer_product(right)
    }

    /// The regressive product a ∨ b: the intersection of subspaces that together span everything. It is the outer
    /// product seen through the complement, dual(a ∨ b) = dual(a) ∧ dual(b) with [`dual`](Self::dual), so it is
    /// independent of the metric, associative, and has the pseudoscalar as its unit.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    pub fn regressive_product(&self, right: &Self) -> A::Checked<Self> {
        self.algebra.checked(&right.algebra, "regressive product", || self.raw_regressive(right))
    }

    /// The [regressive product](Self::regressive_product) by its other name. `&` for type-level algebras.
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    pub fn vee(&self, right: &Self) -> A::Checked<Self> {
        self.regressive_product(right)
    }

    /// The intersection: the line in which two planes meet, the point in which a line meets a plane.
    ///
    /// Which product that is depends on what vectors stand for. In an algebra with null generators, which is how
    /// projective geometry is done here ([`pga3`](crate::pga3)), vectors are planes, and the meet is the outer product.
    /// In every other algebra vectors are directions or points ([`cga3`](crate::cga3)), and it is the regressive
    /// product. [`wedge`](Self::wedge) and [`vee`](Self::vee) are the products by name.
    ///
    /// ```
    /// use gradewise_core::{Cl3, Multivector, pga3};
    ///
    /// // Planes through the origin are bivectors of Cl(3,0,0).
    /// let [e1, e2, e3] = Multivector::<Cl3, f64>::generators();
    /// assert_eq!((e1 ^ e3).meet(&(e2 ^ e3)), e3);
    /// // Planes anywhere are vectors of Cl(3,0,1): x = 1, y = 2 and z = 3.
    /// let [x, y, z] = [pga3::plane(1, 0, 0, -1), pga3::plane(0, 1, 0, -2), pga3::plane(0, 0, 1, -3)];
    /// assert_eq!(pga3::coordinates(&x.meet(&y).meet(&z)), Ok([1, 2, 3]));
    /// ```
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    pub fn meet(&self, right: &Self) -> A::Checked<Self> {
        if self.vectors_are_hyperplanes() {
            self.outer_product(right)
        } else {
            self.regressive_product(right)
        }
    }

    /// The span: the line through two points, the plane through a line and a point. It is the regressive product where vectors are planes,
    /// the outer product elsewhere: see [`meet`](Self::meet).
    ///
    /// ```
    /// use gradewise_core::{Cl3, Multivector, pga3};
    ///
    /// let [e1, e2, _] = Multivector::<Cl3, f64>::generators();
    /// assert_eq!(e1.join(&e2), e1 ^ e2);
    /// let x_axis = pga3::point([0, 0, 0]).join(&pga3::point([1, 0, 0]));
    /// assert!(x_axis.join(&pga3::point([5, 0, 0])).is_zero());
    /// ```
    ///
    /// # Errors
    /// [`Error::AlgebraMismatch`](crate::Error::AlgebraMismatch) (run-time algebras only).
    pub fn join(&self, right: &Self) -> A::Checked<Self> {
        if self.vectors_are_hyperplanes() {
            self.regressive_product(right)
        } else {
            self.outer_product(right)
        }
    }

    /// The regressive product of multivectors known to share an algebra.
    pub(crate) fn raw_regressive(&self, right: &Self) -> Self {
        self.dual().raw_product::<Outer>(&right.dual()).undual()
    }

    fn vectors_are_hyperplanes(&self) -> bool {
        self.algebra.signature().r > 0
    }
}
