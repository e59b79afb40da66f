//! Attention: weighted means of values, with weights softmax(scale·q·k) (Vaswani et al. 2017, arXiv:1706.03762).
//!
//! Neither pass stores more of the weights than a tile: they are formed tile by tile with a running maximum (Milakov & Gimelshein 2018,
//! arXiv:1805.02867; Rabe & Staats 2021, arXiv:2112.05682; Dao et al. 2022, arXiv:2205.14135). The forward pass saves one number for each
//! query, from which the backward pass recomputes the weights.

mod cpu;
mod cuda;
mod dropout;
mod engine;
mod rotary;
mod sequences;

pub use dropout::AttentionDropout;
pub use rotary::{RotaryTable, rotary};
pub use sequences::Sequences;

use crate::{Array, DType, Device, Error, Index, Result, cpu::element::with_element};
use gradewise_core::{Error as CoreError, Shape};
use std::ops::Range;

/// Which keys a query sees, how products are scaled, and which weights are dropped.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// Causal mask: query i sees only keys up to i + keys − queries, so the last query sees all.
    pub causal: bool,
    /// Factor of the products, more than 0; 1/√features if `None`.
    pub scale: Option<f64>,
    /// Number of keys of each batch; later keys are padding.
    pub lengths: Option<Index>,
    /// `[batch, keys]` in the dtype of the queries: keys with 0 are not seen.
    pub mask: Option<Array>,
    /// Tokens are sequences one after the other, which do not see each other; one sequence if `None`.
    pub sequences: Option<Sequences>,
    /// Dropout of the weights; none if `None`.
    pub dropout: Option<AttentionDropout>,
}

impl AttentionOptions {
    /// The dropout, if it can drop anything.
    fn dropped(&self) -> Option<&AttentionDropout> {
        self.dropout.as_ref().filter(|dropout| dropout.threshold() > 0)
    }
}

/// The result of an attention and what its backward pass needs.
#[derive(Clone, Debug)]
pub struct Attention {
    /// `[batch, heads, queries, features of the values]`; zeros for a query that sees no key.
    pub output: Array,
    /// log Σ e^(scale·q·k) of each query, `[batch, heads, queries]`, in the dtype of the queries or, where that has 16 bits, in f32.
    pub log_sum_exp: Array,
}

/// Gradients of an attention.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// Of the queries.
    pub q: Array,
    /// Of the keys.
    pub k: Array,
    /// Of the values.
    pub v: Array,
}

const NAME: &str = "attention";

/// Validated operands whose features are adjacent.
struct Problem {
    q: Array,
    k: Array,
    v: Array,
    batch: usize,
    heads: usize,
    /// Heads of the queries for each head of the keys and values.
    group: usize,
    queries: usize,
    keys: usize,
    /// Of queries and keys, and of values.
    features: usize,
    values: usize,
    scale: f64,
}

/// The array with its last axis adjacent.
fn rows(array: &Array) -> Result<Array> {
    if array.strides().last() == Some(&1) { Ok(array.clone()) } else { array.contiguous() }
}

impl Problem {
    fn new(q: &Array, k: &Array, v: &Array, options: &AttentionOptions) -> Result<Self> {
        let shape_error = |argument, array: &Array, expected: &str, reason: &str| -> Error {
            let (actual, expected) = (array.shape().clone(), expected.to_owned());
            CoreError::Shape { operation: NAME, argument, actual, expected, reason: reason.to_owned() }.into()
        };
        for (argument, array) in [("q", q), ("k", k), ("v", v)] {
            array.require_like(q, NAME, argument)?;
            if array.rank() != 4 {
                let reason = "attention is computed for each batch and head";
                return Err(shape_error(argument, array, "[batch, heads, tokens, features]", reason));
            }
        }
        let [&[batch, heads, queries, features], &[_, shared, keys, _]] = [q.dims(), k.dims()] else {
            unreachable!("four axes each")
        };
        let expected = [batch, shared, keys, features];
        k.require_shape(NAME, "k", &expected, || "batch and features are those of the queries".to_owned())?;
        let values = v.dims()[3];
        v.require_shape(NAME, "v", &[batch, shared, keys, values], || {
            "there is a value for each key".to_owned()
        })?;
        if heads != 0 && (shared == 0 || !heads.is_multiple_of(shared)) {
            let reason = "each head of the keys serves a whole number of heads of the queries";
            return Err(shape_error("k", k, &format!("[{batch}, a divisor of {heads}, …]"), reason));
        }
        let scale = options.scale.unwrap_or_else(|| (features.max(1) as f64).sqrt().recip());
        if !(scale > 0.0 && scale.is_finite()) {
            let actual = scale.to_string();
            return Err(Error::Argument {
                operation: NAME,
                argument: "scale",
                actual,
                expected: "more than 0, finite",
            });
        }
        if queries.max(keys) > 1 << 30 {
            let (actual, expected) = (queries.max(keys).to_string(), "at most 2³⁰ tokens");
            return Err(Error::Argument { operation: NAME, argument: "q, k", actual, expected });
        }
        if let Some(lengths) = &options.lengths {
            if lengths.len() != batch {
                return Err(CoreError::Shape {
                    operation: NAME,
                    argument: "lengths",
                    actual: Shape::from([lengths.len()]),
                    expected: format!("[{batch}]"),
                    reason: "a number of keys for each batch".to_owned(),
                }
                .into());
            }
            if lengths.bound() > keys + 1 {
                let actual = format!("an index below {}, with {keys} keys", lengths.bound());
                let expected = "an index below the number of keys + 1: no length is greater than that number";
                return Err(Error::Argument { operation: NAME, argument: "lengths", actual, expected });
            }
            q.require_beside(lengths.device(), NAME, "lengths")?;
        }
        if let Some(sequences) = &options.sequences {
            let tokens = sequences.tokens();
            if tokens != [queries, keys] {
                let actual = format!(
                    "an end at {} queries and {} keys, of {queries} and {keys}",
                    tokens[0], tokens[1]
                );
                let expected = "cumulative lengths that end at the number of tokens";
                return Err(Error::Argument { operation: NAME, argument: "sequences", actual, expected });
            }
            q.require_beside(sequences.device(), NAME, "sequences")?;
        }
        options.dropout.as_ref().map_or(Ok(()), AttentionDropout::check)?;
        if let Some(mask) = &options.mask {
            mask.require_like(q, NAME, "mask")?;
            mask.require_shape(NAME, "mask", &[batch, keys], || {
                "an entry for each key of each batch".to_owned()
            })?;
        }
        let group = heads.checked_div(shared).unwrap_or(1).max(1);
        let [q, k, v] = [rows(q)?, rows(k)?, rows(v)?];
        Ok(Self { q, k, v, batch, heads, group, queries, keys, features, values, scale })
    }

