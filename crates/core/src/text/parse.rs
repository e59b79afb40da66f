//! Reading multivectors.

use crate::{Algebra, CliffordAlgebra, Error, Multivector, Result, Scalar, TypeLevel, blade::outer_sign};
use std::str::FromStr;

/// Reads what [`Display`](std::fmt::Display) writes. `-` serves as minus too, spaces are optional, blades may repeat
/// (their coefficients add up) and may name their generators in any order (`e21` is −e12).
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
    /// Reads a multivector such as `1 + 2e1 − e12`. `-` serves as minus too, spaces are optional, blades may repeat
    /// (their coefficients add up) and may name their generators in any order (`e21` is −e12).
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
        let mut negative = self.sign().unwrap_or(false);
        loop {
            let (blade, value) = self.term::<T>()?;
            if let Some(coefficient) = total.coefficients_mut().get_mut(blade) {
                *coefficient += if negative { -value } else { value };
            }
            self.skip_spaces();
            if self.at == self.characters.len() {
                return Ok(total);
            }
            negative = self.sign().ok_or_else(|| "expected `+`, `-` or the end".to_owned())?;
        }
    }

    /// `coefficient [blade]` or `blade`: the blade's index and its coefficient.
    fn term<T: Scalar>(&mut self) -> Result<(usize, T), String> {
        self.skip_spaces();
        let start = self.at;
        let coefficient = self.coefficient::<T>()?;
        if coefficient.is_some() {
            self.skip_spaces();
        }
        match (self.blade()?, coefficient) {
            (Some((blade, negative)), coefficient) => {
                let value = coefficient.unwrap_or_else(T::one);
                Ok((blade, if negative { -value } else { value }))
            }
            (None, Some(value)) => Ok((0, value)),
            (None, None) => {
                self.at = start;
                Err("expected a number or a blade".to_owned())
            }
        }
    }

    /// Digits with a decimal point, or anything that is a number in parentheses.
    fn coefficient<T: Scalar>(&mut self) -> Result<Option<T>, String> {
        let start = self.at;
        let text: String = if self.peek() == Some('(') {
            self.at += 1;
            let inside = self.take_while(|c| c != ')');
            if self.peek().is_none() {
                self.at = start;
                return Err("this parenthesis is not closed".to_owned());
            }
            self.at += 1;
            inside.trim().replace('−', "-")
        } else {
            self.take_while(|c| c.is_ascii_digit() || c == '.')
        };
        if self.at == start {
            return Ok(None);
        }
        let value = T::from_text(&text);
        if value.is_none() {
            self.at = start;
        }
        value.map(Some).ok_or_else(|| format!("`{text}` is not a coefficient of this type"))
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
