//! Products of two linear maps of the same features.

use super::{TrackLinear, TrackSize, Tracks, multivectors, tensors_missing};
use crate::{Module, Parameter, Placement, Result, error::at_least_one, layers::symmetric_traceless};
use gradewise_autograd::{
    Tensor,
    clifford::{ProductOptions, sgp, tensor_dot, tensor_tensor, tensor_vector},
};
use gradewise_core::{Algebra, Signature};

/// `(left(x) + x ∘ right(x)) / √2` with linear maps `left` and `right`, where ∘ is, channel by channel with a weight for each path, the
/// geometric product and, with tensors, all parity-preserving products of these ranks whose result has rank at most 2:
///
/// | factors | result |
/// |---|---|
/// | S, S' | S:S' to the scalars |
/// | S, v' and v, S' | S·v', S'·v to the vectors |
/// | v, v' | ½(v⊗v' + v'⊗v) − ⅓(v·v')I to the tensors |
/// | S, S' | S·S' + S'·S − ⅔(S:S')I to the tensors |
/// | S, s' and s, S' | s'S, sS' to the tensors |
///
/// The layer is a polynomial of degree 2, without normalisation. Tensors that are not used by later layers need not be computed
/// ([`without_tensors`](Self::without_tensors)).
///
/// Parameters: those of `left` and `right`; `weight` `[channels, 20]` with variance 1/4, `coupling` `[7, channels]` with variance 1/4 in the
/// order of the table, `[3, channels]` of a layer that makes no tensors.
#[derive(Debug, Module)]
pub struct TrackProduct {
    #[module(skip)]
    algebra: Algebra,
    left: TrackLinear,
    right: TrackLinear,
    weight: Parameter,
    coupling: Option<Parameter>,
    #[module(skip)]
    makes_tensors: bool,
}

/// Couplings with tensors: those that make scalars and vectors, and all.
const LOWERING: usize = 3;
const COUPLINGS: usize = 7;

impl TrackProduct {
    /// Draws the parameters for inputs and outputs of this size.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        size: TrackSize,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        Self::of(size, size.tensors, &placement.into(), rng)
    }

    /// Draws the parameters for inputs of this size and outputs without tensors.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn without_tensors<R: rand::Rng + ?Sized>(
        size: TrackSize,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        Self::of(size, false, &placement.into(), rng)
    }

    fn of<R: rand::Rng + ?Sized>(
        size: TrackSize,
        makes_tensors: bool,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let TrackSize { channels, tensors } = size;
        at_least_one("TrackProduct", &[("channels", channels)])?;
        let algebra = Algebra::new(Signature::CL3)?;
        let deviation = (algebra.grade_count() as f64).sqrt().recip();
        let made = TrackSize { channels, tensors: makes_tensors };
        let left = TrackLinear::init(channels, made, true, placement, rng)?;
        let right = TrackLinear::init(channels, size, false, placement, rng)?;
        let weight = placement.normal([channels, algebra.paths().len()], deviation, rng)?;
        let couplings = if makes_tensors { COUPLINGS } else { LOWERING };
        let coupling = || placement.normal([couplings, channels], deviation, rng);
        let coupling = tensors.then(coupling).transpose()?;
        Ok(Self { algebra, left, right, weight, coupling, makes_tensors })
    }

    /// The layer's output.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        let right = self.right.forward(x)?;
        let left = match self.makes_tensors {
            true => self.left.forward(x)?,
            false => self.left.forward(&x.without_tensors())?,
        };
        let options = ProductOptions::default();
        let product =
            sgp(&self.algebra, &x.multivectors, &right.multivectors, &self.weight.tensor(), options)?;
        let product = match (&self.coupling, &x.tensors, &right.tensors) {
            (Some(coupling), Some(s), Some(t)) => {
                let coupling = coupling.tensor();
                let product = lowered(x, &right, (s, t), &product, &coupling)?;
                let raised = || raised(x, &right, (s, t), &coupling);
                Tracks { multivectors: product, tensors: self.makes_tensors.then(raised).transpose()? }
            }
            (None, None, None) => Tracks { multivectors: product, tensors: None },
            (expected, ..) => return Err(tensors_missing("TrackProduct", expected.is_some())),
        };
        left.add(&product)?.scaled(std::f64::consts::FRAC_1_SQRT_2)
    }
}

/// The geometric product, plus the contributions of the tensors `s` of `x` and `t` of `y` to scalars and vectors.
fn lowered(
    x: &Tracks,
    y: &Tracks,
    (s, t): (&Tensor, &Tensor),
    product: &Tensor,
    coupling: &Tensor,
) -> Result<Tensor> {
    let weight = |path: usize| coupling.slice(0, path..path + 1);
    let scalars = tensor_dot(s, t)?.mul(&weight(0)?)?;
    let vectors = tensor_vector(s, &y.vectors()?)?.mul(&weight(1)?)?;
    let vectors = vectors.add(&tensor_vector(t, &x.vectors()?)?.mul(&weight(2)?)?)?;
    Ok(product.add(&multivectors(&scalars, &vectors)?)?)
}

/// The tensors of the product.
fn raised(x: &Tracks, y: &Tracks, (s, t): (&Tensor, &Tensor), coupling: &Tensor) -> Result<Tensor> {
    let weight = |path: usize| coupling.slice(0, LOWERING + path..LOWERING + path + 1);
    let tensors = symmetric_traceless(&x.vectors()?, &y.vectors()?)?.mul(&weight(0)?)?;
    let tensors = tensors.add(&tensor_tensor(s, t)?.mul(&weight(1)?)?)?;
    let tensors = tensors.add(&s.mul(&y.scalars()?.mul(&weight(2)?)?)?)?;
    Ok(tensors.add(&t.mul(&x.scalars()?.mul(&weight(3)?)?)?)?)
}
