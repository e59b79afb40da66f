//! Products of two linear maps of the same features.

use super::{Rank, TrackLinear, TrackSize, Tracks, multivectors, require_rank};
use gradewise_autograd::{
    Tensor,
    clifford::{ProductOptions, sgp, tensor_dot, tensor_tensor, tensor_vector, traceless_coupling},
};
use gradewise_core::{Algebra, Signature};
use gradewise_nn::{
    DeepClone, Module, Parameter, Placement, Result, data::at_least_one, in_layer,
    layers::symmetric_traceless,
};

/// `(left(x) + x ∘ right(x)) / √2` with linear maps `left` and `right`, where ∘ is, channel by channel with a weight for each path, the
/// geometric product and, with tensors, the parity-preserving symmetric products of these ranks
/// ([`traceless_coupling`]) whose result has no higher rank:
///
/// | factors | result |
/// |---|---|
/// | S, S' | S:S' to the scalars |
/// | S, v' and v, S' | S·v', S'·v to the vectors |
/// | v, v' | ½(v⊗v' + v'⊗v) − ⅓(v·v')I to the tensors |
/// | S, S' | S·S' + S'·S − ⅔(S:S')I to the tensors |
/// | S, s' and s, S' | s'S, sS' to the tensors |
/// | T, T' | T∴T' to the scalars |
/// | T, S' and S, T' | T:S', T':S to the vectors |
/// | T, v' and v, T' | T·v', T'·v to the tensors |
/// | T, T' | the symmetric traceless part of T:T' to the tensors |
/// | S, v' and v, S' | those of S⊗v', S'⊗v to the tensors of rank 3 |
/// | T, S' and S, T' | those of T·S', T'·S to the tensors of rank 3 |
/// | T, s' and s, T' | s'T, sT' to the tensors of rank 3 |
///
/// The layer is a polynomial of degree 2, without normalisation. Tensors that are not used by later layers need not be computed
/// ([`without_tensors`](Self::without_tensors)).
///
/// Parameters: those of `left` and `right`; `weight` `[channels, 20]` with variance 1/4, `coupling` `[7, channels]` with variance 1/4 in the
/// order of the table, `[3, channels]` of a layer that makes no tensors; for rank 3 `octupole_coupling` `[12, channels]` or `[3, channels]`
/// for the rest of the table.
#[derive(Debug, Module, DeepClone)]
pub struct TrackProduct {
    #[module(skip)]
    algebra: Algebra,
    left: TrackLinear,
    right: TrackLinear,
    weight: Parameter,
    coupling: Option<Parameter>,
    octupole_coupling: Option<Parameter>,
    #[module(skip)]
    rank: Rank,
    #[module(skip)]
    makes_tensors: bool,
}

/// Couplings with tensors: those that make scalars and vectors, and all; of rank 2, and of rank 3.
const LOWERING: usize = 3;
const COUPLINGS: usize = 7;
const OCTUPOLE_COUPLINGS: usize = 12;

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
        Self::of(size, size.rank.has_tensors(), &placement.into(), rng)
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
        let TrackSize { channels, rank } = size;
        at_least_one("TrackProduct", &[("channels", channels)])?;
        let algebra = Algebra::new(Signature::CL3)?;
        let deviation = (algebra.grade_count() as f64).sqrt().recip();
        let made = TrackSize { channels, rank: if makes_tensors { rank } else { Rank::One } };
        let left = TrackLinear::init(channels, made, true, placement, rng)?;
        let right = TrackLinear::init(channels, size, false, placement, rng)?;
        let weight = placement.normal([channels, algebra.paths().len()], deviation, rng)?;
        let mut couplings = |there: bool, all: usize| {
            let count = if makes_tensors { all } else { LOWERING };
            there.then(|| placement.normal([count, channels], deviation, rng)).transpose()
        };
        let coupling = couplings(rank.has_tensors(), COUPLINGS)?;
        let octupole_coupling = couplings(rank.has_octupoles(), OCTUPOLE_COUPLINGS)?;
        Ok(Self { algebra, left, right, weight, coupling, octupole_coupling, rank, makes_tensors })
    }

    /// The layer's output.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        in_layer("TrackProduct::forward", || {
            require_rank("TrackProduct", self.rank, x)?;
            let right = self.right.forward(x)?;
            let left = match self.makes_tensors {
                true => self.left.forward(x)?,
                false => self.left.forward(&x.without_tensors())?,
            };
            let options = ProductOptions::default();
            let multivectors =
                sgp(&self.algebra, &x.multivectors, &right.multivectors, &self.weight.tensor(), options)?;
            let mut product = Tracks { multivectors, tensors: None, octupoles: None };
            if let (Some(coupling), Some(s), Some(t)) = (&self.coupling, &x.tensors, &right.tensors) {
                let coupling = coupling.tensor();
                product.multivectors = lowered(x, &right, (s, t), &product.multivectors, &coupling)?;
                if self.makes_tensors {
                    product.tensors = Some(raised(x, &right, (s, t), &coupling)?);
                }
            }
            if let Some(coupling) = &self.octupole_coupling {
                product = with_octupoles(x, &right, product, &coupling.tensor())?;
            }
            left.add(&product)?.scaled(std::f64::consts::FRAC_1_SQRT_2)
        })
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

/// A product with the couplings of rank 3; with those that make tensors, if it has tensors.
fn with_octupoles(x: &Tracks, y: &Tracks, product: Tracks, coupling: &Tensor) -> Result<Tracks> {
    let (Some(s), Some(t), Some(o), Some(p)) = (&x.tensors, &y.tensors, &x.octupoles, &y.octupoles) else {
        return Ok(product);
    };
    let (u, v) = (x.vectors()?, y.vectors()?);
    let mut path = 0;
    let mut term = |ranks: [usize; 2], rank: usize, a: &Tensor, b: &Tensor| -> Result<Tensor> {
        path += 1;
        Ok(traceless_coupling(ranks, rank, a, b)?.mul(&coupling.slice(0, path - 1..path)?)?)
    };
    let scalars = term([3, 3], 0, o, p)?;
    let vectors = term([3, 2], 1, o, t)?.add(&term([3, 2], 1, p, s)?)?;
    let multivectors = product.multivectors.add(&multivectors(&scalars, &vectors)?)?;
    let Some(tensors) = product.tensors else { return Ok(Tracks { multivectors, ..product }) };
    let tensors = tensors.add(&term([3, 1], 2, o, &v)?)?.add(&term([3, 1], 2, p, &u)?)?;
    let tensors = tensors.add(&term([3, 3], 2, o, p)?)?;
    let octupoles = term([2, 1], 3, s, &v)?.add(&term([2, 1], 3, t, &u)?)?;
    let octupoles = octupoles.add(&term([3, 2], 3, o, t)?)?.add(&term([3, 2], 3, p, s)?)?;
    let octupoles =
        octupoles.add(&term([3, 0], 3, o, &y.scalars()?)?)?.add(&term([3, 0], 3, p, &x.scalars()?)?)?;
    Ok(Tracks { multivectors, tensors: Some(tensors), octupoles: Some(octupoles) })
}
