//! Attention with biases from pairs.

use super::{super::products, streams::Streams};
use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::Array;
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    layers::{Layer, Linear},
};

/// The bias of padding: its weight in the softmax is 0.
const UNSEEN: f64 = -1e4;

/// A perceptron from the invariants of a pair to the biases of all heads of all layers.
#[derive(Module, DeepClone)]
pub struct Pairs {
    product: Linear,
    receiver: Linear,
    sender: Linear,
    out: Linear,
}

impl Pairs {
    pub fn init<R: rand::Rng + ?Sized>(
        units: usize,
        heads: usize,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(Self {
            product: Linear::new(1, units).init(placement, rng)?,
            receiver: Linear::new(1, units).bias(false).init(placement, rng)?,
            sender: Linear::new(1, units).bias(false).init(placement, rng)?,
            out: Linear::new(units, heads).init(placement, rng)?,
        })
    }

    /// `[jets, heads, particles, particles]` from products `[jets, particles, particles]`, logarithms of energies `[jets, particles, 1]`, and
    /// 1 for particles, 0 for padding, `[jets, 1, 1, particles]`.
    pub fn forward(&self, products: &Tensor, energies: &Tensor, there: &Tensor) -> Result<Tensor> {
        let (jets, particles) = (products.shape()[0], products.shape()[1]);
        let logarithms = products::logarithms(products)?.reshape([jets, particles, particles, 1])?;
        let energies = energies.mul_scalar(0.5)?.add_scalar(2.0)?;
        // Biases are added where arrays are small: to receivers, and to what masks the senders.
        let (weights, bias) = (self.product.weight().tensor(), self.product.bias());
        let units = weights.shape()[1];
        let mut receivers = self.receiver.forward(&energies)?;
        if let Some(bias) = bias {
            receivers = receivers.add(&bias.tensor())?;
        }
        let receivers = receivers.reshape([jets, particles, 1, units])?;
        let senders = self.sender.forward(&energies)?.reshape([jets, 1, particles, units])?;
        let hidden = logarithms.mul(&weights)?.add(&receivers)?.add(&senders)?.silu()?;
        // As [heads, units] × [units, pairs] of each jet: heads first, without a transposition of arrays of pairs.
        let weights = self.out.weight().tensor().transpose(0, 1)?;
        let heads = weights.shape()[0];
        let hidden = hidden.reshape([jets, particles * particles, units])?;
        let biases = weights.matmul_transposed(&hidden, false, true)?;
        let mut seen = there.add_scalar(-1.0)?.mul_scalar(-UNSEEN)?;
        if let Some(bias) = self.out.bias() {
            seen = seen.add(&bias.tensor().reshape([heads, 1, 1])?)?;
        }
        Ok(biases.reshape([jets, heads, particles, particles])?.add(&seen)?)
    }
}

/// Attention of particles to those of their jet: logits are products of vectors and of scalars, and the bias of the pair.
#[derive(Module, DeepClone)]
pub struct PairAttention {
    scalars_in: Linear,
    vectors_in: Linear,
    scalars_out: Linear,
    vectors_out: Linear,
    #[module(skip)]
    heads: usize,
    /// Vectors and scalars of a head.
    #[module(skip)]
    of_head: (usize, usize),
}

impl PairAttention {
    /// From scalars and invariants of vectors, `inputs` numbers of a particle, and vectors.
    pub fn init<R: rand::Rng + ?Sized>(
        (vectors, scalars, inputs): (usize, usize, usize),
        heads: usize,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let of_head = (vectors.div_ceil(heads), scalars.div_ceil(heads));
        let all = (heads * of_head.0, heads * of_head.1);
        // Small products of vectors and small results at the start.
        let small = 0.3 / (vectors as f64).sqrt();
        let residual = 0.5 / (all.1 as f64).sqrt();
        Ok(Self {
            scalars_in: Linear::new(inputs, 3 * all.1).init(placement, rng)?,
            vectors_in: Linear::new(vectors, 3 * all.0).bias(false).deviation(small).init(placement, rng)?,
            scalars_out: Linear::new(all.1, scalars).deviation(residual).init(placement, rng)?,
            vectors_out: Linear::new(all.0, vectors).bias(false).init(placement, rng)?,
            heads,
            of_head,
        })
    }

    /// What is added to the streams. `inputs` are `[nodes, inputs]`, `bias` `[jets, heads, particles, particles]`.
    pub fn forward(
        &self,
        inputs: &Tensor,
        vectors: &Tensor,
        bias: &Tensor,
        (jets, particles): (usize, usize),
    ) -> Result<Streams> {
        let (heads, (of_vectors, of_scalars)) = (self.heads, self.of_head);
        let nodes = jets * particles;
        let features = of_scalars + 4 * of_vectors;
        let s = self.scalars_in.forward(inputs)?.reshape([nodes, 3, heads, of_scalars])?;
        let v = self.vectors_in.forward(vectors)?.reshape([4, nodes, 3, heads, of_vectors])?;
        let v = v.permute(&[1, 2, 3, 0, 4])?.reshape([nodes, 3, heads, 4 * of_vectors])?;
        let all = concat(&[&s, &v], 3)?
            .reshape([jets, particles, 3, heads, features])?
            .permute(&[2, 0, 3, 1, 4])?;
        let group = |number: usize| -> Result<Tensor> {
            Ok(all.slice(0, number..number + 1)?.reshape([jets, heads, particles, features])?)
        };
        let (q, k, values) = (group(0)?, group(1)?, group(2)?);
        let logits = q.mul(&self.metric(&q)?)?.matmul_transposed(&k, false, true)?;
        let seen = logits.add(bias)?.softmax(3)?.matmul(&values)?;
        let s = seen.slice(3, 0..of_scalars)?.permute(&[0, 2, 1, 3])?;
        let v = seen.slice(3, of_scalars..of_scalars + 4 * of_vectors)?;
        let v = v.reshape([jets, heads, particles, 4, of_vectors])?.permute(&[3, 0, 2, 1, 4])?;
        Ok(Streams {
            scalars: self.scalars_out.forward(&s.reshape([nodes, heads * of_scalars])?)?,
            vectors: self.vectors_out.forward(&v.reshape([4, nodes, heads * of_vectors])?)?,
        })
    }

    /// The metric of a head's features, scalars and vectors in +−−−, over the root of the number of scalars: `[features]`.
    fn metric(&self, like: &Tensor) -> Result<Tensor> {
        let (of_vectors, of_scalars) = self.of_head;
        let scale = (of_scalars as f64).sqrt().recip();
        let mut numbers = vec![scale; of_scalars + of_vectors];
        numbers.resize(of_scalars + 4 * of_vectors, -scale);
        Ok(Tensor::new(Array::constant(&numbers, [numbers.len()], like.dtype(), &like.device())?))
    }
}
