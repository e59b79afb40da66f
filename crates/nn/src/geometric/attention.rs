//! Attention by invariants.

use super::{Channels, EquiLinear, Space, Streams, TokenBatch, space::Blades};
use crate::{Error, Module, Placement, Result};
use gradewise_autograd::{Tensor, concat};
use gradewise_core::Algebra;
use gradewise_kernels::{Device, Index, ops::AttentionOptions};

/// Heads of an attention and channels of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSize {
    /// Number of heads.
    pub heads: usize,
    /// Channels of a head.
    pub channels: Channels,
}

/// Self-attention among the tokens of each set. The logit is the sum of the invariant products of queries and keys, the products of their
/// scalars and, in algebras with points, minus the squared distance of the points that their trivectors represent, scaled by their weights
/// w as w/(w² + ε). All terms form one inner product, so the fused attention kernel applies, and no tokens × tokens matrix is stored.
/// Values are whole multivectors and scalars.
///
/// On CUDA a head has at most 128 features, 16 for each multivector channel and one for each scalar.
///
/// Parameters: those of `qkv` and of `out`.
#[derive(Debug, Module)]
pub struct GeometricAttention {
    #[module(skip)]
    space: Space,
    qkv: EquiLinear,
    out: EquiLinear,
    #[module(skip)]
    size: AttentionSize,
    #[module(skip)]
    invariant: Blades,
    #[module(skip)]
    points: Option<Points>,
}

/// The blades of a point.
#[derive(Debug)]
struct Points {
    weight: usize,
    coordinates: Index,
}

/// ε of w/(w² + ε).
const EPSILON: f64 = 1e-3;

impl GeometricAttention {
    /// For `channels`, in and out.
    ///
    /// # Errors
    /// No heads; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        channels: Channels,
        size: AttentionSize,
        space: &Space,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let AttentionSize { heads, channels: of_head } = size;
        if heads == 0 || of_head.multivectors == 0 || of_head.scalars == 0 {
            return Err(Error::Argument {
                operation: "GeometricAttention",
                argument: "size",
                actual: format!("{heads} heads of {} and {}", of_head.multivectors, of_head.scalars),
                expected: "at least one of each".to_owned(),
            });
        }
        let algebra = space.algebra();
        let together = |parts: usize| {
            Channels::new(parts * heads * of_head.multivectors, parts * heads * of_head.scalars)
        };
        let Placement { device, dtype } = placement;
        Ok(Self {
            qkv: EquiLinear::init((channels, together(3)), space, placement, rng)?,
            out: EquiLinear::init((together(1), channels), space, placement, rng)?,
            size,
            invariant: Blades::new(&space.invariant(), algebra.blade_count(), *dtype, device)?,
            points: if space.has_points() { Some(Points::new(algebra, device)?) } else { None },
            space: space.clone(),
        })
    }

    /// The attention output for each token of `x`.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones; heads that are too large for the device.
    pub fn forward(&self, x: &Streams, tokens: &TokenBatch) -> Result<Streams> {
        tokens.check(x)?;
        let AttentionSize { heads, channels } = self.size;
        let (multivectors, scalars) = (heads * channels.multivectors, heads * channels.scalars);
        let all = self.qkv.forward(x)?;
        let part = |index: usize| -> Result<[Tensor; 2]> {
            let range = |width: usize| index * width..(index + 1) * width;
            Ok([all.multivectors.slice(2, range(multivectors))?, all.scalars.slice(1, range(scalars))?])
        };
        let [q, q_scalars] = part(0)?;
        let [k, k_scalars] = part(1)?;
        let [v, v_scalars] = part(2)?;
        let mut seen = vec![self.heads(&self.invariant.of(&q)?, tokens)?];
        let mut shown = vec![self.heads(&self.invariant.unsigned(&k)?, tokens)?];
        if let Some(points) = &self.points {
            seen.push(self.heads(&points.of_query(&q)?, tokens)?);
            shown.push(self.heads(&points.of_key(&k)?, tokens)?);
        }
        seen.push(self.scalar_heads(&q_scalars, tokens)?);
        shown.push(self.scalar_heads(&k_scalars, tokens)?);
        let values = concat(&[&self.heads(&v, tokens)?, &self.scalar_heads(&v_scalars, tokens)?], 3)?;
        let (q, k, features) = (joined(&seen, &values)?, joined(&shown, &values)?, width(&seen));
        let options = AttentionOptions { scale: Some((features as f64).sqrt().recip()), ..tokens.options()? };
        let gathered = q.attention(&k, &values, &options)?;
        self.out.forward(&self.streams(&gathered, tokens)?)
    }

    /// `[blades, batch·tokens, heads·channels]` → `[batch, heads, tokens, blades·channels]`
    fn heads(&self, x: &Tensor, tokens: &TokenBatch) -> Result<Tensor> {
        let (blades, channels) = (x.shape()[0], self.size.channels.multivectors);
        let apart = x.reshape([blades, tokens.batch, tokens.tokens, self.size.heads, channels])?;
        let shape = [tokens.batch, self.size.heads, tokens.tokens, blades * channels];
        Ok(apart.permute(&[1, 3, 2, 0, 4])?.contiguous()?.reshape(shape)?)
    }

    /// `[batch·tokens, heads·channels]` → `[batch, heads, tokens, channels]`
    fn scalar_heads(&self, x: &Tensor, tokens: &TokenBatch) -> Result<Tensor> {
        let shape = [tokens.batch, tokens.tokens, self.size.heads, self.size.channels.scalars];
        Ok(x.reshape(shape)?.transpose(1, 2)?)
    }

    /// The inverse of both, for the attention output.
    fn streams(&self, gathered: &Tensor, tokens: &TokenBatch) -> Result<Streams> {
        let AttentionSize { heads, channels } = self.size;
        let (blades, all) = (self.space.algebra().blade_count(), tokens.batch * tokens.tokens);
        let split = blades * channels.multivectors;
        let multivectors = gathered.slice(3, 0..split)?.contiguous()?;
        let multivectors =
            multivectors.reshape([tokens.batch, heads, tokens.tokens, blades, channels.multivectors])?;
        let multivectors = multivectors.permute(&[3, 0, 2, 1, 4])?.contiguous()?;
        let scalars = gathered.slice(3, split..split + channels.scalars)?.transpose(1, 2)?.contiguous()?;
        Ok(Streams {
            multivectors: multivectors.reshape([blades, all, heads * channels.multivectors])?,
            scalars: scalars.reshape([all, heads * channels.scalars])?,
        })
    }
}

