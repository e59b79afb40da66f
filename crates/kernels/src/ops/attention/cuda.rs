//! Attention on CUDA: choice of kernel and launch parameters.

use super::{Attention, AttentionOptions, Gradients, NAME, Problem};
use crate::{
    Array, CudaDevice, DType, Error, Result,
    array::fill,
    array::rows::accumulator,
    cuda::{Args, Grid, Kernel},
    index::Resident,
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
    causal: u64,
    scale: f64,
}

/// Strides of batches, heads and tokens.
fn steps(array: &Array) -> [u64; 3] {
    std::array::from_fn(|axis| array.strides()[axis] as u64)
}

/// The instructions that compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    /// Ordinary multiply-adds.
    Simt,
    /// Warp-wide matrix instructions.
    Warp,
    /// The matrix instructions of warpgroups.
    Hopper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Forward,
    BackwardQ,
    BackwardKv,
}

/// Features for which there are kernels.
const FEATURES: [usize; 3] = [32, 64, 128];

impl Engine {
    fn choose(device: &CudaDevice, operands: &[&Array], features: usize) -> Self {
        // The kernels copy 16 bytes at a time.
        let aligned = |array: &&Array| {
            let mut axes = array.dims().iter().zip(array.strides()).take(3);
            array.cuda_address().is_multiple_of(16)
                && axes.all(|(&count, &step)| count == 1 || (step * array.dtype().size()).is_multiple_of(16))
        };
        let served = operands.iter().all(|array| array.dtype().size() == 2)
            && features.is_multiple_of(8)
            && device.info().compute_capability.0 >= 8;
        if served && operands.iter().all(aligned) { Self::Warp } else { Self::Simt }
    }

    /// The faster engine for what this one can compute: Hopper where the device and the problem allow it, else this one.
    fn best(self, device: &CudaDevice, problem: &Problem, operands: &[&Array]) -> Self {
        // Shorter sequences leave most of a tile empty.
        const ENOUGH: usize = 128;
        // The copy engine takes no strides of 0.
        let steps = operands.iter().all(|array| array.strides().iter().all(|&step| step > 0));
        // Kernels count tiles, of 64 tokens or more, in 32 bits.
        let tiles = problem.batch * problem.heads * problem.queries.max(problem.keys).div_ceil(64);
        let served = self == Self::Warp
            && i32::try_from(2 * tiles).is_ok()
            && device.options().attention_warpgroups
            && steps
            && problem.features > 32
            && problem.queries.min(problem.keys) >= ENOUGH
            && device.has_warpgroups();
        if served { Self::Hopper } else { self }
    }

    const fn threads(self, pass: Pass, size: usize) -> u32 {
        match self {
            Self::Simt => 256,
            Self::Warp => 128,
            Self::Hopper => Hopper::of(pass, size).threads(),
        }
    }

    fn kernel(self, pass: Pass, size: usize, dtype: DType) -> Kernel {
        macro_rules! names {
            ($engine:literal, $pass:literal) => {
                [
                    concat!("attention_", $engine, "_", $pass, "_32"),
                    concat!("attention_", $engine, "_", $pass, "_64"),
                    concat!("attention_", $engine, "_", $pass, "_128"),
                ]
            };
        }
        let names = match (self, pass) {
            (Self::Simt, Pass::Forward) => names!("simt", "fwd"),
            (Self::Simt, Pass::BackwardQ) => names!("simt", "bwd_q"),
            (Self::Simt, Pass::BackwardKv) => names!("simt", "bwd_kv"),
            (Self::Warp, Pass::Forward) => names!("warp", "fwd"),
            (Self::Warp, Pass::BackwardQ) => names!("warp", "bwd_q"),
            (Self::Warp, Pass::BackwardKv) => names!("warp", "bwd_kv"),
            (Self::Hopper, Pass::Forward) => names!("hopper", "fwd"),
            (Self::Hopper, Pass::BackwardQ) => names!("hopper", "bwd_q"),
            (Self::Hopper, Pass::BackwardKv) => names!("hopper", "bwd_kv"),
        };
        Kernel::new(names[FEATURES.iter().position(|&each| each == size).unwrap_or(0)], dtype)
    }

    /// Rows of a tile, and bytes of shared memory.
    fn tile(self, pass: Pass, size: usize, dtype: DType) -> (usize, usize) {
        match self {
            Self::Simt => {
                let element = accumulator(dtype).size();
                let rows = if pass == Pass::Forward && element == 4 { 32 } else { 16 };
                let tiles = if pass == Pass::Forward { 2 } else { 3 };
                (rows, (tiles * rows * (size + 1) + rows * (rows + 1)) * element)
            }
            Self::Warp => {
                let rows = if pass == Pass::Forward { 64 + 4 * 64 } else { 2 * 64 + 4 * 32 };
                (64, rows * (size + 8) * 2)
            }
            Self::Hopper => {
                let hopper = Hopper::of(pass, size);
                (hopper.rows, hopper.bytes(size))
            }
        }
    }
}

