//! Optimisers with PyTorch's semantics.

use super::{GradientScaler, ScalerState, clip::Limits};
use crate::checkpoint::TensorFile;
use crate::{Error, Parameter, Result};
use gradewise_kernels::{
    Array,
    ops::optim::{self, WeightDecay},
};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The update rule of an optimiser and its constants; the learning rate is an argument of every step.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Adam (Kingma & Ba 2015, arXiv:1412.6980); weight decay is added to the gradient.
    Adam {
        /// Decay rates of the two moments.
        betas: (f64, f64),
        /// Added to the root of the second moment.
        eps: f64,
        /// λ.
        weight_decay: f64,
    },
    /// AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101); weight decay shrinks the parameter itself.
    AdamW {
        /// Decay rates of the two moments.
        betas: (f64, f64),
        /// Added to the root of the second moment.
        eps: f64,
        /// λ.
        weight_decay: f64,
    },
    /// Stochastic gradient descent; weight decay is added to the gradient.
    Sgd {
        /// Momentum; 0 for none.
        momentum: f64,
        /// λ.
        weight_decay: f64,
    },
}

impl Method {
    /// Adam with the usual constants, β = (0.9, 0.999) and ε = 1e-8.
    pub const fn adam(weight_decay: f64) -> Self {
        Self::Adam { betas: (0.9, 0.999), eps: 1e-8, weight_decay }
    }

    /// AdamW with the usual constants, β = (0.9, 0.999) and ε = 1e-8.
    pub const fn adamw(weight_decay: f64) -> Self {
        Self::AdamW { betas: (0.9, 0.999), eps: 1e-8, weight_decay }
    }

    /// Names of the state arrays kept for each parameter.
    const fn slots(&self) -> &'static [&'static str] {
        match self {
            Self::Adam { .. } | Self::AdamW { .. } => &["first_moment", "second_moment"],
            Self::Sgd { .. } => &["momentum"],
        }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |argument, value: f64, expected: &str| {
            let (actual, expected) = (value.to_string(), expected.to_owned());
            Err(Error::Argument { operation: "optimiser", argument, actual, expected })
        };
        let decay = match *self {
            Self::Adam { betas, eps, weight_decay } | Self::AdamW { betas, eps, weight_decay } => {
                for beta in [betas.0, betas.1] {
                    if !(0.0..1.0).contains(&beta) {
                        return refuse("betas", beta, "at least 0 and less than 1");
                    }
                }
                if !(eps > 0.0 && eps.is_finite()) {
                    return refuse("eps", eps, "greater than 0");
                }
                weight_decay
            }
            Self::Sgd { momentum, weight_decay } => {
                if !(0.0..1.0).contains(&momentum) {
                    return refuse("momentum", momentum, "at least 0 and less than 1");
                }
                weight_decay
            }
        };
        if decay >= 0.0 && decay.is_finite() { Ok(()) } else { refuse("weight_decay", decay, "at least 0") }
    }
}

/// An optimiser with its state for every parameter, by name.
#[derive(Clone, Debug)]
pub struct Optimizer {
    method: Method,
    /// The state of each parameter by name. A step looks it up several times, hence the fast hash.
    slots: FxHashMap<String, Slot>,
    /// The parameters of the model, for [`backward_step`](Self::backward_step); none for the others' steps, which are given theirs.
    pub(super) parameters: Vec<(String, Parameter)>,
    /// The largest norm of all gradients and the largest element.
    pub(super) limits: Limits,
    pub(super) scaler: Option<GradientScaler>,
    /// Steps by [`backward_step`](Self::backward_step), and those skipped since the last one.
    pub(super) steps: u64,
    pub(super) skips: u64,
}

#[derive(Clone, Debug)]
struct Slot {
    /// Updates of this parameter so far.
    step: u64,
    /// In the order of [`Method::slots`].
    arrays: Vec<Array>,
}

impl Optimizer {
    /// An optimiser without history, whose [`step`](Self::step) is given parameters and gradients; [`for_model`](Self::for_model) makes one for
    /// [`backward_step`](Self::backward_step).
    ///
    /// # Errors
    /// [`Error::Argument`] for constants outside their range.
    pub fn new(method: Method) -> Result<Self> {
        method.validate()?;
        Ok(Self {
            method,
            slots: FxHashMap::default(),
            parameters: Vec::new(),
            limits: (None, None),
            scaler: None,
            steps: 0,
            skips: 0,
        })
    }

