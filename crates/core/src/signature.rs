//! The metric signature of a Clifford algebra.

use crate::{Error, Result};
use alloc::{borrow::ToOwned, vec::Vec};
use core::{fmt, str::FromStr};

/// The largest supported number of generators, p + q + r (256 blades).
pub const MAX_DIMENSION: usize = 8;

/// The signature (p, q, r) of a Clifford algebra: of the generators e1..en, the first `p` square to +1, the next
/// `q` to −1 and the last `r` to 0.
///
/// Creating one never fails; [`Algebra::new`](crate::Algebra::new) refuses more than [`MAX_DIMENSION`] generators.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signature {
    /// Generators that square to +1.
    pub p: u8,
    /// Generators that square to −1.
    pub q: u8,
    /// Generators that square to 0.
    pub r: u8,
}

impl Signature {
    /// Cl(2,0,0), the plane.
    pub const CL2: Self = Self::new(2, 0, 0);
    /// Cl(3,0,0), Euclidean space.
    pub const CL3: Self = Self::new(3, 0, 0);
    /// Cl(1,3,0), space-time with the metric (+,−,−,−).
    pub const STA: Self = Self::new(1, 3, 0);
    /// Cl(3,0,1), projective geometric algebra of space.
    pub const PGA3: Self = Self::new(3, 0, 1);
    /// Cl(4,1,0), conformal geometric algebra of space.
    pub const CGA3: Self = Self::new(4, 1, 0);
    /// Cl(5,0,0).
    pub const CL5: Self = Self::new(5, 0, 0);

    /// The signatures that are compiled ahead of time; any other is served from run-time tables.
    pub const COMMON: [Self; 6] = [Self::CL2, Self::CL3, Self::STA, Self::PGA3, Self::CGA3, Self::CL5];

    /// The signature with `p` generators squaring to +1, `q` to −1 and `r` to 0.
    pub const fn new(p: u8, q: u8, r: u8) -> Self {
        Self { p, q, r }
    }

    /// Number of generators, n = p + q + r.
    pub const fn dimension(self) -> usize {
        self.p as usize + self.q as usize + self.r as usize
    }

    /// Number of basis blades, 2ⁿ; saturates at `usize::MAX` far beyond [`MAX_DIMENSION`].
    pub const fn blade_count(self) -> usize {
        if self.dimension() < usize::BITS as usize { 1 << self.dimension() } else { usize::MAX }
    }

    /// Number of grades, n + 1.
    pub const fn grade_count(self) -> usize {
        self.dimension() + 1
    }

    /// The square of generator e_{index+1}: 1, −1 or 0. Indices past the dimension give 0.
    pub const fn square(self, index: usize) -> i8 {
        let (p, q) = (self.p as usize, self.q as usize);
        if index < p {
            1
        } else if index < p + q {
            -1
        } else {
            0
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cl({},{},{})", self.p, self.q, self.r)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses `p,q,r`, `p,q` or `p` (missing counts are zero), with or without `Cl(…)` around it.
impl FromStr for Signature {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::InvalidSignature { text: text.to_owned() };
        let inner = text.trim();
        let inner = match inner.strip_prefix("Cl(") {
            Some(rest) => rest.strip_suffix(')').ok_or_else(invalid)?,
            None => inner,
        };
        let mut counts = [0u8; 3];
        let parts: Vec<&str> = inner.split(',').collect();
        if parts.len() > 3 {
            return Err(invalid());
        }
        for (count, part) in counts.iter_mut().zip(&parts) {
            *count = part.trim().parse().map_err(|_| invalid())?;
        }
        Ok(Self::new(counts[0], counts[1], counts[2]))
    }
}
