//! Attention.

use super::{beside, require_beside};
use crate::{Attributes, BackwardContext, Error, Function, Result, Tensor};
use gradewise_core::Error as CoreError;
use gradewise_kernels::{
    Array,
    ops::{self, AttentionOptions},
};

/// Inputs: queries, keys and values.
struct Attention(AttentionOptions);

/// Input: queries, keys and values side by side.
struct PackedAttention(AttentionOptions);

/// What the forward pass saved, as the kernels want it back.
fn saved(name: &'static str, context: &BackwardContext<'_>) -> Result<ops::Attention> {
    let [log_sum_exp] = context.saved() else {
        return Err(Error::Argument { operation: name, message: "its forward saved one array".to_owned() });
    };
    Ok(ops::Attention { output: context.output().clone(), log_sum_exp: log_sum_exp.clone() })
}

/// The options where `input` is and for its dtype.
fn following(options: &AttentionOptions, input: &Array) -> Result<AttentionOptions> {
    let lengths = options.lengths.as_ref().map(|lengths| lengths.to_device(&input.device())).transpose()?;
    let mask = options.mask.as_ref().map(|mask| beside(mask, input)).transpose()?;
    Ok(AttentionOptions { lengths, mask, ..options.clone() })
}

/// The options as text.
fn told(options: &AttentionOptions) -> Attributes {
    let mut attributes = Attributes::new().with("causal", options.causal).list("scale", options.scale);
    if let Some(lengths) = &options.lengths {
        attributes = attributes.list("lengths", lengths.to_vec()).with("bound", lengths.bound());
    }
    if let Some(mask) = &options.mask {
        let values = mask.to_f64_vec().unwrap_or_default();
        attributes = attributes.list("mask", values).list("mask_shape", mask.dims());
    }
    attributes
}

/// Refuses masks and lengths that are not where the queries are.
fn require_options(options: &AttentionOptions, input: &Array) -> Result<()> {
    if let Some(lengths) = &options.lengths {
        require_beside("attention", "lengths", lengths.device(), input)?;
    }
    options.mask.as_ref().map_or(Ok(()), |mask| require_beside("attention", "mask", &mask.device(), input))
}

/// Zeros where the query of the row sees the key of the column, and −∞ elsewhere: `[batch, 1, queries, keys]`.
fn bias(options: &AttentionOptions, [batch, queries, keys]: [usize; 3], like: &Tensor) -> Result<Tensor> {
    let mask = options.mask.as_ref().map(Array::to_f64_vec).transpose()?;
    let lengths = options.lengths.as_ref().map(gradewise_kernels::Index::to_vec);
    let mut values = Vec::with_capacity(batch * queries * keys);
    for item in 0..batch {
        let length = lengths.as_ref().map_or(keys, |lengths| lengths[item]);
        for query in 0..queries {
            for key in 0..keys {
                let seen = key < length
                    && (!options.causal || key + queries <= query + keys)
                    && mask.as_ref().is_none_or(|mask| mask[item * keys + key] != 0.0);
                values.push(if seen { 0.0 } else { f64::NEG_INFINITY });
            }
        }
    }
    Ok(Tensor::new(Array::from_f64(&values, [batch, 1, queries, keys], like.dtype(), &like.device())?))
}

/// The attention of queries, keys and values side by side, `[batch, tokens, 3, heads, features]`.
pub(crate) fn packed(x: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    Tensor::apply(PackedAttention(options.clone()), &[x])
}

/// Attention in differentiable operations, with all of the weights in memory.
fn in_primitives([q, k, v]: [&Tensor; 3], options: &AttentionOptions) -> Result<Tensor> {
    let &[batch, heads, queries, features] = q.shape().dims() else {
        return Err(Error::Argument { operation: "attention", message: "queries have four axes".to_owned() });
    };
    let (shared, keys) = (k.shape()[1], k.shape()[2]);
    let scale = options.scale.unwrap_or_else(|| (features.max(1) as f64).sqrt().recip());
    let group = heads.checked_div(shared).unwrap_or(1).max(1);
    // Heads in groups, over which keys and values are broadcast.
    let q = q.reshape([batch, shared, group, queries, features])?;
    let products = q.matmul_transposed(&k.unsqueeze(2)?, false, true)?.mul_scalar(scale)?;
    let bias = bias(options, [batch, queries, keys], &q)?.unsqueeze(1)?;
    let weights = products.add(&bias)?.softmax(4)?;
    weights.matmul(&v.unsqueeze(2)?)?.reshape([batch, heads, queries, features])
}

