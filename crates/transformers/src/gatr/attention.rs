//! Self-attention by inner products and by distances of points.

use super::{AttentionConfig, rotary::RotaryPositions};
use crate::{
    Channels, Space, TokenBatch,
    layers::{
        EquiLinear, FeaturePlanes, GradeDropout, Initialization, Projection, ProjectionSize, attend, merge,
    },
};
use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::Index;
use gradewise_nn::{DeepClone, Module, Parameter, Placement, Result, in_layer};

/// Attention between the tokens of a set: logits are inner products of multivectors and of scalars of queries and keys, minus the squared
/// distances of the points that their trivectors represent, times a weight for each head and channel. All terms form one inner product, so
/// that no matrix of tokens by tokens is stored. On CUDA a head has at most 128 features: 16 for each multivector, one for each scalar.
///
/// Parameters: those of `qkv_module` and `out_linear`, `attention.log_weights` `[heads, 1, multivectors]`, and with positions
/// `pos_encoding.inv_freq`.
#[derive(Debug, Module, DeepClone)]
pub struct SelfAttention {
    #[module(skip)]
    space: Space,
    #[module(skip)]
    of_head: Channels,
    qkv_module: Projection,
    out_linear: EquiLinear,
    pos_encoding: Option<RotaryPositions>,
    attention: Distances,
    #[module(skip)]
    dropout: Option<GradeDropout>,
}

impl SelfAttention {
    /// For features of `channels`, in and out. Queries and keys are made of `additional` channels too.
    ///
    /// # Errors
    /// No heads, no multivectors or no scalars; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (channels, additional): (Channels, Channels),
        config: &AttentionConfig,
        dropout: Option<GradeDropout>,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, of_head, heads) = (&placement.into(), config.of_head(channels)?, config.num_heads);
        let space = Space::projective();
        let AttentionConfig { multi_query, .. } = *config;
        let size = ProjectionSize { channels, additional, of_head, heads, multi_query, bias: true };
        let qkv_module = Projection::init(size, &space, placement, rng)?;
        let out_linear = EquiLinear::new(of_head.times(heads), channels, &space)
            .initialization(Initialization::Small)
            .init(placement, rng)?;
        let positions = || RotaryPositions::init(of_head.scalars, config.pos_enc_base, placement);
        Ok(Self {
            pos_encoding: config.pos_encoding.then(positions).transpose()?,
            attention: Distances::init(&space, heads, of_head, config.normalizer_eps, placement)?,
            space,
            of_head,
            qkv_module,
            out_linear,
            dropout,
        })
    }

    /// The attention output for each token of `x`; `additional` are the further channels of queries and keys, if there are some.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones; heads that are too large for the device.
    pub fn forward(
        &self,
        x: &FeaturePlanes,
        additional: Option<&FeaturePlanes>,
        tokens: &TokenBatch,
    ) -> Result<FeaturePlanes> {
        in_layer("SelfAttention::forward", || {
            let [q, k, v] = self.qkv_module.forward(x, additional, tokens, (None, false))?;
            let positions = self.pos_encoding.as_ref();
            let q = self.attention.features(&q, true, positions)?;
            let k = self.attention.features(&k, false, positions)?;
            let h = attend([&q, &k, &v], tokens)?;
            let y = self.out_linear.forward(&merge(&self.space, &h, self.of_head)?)?;
            self.dropout.as_ref().map_or(Ok(y.clone()), |dropout| dropout.forward(&y))
        })
    }
}

/// What logits are made of.
#[derive(Debug, Module, DeepClone)]
struct Distances {
    log_weights: Parameter,
    #[module(skip)]
    of_head: Channels,
    #[module(skip)]
    epsilon: f64,
    #[module(skip)]
    blades: usize,
    /// Planes that make the inner product, but for the weight of points, which distances have in them.
    #[module(skip)]
    inner: Vec<usize>,
    #[module(skip)]
    point: [usize; 3],
    #[module(skip)]
    weight: usize,
}

impl Distances {
    fn init(
        space: &Space,
        heads: usize,
        of_head: Channels,
        epsilon: f64,
        placement: &Placement,
    ) -> Result<Self> {
        let [weight] = space.planes([0b0111])?;
        let factors = space.factors();
        let is_inner = |plane: &usize| factors[*plane] != 0.0 && *plane != weight;
        Ok(Self {
            log_weights: placement.filled([heads, 1, of_head.multivectors], 0.0)?,
            of_head,
            epsilon,
            blades: space.algebra().blade_count(),
            inner: (0..factors.len()).filter(is_inner).collect(),
            point: space.planes([0b1011, 0b1101, 0b1110])?,
            weight,
        })
    }

    /// Queries or keys of heads `[batch, heads, tokens, blades · multivectors + scalars]`, whose products are the logits:
    /// `[batch, heads, tokens, 12 · multivectors + scalars]`.
    ///
    /// For points p, p' of weights w, w', both times w/(w² + ε), five features make −(w'·p − w·p')²: it is bilinear in (p², w², w·p) and
    /// (−w'², −p'², 2·w'·p').
    fn features(&self, x: &Tensor, is_query: bool, positions: Option<&RotaryPositions>) -> Result<Tensor> {
        let (batch, heads, tokens) = (x.shape()[0], x.shape()[1], x.shape()[2]);
        let Channels { multivectors: channels, scalars } = self.of_head;
        let split = self.blades * channels;
        let planes = x.slice(3, 0..split)?.reshape([batch, heads, tokens, self.blades, channels])?;
        let select = |of: &[usize]| {
            Ok::<_, gradewise_nn::Error>(
                planes.index_select(3, &Index::constant(of, self.blades, &x.device())?)?,
            )
        };
        let weight = planes.slice(3, self.weight..self.weight + 1)?;
        let scale = weight.div(&weight.square()?.add_scalar(self.epsilon)?)?;
        let (point, weight) = (select(&self.point)?.mul(&scale)?, weight.mul(&scale)?);
        let (square, own, mixed) = (point.square()?.sum(&[3], true)?, weight.square()?, point.mul(&weight)?);
        let far = match is_query {
            true => {
                let weights = self.log_weights.tensor().exp()?.reshape([1, heads, 1, 1, channels])?;
                concat(&[&square, &own, &mixed], 3)?.mul(&weights)?
            }
            false => concat(&[&own.neg()?, &square.neg()?, &mixed.mul_scalar(2.0)?], 3)?,
        };
        let products = concat(&[&select(&self.inner)?, &far], 3)?;
        let width = products.shape()[3] * channels;
        let products = products.reshape([batch, heads, tokens, width])?;
        let mut rest = x.slice(3, split..split + scalars)?;
        if let Some(positions) = positions {
            rest = positions.forward(&rest)?;
        }
        Ok(concat(&[&products, &rest], 3)?)
    }
}