    /// Whether each key of each batch is visible, on the host; `None` if all are.
    fn allowed(&self, options: &AttentionOptions) -> Result<Option<Vec<bool>>> {
        if options.lengths.is_none() && options.mask.is_none() {
            return Ok(None);
        }
        let mut allowed = match &options.mask {
            Some(mask) => mask.to_f64_vec()?.into_iter().map(|value| value != 0.0).collect(),
            None => vec![true; self.batch * self.keys],
        };
        if let Some(lengths) = &options.lengths {
            for (row, length) in allowed.chunks_mut(self.keys.max(1)).zip(lengths.to_vec()?) {
                row[length.min(self.keys)..].fill(false);
            }
        }
        Ok(Some(allowed))
    }
}

impl AttentionOptions {
    /// The keys that each query sees by its sequence and the causal mask. Neither end decreases.
    fn spans(&self, queries: usize, keys: usize) -> Result<Vec<Range<usize>>> {
        if let Some(sequences) = &self.sequences {
            return sequences.spans(self.causal);
        }
        let end = |query: usize| {
            if self.causal { (query + 1 + keys).saturating_sub(queries).min(keys) } else { keys }
        };
        Ok((0..queries).map(|query| 0..end(query)).collect())
    }
}

/// For each query the mean of the values, weighted by softmax(scale·q·k) over the keys that it sees.
///
/// `q` is `[batch, heads, queries, features]`, `k` and `v` `[batch, shared, keys, features]`, where `shared` divides `heads`: head h uses
/// keys and values h·shared/heads (multi-query attention with one, grouped with some). Values, and so results, may have another number of
/// features. Views are read without a copy if features are adjacent. On CUDA features are at most 128.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, a scale that is not positive, too many features; sequences that do not end at the
/// tokens; a probability of dropout outside of [0, 1), and dropout in a capture, where every replay would drop the same.
pub fn attention(q: &Array, k: &Array, v: &Array, options: &AttentionOptions) -> Result<Attention> {
    let problem = Problem::new(q, k, v, options)?;
    if let Device::Cuda(device) = q.device() {
        return cuda::forward(&device, &problem, options);
    }
    let allowed = problem.allowed(options)?;
    let Problem { batch, heads, queries, values, .. } = problem;
    let [q, k, v] = [problem.q.contiguous()?, problem.k.contiguous()?, problem.v.contiguous()?];
    with_element!(q.dtype(), NAME, T => {
        let task = cpu::Task::<T>::new([&q, &k, &v], &problem, options, allowed.as_deref())?;
        let shape = [batch, heads, queries];
        // An array, whose creation may fail: heads without features may have more sums than fit into memory.
        let mut log_sums = Array::zeros(shape, DType::F64, &Device::Cpu)?;
        let sums = log_sums.as_mut_slice::<f64>()?;
        let output = Array::build([batch, heads, queries, values], &Device::Cpu, |out: &mut [T]| {
            task.forward(out, sums);
        })?;
        Ok(Attention { output, log_sum_exp: log_sums.cast(q.dtype())? })
    })
}