    /// The rule and its constants.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Updates every parameter that has a gradient, in place if no graph holds its values any more. A parameter without
    /// gradient keeps its value and its state.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are not as many gradients as parameters, and for a learning rate that is negative or not finite; shapes, dtypes or devices that differ
    /// between a parameter and its gradient. Parameters before the one at fault have been updated.
    pub fn step(
        &mut self,
        lr: f64,
        parameters: &[(String, Parameter)],
        gradients: &[Option<Array>],
    ) -> Result<()> {
        if parameters.len() != gradients.len() {
            return Err(Error::Argument {
                operation: "optimiser step",
                argument: "gradients",
                actual: gradients.len().to_string(),
                expected: format!("{}, the number of parameters", parameters.len()),
            });
        }
        require_rate(lr)?;
        for ((name, parameter), gradient) in parameters.iter().zip(gradients) {
            let Some(gradient) = gradient else { continue };
            self.ensure(name, gradient)?;
            let Some(slot) = self.slots.get_mut(name) else { continue };
            slot.step += 1;
            parameter.update_in_place(|values| update(&self.method, lr, values, gradient, slot))?;
        }
        Ok(())
    }

    /// Makes the state of a parameter whose gradient is like `gradient`, unless there is one.
    pub(crate) fn ensure(&mut self, name: &str, gradient: &Array) -> Result<()> {
        if !self.slots.contains_key(name) {
            let zeros = |_: &&str| Ok(gradient.zeros_like()?);
            let arrays = self.method.slots().iter().map(zeros).collect::<Result<_>>()?;
            self.slots.insert(name.to_owned(), Slot { step: 0, arrays });
        }
        Ok(())
    }

    /// The state arrays of a parameter, none if it has no state yet.
    pub(crate) fn slots(&self, name: &str) -> &[Array] {
        self.slots.get(name).map_or(&[], |slot| &slot.arrays)
    }

    /// The state arrays of a parameter, with their names.
    pub(crate) fn kept(&self, name: &str) -> impl Iterator<Item = (&'static str, &Array)> {
        self.method.slots().iter().copied().zip(self.slots(name))
    }

    /// The number of updates so far of all these parameters.
    ///
    /// # Errors
    /// [`Error::Argument`] if they differ: one launch updates all parameters with the same constants.
    pub(crate) fn common_step<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<u64> {
        let step = |name: &str| self.slots.get(name).map_or(0, |slot| slot.step);
        let first = names.next().map_or(0, step);
        match names.find(|name| step(name) != first) {
            None => Ok(first),
            Some(other) => Err(Error::Argument {
                operation: "training step on a device",
                argument: "optimiser state",
                actual: format!("`{other}` was updated {} times, others {first} times", step(other)),
                expected: "as many updates of every parameter; or train on the host".to_owned(),
            }),
        }
    }

