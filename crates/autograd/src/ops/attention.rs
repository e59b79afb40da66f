//! Attention.

use super::prelude::*;
use gradewise_core::Error as CoreError;
use gradewise_kernels::ops::{
    AttentionOptions, RandomStream,
    attention::{AttentionDropout, Sequences},
};

/// Inputs: queries, keys and values; or one input with all three side by side, `[batch, tokens, 3, heads, features]`.
#[derive(Serialize, Deserialize)]
pub(crate) struct Attention {
    #[serde(flatten, with = "attributes::attention")]
    options: AttentionOptions,
}

/// The options where `input` is and for its dtype.
fn following(options: &AttentionOptions, input: &Array) -> Result<AttentionOptions> {
    let lengths = options.lengths.as_ref().map(|lengths| lengths.to_device(&input.device())).transpose()?;
    let mask = options.mask.as_ref().map(|mask| beside(mask, input)).transpose()?;
    let to_device = |sequences: &Sequences| sequences.to_device(&input.device());
    let sequences = options.sequences.as_ref().map(to_device).transpose()?;
    Ok(AttentionOptions { lengths, mask, sequences, ..options.clone() })
}

/// Refuses masks, lengths and sequences that are not where the queries are.
fn require_options(options: &AttentionOptions, input: &Array) -> Result<()> {
    if let Some(lengths) = &options.lengths {
        require_beside("attention", "lengths", lengths.device(), input)?;
    }
    if let Some(sequences) = &options.sequences {
        require_beside("attention", "sequences", sequences.device(), input)?;
    }
    options.mask.as_ref().map_or(Ok(()), |mask| require_beside("attention", "mask", &mask.device(), input))
}

/// Zeros where the query of the row sees the key of the column, and −∞ elsewhere: `[batch, 1, queries, keys]`.
fn bias(options: &AttentionOptions, [batch, queries, keys]: [usize; 3], like: &Tensor) -> Result<Tensor> {
    let mask = options.mask.as_ref().map(Array::to_f64_vec).transpose()?;
    let lengths = options.lengths.as_ref().map(gradewise_kernels::Index::to_vec).transpose()?;
    // The number of the sequence of each token.
    let sequence = |starts: &[usize]| -> Vec<usize> {
        let tokens = |(number, pair): (usize, &[usize])| std::iter::repeat_n(number, pair[1] - pair[0]);
        starts.windows(2).enumerate().flat_map(tokens).collect()
    };
    let starts = options.sequences.as_ref().map(Sequences::starts).transpose()?;
    let of = starts.as_ref().map(|starts| starts.each_ref().map(|starts| sequence(starts)));
    let seen_by_sequence = |query: usize, key: usize| {
        let (Some(starts), Some([of_query, of_key])) = (&starts, &of) else {
            return !options.causal || key + queries <= query + keys;
        };
        let number = of_query[query];
        let [query_end, key_end] = starts.each_ref().map(|starts| starts[number + 1]);
        number == of_key[key] && (!options.causal || key + query_end <= query + key_end)
    };
    let mut values = Vec::with_capacity(batch * queries * keys);
    for item in 0..batch {
        let length = lengths.as_ref().map_or(keys, |lengths| lengths[item]);
        for query in 0..queries {
            for key in 0..keys {
                let seen = key < length
                    && seen_by_sequence(query, key)
                    && mask.as_ref().is_none_or(|mask| mask[item * keys + key] != 0.0);
                values.push(if seen { 0.0 } else { f64::NEG_INFINITY });
            }
        }
    }
    Ok(Tensor::new(Array::from_f64(&values, [batch, 1, queries, keys], like.dtype(), &like.device())?))
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
    let mut weights = products.add(&bias)?.softmax(4)?;
    if let Some(dropout) = &options.dropout {
        let mask = dropout.mask([batch, heads, queries, keys], q.dtype(), &q.device())?;
        weights = weights.mul(&Tensor::new(mask.reshape([batch, shared, group, queries, keys])?))?;
    }
    weights.matmul(&v.unsqueeze(2)?)?.reshape([batch, heads, queries, v.shape()[3]])
}

