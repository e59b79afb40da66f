//! Reading multivectors.

use crate::{Algebra, CliffordAlgebra, Error, Multivector, Result, Scalar, TypeLevel, blade::outer_sign};
use alloc::{borrow::ToOwned, format, string::String, vec, vec::Vec};
use core::str::FromStr;

/// Reads what [`Display`](core::fmt::Display) writes. `-` serves as minus too, spaces are optional, blades come in any
/// order, each once, and may name their generators in any order (`e21` is −e12).
///
/// # Errors
/// [`Error::InvalidMultivector`] with the place where reading stopped.
impl<A: TypeLevel, T: Scalar> FromStr for Multivector<A, T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        read(&A::default(), text)
    }
}

impl Algebra {
    /// Reads a multivector such as `1 + 2e1 − e12`. `-` serves as minus too, spaces are optional, blades come in any
    /// order, each once, and may name their generators in any order (`e21` is −e12).
    ///
    /// # Errors
    /// [`Error::InvalidMultivector`] with the place where reading stopped.
    pub fn parse<T: Scalar>(&self, text: &str) -> Result<Multivector<Self, T>> {
        read(self, text)
    }
}

fn read<A: CliffordAlgebra, T: Scalar>(algebra: &A, text: &str) -> Result<Multivector<A, T>> {
    let mut reader = Reader { algebra, characters: text.chars().collect(), at: 0 };
    reader.sum().map_err(|reason| Error::InvalidMultivector {
        text: text.to_owned(),
        signature: algebra.signature(),
        position: reader.at + 1,
        reason,
    })
}

struct Reader<'a, A> {
    algebra: &'a A,
    characters: Vec<char>,
    at: usize,
}

impl<A: CliffordAlgebra> Reader<'_, A> {
    /// `[sign] term (sign term)*`, where a sign is one of + - −.
    fn sum<T: Scalar>(&mut self) -> Result<Multivector<A, T>, String> {
        let mut total = Multivector::zero_in(self.algebra);
        let mut seen = vec![false; total.coefficients().len()];
        let mut negative = self.sign().unwrap_or(false);
        loop {
            self.skip_spaces();
            let start = self.at;
            let (blade, value) = self.term::<T>(negative)?;
            match (total.coefficients_mut().get_mut(blade), seen.get_mut(blade)) {
                (Some(coefficient), Some(seen)) if !*seen => {
                    *coefficient = value;
                    *seen = true;
                }
                _ => {
                    self.at = start;
                    return Err("this blade has a coefficient already".to_owned());
                }
            }
            self.skip_spaces();
            if self.at == self.characters.len() {
                return Ok(total);
            }
            negative = self.sign().ok_or_else(|| "expected `+`, `-` or the end".to_owned())?;
        }
    }

    /// `coefficient [blade]` or `blade`: the blade's index and its coefficient, with the sign before it.
    fn term<T: Scalar>(&mut self, mut negative: bool) -> Result<(usize, T), String> {
        let start = self.at;
        let text = self.coefficient()?;
        if text.is_some() {
            self.skip_spaces();
        }
        let blade = self.blade()?;
        if text.is_none() && blade.is_none() {
            return Err("expected a number or a blade".to_owned());
        }
        let (index, odd) = blade.unwrap_or_default();
        negative ^= odd;
        let text = text.as_deref().unwrap_or("1");
        // The number is read with its final sign: the smallest integer has no opposite.
        let magnitude = text.strip_prefix(['-', '−']).map_or(text, |rest| {
            negative = !negative;
            rest
        });
        let value = if magnitude.starts_with(['-', '−', '+']) {
            None
        } else {
            T::from_text(&format!("{}{magnitude}", if negative { "-" } else { "" }))
        };
        if value.is_none() {
            self.at = start;
        }
        Ok((index, value.ok_or_else(|| format!("`{text}` is not a coefficient of this type"))?))
    }

    /// Digits with a decimal point, or anything in parentheses, as text.
    fn coefficient(&mut self) -> Result<Option<String>, String> {
        if self.peek() != Some('(') {
            let digits = self.take_while(|c| c.is_ascii_digit() || c == '.');
            return Ok((!digits.is_empty()).then_some(digits));
        }
        let start = self.at;
        self.at += 1;
        let inside = self.take_while(|c| c != ')');
        if self.peek().is_none() {
            self.at = start;
            return Err("this parenthesis is not closed".to_owned());
        }
        self.at += 1;
        Ok(Some(inside.trim().to_owned()))
    }

    /// `e` and generators counted from 1: the blade's index, and whether their order makes it negative.
    fn blade(&mut self) -> Result<Option<(usize, bool)>, String> {
        if self.peek() != Some('e') {
            return Ok(None);
        }
        self.at += 1;
        let signature = self.algebra.signature();
        let n = signature.dimension();
        let (mut mask, mut negative) = (0u16, false);
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            let generator = match digit as usize {
                g @ 1.. if g <= n => 1u16 << (g - 1),
                _ => {
                    return Err(format!(
                        "there is no generator {digit}; {signature} has {n}, counted from 1"
                    ));
                }
            };
            if mask & generator != 0 {
                return Err(format!("generator {digit} is there twice"));
            }
            negative ^= outer_sign(mask, generator) < 0;
            mask |= generator;
            self.at += 1;
        }
        if mask == 0 {
            return Err("a blade needs generators after `e`; exponents need parentheses".to_owned());
        }
        let blade = self.algebra.positions().get(usize::from(mask)).copied();
        Ok(blade.map(|blade| (usize::from(blade), negative)))
    }

    /// A sign and the spaces around it; whether it is negative.
    fn sign(&mut self) -> Option<bool> {
        self.skip_spaces();
        let negative = match self.peek()? {
            '+' => false,
            '-' | '−' => true,
            _ => return None,
        };
        self.at += 1;
        Some(negative)
    }

    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&accept) {
            self.at += 1;
        }
        self.characters.get(start..self.at).unwrap_or_default().iter().collect()
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }
}
