//! Steps of training loops that are written by hand.

use super::{GradientNorms, GradientScaler, Method, Optimizer, ScalerConfig, clip};
use crate::{Error, Module, Result};
use gradewise_autograd::{BackwardOptions, Tensor};
use gradewise_kernels::Array;

/// The number of consecutive steps without a usable gradient after which training counts as diverged.
pub const MAX_CONSECUTIVE_SKIPS: u64 = 20;

/// What [`Optimizer::backward_step`] did.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// Norms of the gradients before clipping, in the order of the model's parameters.
    pub norms: GradientNorms,
    /// Whether a limit was exceeded.
    pub clipped: bool,
    /// Whether loss or gradients were not finite, so that nothing was updated.
    pub skipped: bool,
    /// The factor by which the loss was scaled, if it was.
    pub scale: Option<f64>,
}

impl Optimizer {
    /// An optimiser of the parameters of `model`, for [`backward_step`](Self::backward_step).
    ///
    /// # Errors
    /// [`Error::DuplicateParameter`]; as [`new`](Self::new).
    pub fn for_model(model: &(impl Module + ?Sized), method: Method) -> Result<Self> {
        let mut optimizer = Self::new(method)?;
        optimizer.parameters = model.unique_parameters()?;
        Ok(optimizer)
    }

    /// Scales all gradients of [`backward_step`](Self::backward_step) by one factor so that their norm is at most `limit`.
    #[must_use]
    pub fn clip_norm(mut self, limit: f64) -> Self {
        self.limits.0 = Some(limit);
        self
    }

    /// Clamps every element of the gradients of [`backward_step`](Self::backward_step) to ± `limit`, after the norm's limit.
    #[must_use]
    pub fn clip_value(mut self, limit: f64) -> Self {
        self.limits.1 = Some(limit);
        self
    }

    /// Scales losses in [`backward_step`](Self::backward_step), so that gradients in f16 do not vanish; the updates are those of the
    /// gradients themselves.
    ///
    /// # Errors
    /// [`Error::Argument`] for constants outside their range.
    pub fn scale_losses(mut self, config: ScalerConfig) -> Result<Self> {
        self.scaler = Some(GradientScaler::new(config)?);
        Ok(self)
    }

    /// The gradients of `loss`, and a step along them with the learning rate `lr`: the body of a training loop. Gradients are scaled and
    /// clipped as the settings of this optimiser say, and a step whose loss or gradients are not finite is skipped, as in a
    /// [`Trainer`](crate::train::Trainer). Weight decay is part of the [`Method`].
    ///
    /// ```
    /// use gradewise_nn::{DType, Device, Placement, Tensor, layers::{Layer, Linear}, loss::mean_squared_error, optim::{Method, Optimizer}};
    /// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
    ///
    /// let (place, mut rng) = (Placement::new(&Device::Cpu, DType::F64), ChaCha8Rng::seed_from_u64(1));
    /// let model = Linear::new(1, 1).init(&place, &mut rng)?;
    /// let mut optimizer = Optimizer::for_model(&model, Method::adam(0.0))?.clip_norm(1.0);
    /// let (x, y) = (place.tensor(&[0.0, 1.0, 2.0], [3, 1])?, place.tensor(&[1.0, 3.0, 5.0], [3, 1])?);
    /// for _ in 0..800 {
    ///     let loss = mean_squared_error(&model.forward(&x)?, &y)?;
    ///     optimizer.backward_step(&loss, 0.05)?;
    /// }
    /// assert!(mean_squared_error(&model.forward(&x)?, &y)?.item()? < 1e-6); // y = 2x + 1
    /// # Ok::<(), gradewise_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for an optimiser without a model, a loss that is not one number or depends on none of its parameters, and a
    /// learning rate that is negative or not finite; [`Error::Diverged`] after [`MAX_CONSECUTIVE_SKIPS`] skipped steps in a row.
    pub fn backward_step(&mut self, loss: &Tensor, lr: f64) -> Result<Update> {
        const NAME: &str = "Optimizer::backward_step";
        if self.parameters.is_empty() {
            return Err(Error::Argument {
                operation: NAME,
                argument: "self",
                actual: "an optimiser without parameters".to_owned(),
                expected: "one that knows its model: Optimizer::for_model(&model, method)".to_owned(),
            });
        }
        require_loss(NAME, loss, "the model's parameters, outside of no_grad and without detach")?;
        let scale = self.scaler.as_ref().map(GradientScaler::scale);
        let options = match &self.scaler {
            Some(scaler) => BackwardOptions::seed(scaler.seed(loss)?),
            None => BackwardOptions::default(),
        };
        let mut found = loss.backward_with(&options)?;
        let mut gradients: Vec<Option<Array>> = Vec::with_capacity(self.parameters.len());
        for (_, parameter) in &self.parameters {
            let leaf = parameter.tensor();
            gradients.push(match found.contains(&leaf) {
                true => Some(found.take(&leaf)?.array().clone()),
                false => None,
            });
        }
        if gradients.iter().all(Option::is_none) {
            return Err(Error::Argument {
                operation: NAME,
                argument: "loss",
                actual: "a number that depends on no parameter of this optimiser".to_owned(),
                expected: "computed by the model that it was made for, and after the last step".to_owned(),
            });
        }
        if let Some(scaler) = &self.scaler {
            scaler.unscale(&mut gradients)?;
        }
        let norms = GradientNorms::of(&gradients)?;
        let skipped = !(norms.are_finite() && loss.item()?.is_finite());
        let mut clipped = false;
        if skipped {
            self.skips += 1;
        } else {
            clipped = clip(&mut gradients, &norms, self.limits)?;
            // Taken out for the time of the step, which changes the optimiser.
            let parameters = std::mem::take(&mut self.parameters);
            let taken = self.step(lr, &parameters, &gradients);
            self.parameters = parameters;
            taken?;
            (self.skips, self.steps) = (0, self.steps + 1);
        }
        if let Some(scaler) = &mut self.scaler {
            scaler.update(skipped)?;
        }
        if self.skips >= MAX_CONSECUTIVE_SKIPS {
            let bad = self.parameters.iter().zip(&norms.each).find(|(_, norm)| !norm.is_finite());
            let reason = match bad {
                Some(((name, _), _)) => format!("the gradient of `{name}` is not finite"),
                None => format!("the loss is {}", loss.item()?),
            };
            return Err(Error::Diverged { step: self.steps + self.skips, skipped: self.skips, reason });
        }
        Ok(Update { norms, clipped, skipped, scale })
    }
}

/// Refuses what cannot be a loss; `of` says what it should be computed from.
///
/// # Errors
/// [`Error::Argument`].
pub(crate) fn require_loss(operation: &'static str, loss: &Tensor, of: &str) -> Result<()> {
    let refuse = |actual: String, expected: String| {
        Err(Error::Argument { operation, argument: "loss", actual, expected })
    };
    if loss.shape().elements() != 1 {
        let expected = "one number: reduce it by mean_all or sum_all".to_owned();
        return refuse(format!("of shape {}", loss.shape()), expected);
    }
    if !loss.is_grad_required() {
        return refuse("a number that depends on no parameter".to_owned(), format!("computed from {of}"));
    }
    Ok(())
}
