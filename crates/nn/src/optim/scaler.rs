//! Mixed precision in training: a policy for operations, and a scale that keeps small gradients of `f16` above zero.

use crate::{Error, Result};
use gradewise_autograd::{Policy, Tensor};
use gradewise_kernels::{Array, DType, Device, ops};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};

/// Dynamic loss scaling (Micikevicius et al. 2018, arXiv:1710.03740).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScalerConfig {
    /// The scale of the first step.
    pub initial: f64,
    /// The factor after `interval` steps without overflow.
    pub growth: f64,
    /// The factor after a step that overflowed.
    pub backoff: f64,
    /// Steps without overflow before the scale grows.
    pub interval: u64,
}

impl Default for ScalerConfig {
    /// 65536, doubled after 2000 steps, halved on overflow.
    fn default() -> Self {
        Self { initial: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000 }
    }
}

impl ScalerConfig {
    fn validate(&self) -> Result<()> {
        let refuse = |argument, value: f64, expected: &str| {
            let (actual, expected) = (value.to_string(), expected.to_owned());
            Err(Error::Argument { operation: "gradient scaler", argument, actual, expected })
        };
        if !(LEAST..=MOST).contains(&self.initial) {
            return refuse("initial", self.initial, "between 2⁻²⁴ and 2⁶⁴");
        }
        if !(self.growth >= 1.0 && self.growth.is_finite()) {
            return refuse("growth", self.growth, "at least 1");
        }
        if !(self.backoff > 0.0 && self.backoff < 1.0) {
            return refuse("backoff", self.backoff, "between 0 and 1");
        }
        if self.interval == 0 { refuse("interval", 0.0, "at least 1") } else { Ok(()) }
    }
}

/// The smallest scale.
const LEAST: f64 = 1.0 / (1u64 << 24) as f64;
/// The largest scale.
const MOST: f64 = (1u128 << 64) as f64;

/// Training in mixed precision: parameters, their gradients and the optimiser in `f32`, operations by a policy.
#[derive(Clone, PartialEq, Debug)]
pub struct MixedPrecision {
    /// Which operations run in 16 bits.
    pub policy: Policy,
    /// How the loss is scaled; `None` leaves it as it is.
    pub scaler: Option<ScalerConfig>,
}

impl MixedPrecision {
    /// The usual rules in a 16-bit dtype. `f16` has a small exponent range and gets a scaler; `bf16` has the range of `f32` and needs none.
    ///
    /// # Errors
    /// A dtype that is not 16 bits wide.
    pub fn new(dtype: DType) -> Result<Self> {
        let scaler = (dtype == DType::F16).then(ScalerConfig::default);
        Ok(Self { policy: Policy::new(dtype)?, scaler })
    }
}

/// The state of a scaler, as stored in checkpoints.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ScalerState {
    scale: f64,
    /// Steps without overflow since the scale last changed.
    steady: u64,
}

/// Scales losses so that gradients neither vanish nor overflow in 16 bits.
#[derive(Debug)]
pub struct GradientScaler {
    config: ScalerConfig,
    state: ScalerState,
    /// The scale in device memory, which captured steps read, too.
    resident: Mutex<Option<Array>>,
}

impl Clone for GradientScaler {
    /// A scaler in the same state, with a resident scale of its own.
    fn clone(&self) -> Self {
        Self { config: self.config, state: self.state, resident: Mutex::default() }
    }
}

impl GradientScaler {
    /// A scaler at its initial scale.
    ///
    /// # Errors
    /// [`Error::Argument`] for constants outside their range.
    pub fn new(config: ScalerConfig) -> Result<Self> {
        config.validate()?;
        let state = ScalerState { scale: config.initial, steady: 0 };
        Ok(Self { config, state, resident: Mutex::default() })
    }

    /// The factor by which losses are multiplied, and gradients divided.
    pub fn scale(&self) -> f64 {
        self.state.scale
    }

    /// The seed gradient of a backward pass from `loss`: the scale.
    pub(crate) fn seed(&self, loss: &Tensor) -> Result<Tensor> {
        let device = loss.device();
        let scale = |device: &Device| Array::full([], self.scale(), loss.dtype(), device);
        let array = match device {
            Device::Cpu => scale(&device)?,
            Device::Cuda(_) => {
                let mut resident = self.resident.lock().unwrap_or_else(PoisonError::into_inner);
                match resident
                    .as_ref()
                    .filter(|array| array.device() == device && array.dtype() == loss.dtype())
                {
                    Some(array) => array.clone(),
                    None => resident.insert(scale(&device)?).clone(),
                }
            }
        };
        Ok(Tensor::new(array.reshape(loss.shape())?))
    }

