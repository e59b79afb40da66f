//! The gate of each channel, and the norm over channels.

use super::{TrackSize, Tracks, tensors_missing};
use crate::{
    Module, Parameter, Placement, Result,
    error::at_least_one,
    layers::{Layer, MvLayerNorm, MvSilu},
};
use gradewise_autograd::{Tensor, clifford::tensor_dot};
use gradewise_core::Signature;

/// Added to S:S, because the square root has no derivative at zero, and to the divisor of the norm.
const EPSILON: f64 = 1e-8;

/// [`MvSilu`] on multivectors, S·σ(a‖S‖ + b) on tensors, with the Frobenius norm ‖S‖ = √(S:S + 1e-8).
///
/// Parameters: `silu.a`, `silu.b`; `slope`, one, and `shift`, zero, both `[channels]`.
#[derive(Debug, Module)]
pub struct TrackGate {
    silu: MvSilu,
    slope: Option<Parameter>,
    shift: Option<Parameter>,
}

impl TrackGate {
    /// For tracks of this size.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init(size: TrackSize, placement: impl Into<Placement>) -> Result<Self> {
        at_least_one("TrackGate", &[("channels", size.channels)])?;
        let (placement, TrackSize { channels, tensors }) = (&placement.into(), size);
        let filled = |value| tensors.then(|| placement.filled([channels], value)).transpose();
        Ok(Self {
            silu: MvSilu::new(channels, Signature::CL3).init(placement)?,
            slope: filled(1.0)?,
            shift: filled(0.0)?,
        })
    }

    /// The gated tracks.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        let tensors = match (&self.slope, &self.shift, &x.tensors) {
            (Some(slope), Some(shift), Some(tensors)) => {
                let gate = norm(tensors)?.mul(&slope.tensor())?.add(&shift.tensor())?.sigmoid()?;
                Some(tensors.mul(&gate)?)
            }
            (None, None, None) => None,
            (expected, ..) => return Err(tensors_missing("TrackGate", expected.is_some())),
        };
        Ok(Tracks { multivectors: self.silu.forward(&x.multivectors)?, tensors })
    }
}

/// [`MvLayerNorm`] on multivectors; tensors are divided by √(mean over channels of S:S + 1e-8), with a learned gain.
///
/// Parameters: `multivectors.a`; `tensors`, one, `[channels]`.
#[derive(Debug, Module)]
pub struct TrackNorm {
    multivectors: MvLayerNorm,
    tensors: Option<Parameter>,
}

impl TrackNorm {
    /// For tracks of this size.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init(size: TrackSize, placement: impl Into<Placement>) -> Result<Self> {
        at_least_one("TrackNorm", &[("channels", size.channels)])?;
        let (placement, TrackSize { channels, tensors }) = (&placement.into(), size);
        let multivectors = MvLayerNorm::new(channels, Signature::CL3).init(placement)?;
        Ok(Self { multivectors, tensors: tensors.then(|| placement.filled([channels], 1.0)).transpose()? })
    }

    /// The normalised tracks.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        let tensors = match (&self.tensors, &x.tensors) {
            (Some(gain), Some(tensors)) => {
                let mean = tensor_dot(tensors, tensors)?.mean(&[2], true)?;
                Some(tensors.mul(&mean.add_scalar(EPSILON)?.rsqrt()?)?.mul(&gain.tensor())?)
            }
            (None, None) => None,
            (expected, _) => return Err(tensors_missing("TrackNorm", expected.is_some())),
        };
        Ok(Tracks { multivectors: self.multivectors.forward(&x.multivectors)?, tensors })
    }
}

/// ‖S‖, `[1, rows, channels]`.
fn norm(tensors: &Tensor) -> Result<Tensor> {
    Ok(tensor_dot(tensors, tensors)?.add_scalar(EPSILON)?.sqrt()?)
}
