//! In-place optimiser updates: one pass over each parameter.
//!
//! Semantics are PyTorch's. `gradient`, the parameter and the optimiser's state share shape, dtype and device.

mod cpu;
pub mod cuda;

use crate::{
    Array, Device, Error, Result,
    ops::clifford::algebra::contract::{alike, exact, with_real},
};

/// What Adam does with weight decay λ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightDecay {
    /// Adds λ·p to the gradient (Adam).
    L2,
    /// Multiplies the parameter by 1 − lr·λ (AdamW, Loshchilov & Hutter 2019).
    Decoupled,
}

/// Constants of one Adam step (Kingma & Ba 2015, arXiv:1412.6980).
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay rates of the first and second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
    /// How λ acts.
    pub decay: WeightDecay,
    /// The number of this step, from 1.
    pub step: u64,
}

/// Constants of one step of stochastic gradient descent.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    /// Learning rate of this step.
    pub lr: f64,
    /// Momentum; 0 disables it.
    pub momentum: f64,
    /// λ, added to the gradient as λ·p.
    pub weight_decay: f64,
    /// The number of this step, from 1: the first sets the momentum buffer to the gradient.
    pub step: u64,
}

fn step_zero(operation: &'static str) -> Error {
    Error::Argument { operation, argument: "step", actual: "0".to_owned(), expected: "at least 1" }
}

fn check(operation: &'static str, arrays: &[(&'static str, &Array)]) -> Result<gradewise_core::DType> {
    if let Some(((_, first), rest)) = arrays.split_first() {
        for (name, array) in rest {
            exact(operation, name, array, first.shape(), || "it belongs to the parameter".to_owned())?;
        }
    }
    alike(operation, arrays)
}

/// One Adam step on `parameter` with moments `first` and `second`.
///
/// # Errors
/// Arrays that differ in shape, dtype or device; a step of 0.
pub fn adam(
    constants: &Adam,
    parameter: &mut Array,
    gradient: &Array,
    first: &mut Array,
    second: &mut Array,
) -> Result<()> {
    const NAME: &str = "adam";
    if constants.step == 0 {
        return Err(step_zero(NAME));
    }
    let named =
        [("parameter", &*parameter), ("gradient", gradient), ("first", &*first), ("second", &*second)];
    let dtype = check(NAME, &named)?;
    let gradient = gradient.contiguous()?;
    if let Device::Cuda(device) = parameter.device() {
        [&mut *parameter, &mut *first, &mut *second].into_iter().try_for_each(Array::make_unique)?;
        let state = cuda::StepState::new(&device)?;
        state.set_adam(constants)?;
        let arrays = [Some(&*parameter), Some(&gradient), Some(&*first), Some(&*second)];
        return cuda::update(cuda::Update::Adam, &state, None, &[arrays]);
    }
    with_real!(dtype, NAME, T => {
        cpu::adam::<T>(
            constants,
            parameter.as_mut_slice()?,
            gradient.as_slice()?,
            first.as_mut_slice()?,
            second.as_mut_slice()?,
        );
        Ok(())
    })
}

/// One step of gradient descent on `parameter` with momentum buffer `momentum`.
///
/// # Errors
/// Arrays that differ in shape, dtype or device; a step of 0.
pub fn sgd(constants: &Sgd, parameter: &mut Array, gradient: &Array, momentum: &mut Array) -> Result<()> {
    const NAME: &str = "sgd";
    if constants.step == 0 {
        return Err(step_zero(NAME));
    }
    let dtype = check(NAME, &[("parameter", &*parameter), ("gradient", gradient), ("momentum", &*momentum)])?;
    let gradient = gradient.contiguous()?;
    if let Device::Cuda(device) = parameter.device() {
        [&mut *parameter, &mut *momentum].into_iter().try_for_each(Array::make_unique)?;
        let state = cuda::StepState::new(&device)?;
        state.set_sgd(constants)?;
        let arrays = [Some(&*parameter), Some(&gradient), Some(&*momentum), None];
        return cuda::update(cuda::Update::Sgd, &state, None, &[arrays]);
    }
    with_real!(dtype, NAME, T => {
        cpu::sgd::<T>(constants, parameter.as_mut_slice()?, gradient.as_slice()?, momentum.as_mut_slice()?);
        Ok(())
    })
}

/// `average ← decay·average + (1 − decay)·parameter`: one step of an exponential moving average.
///
/// # Errors
/// Arrays that differ in shape, dtype or device.
pub fn ema(decay: f64, average: &mut Array, parameter: &Array) -> Result<()> {
    const NAME: &str = "ema";
    let dtype = check(NAME, &[("average", &*average), ("parameter", parameter)])?;
    let parameter = parameter.contiguous()?;
    if let Device::Cuda(device) = average.device() {
        average.make_unique()?;
        let state = cuda::StepState::new(&device)?;
        state.set_ema(decay)?;
        return cuda::update(
            cuda::Update::Ema,
            &state,
            None,
            &[[Some(&*average), Some(&parameter), None, None]],
        );
    }
    with_real!(dtype, NAME, T => {
        cpu::ema::<T>(decay, average.as_mut_slice()?, parameter.as_slice()?);
        Ok(())
    })
}