    /// Divides gradients of a scaled loss by the scale.
    pub(crate) fn unscale(&self, gradients: &mut [Option<Array>]) -> Result<()> {
        for gradient in gradients.iter_mut().flatten() {
            *gradient = ops::mul_scalar(gradient, 1.0 / self.scale())?;
        }
        Ok(())
    }

    /// Updates the scale after a step.
    pub(crate) fn update(&mut self, overflowed: bool) -> Result<()> {
        let ScalerConfig { growth, backoff, interval, .. } = self.config;
        let scale = self.state.scale;
        if overflowed {
            self.state = ScalerState { scale: (scale * backoff).max(LEAST), steady: 0 };
        } else {
            self.state.steady += 1;
            if self.state.steady >= interval {
                self.state = ScalerState { scale: (scale * growth).min(MOST), steady: 0 };
            }
        }
        if scale == self.state.scale { Ok(()) } else { self.publish() }
    }

    /// Copies the scale to the device.
    fn publish(&self) -> Result<()> {
        if let Some(array) = self.resident.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            array.overwrite_shared(&Array::full(
                array.shape(),
                self.scale(),
                array.dtype(),
                &Device::Cpu,
            )?)?;
        }
        Ok(())
    }

    pub(crate) fn state(&self) -> ScalerState {
        self.state
    }

    pub(crate) fn restore(&mut self, state: ScalerState) -> Result<()> {
        self.state = state;
        self.publish()
    }
}

/// Warns once if too many elements of gradients are zero.
#[derive(Debug, Default)]
pub(crate) struct UnderflowWatch {
    first: Option<f64>,
    said: bool,
}

impl UnderflowWatch {
    /// An increase of the fraction of zeros over the first step that indicates underflow.
    const MORE: f64 = 0.1;
    /// A fraction of zeros that indicates underflow in itself.
    const MANY: f64 = 0.5;

    /// Checks the fraction of zeros in a step's gradients; returns whether it warned.
    pub fn see(&mut self, step: u64, zeros: f64, scale: Option<f64>) -> bool {
        let first = *self.first.get_or_insert(zeros);
        if self.said || !(zeros > first + Self::MORE || zeros > Self::MANY) {
            return false;
        }
        self.said = true;
        let advice = match scale {
            Some(scale) => format!("the loss scale is {scale}; start with a larger one, or use bf16"),
            None => "scale the loss, or use bf16".to_owned(),
        };
        tracing::warn!(
            "step {step}: {:.0}% of the elements of the gradients are zero, {:.0}% were in the first step: small gradients may \
             underflow in f16; {advice}",
            100.0 * zeros,
            100.0 * first
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_grow_after_steady_steps_and_back_off_at_once() {
        let config = ScalerConfig { initial: 8.0, interval: 3, ..ScalerConfig::default() };
        let mut scaler = GradientScaler::new(config).unwrap();
        let mut scales = Vec::new();
        for overflowed in [false, false, false, false, true, false, false, false, true, true] {
            scaler.update(overflowed).unwrap();
            scales.push(scaler.scale());
        }
        assert_eq!(scales, [8.0, 8.0, 16.0, 16.0, 8.0, 8.0, 8.0, 16.0, 8.0, 4.0]);
        let seed = scaler.seed(&Tensor::ones([1], DType::F32, &Device::Cpu).unwrap()).unwrap();
        assert_eq!(seed.to_vec::<f32>().unwrap(), [4.0]);
        for (initial, growth, backoff, interval) in [
            (0.0, 2.0, 0.5, 1),
            (f64::NAN, 2.0, 0.5, 1),
            (1.0, 0.5, 0.5, 1),
            (1.0, 2.0, 1.0, 1),
            (1.0, 2.0, 0.5, 0),
        ] {
            assert!(GradientScaler::new(ScalerConfig { initial, growth, backoff, interval }).is_err());
        }
    }

    #[test]
    fn scales_stay_in_their_range() {
        let mut scaler =
            GradientScaler::new(ScalerConfig { interval: 1, ..ScalerConfig::default() }).unwrap();
        (0..100).for_each(|_| scaler.update(false).unwrap());
        assert_eq!(scaler.scale(), MOST);
        (0..200).for_each(|_| scaler.update(true).unwrap());
        assert_eq!(scaler.scale(), LEAST);
    }

    #[test]
    fn zeros_are_reported_once_and_only_when_they_become_more() {
        let mut watch = UnderflowWatch::default();
        let seen: Vec<bool> =
            [0.2, 0.21, 0.29, 0.4, 0.9].into_iter().map(|zeros| watch.see(1, zeros, Some(1.0))).collect();
        assert_eq!(seen, [false, false, false, true, false]);
        assert!(UnderflowWatch::default().see(1, 0.6, None), "too many from the first step on");
    }
}
