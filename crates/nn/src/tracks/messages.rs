//! Messages along edges.

use super::{RadialBasis, RadialWeights, TrackLinear, TrackSize, Tracks, multivectors, radial::Radial};
use crate::{Module, Placement, Result, data::Edges, error::at_least_one, layers::symmetric_traceless};
use gradewise_autograd::{
    Tensor,
    clifford::{geometric_product, tensor_vector},
    concat,
};
use gradewise_core::{Algebra, Signature};

/// Sums of messages are divided by the root of a typical number of neighbours, so that their variance starts at that of one message.
const NEIGHBOURS: f64 = 16.0;

/// Sums over neighbours j of learned functions of the distance times products of the direction n with the features of j:
///
/// | to | |
/// |---|---|
/// | multivectors | M_j, n M_j |
/// | tensors | s_j (n⊗n − I/3), S_j, ½(n⊗v_j + v_j⊗n) − ⅓(n·v_j)I |
/// | vectors | S_j·n |
///
/// A first layer has only scalar features, so it computes only s_j, n s_j and s_j (n⊗n − I/3).
///
/// Parameters: `linear`, a [`TrackLinear`] of the senders' features, and `radial`, a [`RadialWeights`].
#[derive(Module)]
pub struct TrackMessages {
    #[module(skip)]
    algebra: Algebra,
    #[module(skip)]
    size: TrackSize,
    #[module(skip)]
    first: bool,
    linear: TrackLinear,
    radial: RadialWeights,
}

impl TrackMessages {
    /// For features of this size; `first` if the features are only scalars.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        size: TrackSize,
        first: bool,
        basis: &RadialBasis,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one("TrackMessages", &[("channels", size.channels)])?;
        let placement = &placement.into();
        let functions = match (size.tensors, first) {
            (false, _) => 2,
            (true, true) => 3,
            (true, false) => 6,
        };
        // A first layer has only scalars, so there are no tensors to map.
        let sent = TrackSize { tensors: size.tensors && !first, ..size };
        Ok(Self {
            algebra: Algebra::new(Signature::CL3)?,
            size,
            first,
            linear: TrackLinear::init(size.channels, sent, false, placement, rng)?,
            radial: RadialWeights::init(basis, functions * size.channels, placement, rng)?,
        })
    }

    /// The sum of messages at each node.
    ///
    /// # Errors
    /// Shapes, dtypes or devices that do not match.
    pub fn forward(&self, x: &Tracks, radial: &Radial, edges: &Edges) -> Result<Tracks> {
        let x = match self.first {
            true => self.linear.forward(&x.without_tensors())?,
            false => self.linear.forward(x)?,
        };
        let channels = self.size.channels;
        let functions = self.radial.forward(radial)?;
        let function = |k: usize| functions.slice(2, k * channels..(k + 1) * channels);
        let sent = |of: &Tensor| of.index_select(1, &edges.senders);
        let received = |message: &Tensor| -> Result<Tensor> {
            let sum = message.segment_sum(1, &edges.receivers)?;
            Ok(sum.mul_scalar(NEIGHBOURS.sqrt().recip())?)
        };
        let n = &radial.directions;
        let quadrupole = || symmetric_traceless(n, n);
        if self.first {
            let scalars = sent(&x.scalars()?)?;
            let vectors = scalars.mul(&function(1)?)?.mul(n)?;
            let parts = received(&concat(&[&scalars.mul(&function(0)?)?, &vectors], 0)?)?;
            let tensors = match self.size.tensors {
                true => Some(received(&scalars.mul(&function(2)?)?.mul(&quadrupole()?)?)?),
                false => None,
            };
            let multivectors = multivectors(&parts.slice(0, 0..1)?, &parts.slice(0, 1..4)?)?;
            return Tracks::new(multivectors, tensors);
        }
        let own = sent(&x.multivectors)?;
        let shape = own.shape().clone();
        let nothing = Tensor::zeros([1, shape[1], 1], n.dtype(), &n.device())?;
        let turned =
            geometric_product(&self.algebra, &multivectors(&nothing, n)?.broadcast_to(&shape)?, &own)?;
        let message = own.mul(&function(0)?)?.add(&turned.mul(&function(1)?)?)?;
        let Some(tensors) = &x.tensors else { return Tracks::new(received(&message)?, None) };
        let (own_tensors, vectors) = (sent(tensors)?, own.slice(0, 1..4)?);
        let along = n.broadcast_to(vectors.shape())?;
        let tensors = quadrupole()?.mul(&own.slice(0, 0..1)?.mul(&function(2)?)?)?;
        let tensors = tensors.add(&own_tensors.mul(&function(3)?)?)?;
        let tensors = tensors.add(&symmetric_traceless(&along, &vectors)?.mul(&function(4)?)?)?;
        let pulled = tensor_vector(&own_tensors, &along)?.mul(&function(5)?)?;
        let still = Tensor::zeros([1, shape[1], channels], n.dtype(), &n.device())?;
        let message = message.add(&multivectors(&still, &pulled)?)?;
        Tracks::new(received(&message)?, Some(received(&tensors)?))
    }
}
