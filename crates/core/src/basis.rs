//! Names of basis blades.

use crate::{
    Error, MAX_DIMENSION, Result, Signature,
    blade::{generators, outer_sign, position, product_sign},
};
use alloc::borrow::ToOwned;
use core::{fmt, str::FromStr};

/// A basis blade, the product of some generators in ascending order: an index of multivectors of every algebra that has
/// those generators.
///
/// ```
/// use gradewise_core::{Blade, Cl3, Multivector};
///
/// let mut mv: Multivector<Cl3, f64> = "1 + 2e1 - 3e12".parse()?;
/// assert_eq!(mv[Blade::E12], -3.0);
/// mv[Blade::E12] = 5.0;
/// assert_eq!(mv.e12(), 5.0);
/// assert_eq!(mv[Blade::SCALAR], 1.0);
/// assert_eq!("e13".parse(), Ok(Blade::E13));
/// # Ok::<(), gradewise_core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Blade(u16);

impl Blade {
    /// The scalar, 1.
    pub const SCALAR: Self = Self(0);

    /// The blade of `generators`, which are counted from 1 and ascend: `[1, 3]` is e13. `None` if they do not, or go
    /// beyond [`MAX_DIMENSION`].
    ///
    /// ```
    /// use gradewise_core::Blade;
    ///
    /// const E18: Blade = Blade::of(&[1, 8]).unwrap();
    /// assert_eq!(E18.to_string(), "e18");
    /// assert_eq!(Blade::of(&[2, 1]), None);
    /// ```
    pub const fn of(generators: &[u8]) -> Option<Self> {
        let (mut mask, mut index) = (0u16, 0);
        while index < generators.len() {
            let generator = generators[index] as usize;
            if generator == 0 || generator > MAX_DIMENSION || mask >> (generator - 1) != 0 {
                return None;
            }
            mask |= 1 << (generator - 1);
            index += 1;
        }
        Some(Self(mask))
    }

    /// The blade with the generators of a bit set: bit g is set if e_{g+1} is a factor. `None` beyond
    /// [`MAX_DIMENSION`].
    pub const fn from_mask(mask: u16) -> Option<Self> {
        if mask >> MAX_DIMENSION == 0 { Some(Self(mask)) } else { None }
    }

    /// The generators as a bit set: bit g is set if e_{g+1} is a factor.
    pub const fn mask(self) -> u16 {
        self.0
    }

    /// How many generators it is the product of.
    pub const fn grade(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The smallest number of generators of an algebra that has this blade.
    pub const fn dimension(self) -> usize {
        (u16::BITS - self.0.leading_zeros()) as usize
    }

    /// The sign of the outer product with `other`, which is the blade of both: 0 if they share a generator.
    ///
    /// ```
    /// use gradewise_core::Blade;
    ///
    /// assert_eq!(Blade::E2.outer_sign(Blade::E1), -1);
    /// assert_eq!(Blade::E12.outer_sign(Blade::E1), 0);
    /// ```
    pub const fn outer_sign(self, other: Self) -> i8 {
        if self.0 & other.0 != 0 { 0 } else { outer_sign(self.0, other.0) }
    }

    /// The sign of the geometric product with `other`, which is the blade of the generators that only one of them has: 1, −1,
    /// or 0 if both have a generator that squares to 0.
    ///
    /// ```
    /// use gradewise_core::{Blade, Signature};
    ///
    /// const SIGN: i8 = Blade::E12.product_sign(Blade::E2, Signature::STA);
    /// assert_eq!(SIGN, -1);
    /// ```
    pub const fn product_sign(self, other: Self, signature: Signature) -> i8 {
        product_sign(signature, self.0, other.0)
    }

    /// The place among the coefficients of a multivector: by grade, then by generators.
    ///
    /// ```
    /// use gradewise_core::{Blade, Signature};
    ///
    /// const PLACE: usize = Blade::E13.position(Signature::CL3);
    /// assert_eq!(PLACE, 5);
    /// ```
    pub const fn position(self, signature: Signature) -> usize {
        position(self.0, signature.dimension())
    }

    /// The blade that a constant is named after.
    const fn named(name: &str) -> Self {
        let (digits, mut mask, mut index) = (name.as_bytes(), 0, 1);
        while index < digits.len() {
            mask |= 1 << (digits[index] - b'1');
            index += 1;
        }
        Self(mask)
    }
}

/// The constants of the blades of up to five generators, and what they are called in a multivector.
macro_rules! blades {
    ($($name:ident)*) => {
        impl Blade {
            $(
                #[doc = concat!("The blade `", stringify!($name), "`.")]
                pub const $name: Self = Self::named(stringify!($name));
            )*
        }
    };
}

blades! {
    E1 E2 E3 E4 E5
    E12 E13 E14 E15 E23 E24 E25 E34 E35 E45
    E123 E124 E125 E134 E135 E145 E234 E235 E245 E345
    E1234 E1235 E1245 E1345 E2345
    E12345
}

/// `1` for the scalar, otherwise `e` and the generators counted from 1, such as `e13`.
impl fmt::Display for Blade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("1");
        }
        f.write_str("e")?;
        generators(self.0).try_for_each(|generator| write!(f, "{}", generator + 1))
    }
}

impl fmt::Debug for Blade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads what [`Display`](fmt::Display) writes.
impl FromStr for Blade {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::InvalidBlade { text: text.to_owned() };
        if text == "1" {
            return Ok(Self::SCALAR);
        }
        let digits = text.strip_prefix('e').filter(|digits| !digits.is_empty()).ok_or_else(invalid)?;
        let mut blade = Self::SCALAR;
        for digit in digits.bytes() {
            let generator = match digit {
                b'1'..=b'8' => Self(1 << (digit - b'1')),
                _ => return Err(invalid()),
            };
            if generator.0 <= blade.0 {
                return Err(invalid());
            }
            blade.0 |= generator.0;
        }
        Ok(blade)
    }
}
