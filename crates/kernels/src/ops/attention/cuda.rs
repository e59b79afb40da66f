//! Attention on CUDA: choice of kernel and launch parameters.

use super::{
    Attention, AttentionOptions, Gradients, NAME, Problem, Sequences,
    engine::{Engine, Hopper, Pass},
};
use crate::{
    Array, CudaDevice, DType, Error, Result,
    array::{
        fill,
        index::{Index, Resident},
    },
    csrc::attention_simt::DELTA_GROUP,
    runtime::cuda::{Args, Buffer, Grid, Kernel},
};
use gradewise_ffi::{TensorMap, tensor_map};

/// `Attention` of csrc/attention/problem.cuh.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::NoUninit)]
struct Parameters {
    q: u64,
    k: u64,
    v: u64,
    out: u64,
    log_sums: u64,
    delta: u64,
    grad: u64,
    grad_q: u64,
    grad_k: u64,
    grad_v: u64,
    lengths: u64,
    mask: u64,
    q_steps: [u64; 3],
    k_steps: [u64; 3],
    v_steps: [u64; 3],
    out_steps: [u64; 3],
    grad_steps: [u64; 3],
    grad_q_steps: [u64; 3],
    grad_k_steps: [u64; 3],
    grad_v_steps: [u64; 3],
    heads: u64,
    group: u64,
    queries: u64,
    keys: u64,
    features: u64,
    values: u64,
    causal: u64,
    scale: f64,
    query_spans: u64,
    key_spans: u64,
    dropout: Dropout,
}

/// `AttentionDropout` of csrc/attention/problem.cuh.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::NoUninit)]
struct Dropout {
    round_keys: [[u32; 2]; 10],
    stream: u64,
    threshold: u64,
    kept: f64,
}

/// Strides of batches, heads and tokens.
fn steps(array: &Array) -> [u64; 3] {
    std::array::from_fn(|axis| array.strides()[axis] as u64)
}

/// What each token of the first side sees of the second's: `attention_spans` of csrc.
fn write_spans(
    device: &CudaDevice,
    [rows, columns]: [&Index; 2],
    causal: bool,
    of_keys: bool,
) -> Result<Buffer> {
    let tokens = rows.bound() - 1;
    let spans = Buffer::new(device, tokens * 2 * size_of::<i32>(), NAME)?;
    if tokens > 0 {
        let starts = |index: &Index| index.resident().map_or(0, Resident::values);
        let args = Args::new()
            .pointer(spans.pointer())
            .pointer(starts(rows))
            .pointer(starts(columns))
            .size(rows.len() - 1)
            .size(tokens)
            .int(causal.into())
            .int(of_keys.into());
        let kernel = Kernel { operation: "attention_spans", signature: None, dtype: None };
        // SAFETY: 1: two numbers for each token, of lists that begin with 0 and end with the number of tokens. 2: `spans` is new. 3:
        // linear, the kernel strides. 4: the lists are borrowed.
        unsafe { device.launch(NAME, kernel, Grid::linear(tokens), args)? };
    }
    Ok(spans)
}

struct Launch<'a> {
    device: &'a CudaDevice,
    problem: &'a Problem,
    /// Features that the kernel is compiled for, at least those of the problem.
    size: usize,
    engine: Engine,
    /// The output's gradient, in the backward pass.
    grad: Option<&'a Array>,
    parameters: Parameters,
    /// Whether there is dropout or sequences are packed.
    general: bool,
    /// Keep what the parameters point to.
    _held: Vec<Array>,
    _spans: Vec<Buffer>,
}

