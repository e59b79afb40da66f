//! Layers that the networks share, on feature planes.

mod bilinear;
mod dropout;
mod gate;
mod heads;
mod initialization;
mod linear;
mod norm;
mod planes;
mod projection;

pub(super) use bilinear::product;
pub use dropout::GradeDropout;
pub(super) use gate::Gate;
pub use gate::Nonlinearity;
pub(super) use heads::{HeadSplit, attend, merge};
pub use initialization::Initialization;
pub use linear::{EquiLinear, EquiLinearBuilder};
pub use norm::{EquiLayerNorm, EquiLayerNormBuilder};
pub use planes::FeaturePlanes;
pub(super) use projection::{Projection, ProjectionSize};

use gradewise_nn::{Error, Result};

/// Refuses numbers of channels that the input does not have.
pub(super) fn require_channels(
    operation: &'static str,
    argument: &'static str,
    numbers: &[usize],
    count: usize,
) -> Result<()> {
    match numbers.iter().find(|&&number| number >= count) {
        None => Ok(()),
        Some(number) => Err(Error::Argument {
            operation,
            argument,
            actual: format!("{numbers:?}, with {number}"),
            expected: format!("numbers below {count}, the channels of that kind in the input"),
        }),
    }
}