/// Features of a head: the sum over its concatenated parts.
fn width(parts: &[Tensor]) -> usize {
    parts.iter().map(|part| part.shape()[3]).sum()
}

/// Concatenates parts and pads them with zeros to the features of `values`: the kernel needs equal sizes for queries, keys and values.
fn joined(parts: &[Tensor], values: &Tensor) -> Result<Tensor> {
    let (&[batch, heads, tokens, features], own) = (values.shape().dims(), width(parts)) else {
        return Ok(values.clone());
    };
    let rest = Tensor::zeros(
        [batch, heads, tokens, features.saturating_sub(own)],
        values.dtype(),
        &values.device(),
    )?;
    let mut all: Vec<&Tensor> = parts.iter().collect();
    if own < features {
        all.push(&rest);
    }
    Ok(concat(&all, 3)?)
}

impl Points {
    fn new(algebra: &Algebra, device: &Device) -> Result<Self> {
        let blade = |mask: u16| algebra.blade_of_mask(mask).unwrap_or_default();
        let coordinates = [0b1011, 0b1101, 0b1110].map(blade);
        Ok(Self {
            weight: blade(0b0111),
            coordinates: Index::new(&coordinates, algebra.blade_count(), device)?,
        })
    }

    /// The weight w, ω = w/(w² + ε), and the coordinates times the weight, p.
    fn parts(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let weight = x.slice(0, self.weight..self.weight + 1)?;
        let omega = weight.div(&weight.square()?.add_scalar(EPSILON)?)?;
        Ok([weight, omega, x.index_select(0, &self.coordinates)?])
    }

    /// ω·(w², p², w·p), whose product with [`of_key`](Self::of_key) is −ω·ω'·|w·p' − w'·p|².
    fn of_query(&self, x: &Tensor) -> Result<Tensor> {
        let [w, omega, p] = self.parts(x)?;
        Ok(concat(&[&w.square()?, &p.square()?.sum(&[0], true)?, &p.mul(&w)?], 0)?.mul(&omega)?)
    }

    /// ω·(−p², −w², 2·w·p)
    fn of_key(&self, x: &Tensor) -> Result<Tensor> {
        let [w, omega, p] = self.parts(x)?;
        let squares = [p.square()?.sum(&[0], true)?.neg()?, w.square()?.neg()?];
        Ok(concat(&[&squares[0], &squares[1], &p.mul(&w)?.mul_scalar(2.0)?], 0)?.mul(&omega)?)
    }
}
