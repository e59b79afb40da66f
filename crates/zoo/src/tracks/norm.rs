//! The gate of each channel, and the norm over channels.

use super::{OCTUPOLE, Rank, TrackSize, Tracks, require_rank};
use gradewise_autograd::{
    Tensor,
    clifford::{tensor_dot, traceless_coupling},
};
use gradewise_core::Signature;
use gradewise_nn::{
    DeepClone, Module, Parameter, Placement, Result,
    data::at_least_one,
    in_layer,
    layers::{Layer, MvLayerNorm, MvSilu},
};

/// Added to S:S, because the square root has no derivative at zero, and to the divisor of the norm.
const EPSILON: f64 = 1e-8;

/// [`MvSilu`] on multivectors, S·σ(a‖S‖ + b) on tensors of each rank, with the Frobenius norm ‖S‖ = √(S:S + 1e-8).
///
/// Parameters: `silu.a`, `silu.b`; `slope`, one, and `shift`, zero, both `[channels]`; for rank 3 `octupole_slope` and `octupole_shift`.
#[derive(Debug, Module, DeepClone)]
pub struct TrackGate {
    #[module(skip)]
    rank: Rank,
    silu: MvSilu,
    slope: Option<Parameter>,
    shift: Option<Parameter>,
    octupole_slope: Option<Parameter>,
    octupole_shift: Option<Parameter>,
}

impl TrackGate {
    /// For tracks of this size.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init(size: TrackSize, placement: impl Into<Placement>) -> Result<Self> {
        at_least_one("TrackGate", &[("channels", size.channels)])?;
        let (placement, TrackSize { channels, rank }) = (&placement.into(), size);
        let filled = |there: bool, value| there.then(|| placement.filled([channels], value)).transpose();
        Ok(Self {
            rank,
            silu: MvSilu::new(channels, Signature::CL3).init(placement)?,
            slope: filled(rank.has_tensors(), 1.0)?,
            shift: filled(rank.has_tensors(), 0.0)?,
            octupole_slope: filled(rank.has_octupoles(), 1.0)?,
            octupole_shift: filled(rank.has_octupoles(), 0.0)?,
        })
    }

    /// The gated tracks.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        in_layer("TrackGate::forward", || {
            require_rank("TrackGate", self.rank, x)?;
            let gated = |of: &Option<Tensor>, slope: &Option<Parameter>, shift: &Option<Parameter>| {
                let (Some(of), Some(slope), Some(shift)) = (of, slope, shift) else { return Ok(None) };
                let gate = norm(of)?.mul(&slope.tensor())?.add(&shift.tensor())?.sigmoid()?;
                Ok::<_, gradewise_nn::Error>(Some(of.mul(&gate)?))
            };
            Ok(Tracks {
                multivectors: self.silu.forward(&x.multivectors)?,
                tensors: gated(&x.tensors, &self.slope, &self.shift)?,
                octupoles: gated(&x.octupoles, &self.octupole_slope, &self.octupole_shift)?,
            })
        })
    }
}

/// [`MvLayerNorm`] on multivectors; tensors of each rank are divided by √(mean over channels of S:S + 1e-8), with a learned gain.
///
/// Parameters: `multivectors.a`; `tensors` and `octupoles`, one, `[channels]`.
#[derive(Debug, Module, DeepClone)]
pub struct TrackNorm {
    #[module(skip)]
    rank: Rank,
    multivectors: MvLayerNorm,
    tensors: Option<Parameter>,
    octupoles: Option<Parameter>,
}

impl TrackNorm {
    /// For tracks of this size.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init(size: TrackSize, placement: impl Into<Placement>) -> Result<Self> {
        at_least_one("TrackNorm", &[("channels", size.channels)])?;
        let (placement, TrackSize { channels, rank }) = (&placement.into(), size);
        let multivectors = MvLayerNorm::new(channels, Signature::CL3).init(placement)?;
        let gain = |there: bool| there.then(|| placement.filled([channels], 1.0)).transpose();
        let (tensors, octupoles) = (gain(rank.has_tensors())?, gain(rank.has_octupoles())?);
        Ok(Self { rank, multivectors, tensors, octupoles })
    }

    /// The normalised tracks.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        in_layer("TrackNorm::forward", || {
            require_rank("TrackNorm", self.rank, x)?;
            let normed = |of: &Option<Tensor>, gain: &Option<Parameter>| {
                let (Some(of), Some(gain)) = (of, gain) else { return Ok(None) };
                let mean = square(of)?.mean(&[2], true)?;
                Ok::<_, gradewise_nn::Error>(Some(
                    of.mul(&mean.add_scalar(EPSILON)?.rsqrt()?)?.mul(&gain.tensor())?,
                ))
            };
            Ok(Tracks {
                multivectors: self.multivectors.forward(&x.multivectors)?,
                tensors: normed(&x.tensors, &self.tensors)?,
                octupoles: normed(&x.octupoles, &self.octupoles)?,
            })
        })
    }
}

/// S:S of tensors of rank 2 or 3, `[1, rows, channels]`.
fn square(tensors: &Tensor) -> Result<Tensor> {
    Ok(match tensors.shape()[0] {
        OCTUPOLE => traceless_coupling([3, 3], 0, tensors, tensors)?,
        _ => tensor_dot(tensors, tensors)?,
    })
}

/// ‖S‖, `[1, rows, channels]`.
fn norm(tensors: &Tensor) -> Result<Tensor> {
    Ok(square(tensors)?.add_scalar(EPSILON)?.sqrt()?)
}
