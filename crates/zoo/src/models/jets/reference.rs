//! Directions that break the symmetry of space-time.

use std::ops::Range;

gradewise_nn::choices! {
    /// The directions of the laboratory that a tagger sees, besides its jet. Logits are invariant under the Lorentz transformations that
    /// leave them alone.
    pub enum Reference {
        /// None: all of O(1,3)
        None = "none",
        /// Time: rotations and reflections of space, O(3)
        Time = "time",
        /// The beam: O(1,2), boosts across the beam among it
        Beam = "beam",
        /// Time and beam: rotations about the beam and reflections that keep it, O(2)
        TimeBeam = "time-beam",
    }
}

#[allow(clippy::derivable_impls, reason = "variants of `choices!` have no attributes")]
impl Default for Reference {
    fn default() -> Self {
        Self::None
    }
}

impl Reference {
    /// Their positions among the references of a batch of jets: time, beam.
    pub(crate) const fn axes(self) -> Range<usize> {
        match self {
            Self::None => 0..0,
            Self::Time => 0..1,
            Self::Beam => 1..2,
            Self::TimeBeam => 0..2,
        }
    }

    /// The axes of space-time (t, x, y, z) that they are.
    pub const fn fixed(self) -> &'static [usize] {
        match self {
            Self::None => &[],
            Self::Time => &[0],
            Self::Beam => &[3],
            Self::TimeBeam => &[0, 3],
        }
    }
}