impl Operation for Attention {
    const NAME: &'static str = "attention";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] =
        &[Operand::array("query"), Operand::array("key").optional(), Operand::array("value").optional()];
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let (tokens, features) = (sizes.batch, sizes.features);
        let causal = |causal| AttentionOptions { causal, ..AttentionOptions::default() };
        let separate = |options, [heads, shared, queries, keys]: [usize; 4]| {
            let of_keys = Input::normal([2, shared, keys, features]);
            let inputs = [Input::normal([2, heads, queries, features]), of_keys.clone(), of_keys];
            Sample::new(Attention { options }, inputs)
        };
        let lengths = Index::new(&[tokens + 2, tokens / 2 + 1], tokens + 3, &Device::Cpu)?;
        let seen: Vec<f64> = (0..2 * (tokens + 2)).map(|i| f64::from(i % 4 != 2)).collect();
        let mask = Array::from_f64(&seen, [2, tokens + 2], DType::F64, &Device::Cpu)?;
        let plain = AttentionOptions::default;
        let masked = AttentionOptions {
            causal: true,
            scale: Some(0.4),
            lengths: Some(lengths),
            mask: Some(mask.clone()),
            ..plain()
        };
        let dropout = |p, stream| Some(AttentionDropout { p, random: RandomStream { seed: 9, stream } });
        let dropped = AttentionOptions { dropout: dropout(0.3, 1 << 40), ..plain() };
        // The second sequence is empty; the last has more keys than queries.
        let half = tokens / 2;
        let alike = Sequences::alike(&[0, half, half, tokens], &Device::Cpu)?;
        let more_keys =
            Sequences::new(&[0, half, half, tokens], &[0, half, half + 1, tokens + 2], &Device::Cpu)?;
        let sequences = AttentionOptions { causal: true, sequences: Some(alike), ..plain() };
        let all = AttentionOptions {
            sequences: Some(more_keys),
            mask: Some(mask),
            dropout: dropout(0.5, 3),
            ..plain()
        };
        let packed = Input::normal([2, tokens, 3, 2, features]);
        let of_values = [
            Input::normal([2, 2, tokens, features]),
            Input::normal([2, 1, tokens, features]),
            Input::normal([2, 1, tokens, features + 1]),
        ];
        Ok(vec![
            separate(causal(false), [2, 2, tokens, tokens]),
            separate(causal(true), [2, 1, tokens, tokens]),
            Sample::new(Attention { options: causal(false) }, of_values),
            separate(masked, [2, 1, tokens, tokens + 2]),
            separate(dropped.clone(), [2, 1, tokens, tokens]),
            separate(sequences.clone(), [2, 2, tokens, tokens]),
            separate(all, [2, 1, tokens, tokens + 2]),
            Sample::new(Attention { options: dropped }, [packed.clone()]),
            Sample::new(Attention { options: sequences }, [packed.clone()]),
            Sample::new(Attention { options: causal(false) }, [packed.clone()]),
            Sample::new(Attention { options: causal(true) }, [packed]),
        ])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let options = following(&self.options, &inputs[0])?;
        let ops::Attention { output, log_sum_exp } = match inputs {
            [packed] => {
                let [q, k, v] = ops::attention::unpack(packed)?;
                ops::attention(&q, &k, &v, &options)?
            }
            [q, k, v] => ops::attention(q, k, v, &options)?,
            _ => return Err(unpaired()),
        };
        Ok(Forward { output, saved: vec![log_sum_exp] })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [log_sum_exp] = context.saved(Self::NAME)?.clone();
        let forward = ops::Attention { output: context.output.array().clone(), log_sum_exp };
        let inputs = context.arrays();
        let options = following(&self.options, &inputs[0])?;
        match inputs {
            [packed] => {
                let gradient = ops::attention_backward_packed(packed, &options, &forward, grad.array())?;
                Ok(constants([Some(gradient)]))
            }
            [q, k, v] => {
                let gradients = ops::attention_backward([q, k, v], &options, &forward, grad.array())?;
                Ok(constants([Some(gradients.q), Some(gradients.k), Some(gradients.v)]))
            }
            _ => Err(unpaired()),
        }
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        match inputs {
            [packed] => {
                let part = |index: usize| packed.slice(2, index..index + 1)?.squeeze(2)?.transpose(1, 2);
                in_primitives([&part(0)?, &part(1)?, &part(2)?], &self.options)
            }
            [q, k, v] => in_primitives([q, k, v], &self.options),
            _ => Err(unpaired()),
        }
    }

    /// Two products for each pair of query and key; of causal attention half of the pairs. Of packed sequences, the pairs of each.
    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let of_sequences = |sequences: &Sequences| -> usize {
            // Lists that cannot be read leave the operation without a known cost.
            let Ok([queries, keys]) = sequences.starts() else { return 0 };
            let each = queries.windows(2).zip(keys.windows(2));
            each.map(|(queries, keys)| (queries[1] - queries[0]) * (keys[1] - keys[0])).sum()
        };
        let of_head = |queries: usize, keys: usize| {
            self.options.sequences.as_ref().map_or(queries * keys, of_sequences)
        };
        // Of products with keys and with values.
        let pairs = match *inputs {
            [&[batch, tokens, 3, heads, features]] => 2 * batch * heads * of_head(tokens, tokens) * features,
            [&[batch, heads, queries, features], &[.., keys, _], &[.., values]] => {
                batch * heads * of_head(queries, keys) * (features + values)
            }
            _ => 0,
        };
        let each = if self.options.causal { 1 } else { 2 };
        Cost { matrix_flops: each * pairs as u64, element_flops: 0 }
    }
}

