//! The highest rank of tensors in tracks.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The highest rank of the symmetric traceless tensors of a channel; all lower ranks are there, too. As a setting it is the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Rank {
    /// Multivectors alone, whose vectors have rank 1.
    One,
    /// Quadrupoles, too.
    Two,
    /// Quadrupoles and octupoles, too.
    Three,
}

impl Rank {
    /// All ranks.
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::Three];

    /// Whether there are tensors of rank 2.
    pub fn has_tensors(self) -> bool {
        self >= Self::Two
    }

    /// Whether there are tensors of rank 3.
    pub fn has_octupoles(self) -> bool {
        self >= Self::Three
    }
}

impl From<Rank> for u8 {
    fn from(rank: Rank) -> Self {
        rank as Self + 1
    }
}

impl TryFrom<u8> for Rank {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|&rank| u8::from(rank) == number);
        known.ok_or_else(|| format!("{number} is not the rank of tensors; write 1, 2 or 3"))
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", u8::from(*self))
    }
}
