//! Random arguments for an operator: arrays of any layout, sizes that often fit each other, options that often make sense.

use gradewise_autograd::Tensor;
use gradewise_core::{Algebra, Signature};
use gradewise_kernels::{
    Array, DType, Device, Index, Positions,
    ops::{
        RandomStream,
        attention::{AttentionDropout, Sequences},
    },
};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use std::cell::RefCell;

/// What arrays hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Numbers around 1, none of them near 0: results can be compared.
    Moderate,
    /// NaN, infinities, subnormal and huge numbers among them.
    Any,
}

/// How arrays lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Transposed, cut out of larger arrays, broadcast, or contiguous.
    Views,
    /// The same elements in contiguous memory of their own.
    Copies,
}

/// A stream of arguments. Equal seeds give equal arguments, whatever the layout.
pub struct Source {
    rng: RefCell<ChaCha8Rng>,
    values: Values,
    layout: Layout,
    dtype: DType,
    /// Whether a part of the arguments is drawn at random instead of fitting the others.
    wild: bool,
    leaves: RefCell<Vec<Tensor>>,
}

impl Source {
    pub fn new(seed: u64, values: Values, layout: Layout) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let dtype = match rng.random_range(0..20) {
            0 => DType::BF16,
            1 => DType::F16,
            2..10 => DType::F64,
            _ => DType::F32,
        };
        let wild = rng.random_bool(0.3);
        Self { rng: RefCell::new(rng), values, layout, dtype, wild, leaves: RefCell::default() }
    }

    pub fn chance(&self, probability: f64) -> bool {
        self.rng.borrow_mut().random_bool(probability)
    }

    /// One of the numbers below `count`.
    pub fn below(&self, count: usize) -> usize {
        self.rng.borrow_mut().random_range(0..count.max(1))
    }

    fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        *choices.choose(&mut self.rng.borrow_mut()).expect("there are choices")
    }

    /// Whether this argument does not fit.
    fn odd(&self) -> bool {
        self.wild && self.chance(0.15)
    }

    pub fn size(&self) -> usize {
        self.one_of(&[0, 1, 1, 2, 3, 4, 5, 7, 17])
    }

    pub fn dims(&self) -> Vec<usize> {
        let rank = self.below(5);
        (0..rank).map(|_| self.size()).collect()
    }

    /// Sizes with at least this many axes.
    pub fn dims_of(&self, least: usize) -> Vec<usize> {
        (0..least + self.below(3)).map(|_| self.size()).collect()
    }

    /// An axis of an array of this rank; at times none.
    pub fn axis(&self, rank: usize) -> usize {
        if self.odd() { self.one_of(&[rank, rank + 1, usize::MAX]) } else { self.below(rank) }
    }

    /// Some axes.
    pub fn axes(&self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).filter(|_| self.chance(0.5)).collect();
        if self.odd() {
            axes.push(self.axis(rank));
        }
        axes
    }

    /// A count that may be anything.
    pub fn count(&self, usual: usize) -> usize {
        if self.odd() { self.one_of(&[0, usual + 1, usize::MAX, usize::MAX / 2]) } else { usual }
    }

    /// An option such as an ε, a probability or a bound.
    pub fn number(&self) -> f64 {
        const USUAL: [f64; 6] = [0.5, 1e-5, 1.0, 0.1, 2.0, 3.0];
        const ODD: [f64; 10] =
            [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-310, -2.5, 1e10];
        if self.odd() { self.one_of(&ODD) } else { self.one_of(&USUAL) }
    }

    fn value(&self) -> f64 {
        let moderate = {
            let size: f64 = self.rng.borrow_mut().random_range(0.3..1.7);
            if self.chance(0.4) { -size } else { size }
        };
        if self.values == Values::Any && self.chance(0.1) {
            return self.one_of(&[
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                0.0,
                -0.0,
                1e-40,
                -1e-310,
                3e38,
                -1e300,
            ]);
        }
        moderate
    }

    fn dtype(&self) -> DType {
        if self.odd() { self.one_of(&[DType::F32, DType::F64, DType::BF16, DType::F16]) } else { self.dtype }
    }

    fn fresh(&self, dims: &[usize]) -> Array {
        let values: Vec<f64> = (0..dims.iter().product::<usize>()).map(|_| self.value()).collect();
        Array::from_f64(&values, dims, self.dtype(), &Device::Cpu).expect("the CPU holds every dtype")
    }

    /// An array with these sizes, or at times with others.
    pub fn array(&self, dims: &[usize]) -> Array {
        let mut dims = dims.to_vec();
        if self.odd() {
            match self.below(3) {
                0 => drop(dims.pop()),
                1 => dims.push(self.size()),
                _ => dims.iter_mut().take(1).for_each(|size| *size += 1),
            }
        }
        let view = self.view(&dims);
        match self.layout {
            Layout::Views => view,
            Layout::Copies => {
                let values = view.to_f64_vec().expect("it is small");
                Array::from_f64(&values, view.shape(), view.dtype(), &Device::Cpu).expect("it is small")
            }
        }
    }

    fn view(&self, dims: &[usize]) -> Array {
        let rank = dims.len();
        let array = match self.below(5) {
            0 | 1 => self.fresh(dims),
            2 if rank >= 2 => {
                let (a, b) = (self.below(rank), self.below(rank));
                let mut turned = dims.to_vec();
                turned.swap(a, b);
                self.fresh(&turned).transpose(a, b).expect("axes of the array")
            }
            3 if rank >= 1 => {
                let axis = self.below(rank);
                let (before, after) = (self.below(3), self.below(3));
                let mut larger = dims.to_vec();
                larger[axis] += before + after;
                self.fresh(&larger).slice(axis, before..before + dims[axis]).expect("a part of the array")
            }
            4 if rank >= 1 => {
                let axis = self.below(rank);
                let mut narrow = dims.to_vec();
                narrow[axis] = 1;
                self.fresh(&narrow).broadcast_to(dims).expect("one element repeated")
            }
            _ => self.fresh(dims),
        };
        assert_eq!(array.dims(), dims);
        array
    }

    /// Sizes that broadcast with `dims`.
    pub fn broadcastable(&self, dims: &[usize]) -> Vec<usize> {
        let skipped = self.below(dims.len() + 1);
        dims[skipped..].iter().map(|&size| if self.chance(0.3) { 1 } else { size }).collect()
    }

    /// Whole numbers below `bound` as an index list of this length.
    pub fn index(&self, len: usize, bound: usize) -> gradewise_kernels::Result<Index> {
        let values: Vec<usize> = (0..len).map(|_| self.below(bound)).collect();
        Index::new(&values, self.count(bound), &Device::Cpu)
    }

    /// Some sequences, empty ones among them, of so many queries and keys.
    pub fn sequences(&self, tokens: [usize; 2]) -> gradewise_kernels::Result<Sequences> {
        let count = self.below(4);
        let [queries, keys] = tokens.map(|tokens| {
            let mut starts: Vec<usize> = (0..count).map(|_| self.below(tokens + 1)).collect();
            starts.sort_unstable();
            starts.insert(0, 0);
            starts.push(self.count(tokens));
            starts
        });
        Sequences::new(&queries, &keys, &Device::Cpu)
    }

    pub fn attention_dropout(&self) -> AttentionDropout {
        let seed = self.below(usize::MAX) as u64;
        AttentionDropout { p: self.number() / 4.0, random: RandomStream { seed, stream: seed >> 7 } }
    }

    pub fn positions(&self, dims: &[usize], bound: usize) -> gradewise_kernels::Result<Positions> {
        let values: Vec<usize> = (0..dims.iter().product()).map(|_| self.below(bound)).collect();
        Positions::new(&values, dims, self.count(bound), &Device::Cpu)
    }

    pub fn algebra(&self) -> Algebra {
        let (p, q, r) =
            self.one_of(&[(3, 0, 0), (2, 0, 0), (1, 3, 0), (0, 1, 0), (0, 0, 0), (0, 2, 1), (3, 0, 1)]);
        Algebra::new(Signature::new(p, q, r)).expect("a small algebra")
    }

    /// [`array`](Self::array) with a history: a leaf that needs a gradient, or not.
    pub fn tensor(&self, dims: &[usize]) -> Tensor {
        let tensor = Tensor::new(self.array(dims));
        if !self.chance(0.8) {
            return tensor;
        }
        let leaf = tensor.requires_grad();
        self.leaves.borrow_mut().push(leaf.clone());
        leaf
    }

    /// The leaves so far that need gradients.
    pub fn leaves(&self) -> Vec<Tensor> {
        self.leaves.borrow().clone()
    }
}