/// What a kernel of csrc/attention/hopper.cuh or hopper_backward.cuh has.
struct Hopper {
    /// Warpgroups that multiply.
    consumers: usize,
    /// Tokens of a tile that stays and of one that passes by.
    rows: usize,
    columns: usize,
    /// Tiles that pass by: as many pairs are in shared memory. Of those that stay there is one pair.
    stages: usize,
}

impl Hopper {
    /// Shared memory beside the tiles: barriers, and in the backward pass two numbers for each query of a stage.
    const MORE_BYTES: usize = 2048;

    const fn of(pass: Pass, size: usize) -> Self {
        match pass {
            Pass::Forward => Self { consumers: 2, rows: 128, columns: 128, stages: 2 },
            Pass::BackwardQ if size == 64 => Self { consumers: 3, rows: 192, columns: 64, stages: 3 },
            Pass::BackwardQ | Pass::BackwardKv => Self { consumers: 2, rows: 128, columns: 64, stages: 3 },
        }
    }

    const fn bytes(&self, size: usize) -> usize {
        2 * (self.rows + self.stages * self.columns) * size * 2 + Self::MORE_BYTES
    }

    const fn threads(&self) -> u32 {
        128 * (self.consumers as u32 + 1)
    }
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
    /// Keeps the arrays that the parameters point to.
    _held: Vec<Array>,
}

impl<'a> Launch<'a> {
    fn new(
        device: &'a CudaDevice,
        problem: &'a Problem,
        options: &AttentionOptions,
        grad: Option<&'a Array>,
    ) -> Result<Self> {
        let Some(size) = FEATURES.into_iter().find(|&size| size >= problem.features) else {
            return Err(Error::Argument {
                operation: NAME,
                argument: "q",
                actual: format!("{} features", problem.features),
                expected: "at most 128 features of a head on CUDA",
            });
        };
        let mask = options.mask.as_ref().map(Array::contiguous).transpose()?;
        let Problem { q, k, v, .. } = problem;
        let operands: Vec<&Array> = [q, k, v].into_iter().chain(grad).collect();
        let parameters = Parameters {
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
            causal: u64::from(options.causal),
            scale: problem.scale,
            ..Parameters::default()
        };
        let engine = Engine::choose(device, &operands, problem.features).best(device, problem, &operands);
        Ok(Self { device, problem, size, engine, grad, parameters, _held: mask.into_iter().collect() })
    }

    fn run(&self, pass: Pass) -> Result<()> {
        let Problem { batch, heads, group, queries, keys, .. } = *self.problem;
        let dtype = self.problem.q.dtype();
        let engine = self.engine;
        let (rows, shared) = engine.tile(pass, self.size, dtype);
        let (tokens, heads) = if pass == Pass::BackwardKv { (keys, heads / group) } else { (queries, heads) };
        let tiles = tokens.div_ceil(rows);
        let units = tiles * heads * batch;
        let kernel = engine.kernel(pass, self.size, dtype);
        if engine == Engine::Hopper {
            // Persistent blocks: each fills a multiprocessor and takes tiles in turn.
            let blocks = units.min(self.device.info().multiprocessors.max(1) as usize);
            let grid = Grid::blocks(blocks, engine.threads(pass, self.size)).shared(shared);
            let launch = |args: Args<'_>| {
                self.device.launch(NAME, kernel, grid, args.int(tiles as i32).int(units as i32))
            };
            return match self.grad {
                Some(grad) => launch(Args::new().large(&self.described_backward(pass, grad)?)),
                None => launch(Args::new().large(&self.described()?)),
            };
        }
        let grid = Grid::blocks(units, engine.threads(pass, self.size)).shared(shared);
        let args = Args::new().value(&self.parameters).int(tiles as i32);
        self.device.launch(NAME, kernel, grid, args)
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

/// An array for results `[batch, heads, tokens, features]`, laid out as `[batch, tokens, heads, features]`: contiguous for a linear map
/// over all heads.
fn results(device: &CudaDevice, like: &Array) -> Result<Array> {
    let &[batch, heads, tokens, features] = like.dims() else { unreachable!("four axes were found") };
    Array::for_kernel(NAME, [batch, tokens, heads, features], like.dtype(), device)?.transpose(1, 2)
}

pub(super) fn forward(
    device: &CudaDevice,
    problem: &Problem,
    options: &AttentionOptions,
) -> Result<Attention> {
    let mut launch = Launch::new(device, problem, options, None)?;
    let output = results(device, &problem.q)?;
    let shape = &problem.q.dims()[..3];
    let log_sum_exp = Array::for_kernel(NAME, shape, accumulator(problem.q.dtype()), device)?;
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
        [results(device, &problem.q)?, results(device, &problem.k)?, results(device, &problem.v)?];
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
        device.launch(NAME, kernel, Grid::linear(32 * rows), args)?;
        launch.run(Pass::BackwardQ)?;
    }
    // Without queries the gradients of keys and values still exist: they are zeros.
    if grad_k.elements() > 0 {
        launch.run(Pass::BackwardKv)?;
    }
    Ok(())
}