impl<'a> Launch<'a> {
    fn new(
        device: &'a CudaDevice,
        problem: &'a Problem,
        options: &AttentionOptions,
        grad: Option<&'a Array>,
    ) -> Result<Self> {
        let mask = options.mask.as_ref().map(Array::contiguous).transpose()?;
        let Problem { q, k, v, .. } = problem;
        let operands: Vec<&Array> = [q, k, v].into_iter().chain(grad).collect();
        let dropped = options.dropped();
        let general = dropped.is_some() || options.sequences.is_some();
        let engine = Engine::choose(device, problem, &operands, general).best(device, problem, &operands);
        let widest = problem.features.max(problem.values);
        let Some(size) = engine.size(widest, q.dtype()) else {
            return Err(Error::Argument {
                operation: NAME,
                argument: "q",
                actual: format!("{widest} features"),
                expected: "at most 128 features of a head on CUDA",
            });
        };
        let mut parameters = Parameters {
            q: q.cuda_address(),
            k: k.cuda_address(),
            v: v.cuda_address(),
            lengths: options
                .lengths
                .as_ref()
                .and_then(|lengths| lengths.resident())
                .map_or(0, Resident::values),
            mask: mask.as_ref().map_or(0, Array::cuda_address),
            q_steps: steps(q),
            k_steps: steps(k),
            v_steps: steps(v),
            heads: problem.heads as u64,
            group: problem.group as u64,
            queries: problem.queries as u64,
            keys: problem.keys as u64,
            features: problem.features as u64,
            values: problem.values as u64,
            causal: u64::from(options.causal),
            scale: problem.scale,
            ..Parameters::default()
        };
        if let Some(dropout) = dropped {
            // The host advances the stream of random numbers, so every replay of a capture would draw the same mask.
            device.refuse_in_capture(NAME)?;
            parameters.dropout = Dropout {
                round_keys: dropout.round_keys(),
                stream: dropout.random.stream,
                threshold: dropout.threshold().into(),
                kept: dropout.kept(),
            };
        } else {
            parameters.dropout.kept = 1.0;
        }
        let mut spans = Vec::new();
        if let Some(sequences) = &options.sequences {
            let mut write = |sides: [&Index; 2], of_keys| -> Result<u64> {
                let buffer = write_spans(device, sides, options.causal, of_keys)?;
                let address = buffer.pointer();
                spans.push(buffer);
                Ok(address)
            };
            let Sequences { queries, keys } = sequences;
            parameters.query_spans = write([queries, keys], false)?;
            if grad.is_some() {
                parameters.key_spans = write([keys, queries], true)?;
            }
        }
        let held = mask.into_iter().collect();
        Ok(Self { device, problem, size, engine, grad, parameters, general, _held: held, _spans: spans })
    }

