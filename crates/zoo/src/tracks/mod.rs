//! Layers on features that consist of multivectors and tensors of rank 2 and 3.
//!
//! The geometric product of two vectors in space is u·v and u∧v: spherical tensors of degree 0 and 1. Its symmetric traceless part, of
//! degree 2, is not part of a multivector, so a network in Cl(3,0) can represent quadrupoles only through several layers. A channel of
//! [`Tracks`] is a multivector and, by its [`Rank`], a symmetric traceless S of rank 2 and T of rank 3 (the construction of arXiv:2606.29584
//! for S, continued). Only couplings that preserve parity are used: the term S_ik ε_kjl v_l of that publication, which is odd under the
//! inversion where S is even, is omitted, so every layer commutes with all of O(3).

mod linear;
mod messages;
mod norm;
mod product;
mod radial;
mod rank;

pub use linear::TrackLinear;
pub use messages::TrackMessages;
pub use norm::{TrackGate, TrackNorm};
pub use product::TrackProduct;
pub use radial::{Radial, RadialBasis, RadialWeights};
pub use rank::Rank;

use gradewise_autograd::{Tensor, clifford::COMPONENTS, concat};
use gradewise_nn::{Error, Result};

/// Blades of Cl(3,0).
const BLADES: usize = 8;
/// Components of a symmetric traceless tensor of rank 3.
const OCTUPOLE: usize = 7;

/// The size of tracks: the number of channels, and the highest rank of their tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackSize {
    /// Channels.
    pub channels: usize,
    /// The tensors of a channel beside its multivector.
    pub rank: Rank,
}

/// Channels of multivectors of Cl(3,0) and of symmetric traceless tensors.
#[derive(Clone, Debug)]
pub struct Tracks {
    /// `[8, rows, channels]`
    pub multivectors: Tensor,
    /// `[5, rows, channels]`: the components xx, xy, xz, yy and yz.
    pub tensors: Option<Tensor>,
    /// `[7, rows, channels]`: the components xxx, xxy, xxz, xyy, xyz, yyy and yyz; only beside tensors of rank 2.
    pub octupoles: Option<Tensor>,
}

impl Tracks {
    /// Tracks whose multivectors and tensors have equal rows and channels.
    ///
    /// # Errors
    /// Multivectors that are not `[8, rows, channels]`, tensors that are not `[5, rows, channels]`.
    pub fn new(multivectors: Tensor, tensors: Option<Tensor>) -> Result<Self> {
        Self::of(multivectors, tensors, None)
    }

    /// Tracks with tensors of rank 3, too.
    ///
    /// # Errors
    /// As [`new`](Self::new); tensors of rank 3 that are not `[7, rows, channels]`.
    pub fn with_octupoles(multivectors: Tensor, tensors: Tensor, octupoles: Tensor) -> Result<Self> {
        Self::of(multivectors, Some(tensors), Some(octupoles))
    }

    fn of(multivectors: Tensor, tensors: Option<Tensor>, octupoles: Option<Tensor>) -> Result<Self> {
        let shape = multivectors.shape().dims();
        let fits = |tensors: &Option<Tensor>, components: usize| {
            tensors.as_ref().is_none_or(|tensors| {
                let of = tensors.shape().dims();
                of.len() == 3 && of[0] == components && of[1..] == shape[1..]
            })
        };
        if shape.len() != 3
            || shape[0] != BLADES
            || !fits(&tensors, COMPONENTS)
            || !fits(&octupoles, OCTUPOLE)
        {
            let beside = |tensors: &Option<Tensor>| {
                tensors.as_ref().map_or_else(String::new, |s| format!(" beside tensors {}", s.shape()))
            };
            return Err(Error::Argument {
                operation: "Tracks",
                argument: "multivectors",
                actual: format!("{}{}{}", multivectors.shape(), beside(&tensors), beside(&octupoles)),
                expected: "[8, rows, channels], tensors [5, rows, channels] and [7, rows, channels]"
                    .to_owned(),
            });
        }
        Ok(Self { multivectors, tensors, octupoles })
    }