/// Keys without values.
fn unpaired() -> Error {
    let message =
        "two inputs were given, expected queries, keys and values, or one input with all of them".to_owned();
    Error::Argument { operation: Attention::NAME, message }
}

impl Tensor {
    /// For each of these queries `[batch, heads, queries, features]` the mean of the values, weighted by softmax(scale·q·k) over the
    /// keys that it sees; zeros for one that sees none. `k` and `v` are `[batch, shared, keys, features]`, and `shared` divides `heads`:
    /// fewer heads of keys serve groups of heads of queries. Values may have another number of features. The weights are never in memory (Dao et al. 2022, arXiv:2205.14135).
    ///
    /// Second derivatives are those of the same function in primitives, which does hold the weights.
    ///
    /// # Errors
    /// Shapes, dtypes or devices that do not fit together, a scale that is not positive, more than 128 features on CUDA; sequences that do
    /// not end at the tokens, a probability of dropout outside of [0, 1).
    pub fn attention(&self, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
        require_options(options, self.array())?;
        Self::apply(Attention { options: options.clone() }, &[self, k, v])
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
        let output = Self::apply(Attention { options: options.clone() }, &[&packed])?;
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
            let packed = |causal, p: Option<f64>| {
                let starts = |tokens| [0, tokens / 5, tokens / 5, tokens / 5 * 4, tokens];
                let sequences = Sequences::new(&starts(queries), &starts(keys), &Device::Cpu).unwrap();
                let random = RandomStream { seed: 5, stream: 1 };
                let dropout = p.map(|p| AttentionDropout { p, random });
                AttentionOptions {
                    causal,
                    sequences: Some(sequences),
                    dropout,
                    ..AttentionOptions::default()
                }
            };
            for options in [
                AttentionOptions::default(),
                AttentionOptions { causal: true, ..AttentionOptions::default() },
                AttentionOptions {
                    causal: true,
                    scale: Some(0.7),
                    lengths: Some(lengths),
                    ..AttentionOptions::default()
                },
                packed(false, None),
                packed(true, Some(0.4)),
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