impl Function for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn attributes(&self) -> Attributes {
        told(&self.0)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let options = following(&self.0, &inputs[0])?;
        let ops::Attention { output, log_sum_exp } =
            ops::attention(&inputs[0], &inputs[1], &inputs[2], &options)?;
        Ok((output, vec![log_sum_exp]))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let forward = saved(self.name(), context)?;
        let [q, k, v] = context.inputs() else { unreachable!("three inputs were given") };
        let options = following(&self.0, q)?;
        let gradients = ops::attention_backward([q, k, v], &options, &forward, grad)?;
        Ok(vec![Some(gradients.q), Some(gradients.k), Some(gradients.v)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        in_primitives([&inputs[0], &inputs[1], &inputs[2]], &self.0)
    }
}

impl Function for PackedAttention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn attributes(&self) -> Attributes {
        told(&self.0)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let options = following(&self.0, &inputs[0])?;
        let [q, k, v] = ops::attention::unpack(&inputs[0])?;
        let ops::Attention { output, log_sum_exp } = ops::attention(&q, &k, &v, &options)?;
        Ok((output, vec![log_sum_exp]))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let forward = saved(self.name(), context)?;
        let x = &context.inputs()[0];
        let gradient = ops::attention_backward_packed(x, &following(&self.0, x)?, &forward, grad)?;
        Ok(vec![Some(gradient)])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let part = |index: usize| inputs[0].slice(2, index..index + 1)?.squeeze(2)?.transpose(1, 2);
        in_primitives([&part(0)?, &part(1)?, &part(2)?], &self.0)
    }
}

impl Tensor {
    /// For each of these queries `[batch, heads, queries, features]` the mean of the values, weighted by softmax(scale·q·k) over the
    /// keys that it sees; zeros for one that sees none. `k` and `v` are `[batch, shared, keys, features]`, and `shared` divides `heads`:
    /// fewer heads of keys serve groups of heads of queries. The weights are never in memory (Dao et al. 2022, arXiv:2205.14135).
    ///
    /// Second derivatives are those of the same function in primitives, which does hold the weights.
    ///
    /// # Errors
    /// Shapes, dtypes or devices that do not fit together, a scale that is not positive, more than 128 features on CUDA.
    pub fn attention(&self, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
        require_options(options, self.array())?;
        Self::apply(Attention(options.clone()), &[self, k, v])
    }

    /// [`attention`](Self::attention) of tokens to each other: queries, keys and values side by side as one linear map gives them,
    /// `[batch, tokens, 3·heads·features]`, give `[batch, tokens, heads·features]`. Nothing is copied on the way.
    ///
    /// # Errors
    /// As [`attention`](Self::attention); a number of features that is not a multiple of 3·`heads`.
    pub fn self_attention(&self, heads: usize, options: &AttentionOptions) -> Result<Tensor> {
        let &[batch, tokens, features] = self.shape().dims() else {
            return Err(self.unfit("[batch, tokens, 3·heads·features]".to_owned()));
        };
        let parts = heads.checked_mul(3).filter(|&parts| parts > 0 && features.is_multiple_of(parts));
        let Some(parts) = parts else {
            return Err(self.unfit(format!("[batch, tokens, a multiple of 3·{heads}]")));
        };
        let packed = self.reshape([batch, tokens, 3, heads, features / parts])?;
        require_options(options, self.array())?;
        let output = self::packed(&packed, options)?;
        output.transpose(1, 2)?.reshape([batch, tokens, features / 3])
    }

    fn unfit(&self, expected: String) -> Error {
        CoreError::Shape {
            operation: "self_attention",
            argument: "self",
            actual: self.shape().clone(),
            expected,
            reason: "queries, keys and values of each head lie side by side".to_owned(),
        }
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::{DType, Device, Index};
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

    /// The fused operator and the primitives are two implementations of one function.
    #[test]
    fn agrees_with_primitives_beyond_one_block() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (queries, keys, heads, shared) in
            [(130, 65, 2, 1), (64, 129, 2, 2), (1, 200, 4, 2), (67, 67, 1, 1)]
        {
            let mut draw = |heads, tokens| {
                Tensor::randn([2, heads, tokens, 6], DType::F64, &Device::Cpu, &mut rng)
                    .unwrap()
                    .requires_grad()
            };
            let (q, k, v) = (draw(heads, queries), draw(shared, keys), draw(shared, keys));
            let grad = draw(heads, queries).detach();
            let lengths = Index::new(&[keys, keys / 3], keys + 1, &Device::Cpu).unwrap();
            for options in [
                AttentionOptions::default(),
                AttentionOptions { causal: true, ..AttentionOptions::default() },
                AttentionOptions { causal: true, scale: Some(0.7), lengths: Some(lengths), mask: None },
            ] {
                let run = |output: Tensor| {
                    let seed = crate::BackwardOptions::seed(grad.clone());
                    let gradients = crate::grad(&output, &[&q, &k, &v], &seed).unwrap();
                    let mut all = vec![output];
                    all.extend(gradients.into_iter().flatten());
                    all.into_iter().map(|tensor| tensor.to_vec::<f64>().unwrap()).collect::<Vec<_>>()
                };
                let fused = run(q.attention(&k, &v, &options).unwrap());
                let plain = run(in_primitives([&q, &k, &v], &options).unwrap());
                assert_eq!(fused.len(), 4);
                for (a, b) in fused.iter().flatten().zip(plain.iter().flatten()) {
                    assert!((a - b).abs() < 1e-12, "{a} {b}");
                }
            }
        }
    }
}