    fn run(&self, pass: Pass) -> Result<()> {
        let Problem { batch, heads, group, queries, keys, .. } = *self.problem;
        let dtype = self.problem.q.dtype();
        let engine = self.engine;
        let (rows, shared) = engine.tile(pass, self.size, dtype);
        let (tokens, heads) = if pass == Pass::BackwardKv { (keys, heads / group) } else { (queries, heads) };
        let tiles = tokens.div_ceil(rows);
        let units = tiles * heads * batch;
        let kernel = engine.kernel(pass, self.general, self.size, dtype);
        if engine == Engine::Hopper {
            // Persistent blocks: each fills a multiprocessor and takes tiles in turn.
            let blocks = units.min(self.device.info().multiprocessors.max(1) as usize);
            let grid = Grid::blocks(blocks, engine.threads(pass, self.size)).shared(shared);
            let launch = |args: Args<'_>| {
                // SAFETY: 1: `Problem::new` and `check_backward` compared all arrays; the parameters carry their sizes and strides, and the
                // copy engine was told them. 2: results are new. 3: threads and shared memory are those of the engine's tile. 4: the arrays
                // are borrowed or held by this launch.
                unsafe { self.device.launch(NAME, kernel, grid, args.int(tiles as i32).int(units as i32)) }
            };
            return match self.grad {
                Some(grad) => launch(Args::new().large(&self.described_backward(pass, grad)?)),
                None => launch(Args::new().large(&self.described()?)),
            };
        }
        let grid = Grid::blocks(units, engine.threads(pass, self.size)).shared(shared);
        let args = Args::new().value(&self.parameters).int(tiles as i32);
        // SAFETY: 1: `Problem::new` and `check_backward` compared all arrays; the parameters carry their sizes and strides. 2: results are
        // new. 3: threads and shared memory are those of the engine's tile. 4: the arrays are borrowed or held by this launch.
        unsafe { self.device.launch(NAME, kernel, grid, args) }
    }

    fn described(&self) -> Result<Described> {
        let map = |array: &Array| describe(self.device, array, Hopper::of(Pass::Forward, self.size).rows);
        let Problem { q, k, v, .. } = self.problem;
        Ok(Described { q: map(q)?, k: map(k)?, v: map(v)?, parameters: self.parameters, _end: [0; 5] })
    }

    fn described_backward(&self, pass: Pass, grad: &Array) -> Result<DescribedBackward> {
        let Problem { q, k, v, .. } = self.problem;
        let (rows, columns) =
            if pass == Pass::BackwardKv { ([k, v], [q, grad]) } else { ([q, grad], [k, v]) };
        let maps = |arrays: [&Array; 2], tokens| -> Result<[[u64; 16]; 2]> {
            Ok([describe(self.device, arrays[0], tokens)?, describe(self.device, arrays[1], tokens)?])
        };
        let hopper = Hopper::of(pass, self.size);
        Ok(DescribedBackward {
            rows: maps(rows, hopper.rows)?,
            columns: maps(columns, hopper.columns)?,
            parameters: self.parameters,
            _end: [0; 5],
        })
    }
}

/// `HopperAttention` of csrc/attention/hopper.cuh.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Described {
    q: [u64; 16],
    k: [u64; 16],
    v: [u64; 16],
    parameters: Parameters,
    _end: [u64; 5],
}

/// `HopperAttentionBackward` of csrc/attention/hopper_backward.cuh.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct DescribedBackward {
    rows: [[u64; 16]; 2],
    columns: [[u64; 16]; 2],
    parameters: Parameters,
    _end: [u64; 5],
}

/// `[batch, head, token, feature]` for the copy engine, in boxes of 64 features by `tokens` tokens.
fn describe(device: &CudaDevice, array: &Array, tokens: usize) -> Result<[u64; 16]> {
    // Where in the description the address is, the driver does not say.
    device.settle_at(array.cuda_address())?;
    let size = array.dtype().size();
    let axis = |axis: usize| array.dims()[axis] as u64;
    // The stride of an axis of size 1 is unused but must be valid.
    let step = |axis: usize| (if array.dims()[axis] > 1 { array.strides()[axis] * size } else { 16 }) as u64;
    let map = TensorMap {
        dtype: if array.dtype() == DType::F16 { tensor_map::FLOAT16 } else { tensor_map::BFLOAT16 },
        address: array.cuda_address(),
        sizes: &[axis(3), axis(2), axis(1), axis(0)],
        strides: &[step(2), step(1), step(0)],
        tile: &[64, tokens as u32, 1, 1],
        swizzle: tensor_map::SWIZZLE_128B,
        promotion: tensor_map::PROMOTION_128B,
    };
    let encoded = map.encode(device.context().driver());
    encoded.map(|map| map.0).map_err(|error| device.error(NAME, error))
}

/// An array for a gradient, laid out as its operand, if that has no gaps.
fn gradient(device: &CudaDevice, of: &Array) -> Result<Array> {
    if of.is_contiguous() {
        return Array::for_kernel(NAME, of.shape(), of.dtype(), device);
    }
    results(device, of, of.dims()[3])
}

