//! Decodes numbers from the element types of binary files.

use half::f16;

/// How the bits of an element are interpreted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// IEEE 754, of 2, 4 or 8 bytes.
    Float,
    /// Two's complement.
    Signed,
    /// A natural number, or a truth value.
    Unsigned,
}

/// The type of the elements of an array of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// How its bits are read.
    pub kind: Kind,
    /// Bytes: 1, 2, 4 or 8.
    pub size: usize,
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
}

impl Element {
    /// The value of exactly `size` bytes. Integers beyond 2⁵³ are rounded.
    pub fn decode(self, bytes: &[u8]) -> f64 {
        let unsigned = match <[u8; 4]>::try_from(bytes) {
            // Fast path for 4-byte elements, the most common ones.
            Ok(word) if self.big_endian => u32::from_be_bytes(word).into(),
            Ok(word) => u32::from_le_bytes(word).into(),
            Err(_) => self.word(bytes),
        };
        let shift = 64 - 8 * self.size as u32;
        match (self.kind, self.size) {
            (Kind::Float, 8) => f64::from_bits(unsigned),
            (Kind::Float, 2) => f16::from_bits(unsigned as u16).to_f64(),
            (Kind::Float, _) => f64::from(f32::from_bits(unsigned as u32)),
            (Kind::Signed, _) => (((unsigned << shift) as i64) >> shift) as f64,
            (Kind::Unsigned, _) => unsigned as f64,
        }
    }

    fn word(self, bytes: &[u8]) -> u64 {
        let mut little = [0u8; 8];
        for (slot, byte) in little.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        if self.big_endian {
            little[..self.size].reverse();
        }
        u64::from_le_bytes(little)
    }
}
