//! Writing multivectors.

use crate::{CliffordAlgebra, Multivector, Scalar, blade::generators};
use core::fmt;

/// A sum over the blades with a coefficient other than zero, such as `1 + 2e1 − e12`; `0` if there are none.
///
/// The minus sign is U+2212. A coefficient that is not digits with a decimal point stands in parentheses, `(1e-7)e12` or `(1/2)e1`, so that
/// the `e` of an exponent is never taken for a blade. A precision, as in `{:.3}`, applies to each floating-point coefficient; a coefficient
/// written as `1` is left out before a blade. Text written without a precision reads back as the same multivector.
impl<A: CliffordAlgebra, T: Scalar> fmt::Display for Multivector<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (coefficient, &mask) in self.coefficients().iter().zip(self.algebra().masks()) {
            if coefficient.is_zero() {
                continue;
            }
            // The sign is taken off the text rather than the number: the smallest integer has no opposite.
            let text = coefficient.to_text(f.precision());
            let (negative, text) = match text.strip_prefix('-') {
                Some(magnitude) => (true, magnitude),
                None => (false, text.as_str()),
            };
            f.write_str(match (first, negative) {
                (true, false) => "",
                (true, true) => "−",
                (false, false) => " + ",
                (false, true) => " − ",
            })?;
            first = false;
            if text.bytes().any(|byte| !byte.is_ascii_digit() && byte != b'.') {
                write!(f, "({text})")?;
            } else if mask == 0 || text != "1" {
                f.write_str(text)?;
            }
            if mask != 0 {
                f.write_str("e")?;
                generators(mask).try_for_each(|generator| write!(f, "{}", generator + 1))?;
            }
        }
        if first { f.write_str("0") } else { Ok(()) }
    }
}