/// An array for results `[batch, heads, tokens, features]`, laid out as `[batch, tokens, heads, features]`: contiguous for a linear map
/// over all heads.
fn results(device: &CudaDevice, like: &Array, features: usize) -> Result<Array> {
    let &[batch, heads, tokens, _] = like.dims() else { unreachable!("four axes were found") };
    Array::for_kernel(NAME, [batch, tokens, heads, features], like.dtype(), device)?.transpose(1, 2)
}

pub(super) fn forward(
    device: &CudaDevice,
    problem: &Problem,
    options: &AttentionOptions,
) -> Result<Attention> {
    let mut launch = Launch::new(device, problem, options, None)?;
    let output = results(device, &problem.q, problem.values)?;
    let shape = &problem.q.dims()[..3];
    let log_sum_exp = Array::for_kernel(NAME, shape, problem.q.dtype().accumulator(), device)?;
    if log_sum_exp.elements() > 0 {
        launch.parameters.out = output.cuda_address();
        launch.parameters.out_steps = steps(&output);
        launch.parameters.log_sums = log_sum_exp.cuda_address();
        launch.run(Pass::Forward)?;
    }
    Ok(Attention { output, log_sum_exp })
}

pub(super) fn backward(
    device: &CudaDevice,
    problem: &Problem,
    options: &AttentionOptions,
    forward: &Attention,
    grad: &Array,
) -> Result<Gradients> {
    let [q, k, v] =
        [gradient(device, &problem.q)?, gradient(device, &problem.k)?, gradient(device, &problem.v)?];
    let targets = [q, k, v];
    backward_into(device, problem, options, forward, grad, &targets)?;
    let [q, k, v] = targets;
    Ok(Gradients { q, k, v })
}

/// Writes the gradients of queries, keys and values to views of new arrays.
pub(super) fn backward_into(
    device: &CudaDevice,
    problem: &Problem,
    options: &AttentionOptions,
    forward: &Attention,
    grad: &Array,
    [grad_q, grad_k, grad_v]: &[Array; 3],
) -> Result<()> {
    let mut launch = Launch::new(device, problem, options, Some(grad))?;
    let (output, log_sum_exp) = (super::rows(&forward.output)?, forward.log_sum_exp.contiguous()?);
    let rows = log_sum_exp.elements();
    let delta = if rows == 0 {
        fill::full(device, NAME, log_sum_exp.shape(), 0.0, log_sum_exp.dtype())?
    } else {
        Array::for_kernel(NAME, log_sum_exp.shape(), log_sum_exp.dtype(), device)?
    };
    let parameters = &mut launch.parameters;
    (parameters.out, parameters.out_steps) = (output.cuda_address(), steps(&output));
    (parameters.grad, parameters.grad_steps) = (grad.cuda_address(), steps(grad));
    (parameters.grad_q, parameters.grad_q_steps) = (grad_q.cuda_address(), steps(grad_q));
    (parameters.grad_k, parameters.grad_k_steps) = (grad_k.cuda_address(), steps(grad_k));
    (parameters.grad_v, parameters.grad_v_steps) = (grad_v.cuda_address(), steps(grad_v));
    (parameters.log_sums, parameters.delta) = (log_sum_exp.cuda_address(), delta.cuda_address());
    if rows > 0 {
        let args = Args::new().value(&launch.parameters).size(rows);
        let kernel = Kernel::new("attention_delta", grad.dtype());
        // SAFETY: 1: output and gradient have the shape of the queries and rows of adjacent elements (`check_backward`, `rows`), and there
        // is a number for each of so many rows. 2: `delta` is new. 3: linear, a group of threads for each row; the kernel strides. 4: the arrays live
        // in this function or are borrowed.
        unsafe { device.launch(NAME, kernel, Grid::linear(DELTA_GROUP * rows), args)? };
        launch.run(Pass::BackwardQ)?;
    }
    // Without queries the gradients of keys and values still exist: they are zeros.
    if grad_k.elements() > 0 {
        launch.run(Pass::BackwardKv)?;
    }
    Ok(())
}
