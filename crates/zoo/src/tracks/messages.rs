//! Messages along edges.

use super::{RadialBasis, RadialWeights, Rank, TrackLinear, TrackSize, Tracks, multivectors, radial::Radial};
use gradewise_autograd::{
    Tensor,
    clifford::{geometric_product, tensor_vector, traceless_coupling},
    concat,
};
use gradewise_core::{Algebra, Signature};
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    data::{Edges, at_least_one},
    in_layer,
    layers::symmetric_traceless,
};

/// Sums of messages are divided by the root of a typical number of neighbours, so that their variance starts at that of one message.
const NEIGHBOURS: f64 = 16.0;
/// Radial functions of a later layer with tensors of rank 2.
const TENSOR_FUNCTIONS: usize = 6;

/// Sums over neighbours j of learned functions of the distance times products of the direction n with the features of j:
///
/// | to | |
/// |---|---|
/// | multivectors | M_j, n M_j |
/// | tensors | s_j (n⊗n − I/3), S_j, ½(n⊗v_j + v_j⊗n) − ⅓(n·v_j)I |
/// | vectors | S_j·n |
///
/// and with tensors of rank 3, where N₂ and N₃ are the symmetric traceless parts of n⊗n and n⊗n⊗n:
///
/// | to | |
/// |---|---|
/// | tensors of rank 3 | s_j N₃, T_j, the symmetric traceless parts of S_j⊗n and N₂⊗v_j |
/// | tensors | T_j·n |
/// | vectors | T_j:N₂ |
///
/// A first layer has only scalar features, so it computes only s_j, n s_j, s_j N₂ and s_j N₃.
///
/// Parameters: `linear`, a [`TrackLinear`] of the senders' features, and `radial`, a [`RadialWeights`].
#[derive(Module, DeepClone)]
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
        let functions = match (size.rank, first) {
            (Rank::One, _) => 2,
            (Rank::Two, true) => 3,
            (Rank::Three, true) => 4,
            (Rank::Two, false) => TENSOR_FUNCTIONS,
            (Rank::Three, false) => TENSOR_FUNCTIONS + 6,
        };
        // A first layer has only scalars, so there are no tensors to map.
        let sent = TrackSize { rank: if first { Rank::One } else { size.rank }, ..size };
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
        in_layer("TrackMessages::forward", || {
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
                let multivectors = multivectors(&parts.slice(0, 0..1)?, &parts.slice(0, 1..4)?)?;
                if !self.size.rank.has_tensors() {
                    return Tracks::new(multivectors, None);
                }
                let n2 = quadrupole()?;
                let tensors = received(&scalars.mul(&function(2)?)?.mul(&n2)?)?;
                if !self.size.rank.has_octupoles() {
                    return Tracks::new(multivectors, Some(tensors));
                }
                let n3 = traceless_coupling([2, 1], 3, &n2, n)?;
                let octupoles = received(&scalars.mul(&function(3)?)?.mul(&n3)?)?;
                return Tracks::with_octupoles(multivectors, tensors, octupoles);
            }
            let own = sent(&x.multivectors)?;
            let shape = own.shape().clone();
            let nothing = Tensor::zeros([1, shape[1], 1], n.dtype(), &n.device())?;
            let turned =
                geometric_product(&self.algebra, &multivectors(&nothing, n)?.broadcast_to(&shape)?, &own)?;
            let message = own.mul(&function(0)?)?.add(&turned.mul(&function(1)?)?)?;
            let Some(tensors) = &x.tensors else { return Tracks::new(received(&message)?, None) };
            let (own_tensors, scalars, vectors) = (sent(tensors)?, own.slice(0, 0..1)?, own.slice(0, 1..4)?);
            let (along, n2) = (n.broadcast_to(vectors.shape())?, quadrupole()?);
            let tensors = n2.mul(&scalars.mul(&function(2)?)?)?;
            let tensors = tensors.add(&own_tensors.mul(&function(3)?)?)?;
            let mut tensors = tensors.add(&symmetric_traceless(&along, &vectors)?.mul(&function(4)?)?)?;
            let mut pulled = tensor_vector(&own_tensors, &along)?.mul(&function(5)?)?;
            let mut octupoles = None;
            if let Some(own_octupoles) = &x.octupoles {
                let (own_octupoles, n3) = (sent(own_octupoles)?, traceless_coupling([2, 1], 3, &n2, n)?);
                let wide = n2.broadcast_to(own_tensors.shape())?;
                let of = |k: usize| function(TENSOR_FUNCTIONS + k);
                let sum = n3.mul(&scalars.mul(&of(0)?)?)?.add(&own_octupoles.mul(&of(1)?)?)?;
                let sum = sum.add(&traceless_coupling([2, 1], 3, &own_tensors, &along)?.mul(&of(2)?)?)?;
                let sum = sum.add(&traceless_coupling([2, 1], 3, &wide, &vectors)?.mul(&of(3)?)?)?;
                tensors =
                    tensors.add(&traceless_coupling([3, 1], 2, &own_octupoles, &along)?.mul(&of(4)?)?)?;
                pulled = pulled.add(&traceless_coupling([3, 2], 1, &own_octupoles, &wide)?.mul(&of(5)?)?)?;
                octupoles = Some(received(&sum)?);
            }
            let still = Tensor::zeros([1, shape[1], channels], n.dtype(), &n.device())?;
            let message = message.add(&multivectors(&still, &pulled)?)?;
            let (message, tensors) = (received(&message)?, received(&tensors)?);
            match octupoles {
                None => Tracks::new(message, Some(tensors)),
                Some(octupoles) => Tracks::with_octupoles(message, tensors, octupoles),
            }
        })
    }
}
