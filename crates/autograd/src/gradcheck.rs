//! Gradients against finite differences.

use crate::{
    BackwardOptions, Deviation, Error, Result, Tensor, concat,
    difference::{Estimate, extrapolated},
    grad,
};
use gradewise_kernels::{Array, DType};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::fmt;

/// How [`gradcheck`] compares.
#[derive(Clone, Debug, PartialEq)]
pub struct GradcheckOptions {
    /// Step of the central difference, relative to elements above 1 in magnitude. The error of the difference is
    /// about step² from truncation and 10⁻¹⁶/step from rounding, so 1e-5 is near the best for smooth functions.
    pub step: f64,
    /// Relative deviation that is accepted.
    pub relative: f64,
    /// Absolute deviation that is accepted.
    pub absolute: f64,
    /// Elements checked per input; of larger inputs, so many are drawn at random.
    pub samples: usize,
    /// Seed of the draw, and of the direction in which an output of several elements is differentiated.
    pub seed: u64,
}

impl GradcheckOptions {
    /// Refuses options with which nothing is compared, or everything passes.
    fn validate(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::Argument { operation: "gradcheck", message });
        if !(self.step > 0.0 && self.step < 1.0) {
            return refuse(format!(
                "the step is {}, expected above 0 and below 1; 1e-5 suits smooth functions",
                self.step
            ));
        }
        if self.samples == 0 {
            return refuse(
                "it is to compare 0 elements of each input, which shows nothing; expected at least 1"
                    .to_owned(),
            );
        }
        for (name, tolerance) in [("relative", self.relative), ("absolute", self.absolute)] {
            if !(0.0..1.0).contains(&tolerance) {
                return refuse(format!(
                    "the {name} tolerance is {tolerance}, expected at least 0 and below 1"
                ));
            }
        }
        if self.relative + self.absolute == 0.0 {
            return refuse(
                "both tolerances are 0, and differences have errors; expected one above 0".to_owned(),
            );
        }
        Ok(())
    }
}

impl Default for GradcheckOptions {
    fn default() -> Self {
        Self { step: 1e-5, relative: 1e-6, absolute: 1e-8, samples: 64, seed: 0 }
    }
}

impl Deviation {
    /// The deviation in units of what is accepted: above 1 is a failure. Infinite for NaN.
    pub fn excess(&self, options: &GradcheckOptions) -> f64 {
        self.excess_beyond(options, 0.0)
    }

    /// As [`excess`](Self::excess), for a difference that has an error of its own.
    fn excess_beyond(&self, options: &GradcheckOptions, error: f64) -> f64 {
        let accepted =
            options.absolute + options.relative * self.analytic.abs().max(self.numeric.abs()) + error;
        let excess = (self.analytic - self.numeric).abs() / accepted;
        if excess.is_nan() { f64::INFINITY } else { excess }
    }
}

/// The result of a check that passed.
#[derive(Clone, Debug, PartialEq)]
pub struct GradcheckReport {
    /// Number of elements compared, over all inputs.
    pub checked: usize,
    /// The largest deviation relative to what was accepted; `None` if nothing was compared.
    pub worst: Option<Deviation>,
}

impl fmt::Display for GradcheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements agree", self.checked)?;
        match &self.worst {
            Some(worst) => write!(f, "; the furthest apart: {worst}"),
            None => Ok(()),
        }
    }
}

