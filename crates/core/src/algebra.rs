//! The tables of a Clifford algebra, derived from its signature.

use crate::{
    Error, MAX_DIMENSION, Path, Result, Signature, Term,
    blade::{generators, product_sign},
    tables::Tables,
};
use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
};
use core::{
    fmt,
    hash::{Hash, Hasher},
    ops::Range,
};

/// The tables of the algebra of one signature.
///
/// Blades are ordered by grade, then lexicographically by their generators: Cl(3,0) is
/// `1, e1, e2, e3, e12, e13, e23, e123`. Cloning is cheap, and algebras of one signature share their tables.
///
/// ```
/// use gradewise_core::{Algebra, Signature};
///
/// let spacetime = Algebra::new(Signature::new(1, 3, 0))?;
/// assert_eq!((spacetime.blade_count(), spacetime.grade_count(), spacetime.paths().len()), (16, 5, 35));
/// // e1·e2 = e12, and e12·e12 = +1: e1 squares to +1 and e2 to −1.
/// let (e12, sign) = spacetime.blade_product(1, 2);
/// assert_eq!((spacetime.blade_name(e12).as_str(), sign), ("e12", 1));
/// assert_eq!(spacetime.blade_product(e12, e12), (0, 1));
/// # Ok::<(), gradewise_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Algebra {
    pub(crate) tables: &'static Tables,
}

impl Algebra {
    /// The algebra of `signature`. Its tables are computed when they are first used, once per process,
    /// and shared.
    ///
    /// # Errors
    /// [`Error::TooManyGenerators`] if p + q + r exceeds [`MAX_DIMENSION`].
    pub fn new(signature: Signature) -> Result<Self> {
        if signature.dimension() > MAX_DIMENSION {
            return Err(Error::TooManyGenerators { signature });
        }
        Ok(Self { tables: Tables::of(signature) })
    }

    /// The signature the tables were derived from.
    pub fn signature(&self) -> Signature {
        self.tables.signature
    }

    /// Number of generators n = p + q + r.
    pub fn dimension(&self) -> usize {
        self.signature().dimension()
    }

    /// Number of basis blades, 2ⁿ.
    pub fn blade_count(&self) -> usize {
        self.tables.grades.len()
    }

    /// Number of grades, n + 1.
    pub fn grade_count(&self) -> usize {
        self.dimension() + 1
    }

    /// The grade of each blade, ascending.
    pub fn grades(&self) -> &[u8] {
        &self.tables.grades
    }

    /// The blades of `grade`; empty beyond n. Blades of one grade are adjacent.
    pub fn blades_of_grade(&self, grade: usize) -> Range<usize> {
        let start = self.tables.grades.partition_point(|&g| usize::from(g) < grade);
        let end = self.tables.grades.partition_point(|&g| usize::from(g) <= grade);
        start..end
    }

    /// The non-zero entries of the Cayley table, ordered by left, then right blade.
    pub fn terms(&self) -> &[Term] {
        &self.tables.cayley().terms
    }

    /// The grade paths of the geometric product, in lexicographic order of (left, out, right).
    pub fn paths(&self) -> &[Path] {
        &self.tables.cayley().paths
    }

    /// Blade index → bit set of generators.
    pub(crate) fn masks(&self) -> &[u16] {
        &self.tables.masks
    }

    /// Bit set of generators → blade index.
    pub(crate) fn positions(&self) -> &[u16] {
        &self.tables.index_of_mask
    }

    /// The generators of a blade as a bit set: bit g is set if e_{g+1} is a factor.
    ///
    /// # Panics
    /// If `blade` is not below [`blade_count`](Self::blade_count).
    pub fn mask(&self, blade: usize) -> u16 {
        self.tables.masks[blade]
    }

    /// The blade with the generators of `mask`, if there is one.
    pub fn blade_of_mask(&self, mask: u16) -> Option<usize> {
        self.tables.index_of_mask.get(usize::from(mask)).map(|&index| usize::from(index))
    }

    /// The product of two blades: the resulting blade and the sign (+1, −1, or 0 where the metric is degenerate).
    ///
    /// # Panics
    /// If either index is not below [`blade_count`](Self::blade_count).
    pub fn blade_product(&self, left: usize, right: usize) -> (usize, i8) {
        let (a, b) = (self.mask(left), self.mask(right));
        let sign = product_sign(self.signature(), a, b);
        (usize::from(self.tables.index_of_mask[usize::from(a ^ b)]), sign)
    }

    /// Sign of each blade under reversion: (−1)^(k(k−1)/2) for grade k.
    pub fn reverse_signs(&self) -> &[i8] {
        &self.tables.reverse_signs
    }

    /// The diagonal of the quadratic form q(x) = ⟨reverse(x) x⟩₀: +1, −1 or 0 for each blade.
    pub fn squared_norms(&self) -> &[i8] {
        &self.tables.squared_norms
    }

    /// The name of a blade: `1` for the scalar, otherwise `e` and its generators counted from 1, such as `e13`.
    ///
    /// # Panics
    /// If `blade` is not below [`blade_count`](Self::blade_count).
    pub fn blade_name(&self, blade: usize) -> String {
        let mask = self.mask(blade);
        if mask == 0 {
            return "1".to_owned();
        }
        let mut name = "e".to_owned();
        for generator in generators(mask) {
            name.push_str(&(generator + 1).to_string());
        }
        name
    }
}

impl PartialEq for Algebra {
    fn eq(&self, other: &Self) -> bool {
        self.signature() == other.signature()
    }
}

impl Eq for Algebra {}

impl Hash for Algebra {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.signature().hash(state);
    }
}

impl fmt::Debug for Algebra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Algebra({})", self.signature())
    }
}
