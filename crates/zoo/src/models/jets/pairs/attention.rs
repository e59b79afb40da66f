//! Attention with biases from pairs.

use super::{super::products, streams::Streams};
use gradewise_autograd::{Tensor, concat};
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
        let logarithms = products::logarithms(products)?;
        let energies = energies.mul_scalar(0.5)?.add_scalar(2.0)?;
        let pairs = self.product.forward(&logarithms.reshape([jets, particles, particles, 1])?)?;
        let units = pairs.shape()[3];
        let receivers = self.receiver.forward(&energies)?.reshape([jets, particles, 1, units])?;
        let senders = self.sender.forward(&energies)?.reshape([jets, 1, particles, units])?;
        let hidden = pairs.add(&receivers)?.add(&senders)?.silu()?;
        let biases = self.out.forward(&hidden)?.permute(&[0, 3, 1, 2])?;
        Ok(biases.add(&there.add_scalar(-1.0)?.mul_scalar(-UNSEEN)?)?)
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
        let s = self.scalars_in.forward(inputs)?.reshape([jets, particles, 3, heads, of_scalars])?;
        let v = self.vectors_in.forward(vectors)?.reshape([4, jets, particles, 3, heads, of_vectors])?;
        let group = |number: usize, signed: bool| -> Result<Tensor> {
            let s = s.slice(2, number..number + 1)?.permute(&[0, 3, 1, 2, 4])?;
            let mut v = v.slice(3, number..number + 1)?;
            if signed {
                v = concat(&[&v.slice(0, 0..1)?, &v.slice(0, 1..4)?.neg()?], 0)?;
            }
            let v = v.permute(&[1, 4, 2, 0, 3, 5])?;
            let s = s.reshape([jets, heads, particles, of_scalars])?;
            Ok(concat(&[&s, &v.reshape([jets, heads, particles, 4 * of_vectors])?], 3)?)
        };
        let (q, k, values) = (group(0, true)?, group(1, false)?, group(2, false)?);
        let logits = q.matmul_transposed(&k, false, true)?.mul_scalar((of_scalars as f64).sqrt().recip())?;
        let seen = logits.add(bias)?.softmax(3)?.matmul(&values)?;
        let s = seen.slice(3, 0..of_scalars)?.permute(&[0, 2, 1, 3])?;
        let v = seen.slice(3, of_scalars..of_scalars + 4 * of_vectors)?;
        let v = v.reshape([jets, heads, particles, 4, of_vectors])?.permute(&[3, 0, 2, 1, 4])?;
        Ok(Streams {
            scalars: self.scalars_out.forward(&s.reshape([nodes, heads * of_scalars])?)?,
            vectors: self.vectors_out.forward(&v.reshape([4, nodes, heads * of_vectors])?)?,
        })
    }
}
