//! Layers on features that consist of multivectors and tensors of rank 2.
//!
//! The geometric product of two vectors in space is u·v and u∧v: spherical tensors of degree 0 and 1. Its symmetric traceless part, of
//! degree 2, is not part of a multivector, so a network in Cl(3,0) can represent quadrupoles only through several layers. A channel of
//! [`Tracks`] is a multivector and, if there are tensors, a symmetric traceless S (the construction of arXiv:2606.29584). Only couplings
//! that preserve parity are used: the term S_ik ε_kjl v_l of that publication, which is odd under the inversion where S is even, is
//! omitted, so every layer commutes with all of O(3).

mod linear;
mod messages;
mod norm;
mod product;
mod radial;

pub use linear::TrackLinear;
pub use messages::TrackMessages;
pub use norm::{TrackGate, TrackNorm};
pub use product::TrackProduct;
pub use radial::{Radial, RadialBasis, RadialWeights};

use crate::{Error, Result};
use gradewise_autograd::{Tensor, clifford::COMPONENTS, concat};

/// Blades of Cl(3,0).
const BLADES: usize = 8;

/// The size of tracks: the number of channels, and whether they have tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackSize {
    /// Channels.
    pub channels: usize,
    /// Whether each channel has a tensor in addition to its multivector.
    pub tensors: bool,
}

/// Channels of multivectors of Cl(3,0) and of symmetric traceless tensors.
#[derive(Clone, Debug)]
pub struct Tracks {
    /// `[8, rows, channels]`
    pub multivectors: Tensor,
    /// `[5, rows, channels]`: the components xx, xy, xz, yy and yz.
    pub tensors: Option<Tensor>,
}

impl Tracks {
    /// Tracks whose multivectors and tensors have equal rows and channels.
    ///
    /// # Errors
    /// Multivectors that are not `[8, rows, channels]`, tensors that are not `[5, rows, channels]`.
    pub fn new(multivectors: Tensor, tensors: Option<Tensor>) -> Result<Self> {
        let shape = multivectors.shape().dims();
        let fits = |tensors: &Tensor| {
            let of = tensors.shape().dims();
            of.len() == 3 && of[0] == COMPONENTS && of[1..] == shape[1..]
        };
        if shape.len() != 3 || shape[0] != BLADES || !tensors.as_ref().is_none_or(fits) {
            let beside = tensors.map_or_else(String::new, |s| format!(" beside tensors {}", s.shape()));
            return Err(Error::Argument {
                operation: "Tracks",
                argument: "multivectors",
                actual: format!("{}{beside}", multivectors.shape()),
                expected: "[8, rows, channels], tensors [5, rows, channels]".to_owned(),
            });
        }
        Ok(Self { multivectors, tensors })
    }

    /// Scalars `[1, rows, channels]` as tracks; all other components are zero.
    ///
    /// # Errors
    /// Another shape; from the device.
    pub fn of_scalars(scalars: &Tensor, tensors: bool) -> Result<Self> {
        let rest = |size: usize| {
            let mut shape = scalars.shape().to_vec();
            if let Some(leading) = shape.first_mut() {
                *leading = size;
            }
            Tensor::zeros(shape, scalars.dtype(), &scalars.device())
        };
        let multivectors = concat(&[scalars, &rest(BLADES - 1)?], 0)?;
        Self::new(multivectors, if tensors { Some(rest(COMPONENTS)?) } else { None })
    }

    /// Drops the tensors.
    #[must_use]
    pub fn without_tensors(&self) -> Self {
        Self { multivectors: self.multivectors.clone(), tensors: None }
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
        Ok(Self {
            multivectors: self.multivectors.mul_scalar(factor)?,
            tensors: self.tensors.as_ref().map(|s| s.mul_scalar(factor)).transpose()?,
        })
    }

    fn with(&self, other: &Self, of: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Self> {
        let tensors = match (&self.tensors, &other.tensors) {
            (None, None) => None,
            (Some(a), Some(b)) => Some(of(a, b)?),
            _ => return Err(tensors_missing("Tracks", self.tensors.is_some())),
        };
        Ok(Self { multivectors: of(&self.multivectors, &other.multivectors)?, tensors })
    }
}

/// Scalars and vectors `[1, …]` and `[3, …]` as multivectors `[8, …]`.
fn multivectors(scalars: &Tensor, vectors: &Tensor) -> Result<Tensor> {
    let mut rest = vectors.shape().to_vec();
    rest[0] = BLADES - 4;
    let rest = Tensor::zeros(rest, vectors.dtype(), &vectors.device())?;
    Ok(concat(&[scalars, vectors, &rest], 0)?)
}

/// The error for missing or unexpected tensors.
fn tensors_missing(operation: &'static str, expected: bool) -> Error {
    let name = |tensors: bool| if tensors { "tensors of rank 2" } else { "multivectors alone" };
    Error::Argument {
        operation,
        argument: "tensors",
        actual: name(!expected).to_owned(),
        expected: name(expected).to_owned(),
    }
}
