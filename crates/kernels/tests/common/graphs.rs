//! Random graphs of operators on elements, for the tests of fused kernels on a GPU and on the host. Whoever includes this file calls the
//! crate `kernels`.

#![allow(dead_code, reason = "each file that includes this one uses a part")]

use super::kernels::{Array, DType, Device, Index, Result, ops};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What graphs start from: arrays, and lists of the ends of edges.
pub struct Inputs {
    pub arrays: Vec<Array>,
    pub receivers: Index,
    pub senders: Index,
}

const SHAPES: [&[usize]; 7] = [&[], &[1], &[7], &[3, 1, 1], &[2, 33, 1], &[0, 4], &[4, 40, 65]];

/// Nodes and edges of a system, along axis 1, and the systems of a batch, which know nothing of each other.
const NODES: usize = 5;
const EDGES: usize = 12;
const SYSTEMS: usize = 18;

impl Inputs {
    /// Normal samples on the host, some of them as transposed views, for one system or, by every second seed, a batch of them.
    pub fn draw(seed: u64, dtype: DType) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let systems = if seed.is_multiple_of(2) { 1 } else { SYSTEMS };
        let mut array = |shape: &[usize]| {
            let turned: Vec<usize> = shape.iter().rev().copied().collect();
            let order: Vec<usize> = (0..shape.len()).rev().collect();
            let is_turned = rng.random_bool(0.3);
            let drawn = if is_turned { turned } else { shape.to_vec() };
            let array = Array::randn(drawn, DType::F64, &Device::Cpu, &mut rng).unwrap().cast(dtype).unwrap();
            if is_turned { array.permute(&order).unwrap() } else { array }
        };
        let (nodes, edges) = (systems * NODES, systems * EDGES);
        let of_systems = [[3, nodes, 4], [1, nodes, 4], [3, edges, 4], [1, edges, 1]];
        let shapes = SHAPES.into_iter().chain(of_systems.iter().map(<[usize; 3]>::as_slice));
        let arrays = shapes.map(&mut array).collect();
        let mut ends = || {
            let node = |edge: usize| edge / EDGES * NODES + rng.random_range(0..NODES);
            let list: Vec<usize> = (0..edges).map(node).collect();
            Index::new(&list, nodes, &Device::Cpu).unwrap()
        };
        Self { arrays, receivers: ends(), senders: ends() }
    }

    /// Views stay views: what is copied is the storage in the order of the transposed shape.
    pub fn on(&self, device: &Device) -> Self {
        let copied = |array: &Array| {
            let order: Vec<usize> = (0..array.rank()).rev().collect();
            if array.is_contiguous() {
                array.to_device(device).unwrap()
            } else {
                array.permute(&order).unwrap().to_device(device).unwrap().permute(&order).unwrap()
            }
        };
        let arrays = self.arrays.iter().map(copied).collect();
        let index = |index: &Index| index.to_device(device).unwrap();
        Self { arrays, receivers: index(&self.receivers), senders: index(&self.senders) }
    }
}

/// Functions of one, two and three arrays.
pub type Unary = fn(&Array) -> Result<Array>;
pub type Binary = fn(&Array, &Array) -> Result<Array>;
pub type Ternary = fn(&Array, &Array, &Array) -> Result<Array>;

/// What graphs are made of, beside the operators that move elements and add them.
pub struct Operators {
    pub unary: &'static [Unary],
    pub binary: &'static [Binary],
    /// Of an array and of two others, each of its shape or of one element.
    pub ternary: &'static [Ternary],
    /// The longest axis that is summed.
    pub longest_sum: usize,
    /// The most elements of a result that others are computed from.
    pub most_elements: usize,
}

/// All functions of one array.
const UNARY: &[Unary] = &[
    ops::neg,
    ops::abs,
    ops::sign,
    ops::exp,
    ops::log,
    ops::sqrt,
    ops::rsqrt,
    ops::recip,
    ops::square,
    ops::sin,
    ops::cos,
    ops::tanh,
    ops::erf,
    ops::sigmoid,
    ops::silu,
    ops::gelu,
    ops::silu_derivative,
    ops::gelu_derivative,
    ops::relu,
    ops::not_finite,
    |x| ops::add_scalar(x, 0.3),
    |x| ops::clamp(x, -0.7, 1.2),
    |x| ops::pow_scalar(x, 3.0),
    |x| ops::pow_scalar(x, -1.0),
    |x| ops::pow_scalar(x, 0.5),
    |x| x.cast(if x.dtype() == DType::F64 { DType::F32 } else { DType::F64 })?.cast(x.dtype()),
    |x| x.cast(if x.dtype() == DType::BF16 { DType::F16 } else { DType::BF16 })?.cast(x.dtype()),
];