/// The gradients of [`attention`], given that of its output.
///
/// # Errors
/// As [`attention`]; if `forward` or `grad` does not fit.
pub fn attention_backward(
    [q, k, v]: [&Array; 3],
    options: &AttentionOptions,
    forward: &Attention,
    grad: &Array,
) -> Result<Gradients> {
    let problem = Problem::new(q, k, v, options)?;
    check_backward(&problem, forward, grad)?;
    if grad.elements() == 0 {
        // Keys and values may have elements all the same: those of heads that no head of the queries uses, for one.
        let zeros = |like: &Array| Array::zeros(like.shape(), like.dtype(), &like.device());
        return Ok(Gradients { q: zeros(q)?, k: zeros(k)?, v: zeros(v)? });
    }
    if let Device::Cuda(device) = q.device() {
        return cuda::backward(&device, &problem, options, forward, &rows(grad)?);
    }
    cpu_backward(&problem, options, forward, grad)
}

/// [`attention_backward`] for queries, keys and values that are parts of one array `[batch, tokens, 3, heads, features]`, as one linear map
/// produces them. Returns their gradients as one array of that shape.
///
/// # Errors
/// As [`attention_backward`].
pub fn attention_backward_packed(
    packed: &Array,
    options: &AttentionOptions,
    forward: &Attention,
    grad: &Array,
) -> Result<Array> {
    let [q, k, v] = unpack(packed)?;
    let problem = Problem::new(&q, &k, &v, options)?;
    check_backward(&problem, forward, grad)?;
    if let Device::Cuda(device) = packed.device() {
        let out = Array::for_kernel(NAME, packed.shape(), packed.dtype(), &device)?;
        cuda::backward_into(&device, &problem, options, forward, &rows(grad)?, &unpack(&out)?)?;
        return Ok(out);
    }
    let Gradients { q, k, v } = cpu_backward(&problem, options, forward, grad)?;
    let [q, k, v] = [q.transpose(1, 2)?, k.transpose(1, 2)?, v.transpose(1, 2)?];
    super::stack(&[&q, &k, &v], 2)
}

/// Queries, keys and values `[batch, heads, tokens, features]` of an array `[batch, tokens, 3, heads, features]`, as views.
///
/// # Errors
/// Another rank, or another size of the third axis.
pub fn unpack(packed: &Array) -> Result<[Array; 3]> {
    let &[_, _, 3, _, _] = packed.dims() else {
        return Err(CoreError::Shape {
            operation: NAME,
            argument: "packed",
            actual: packed.shape().clone(),
            expected: "[batch, tokens, 3, heads, features]".to_owned(),
            reason: "queries, keys and values lie side by side".to_owned(),
        }
        .into());
    };
    let part = |index: usize| packed.slice(2, index..index + 1)?.squeeze(2)?.transpose(1, 2);
    Ok([part(0)?, part(1)?, part(2)?])
}

fn check_backward(problem: &Problem, forward: &Attention, grad: &Array) -> Result<()> {
    let Problem { batch, heads, queries, values, .. } = *problem;
    let shape = [batch, heads, queries, values];
    for (argument, array) in [("output", &forward.output), ("grad", grad)] {
        array.require_like(&problem.q, NAME, argument)?;
        array.require_shape(NAME, argument, &shape, || "a result for each query".to_owned())?;
    }
    let (dtype, wanted) = (forward.log_sum_exp.dtype(), problem.q.dtype().accumulator());
    if dtype != wanted {
        let (argument, actual, expected) = ("log_sum_exp", dtype, wanted);
        return Err(CoreError::DType { operation: NAME, argument, actual, expected }.into());
    }
    problem.q.require_beside(&forward.log_sum_exp.device(), NAME, "log_sum_exp")?;
    forward
        .log_sum_exp
        .require_shape(NAME, "log_sum_exp", &shape[..3], || "a number for each query".to_owned())
}

fn cpu_backward(
    problem: &Problem,
    options: &AttentionOptions,
    forward: &Attention,
    grad: &Array,
) -> Result<Gradients> {
    let allowed = problem.allowed(options)?;
    let [q, k, v] = [problem.q.contiguous()?, problem.k.contiguous()?, problem.v.contiguous()?];
    let [output, grad] = [forward.output.contiguous()?, grad.contiguous()?];
    let log_sums = forward.log_sum_exp.to_f64_vec()?;
    with_element!(q.dtype(), NAME, T => {
        let task = cpu::Task::<T>::new([&q, &k, &v], problem, options, allowed.as_deref())?;
        let saved = cpu::Saved { output: output.as_slice::<T>()?, grad: grad.as_slice::<T>()?, log_sums: &log_sums };
        let (mut grad_k, mut grad_v) = (vec![T::default(); k.elements()], vec![T::default(); v.elements()]);
        let grad_q = Array::build(q.shape(), &Device::Cpu, |out: &mut [T]| {
            task.backward(&saved, out, &mut grad_k, &mut grad_v);
        })?;
        let shaped = |values: Vec<T>, like: &Array| Array::from_vec(values, like.shape(), &Device::Cpu);
        Ok(Gradients { q: grad_q, k: shaped(grad_k, &k)?, v: shaped(grad_v, &v)? })
    })
}
