//! Writing multivectors.

use crate::{CliffordAlgebra, Multivector, Scalar, blade::generators};
use std::fmt;

/// A sum over the blades with a coefficient other than zero, such as `1 + 2e1 − e12`; `0` if there are none.
///
/// The minus sign is U+2212. Whatever is not digits with a decimal point stands in parentheses, `(1e-7)e12` or
/// `(1/2)e1`, so that the `e` of an exponent is never taken for a blade. A precision, as in `{:.3}`, applies to each
/// floating-point coefficient. What is written without a precision reads back as the same multivector.
impl<A: CliffordAlgebra, T: Scalar> fmt::Display for Multivector<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (coefficient, &mask) in self.coefficients().iter().zip(self.algebra().masks()) {
            if coefficient.is_zero() {
                continue;
            }
            let negative = *coefficient < T::zero();
            f.write_str(match (first, negative) {
                (true, false) => "",
                (true, true) => "−",
                (false, false) => " + ",
                (false, true) => " − ",
            })?;
            first = false;
            let magnitude = if negative { -coefficient.clone() } else { coefficient.clone() };
            if mask == 0 || !magnitude.is_one() || f.precision().is_some() {
                let text = magnitude.to_text(f.precision());
                if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
                    f.write_str(&text)?;
                } else {
                    write!(f, "({text})")?;
                }
            }
            if mask != 0 {
                f.write_str("e")?;
                generators(mask).try_for_each(|generator| write!(f, "{}", generator + 1))?;
            }
        }
        if first { f.write_str("0") } else { Ok(()) }
    }
}
