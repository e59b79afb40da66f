//! Functions of distances.

use gradewise_autograd::Tensor;
use gradewise_kernels::Array;
use gradewise_nn::{
    DeepClone, Error, Module, Placement, Result,
    data::at_least_one,
    in_layer,
    layers::{Activation, Layer, Linear, Sequential},
};

/// Added to squared distances, because the square root has no derivative at zero.
const EPSILON: f64 = 1e-12;
/// Power of the envelope.
const POWER: f64 = 6.0;

/// Spherical Bessel functions √(2/c)·sin(kπr/c)/r, k = 1, 2, …, and the envelope 1 − 28u⁶ + 48u⁷ − 21u⁸ of u = r/c, whose value and first
/// two derivatives vanish at the cutoff c (Gasteiger et al. 2020, arXiv:2003.03123).
#[derive(Clone, Debug)]
pub struct RadialBasis {
    cutoff: f64,
    functions: usize,
}

/// The values of a [`RadialBasis`] for differences of positions.
#[derive(Clone, Debug)]
pub struct Radial {
    /// Unit vectors, `[3, edges, 1]`.
    pub directions: Tensor,
    /// `[edges, functions]`
    pub functions: Tensor,
    /// `[edges, 1]`, zero at the cutoff and beyond it.
    pub envelope: Tensor,
}

impl RadialBasis {
    /// A basis of `functions` functions up to the distance `cutoff`.
    ///
    /// # Errors
    /// [`Error::Argument`] for no function, or a cutoff that is not a positive number.
    pub fn new(functions: usize, cutoff: f64) -> Result<Self> {
        if functions == 0 || !(cutoff > 0.0 && cutoff.is_finite()) {
            return Err(Error::Argument {
                operation: "RadialBasis",
                argument: "cutoff",
                actual: format!("{cutoff} with {functions} functions"),
                expected: "above 0, with at least 1 function".to_owned(),
            });
        }
        Ok(Self { cutoff, functions })
    }

    /// Number of functions.
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// Directions and functions of `differences` `[3, edges, 1]`.
    ///
    /// # Errors
    /// From the device.
    pub fn forward(&self, differences: &Tensor) -> Result<Radial> {
        let edges = differences.shape()[1];
        let squared = differences.square()?.sum(&[0], true)?.add_scalar(EPSILON)?;
        let (distance, inverse) = (squared.sqrt()?, squared.rsqrt()?);
        let directions = differences.mul(&inverse)?;
        // Distances are clamped to the cutoff, where the envelope makes every function zero.
        let u = distance.reshape([edges, 1])?.mul_scalar(1.0 / self.cutoff)?.clamp(0.0, 1.0)?;
        let frequencies: Vec<f64> = (1..=self.functions).map(|k| std::f64::consts::PI * k as f64).collect();
        let frequencies =
            Array::constant(&frequencies, [1, self.functions], differences.dtype(), &differences.device())?;
        let waves = u.mul(&Tensor::new(frequencies))?.sin()?;
        let scaled = inverse.reshape([edges, 1])?.mul_scalar((2.0 / self.cutoff).sqrt())?;
        let power = u.pow(POWER)?;
        let [a, b, c] =
            [(POWER + 1.0) * (POWER + 2.0) / 2.0, POWER * (POWER + 2.0), POWER * (POWER + 1.0) / 2.0];
        let rest = u.mul_scalar(-c)?.add_scalar(b)?.mul(&u)?.add_scalar(-a)?;
        Ok(Radial {
            directions,
            functions: waves.mul(&scaled)?,
            envelope: power.mul(&rest)?.add_scalar(1.0)?,
        })
    }
}

/// Learned functions of a distance: a perceptron of one hidden layer on the basis, times the envelope.
///
/// Parameters: `0.weight`, `0.bias`, `2.weight` as [`Linear`].
#[derive(Module, DeepClone)]
pub struct RadialWeights {
    #[module(flatten)]
    net: Sequential,
    #[module(skip)]
    outputs: usize,
}

/// Units of the hidden layer.
const HIDDEN: usize = 32;

impl RadialWeights {
    /// Draws the parameters of `outputs` functions on a basis.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        basis: &RadialBasis,
        outputs: usize,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one("RadialWeights", &[("outputs", outputs)])?;
        let placement = &placement.into();
        let net = Sequential::new()
            .then(Linear::new(basis.functions(), HIDDEN).init(placement, rng)?)
            .then(Activation::Silu)
            .then(Linear::new(HIDDEN, outputs).bias(false).init(placement, rng)?);
        Ok(Self { net, outputs })
    }

    /// The functions, `[1, edges, outputs]`.
    ///
    /// # Errors
    /// From the device.
    pub fn forward(&self, radial: &Radial) -> Result<Tensor> {
        in_layer("RadialWeights::forward", || {
            let values = self.net.forward(&radial.functions)?.mul(&radial.envelope)?;
            Ok(values.reshape([1, radial.envelope.shape()[0], self.outputs])?)
        })
    }
}