    /// The highest rank of the tensors.
    pub fn rank(&self) -> Rank {
        match (&self.tensors, &self.octupoles) {
            (None, _) => Rank::One,
            (Some(_), None) => Rank::Two,
            (Some(_), Some(_)) => Rank::Three,
        }
    }

    /// Scalars `[1, rows, channels]` as tracks; all other components are zero.
    ///
    /// # Errors
    /// Another shape; from the device.
    pub fn of_scalars(scalars: &Tensor, rank: Rank) -> Result<Self> {
        let rest = |size: usize| {
            let mut shape = scalars.shape().to_vec();
            if let Some(leading) = shape.first_mut() {
                *leading = size;
            }
            Tensor::zeros(shape, scalars.dtype(), &scalars.device())
        };
        let multivectors = concat(&[scalars, &rest(BLADES - 1)?], 0)?;
        let filled = |there: bool, components: usize| there.then(|| rest(components)).transpose();
        let tensors = filled(rank.has_tensors(), COMPONENTS)?;
        Self::of(multivectors, tensors, filled(rank.has_octupoles(), OCTUPOLE)?)
    }

    /// Drops the tensors.
    #[must_use]
    pub fn without_tensors(&self) -> Self {
        Self { multivectors: self.multivectors.clone(), tensors: None, octupoles: None }
    }

    /// The scalar parts, `[1, rows, channels]`.
    ///
    /// # Errors
    /// From the device.
    pub fn scalars(&self) -> Result<Tensor> {
        Ok(self.multivectors.slice(0, 0..1)?)
    }

    /// The vector parts, `[3, rows, channels]`.
    ///
    /// # Errors
    /// From the device.
    pub fn vectors(&self) -> Result<Tensor> {
        Ok(self.multivectors.slice(0, 1..4)?)
    }

    /// The sum of both.
    ///
    /// # Errors
    /// Shapes that differ, or tensors in only one of the two.
    pub fn add(&self, other: &Self) -> Result<Self> {
        self.with(other, |a, b| Ok(a.add(b)?))
    }

    /// Concatenates the channels of both.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn join(&self, other: &Self) -> Result<Self> {
        self.with(other, |a, b| Ok(concat(&[a, b], 2)?))
    }

    /// Multiplies the tracks by a number.
    ///
    /// # Errors
    /// From the device.
    pub fn scaled(&self, factor: f64) -> Result<Self> {
        let scaled = |part: &Option<Tensor>| part.as_ref().map(|s| s.mul_scalar(factor)).transpose();
        Ok(Self {
            multivectors: self.multivectors.mul_scalar(factor)?,
            tensors: scaled(&self.tensors)?,
            octupoles: scaled(&self.octupoles)?,
        })
    }

    fn with(&self, other: &Self, of: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Self> {
        require_rank("Tracks", self.rank(), other)?;
        let both = |a: &Option<Tensor>, b: &Option<Tensor>| {
            a.as_ref().zip(b.as_ref()).map(|(a, b)| of(a, b)).transpose()
        };
        Ok(Self {
            multivectors: of(&self.multivectors, &other.multivectors)?,
            tensors: both(&self.tensors, &other.tensors)?,
            octupoles: both(&self.octupoles, &other.octupoles)?,
        })
    }
}

/// Scalars and vectors `[1, …]` and `[3, …]` as multivectors `[8, …]`.
fn multivectors(scalars: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    let mut rest = vectors.shape().to_vec();
    rest[0] = BLADES - 4;
    let rest = Tensor::zeros(rest, vectors.dtype(), &vectors.device())?;
    Ok(concat(&[scalars, vectors, &rest], 0)?)
}

/// Refuses tracks whose tensors are missing or not expected.
fn require_rank(operation: &'static str, expected: Rank, x: &Tracks) -> Result<()> {
    if x.rank() == expected {
        return Ok(());
    }
    let name = |rank: Rank| match rank {
        Rank::One => "multivectors alone",
        Rank::Two => "tensors of rank 2",
        Rank::Three => "tensors of rank 2 and 3",
    };
    Err(Error::Argument {
        operation,
        argument: "tensors",
        actual: name(x.rank()).to_owned(),
        expected: name(expected).to_owned(),
    })
}