/// Compares the gradients of `function` with central differences, element by element, in double precision.
///
/// An output of several elements is differentiated in one random direction: gradients of Σ v·y with v drawn from the
/// seed. `function` must be smooth near the inputs and give the same result each time; a random mask inside it needs a
/// fixed seed.
///
/// Where an element deviates by more than the options accept, differences of many steps are extrapolated, with an estimate of their own
/// error: near a singularity, such as a norm's where its square crosses zero, the usual step is too large. Their error is accepted in
/// addition while it is small beside the derivative; where no step gives a derivative that is known to 10⁻⁴, the check fails with
/// [`Error::IllConditioned`], which is no statement about the gradient.
///
/// ```
/// use gradewise_autograd::{GradcheckOptions, Tensor, gradcheck};
/// use gradewise_kernels::Device;
///
/// let x = Tensor::from_slice(&[0.3f64, -0.8, 1.7], [3], &Device::Cpu)?;
/// let report = gradcheck(&[&x], &GradcheckOptions::default(), |inputs| inputs[0].sin()?.mul(&inputs[0]))?;
/// assert_eq!(report.checked, 3);
/// # Ok::<(), gradewise_autograd::Error>(())
/// ```
///
/// # Errors
/// [`Error::GradientMismatch`] with the element that deviates most; [`Error::IllConditioned`]; [`Error::Argument`] for inputs other than f64 or a
/// function that is not deterministic; whatever the function returns.
pub fn gradcheck(
    inputs: &[&Tensor],
    options: &GradcheckOptions,
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<GradcheckReport> {
    const NAME: &str = "gradcheck";
    options.validate()?;
    if let Some((index, input)) = inputs.iter().enumerate().find(|(_, input)| input.dtype() != DType::F64) {
        let message = format!(
            "input {index} is {}; finite differences in less than f64 are noise, so make it f64 with cast",
            input.dtype()
        );
        return Err(Error::Argument { operation: NAME, message });
    }
    let leaves: Vec<Tensor> = inputs.iter().map(|input| input.requires_grad()).collect();
    let output = function(&leaves)?;
    let base = output.to_vec::<f64>()?;
    if function(&leaves)?.to_vec::<f64>()? != base && !base.iter().any(|value| value.is_nan()) {
        let message =
            "the function gives different results for the same inputs; fix the seeds of its random numbers";
        return Err(Error::Argument { operation: NAME, message: message.to_owned() });
    }
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let direction = Tensor::randn(output.shape(), DType::F64, &output.device(), &mut rng)?;
    let gradients = if output.is_grad_required() {
        let options = BackwardOptions::seed(direction.clone());
        grad(&output, &leaves.iter().collect::<Vec<_>>(), &options)?
    } else {
        vec![None; leaves.len()]
    };
    let direction = direction.to_vec::<f64>()?;

    let mut report = GradcheckReport { checked: 0, worst: None };
    let (mut largest, mut singular) = (0.0, None);
    for (index, leaf) in leaves.iter().enumerate() {
        let values = leaf.to_vec::<f64>()?;
        let analytic = match &gradients[index] {
            Some(gradient) => gradient.to_vec::<f64>()?,
            None => vec![0.0; values.len()],
        };
        for position in chosen(values.len(), options.samples, &mut rng) {
            let moved = |step: f64| -> Result<(f64, Vec<f64>)> {
                let mut values = values.clone();
                values[position] += step;
                let array = Array::from_slice(&values, leaf.shape(), &leaf.device())?;
                let mut arguments = leaves.clone();
                arguments[index] = Tensor::new(array).requires_grad();
                Ok((values[position], function(&arguments)?.to_vec::<f64>()?))
            };
            let step = options.step * values[position].abs().max(1.0);
            let central = |step: f64| -> Result<Estimate> {
                let ((above, y_above), (below, y_below)) = (moved(step)?, moved(-step)?);
                // Differences first: elements that do not depend on this one then contribute exactly nothing.
                let difference: f64 =
                    direction.iter().zip(y_above.iter().zip(&y_below)).map(|(v, (a, b))| v * (a - b)).sum();
                let changed = direction.iter().zip(y_above.iter().zip(&y_below)).filter(|(_, (a, b))| a != b);
                let size: f64 = changed.map(|(v, (a, b))| (v * a).abs().max((v * b).abs())).sum();
                let error = ROUNDING * f64::EPSILON * size / (above - below);
                Ok(Estimate { value: difference / (above - below), error })
            };
            let mut deviation = Deviation {
                input: index,
                element: unravel(position, leaf.shape()),
                analytic: analytic[position],
                numeric: central(step)?.value,
            };
            report.checked += 1;
            let mut excess = deviation.excess(options);
            if excess > 1.0 && deviation.analytic.is_finite() {
                let Estimate { value, error } = extrapolated(step, central)?;
                if value.is_finite() {
                    deviation.numeric = value;
                }
                if error.is_nan() || error > CONCLUSIVE * value.abs() + options.absolute {
                    singular = Some((deviation, error));
                    continue;
                }
                excess = deviation.excess_beyond(options, ERRORS * error);
            }
            if report.worst.is_none() || excess > largest {
                (largest, report.worst) = (excess, Some(deviation));
            }
        }
    }
    match (report.worst, singular) {
        (Some(worst), _) if largest > 1.0 => {
            Err(Error::GradientMismatch { deviation: Box::new(worst), checked: report.checked })
        }
        (_, Some((deviation, error))) => Err(Error::IllConditioned { deviation: Box::new(deviation), error }),
        (worst, None) => Ok(GradcheckReport { worst, ..report }),
    }
}

/// Roundings of an element that a difference takes into account.
const ROUNDING: f64 = 8.0;
/// The largest relative error of a difference that a gradient can be judged by.
const CONCLUSIVE: f64 = 1e-4;
/// The part of the accepted deviation that the estimated error of a difference may be: the estimate is of the order of the error.
const ERRORS: f64 = 4.0;

/// Compares the second derivatives of `function` with central differences of its first: [`gradcheck`] of the map from
/// the inputs, and a direction in the output, to the gradients. Also checks that the first derivatives are the same
/// whether their graph is recorded or not, which ties the backward of an [`Operation`](crate::Operation) to its
/// re-expression.
///
/// # Errors
/// As [`gradcheck`], where the last input of a reported deviation is the direction; [`Error::ReexpressionMismatch`].
pub fn gradgradcheck(
    inputs: &[&Tensor],
    options: &GradcheckOptions,
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<GradcheckReport> {
    options.validate()?;
    let leaves: Vec<Tensor> = inputs.iter().map(|input| input.requires_grad()).collect();
    let output = function(&leaves)?;
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed.wrapping_add(1));
    let direction = Tensor::randn(output.shape(), output.dtype(), &output.device(), &mut rng)?;
    let gradients = |inputs: &[Tensor], direction: &Tensor, create_graph: bool| -> Result<Vec<Tensor>> {
        let output = function(inputs)?;
        let wanted: Vec<&Tensor> = inputs.iter().collect();
        let options = BackwardOptions { seed: Some(direction.clone()), create_graph };
        let zeros = |input: &Tensor| Tensor::zeros(input.shape(), input.dtype(), &input.device());
        let gradients = grad(&output, &wanted, &options)?;
        gradients
            .into_iter()
            .zip(inputs)
            .map(|(gradient, input)| gradient.map_or_else(|| zeros(input), Ok))
            .collect()
    };

    let plain = gradients(&leaves, &direction, false)?;
    let recorded = gradients(&leaves, &direction, true)?;
    for (input, (plain, recorded)) in plain.iter().zip(&recorded).enumerate() {
        let shape = plain.shape();
        let values = plain.array().to_f64_vec()?.into_iter().zip(recorded.array().to_f64_vec()?);
        for (position, (plain, recorded)) in values.enumerate() {
            let deviation = Deviation { input, element: vec![], analytic: plain, numeric: recorded };
            if deviation.excess(options) > 1.0 {
                let element = unravel(position, shape);
                return Err(Error::ReexpressionMismatch { input, element, plain, recorded });
            }
        }
    }

    let flat = |arguments: &[Tensor]| -> Result<Tensor> {
        let Some((direction, inputs)) = arguments.split_last() else {
            unreachable!("the direction is always among the arguments");
        };
        let flatten = |gradient: &Tensor| gradient.reshape([gradient.shape().elements()]);
        let flat = gradients(inputs, direction, true)?.iter().map(flatten).collect::<Result<Vec<_>>>()?;
        concat(&flat.iter().collect::<Vec<_>>(), 0)
    };
    let mut all = inputs.to_vec();
    all.push(&direction);
    gradcheck(&all, options, flat)
}

/// All positions below `count`, or `samples` of them at random, ascending.
fn chosen(count: usize, samples: usize, rng: &mut ChaCha8Rng) -> Vec<usize> {
    if count <= samples {
        return (0..count).collect();
    }
    let mut positions = rand::seq::index::sample(rng, count, samples).into_vec();
    positions.sort_unstable();
    positions
}

fn unravel(position: usize, sizes: &[usize]) -> Vec<usize> {
    let mut rest = position;
    let mut element: Vec<usize> = sizes
        .iter()
        .rev()
        .map(|&size| {
            let at = rest % size;
            rest /= size;
            at
        })
        .collect();
    element.reverse();
    element
}
