//! Products of two maps of the same features.

use super::{TrackLinear, TrackSize, Tracks, multivectors, tensors_missing};
use crate::{Module, Parameter, Placement, Result, layers::symmetric_traceless};
use gradewise_autograd::{
    Tensor,
    clifford::{ProductOptions, sgp, tensor_dot, tensor_tensor, tensor_vector},
};
use gradewise_core::{Algebra, Signature};

/// `(left(x) + x ∘ right(x)) / √2` with linear maps `left` and `right`, where ∘ is, channel by channel with a weight for each path, the
/// geometric product and, with tensors, all of rank at most 2 that two factors of these ranks make without a change of parity:
///
/// | factors | result |
/// |---|---|
/// | S, S' | S:S' to the scalars |
/// | S, v' and v, S' | S·v', S'·v to the vectors |
/// | v, v' | ½(v⊗v' + v'⊗v) − ⅓(v·v')I to the tensors |
/// | S, S' | S·S' + S'·S − ⅔(S:S')I to the tensors |
/// | S, s' and s, S' | s'S, sS' to the tensors |
///
/// Products are of degree 2, so that a layer is a polynomial: there is no norm in it.
///
/// Parameters: those of `left` and `right`; `weight` `[channels, 20]` with variance 1/4, `coupling` `[7, channels]` with variance 1/4 in the
/// order of the table.
#[derive(Debug, Module)]
pub struct TrackProduct {
    #[module(skip)]
    algebra: Algebra,
    left: TrackLinear,
    right: TrackLinear,
    weight: Parameter,
    coupling: Option<Parameter>,
}

/// Couplings with tensors.
const COUPLINGS: usize = 7;

impl TrackProduct {
    /// For tracks of this size, which the result has, too.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        size: TrackSize,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, TrackSize { channels, tensors }) = (&placement.into(), size);
        let algebra = Algebra::new(Signature::CL3)?;
        let deviation = (algebra.grade_count() as f64).sqrt().recip();
        let left = TrackLinear::init(channels, size, true, placement, rng)?;
        let right = TrackLinear::init(channels, size, false, placement, rng)?;
        let weight = placement.normal([channels, algebra.paths().len()], deviation, rng)?;
        let coupling = || placement.normal([COUPLINGS, channels], deviation, rng);
        Ok(Self { algebra, left, right, weight, coupling: tensors.then(coupling).transpose()? })
    }

    /// The layer's output.
    ///
    /// # Errors
    /// Other channels, or tensors that the layer does not know or does not find.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        let (left, right) = (self.left.forward(x)?, self.right.forward(x)?);
        let options = ProductOptions::default();
        let product =
            sgp(&self.algebra, &x.multivectors, &right.multivectors, &self.weight.tensor(), options)?;
        let product = match (&self.coupling, &x.tensors, &right.tensors) {
            (Some(coupling), Some(s), Some(t)) => coupled(x, &right, (s, t), &product, &coupling.tensor())?,
            (None, None, None) => Tracks { multivectors: product, tensors: None },
            (expected, ..) => return Err(tensors_missing("TrackProduct", expected.is_some())),
        };
        left.add(&product)?.scaled(std::f64::consts::FRAC_1_SQRT_2)
    }
}

/// The geometric product with what the tensors `s` of `x` and `t` of `y` add to it.
fn coupled(
    x: &Tracks,
    y: &Tracks,
    (s, t): (&Tensor, &Tensor),
    product: &Tensor,
    coupling: &Tensor,
) -> Result<Tracks> {
    let weight = |path: usize| coupling.slice(0, path..path + 1);
    let (v, w) = (x.vectors()?, y.vectors()?);
    let scalars = tensor_dot(s, t)?.mul(&weight(0)?)?;
    let vectors = tensor_vector(s, &w)?.mul(&weight(1)?)?.add(&tensor_vector(t, &v)?.mul(&weight(2)?)?)?;
    let tensors = symmetric_traceless(&v, &w)?.mul(&weight(3)?)?;
    let tensors = tensors.add(&tensor_tensor(s, t)?.mul(&weight(4)?)?)?;
    let tensors = tensors.add(&s.mul(&y.scalars()?.mul(&weight(5)?)?)?)?;
    let tensors = tensors.add(&t.mul(&x.scalars()?.mul(&weight(6)?)?)?)?;
    Ok(Tracks { multivectors: product.add(&multivectors(&scalars, &vectors)?)?, tensors: Some(tensors) })
}