    /// Counts an update of these parameters that ran on a device.
    pub(crate) fn advance<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if let Some(slot) = self.slots.get_mut(name) {
                slot.step += 1;
            }
        }
    }

    /// Writes the constants of update number `step` to a device.
    pub(crate) fn set_constants(&self, state: &optim::cuda::StepState, lr: f64, step: u64) -> Result<()> {
        require_rate(lr)?;
        let adam =
            |betas, eps, weight_decay, decay| optim::Adam { lr, betas, eps, weight_decay, decay, step };
        match self.method {
            Method::Adam { betas, eps, weight_decay } => {
                state.set_adam(&adam(betas, eps, weight_decay, WeightDecay::L2))?;
            }
            Method::AdamW { betas, eps, weight_decay } => {
                state.set_adam(&adam(betas, eps, weight_decay, WeightDecay::Decoupled))?;
            }
            Method::Sgd { momentum, weight_decay } => {
                state.set_sgd(&optim::Sgd { lr, momentum, weight_decay, step })?;
            }
        }
        Ok(())
    }

    /// Adds the state to `tensors`, as `optimizer.<slot>::<parameter>`, and returns the scalars of the state.
    ///
    /// # Errors
    /// From the device.
    pub fn save(&self, tensors: &mut TensorFile) -> Result<serde_json::Value> {
        let slots: BTreeMap<&str, &Slot> =
            self.slots.iter().map(|(name, slot)| (name.as_str(), slot)).collect();
        for (name, slot) in &slots {
            for (kind, array) in self.method.slots().iter().zip(&slot.arrays) {
                tensors.insert_array(format!("optimizer.{kind}::{name}"), array)?;
            }
        }
        let steps: BTreeMap<&str, u64> = slots.iter().map(|(&name, slot)| (name, slot.step)).collect();
        let mut state = serde_json::json!({ "method": self.method, "steps": steps });
        if let Some(scaler) = &self.scaler {
            state["scaler"] = serde_json::to_value(scaler.state()).unwrap_or_default();
        }
        Ok(state)
    }

    /// Restores what [`Optimizer::save`] saved for these parameters, bit for bit.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the file lacks state, or its shape does not fit; [`Error::Argument`] if it belongs to
    /// another method or other parameters. The optimiser is then unchanged.
    pub fn load(
        &mut self,
        state: &serde_json::Value,
        tensors: &TensorFile,
        parameters: &[(String, Parameter)],
    ) -> Result<()> {
        #[derive(Deserialize)]
        struct State {
            method: Method,
            steps: BTreeMap<String, u64>,
            #[serde(default)]
            scaler: Option<ScalerState>,
        }
        let refuse = |argument, actual: String, expected: String| Error::Argument {
            operation: "restore optimiser",
            argument,
            actual,
            expected,
        };
        let State { method, steps, scaler: scale } = State::deserialize(state)
            .map_err(|error| refuse("state", error.to_string(), "the state of an optimiser".to_owned()))?;
        if method != self.method {
            return Err(refuse("method", format!("{method:?}"), format!("{:?}", self.method)));
        }
        if let Some(stranger) = steps.keys().find(|name| parameters.iter().all(|(known, _)| known != *name)) {
            return Err(refuse("steps", format!("for `{stranger}`"), "a parameter of the model".to_owned()));
        }
        let mut slots = FxHashMap::default();
        for (name, parameter) in parameters {
            let Some(&step) = steps.get(name) else { continue };
            let like = parameter.array();
            let read = |kind: &&str| {
                let name = format!("optimizer.{kind}::{name}");
                tensors.array_of_shape(&name, like.dims(), like.dtype(), &like.device())
            };
            let arrays = method.slots().iter().map(read).collect::<Result<_>>()?;
            slots.insert(name.clone(), Slot { step, arrays });
        }
        if let (Some(scaler), Some(scale)) = (&mut self.scaler, scale) {
            scaler.restore(scale)?;
        }
        self.slots = slots;
        Ok(())
    }
}

/// Refuses learning rates with which a step destroys the weights, or climbs.
fn require_rate(lr: f64) -> Result<()> {
    if lr.is_finite() && lr >= 0.0 {
        return Ok(());
    }
    let (actual, expected) = (lr.to_string(), "finite and at least 0".to_owned());
    Err(Error::Argument { operation: "optimiser step", argument: "lr", actual, expected })
}

fn update(method: &Method, lr: f64, values: &mut Array, gradient: &Array, slot: &mut Slot) -> Result<()> {
    let step = slot.step;
    let adam = |betas, eps, weight_decay, decay| optim::Adam { lr, betas, eps, weight_decay, decay, step };
    match (*method, slot.arrays.as_mut_slice()) {
        (Method::Adam { betas, eps, weight_decay }, [first, second]) => {
            let constants = adam(betas, eps, weight_decay, WeightDecay::L2);
            optim::adam(&constants, values, gradient, first, second)?;
        }
        (Method::AdamW { betas, eps, weight_decay }, [first, second]) => {
            let constants = adam(betas, eps, weight_decay, WeightDecay::Decoupled);
            optim::adam(&constants, values, gradient, first, second)?;
        }
        (Method::Sgd { momentum, weight_decay }, [buffer]) => {
            optim::sgd(&optim::Sgd { lr, momentum, weight_decay, step }, values, gradient, buffer)?;
        }
        _ => debug_assert!(false, "as many state arrays as the method has slots"),
    }
    Ok(())
}
