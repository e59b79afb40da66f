//! The norm of vectors and scalars, and dropout.

use super::{VectorChannels, VectorStreams, interval, linear::frozen_unless};
use gradewise_autograd::Tensor;
use gradewise_kernels::Array;
use gradewise_nn::{
    DeepClone, Module, Parameter, Placement, Result, in_layer,
    layers::{Dropout, Layer},
};

/// What is added to the mean.
pub(super) const EPSILON: f64 = 0.01;

/// Vectors and scalars divided by √(mean of their squares + 0.01), with the mean over all channels of both, and the absolute value of a
/// vector's square.
///
/// Parameters: the gains `weight_v` `[vectors]` and `weight_s` `[scalars]`, if there are gains.
#[derive(Debug, Module, DeepClone)]
pub struct SlimRmsNorm {
    weight_v: Option<Parameter>,
    weight_s: Option<Parameter>,
}

impl SlimRmsNorm {
    pub(super) fn init(
        channels: VectorChannels,
        elementwise_affine: bool,
        [of_vectors, of_scalars]: [bool; 2],
        placement: &Placement,
    ) -> Result<Self> {
        let gains = |count: usize, is_trained: bool| -> Result<Option<Parameter>> {
            let is_there = elementwise_affine && count > 0;
            let ones = is_there.then(|| placement.filled([count], 1.0)).transpose()?;
            Ok(ones.map(|ones| frozen_unless(is_trained, ones)))
        };
        Ok(Self {
            weight_v: gains(channels.vectors, of_vectors)?,
            weight_s: gains(channels.scalars, of_scalars)?,
        })
    }

    /// The streams, normalised.
    ///
    /// # Errors
    /// Other channels than the gains'.
    pub fn forward(&self, x: &VectorStreams) -> Result<VectorStreams> {
        in_layer("SlimRmsNorm::forward", || {
            let VectorChannels { vectors, scalars } = x.channels();
            let of_vectors = interval(&x.vectors, &x.vectors)?.abs()?.sum(&[2], true)?;
            let total = of_vectors.reshape([x.tokens(), 1])?.add(&x.scalars.square()?.sum(&[1], true)?)?;
            let mean = total.mul_scalar(((vectors + scalars) as f64).recip())?;
            let scale = mean.add_scalar(EPSILON)?.rsqrt()?;
            let gained = |x: Tensor, gains: &Option<Parameter>| match gains {
                Some(gains) => x.mul(&gains.tensor()),
                None => Ok(x),
            };
            Ok(VectorStreams {
                vectors: gained(x.vectors.mul(&scale)?, &self.weight_v)?,
                scalars: gained(x.scalars.mul(&scale)?, &self.weight_s)?,
            })
        })
    }
}

/// Zeroes whole vectors, and single scalars, with probability `p` in a pass of [`training`](gradewise_autograd::training), and scales the rest
/// by 1/(1 − p); the identity in every other pass.
#[derive(Clone, Copy, Debug)]
pub struct SlimDropout {
    vectors: Dropout,
    scalars: Dropout,
}

impl SlimDropout {
    /// With drop probability `p`; its masks are determined by `seed` and the number of the pass.
    ///
    /// # Errors
    /// A probability outside 0 ≤ p < 1.
    pub fn new(p: f64, seed: u64) -> Result<Self> {
        let (first, second) = (seed.wrapping_mul(2), seed.wrapping_mul(2).wrapping_add(1));
        Ok(Self { vectors: Dropout::new(p, first)?, scalars: Dropout::new(p, second)? })
    }

    /// Applies dropout to both streams.
    ///
    /// # Errors
    /// From the device.
    pub fn forward(&self, x: &VectorStreams) -> Result<VectorStreams> {
        if !self.vectors.drops() {
            return Ok(x.clone());
        }
        let (dtype, device) = (x.vectors.dtype(), x.vectors.device());
        let ones = Array::full([x.tokens(), x.channels().vectors], 1.0, dtype, &device)?;
        let kept = self.vectors.forward(&Tensor::new(ones))?;
        Ok(VectorStreams { vectors: x.vectors.mul(&kept)?, scalars: self.scalars.forward(&x.scalars)? })
    }
}
