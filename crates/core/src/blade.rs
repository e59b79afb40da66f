//! Basis blades as bit sets of generators: their order, and the sign of their product.
//!
//! Everything here is `const`, so the type-level algebras get their tables at compile time from the very functions
//! that fill the run-time tables.

use crate::Signature;

/// Fills `masks` with the bit sets of the blades in order (by grade, then lexicographically by generators), and
/// `positions` with the place of each bit set. Both have a length of 2ⁿ.
pub(crate) const fn order_blades(masks: &mut [u16], positions: &mut [u16]) {
    let blades = masks.len();
    let dimension = blades.trailing_zeros();
    let mut count = 0;
    let mut grade = 0;
    while grade <= dimension {
        // Read backwards, the bits of a set spell its generators in order, e1 as the most significant: among sets of
        // one size, descending numbers are ascending lists.
        let mut backwards = blades as u32;
        while backwards > 0 {
            backwards -= 1;
            if backwards.count_ones() == grade {
                let mask = (backwards << 1).reverse_bits() >> (31 - dimension);
                masks[count] = mask as u16;
                positions[mask as usize] = count as u16;
                count += 1;
            }
        }
        grade += 1;
    }
}

/// The bit set with e1 as the most significant of `dimension` bits.
const fn read_backwards(mask: u16, dimension: usize) -> u32 {
    ((mask as u32).reverse_bits() as u64 >> (32 - dimension)) as u32
}

/// The place of one bit set in that order, of `dimension` generators.
pub(crate) const fn position(mask: u16, dimension: usize) -> usize {
    let (grade, place) = (mask.count_ones(), read_backwards(mask, dimension));
    let (mut before, mut other) = (0, 0u32);
    while other < 1 << dimension {
        let larger = read_backwards(other as u16, dimension) > place;
        if other.count_ones() < grade || other.count_ones() == grade && larger {
            before += 1;
        }
        other += 1;
    }
    before
}

/// Whether sorting the generators of `a` followed by those of `b` takes an odd number of swaps.
const fn odd_swaps(a: u16, b: u16) -> bool {
    // Bit g of `above` is the parity of the generators of `a` beyond g, which e_{g+1} of `b` has to pass.
    let mut above = a >> 1;
    above ^= above >> 1;
    above ^= above >> 2;
    above ^= above >> 4;
    (above & b).count_ones() % 2 == 1
}

/// The sign of the geometric product of two blades: the parity of the swaps that sort the concatenated generators,
/// times the squares of the shared ones. The resulting blade is `a ^ b`.
pub(crate) const fn product_sign(signature: Signature, a: u16, b: u16) -> i8 {
    let metric = squares(signature, a & b);
    if odd_swaps(a, b) { -metric } else { metric }
}

/// The product of the squares of the generators of a blade E, which is reverse(E) E.
pub(crate) const fn squares(signature: Signature, blade: u16) -> i8 {
    let positive = (1u16 << signature.p) - 1;
    let negative = ((1u16 << (signature.p + signature.q)) - 1) & !positive;
    if blade & !(positive | negative) != 0 {
        0
    } else if (blade & negative).count_ones() % 2 == 1 {
        -1
    } else {
        1
    }
}

/// Which terms of the geometric product a product keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// All of them.
    Geometric,
    /// Those of blades without a common generator.
    Outer,
    /// Those whose left blade is contained in the right one.
    LeftContraction,
    /// Those whose right blade is contained in the left one.
    RightContraction,
    /// Those of either contraction.
    Inner,
    /// Those of a blade with itself.
    Scalar,
    /// Those of blades that anticommute.
    Commutator,
}

/// A product as a type, so that each has compile-time tables of its own.
pub trait Rule {
    /// The terms it keeps.
    const PRODUCT: Product;
    /// Its name in errors.
    const NAME: &'static str;
}

impl Product {
    /// How many there are.
    pub(crate) const COUNT: usize = 7;

    /// Whether the term of blades `a` and `b`, as bit sets, is kept.
    pub(crate) const fn keeps(self, a: u16, b: u16) -> bool {
        match self {
            Self::Geometric => true,
            Self::Outer => a & b == 0,
            Self::LeftContraction => a & !b == 0,
            Self::RightContraction => b & !a == 0,
            Self::Inner => a & !b == 0 || b & !a == 0,
            Self::Scalar => a == b,
            // Each of the |a||b| pairs of generators anticommutes unless it is one generator twice.
            Self::Commutator => (a.count_ones() * b.count_ones() - (a & b).count_ones()) % 2 == 1,
        }
    }
}

/// The sign of the outer product of two blades without a common generator.
pub(crate) const fn outer_sign(a: u16, b: u16) -> i8 {
    if odd_swaps(a, b) { -1 } else { 1 }
}

/// +1 or −1 for a blade of `grade` under reversion: (−1)^(k(k−1)/2).
pub(crate) const fn reverse_sign(grade: u32) -> i8 {
    if grade % 4 < 2 { 1 } else { -1 }
}

/// The generators in a bit set, ascending, counted from 0.
pub(crate) fn generators(mask: u16) -> impl Iterator<Item = usize> {
    (0..u16::BITS as usize).filter(move |&g| mask >> g & 1 == 1)
}