/// All functions of two arrays.
const BINARY: &[Binary] = &[
    ops::add,
    ops::sub,
    ops::mul,
    ops::div,
    ops::max,
    ops::min,
    ops::equal,
    ops::not_equal,
    ops::greater,
    ops::greater_equal,
    ops::less,
    ops::less_equal,
];

/// Choices, sums in place, and kernels that know no more than addresses.
const TERNARY: &[Ternary] = &[
    |x, y, z| ops::select(y, x, z),
    |x, y, _| {
        let mut sum = x.copy()?;
        ops::add_assign(&mut sum, &y.broadcast_to(x.shape()).unwrap_or_else(|_| x.clone()))?;
        Ok(sum)
    },
    |x, y, _| if x.rank() > 0 { ops::softmax(x, x.rank() - 1) } else { ops::mul(x, y) },
];

/// All of these, of results as large as steps have.
pub const ALL: Operators = Operators {
    unary: UNARY,
    binary: BINARY,
    ternary: TERNARY,
    longest_sum: usize::MAX,
    most_elements: 200_000,
};

/// The bits of all elements; one kind of NaN.
pub fn bits(arrays: &[Array]) -> Vec<Vec<u64>> {
    let number = |value: f64| if value.is_nan() { u64::MAX } else { value.to_bits() };
    arrays.iter().map(|array| array.to_f64_vec().unwrap().into_iter().map(number).collect()).collect()
}

fn one<'a, T>(rng: &mut ChaCha8Rng, all: &'a [T]) -> &'a T {
    &all[rng.random_range(0..all.len())]
}

/// So many operators, the same ones for the same seed, and the arrays that are kept of their results, contiguous.
pub fn compute(inputs: &Inputs, operators: &Operators, seed: u64, length: usize) -> Result<Vec<Array>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let fits = |array: &&Array| array.elements() <= operators.most_elements;
    let mut known: Vec<Array> = inputs.arrays.iter().filter(fits).cloned().collect();
    let given = known.len();
    for _ in 0..length {
        let x = one(&mut rng, &known).clone();
        let like_x = |y: &&Array| y.dims() == x.dims() || y.elements() == 1;
        let beside: Vec<&Array> = known.iter().filter(like_x).collect();
        let [y, z] = [0; 2].map(|_| (*one(&mut rng, &beside)).clone());
        let rank = x.rank();
        let axis = if rank > 0 { rng.random_range(0..rank) } else { 0 };
        let made = match rng.random_range(0..20) {
            0..4 => one(&mut rng, operators.unary)(&x)?,
            4..8 => one(&mut rng, operators.binary)(&x, &y)?,
            8..11 => one(&mut rng, operators.ternary)(&x, &y, &z)?,
            11 => ops::mul_scalar(&x, rng.random_range(-2.0..2.0))?,
            12 => {
                let shape = x.shape().broadcast(y.shape(), "test")?;
                let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
                ops::add_n(&[&x, &y, &x])?
            }
            13 if rank > 0 && x.dims()[axis] <= operators.longest_sum => {
                ops::sum(&x, &[axis], rng.random_bool(0.5))?
            }
            14 if rank > 1 => {
                let turned = x.transpose(axis, rng.random_range(0..rank))?;
                if rng.random_bool(0.5) { turned.contiguous()? } else { turned }
            }
            15 if rank > 0 && x.dims()[axis] > 1 => {
                x.slice(axis, rng.random_range(0..x.dims()[axis])..x.dims()[axis])?
            }
            16 if rank > 0 => ops::concat(&[&x, &x.slice(axis, 0..x.dims()[axis].min(1))?, &x], axis)?,
            17 if rank == 3 && x.dims()[1] == inputs.receivers.bound() => {
                if rng.random_bool(0.5) {
                    ops::edge_difference(&x, None, &inputs.receivers, &inputs.senders)?
                } else {
                    ops::index_select(&x, 1, &inputs.receivers)?
                }
            }
            18 if rank == 3 && x.dims()[1] == inputs.receivers.len() => {
                let x = x.contiguous()?;
                if rng.random_bool(0.5) {
                    ops::net_inflow(&x, &inputs.receivers, &inputs.senders)?
                } else {
                    ops::segment_sum(&x, 1, &inputs.senders)?
                }
            }
            _ => Array::full(x.shape().clone(), 0.75, x.dtype(), &x.device())?,
        };
        // Most results are gone before the graph ends.
        if known.len() > given && rng.random_bool(0.4) {
            known.remove(rng.random_range(given..known.len()));
        }
        if made.elements() <= operators.most_elements {
            known.push(made);
        }
    }
    known[given..].iter().map(Array::contiguous).collect()
}
