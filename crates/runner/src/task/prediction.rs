//! Predictions for one sample, as programs in other languages make them.

use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device};
use gradewise_nn::Placement;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use gradewise_emit::Argument;

/// What a prediction may depend on besides the model.
#[derive(Clone, Copy, Debug)]
pub struct PredictionSize<'a> {
    /// The number of particles or points that was asked for.
    pub particles: Option<usize>,
    /// The dtype of the model.
    pub placement: &'a Placement,
}

/// A function of tensors.
type Run<'a> = dyn Fn(&[Tensor]) -> gradewise_nn::Result<Vec<Tensor>> + 'a;

/// A prediction for one sample, as a function of tensors.
pub struct Prediction<'a> {
    /// What the model is, in lines.
    pub about: Vec<String>,
    /// Its inputs.
    pub inputs: Vec<Argument>,
    /// Its results.
    pub outputs: Vec<Argument>,
    /// The inputs of two samples, which differ in all numbers and are such as occur.
    pub examples: [Vec<Tensor>; 2],
    /// The function.
    pub run: Box<Run<'a>>,
}

impl<'a> Prediction<'a> {
    /// A prediction from inputs of these shapes, whose numbers are of order one, in the dtype of the placement.
    ///
    /// # Errors
    /// From the device.
    pub fn new(
        inputs: Vec<(Argument, Vec<usize>)>,
        outputs: Vec<Argument>,
        placement: &Placement,
        run: impl Fn(&[Tensor]) -> gradewise_nn::Result<Vec<Tensor>> + 'a,
    ) -> gradewise_nn::Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut example = || -> gradewise_nn::Result<Vec<Tensor>> {
            inputs.iter().map(|(_, shape)| drawn(shape, placement, &mut rng)).collect()
        };
        let examples = [example()?, example()?];
        let inputs = inputs.into_iter().map(|(argument, _)| argument).collect();
        Ok(Self { about: Vec::new(), inputs, outputs, examples, run: Box::new(run) })
    }

    /// With other examples.
    #[must_use]
    pub fn examples(mut self, examples: [Vec<Tensor>; 2]) -> Self {
        self.examples = examples;
        self
    }

    /// With lines of description.
    #[must_use]
    pub fn about(mut self, line: impl Into<String>) -> Self {
        self.about.push(line.into());
        self
    }
}

fn drawn(shape: &[usize], placement: &Placement, rng: &mut impl Rng) -> gradewise_nn::Result<Tensor> {
    Ok(Tensor::new(Array::randn(shape, placement.dtype, &Device::Cpu, rng)?))
}
