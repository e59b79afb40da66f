//! Maps between few features and many on CUDA (csrc/clifford/linear/few_to_many.cuh), of those that `narrow` does not serve: one launch
//! forward, and backward one for each side's gradient and one for the sums over stretches of rows. They are bound by memory, where tiles of a
//! matrix product would be mostly empty. Where the many features have 16 bits, all the rest may be in `f32`.

use super::{
    Gradients, NAME, Sizes,
    call::Backward,
    few_to_many_kernels::{
        BOTH, BiasSide, COLLECT, LANES, MOST_GRADES, Map, SPREAD, SUMS, THREADS, WIDTHS, matrix,
        sums as shared_of_sums,
    },
};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::{LONGEST, sum_partials},
    ops::matmul::cuda::SHORT,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::{Algebra, Shape};

/// Most features of the narrow side, and of the other one.
pub(super) const MOST_FEW: usize = 8;
pub(super) const MOST_MANY: usize = 1024;

/// Elements of a pack.
const PACK: usize = 4;

/// Most packs of a row that a block takes: blocks with few rows at a time leave threads over.
const MOST_PACKS: usize = 64;

/// A map that the kernels serve.
pub(super) struct FewToMany<'a> {
    device: &'a CudaDevice,
    /// Of the many features, and of all the rest.
    dtype: DType,
    of_few: DType,
    batch: usize,
    few: usize,
    many: usize,
    /// Whether the narrow side is the input.
    from_few: bool,
    /// The first blade of each group of rows that share a matrix, and one past the last.
    first: Vec<usize>,
    /// Blades of the largest group, times the rows of a blade.
    rows: usize,
}

/// How rows and columns are dealt out to blocks.
struct Blocks {
    /// Stretches of the rows of each group.
    stretches: usize,
    /// Packs of columns of a block, and how many blocks a row takes.
    packs: usize,
    across: usize,
}

impl Blocks {
    /// Rows that a block takes at a time.
    const fn lanes(&self) -> usize {
        THREADS / self.packs
    }
}

impl<'a> FewToMany<'a> {
    /// The map, if the kernels serve it, of arrays of one dtype.
    pub fn of(device: &'a CudaDevice, algebra: &Algebra, sizes: &Sizes, dtype: DType) -> Option<Self> {
        Self::with_few_in(dtype, device, algebra, sizes, dtype)
    }

    /// The map of many features in 16 bits and all the rest in f32, if the kernels serve it. `many` is the array of many features that they
    /// read, if they read one.
    pub fn mixed(
        device: &'a CudaDevice,
        algebra: &Algebra,
        sizes: &Sizes,
        dtype: DType,
        many: Option<&Array>,
    ) -> Option<Self> {
        let map = Self::with_few_in(DType::F32, device, algebra, sizes, dtype)?;
        let is_served = dtype.is_short()
            && map.many.is_multiple_of(PACK)
            && many.is_none_or(|many| map.is_in_packs(many));
        is_served.then_some(map)
    }

    fn with_few_in(
        of_few: DType,
        device: &'a CudaDevice,
        algebra: &Algebra,
        sizes: &Sizes,
        dtype: DType,
    ) -> Option<Self> {
        let Sizes { batch, inputs, outputs, shared } = *sizes;
        let (few, many) = (inputs.min(outputs), inputs.max(outputs));
        let is_served = dtype != DType::F64
            && batch > 0
            && (1..=MOST_FEW).contains(&few)
            && many <= MOST_MANY
            && (shared || algebra.grade_count() <= MOST_GRADES);
        if !is_served {
            return None;
        }
        let first = sizes.groups(algebra);
        let widest = first.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        Some(Self {
            device,
            dtype,
            of_few,
            batch,
            few,
            many,
            from_few: sizes.is_from_few(),
            first,
            rows: widest * batch,
        })
    }

    const fn groups(&self) -> usize {
        self.first.len() - 1
    }

    /// The map of x, which is contiguous.
    pub fn forward(&self, x: &Array, w: &Array, bias: Option<(&Array, usize)>) -> Result<Array> {
        let (outputs, dtype) = if self.from_few { (self.many, self.dtype) } else { (self.few, self.of_few) };
        let out = self.array([x.dims()[0], self.batch, outputs], dtype)?;
        if self.from_few {
            self.spread(x, w, bias, &out)?;
        } else {
            self.collect(x, w, bias, &out)?;
        }
        Ok(out)
    }

    /// The gradients that are needed, as far as the kernels compute them: not sums of few rows, which are formed in double precision elsewhere,
    /// nor what is added to another array. x and `grad` are contiguous; the bias is that of the first blades.
    pub fn backward(&self, call: &Backward<'_>, grad: &Array, biased_blades: usize) -> Result<Gradients> {
        let Backward { x, w, needs, add_to, .. } = *call;
        let mut gradients = Gradients::default();
        let (few, many) = if self.from_few { (x, grad) } else { (grad, x) };
        let wants_x = needs.x && add_to.is_none();
        let spread =
            if wants_x && !self.from_few { Some(self.array(x.shape().clone(), self.dtype)?) } else { None };
        if wants_x && self.from_few {
            let out = self.array(x.shape().clone(), self.of_few)?;
            self.collect(grad, w, None, &out)?;
            gradients.x = Some(out);
        }
        if needs.w && (self.dtype != DType::F32 || self.rows > SHORT) {
            // The bias of one group alone: its sums are those of the first group's blocks.
            let in_one_group = needs.bias && (self.groups() == 1 || biased_blades == 1);
            let biased = if in_one_group { biased_blades } else { 0 };
            // One launch for the gradients of x and of the matrices.
            let together = spread.as_ref().filter(|_| self.few <= WIDTHS[BOTH.len() - 1]);
            let (of_w, of_bias) = self.sums(few, many, w, biased, together)?;
            (gradients.w, gradients.bias) = (Some(of_w), of_bias);
            if together.is_some() {
                gradients.x = spread;
                return Ok(gradients);
            }
        }
        if let Some(out) = spread {
            self.spread(grad, w, None, &out)?;
            gradients.x = Some(out);
        }
        Ok(gradients)
    }

    fn array(&self, shape: impl Into<Shape>, dtype: DType) -> Result<Array> {
        Array::for_kernel(NAME, shape, dtype, self.device)
    }

    /// Whether all but the many features are in f32 beside 16 bits. There are kernels of packs for that.
    fn is_mixed(&self) -> bool {
        self.of_few != self.dtype
    }

    /// Elements of a pack: 4 where rows of the arrays of many features are a multiple of that, and aligned.
    fn pack(&self, many: [&Array; 2]) -> usize {
        if many.iter().all(|array| self.is_in_packs(array)) { PACK } else { 1 }
    }

    /// Whether the rows of an array of many features begin at packs.
    fn is_in_packs(&self, many: &Array) -> bool {
        let bytes = (PACK * self.dtype.size()) as u64;
        self.many.is_multiple_of(PACK) && many.cuda_address().is_multiple_of(bytes)
    }

    fn kernel<const N: usize>(&self, names: [[&'static str; 3]; N], pack: usize) -> Kernel {
        let width = WIDTHS.iter().position(|&width| self.few <= width).unwrap_or(N - 1);
        let kind = usize::from(pack == PACK) + usize::from(self.is_mixed());
        Kernel::new(names[width.min(N - 1)][kind], self.dtype)
    }

    /// The map with the matrices, and nothing else.
    fn map(&self, w: &Array) -> Map {
        let mut first = [0; MOST_GRADES + 1];
        for (word, &blade) in first.iter_mut().zip(&self.first) {
            *word = blade as i32;
        }
        // Matrices are [grades, in, out].
        let (few_step, many_step) = if self.from_few { (self.many, 1) } else { (1, self.few) };
        Map {
            w: w.cuda_address(),
            batch: self.batch as u64,
            grade_step: (self.few * self.many) as u64,
            few_step: few_step as u64,
            many_step: many_step as u64,
            few_features: self.few as i32,
            many_features: self.many as i32,
            first,
            ..Map::default()
        }
    }

    fn with_bias(&self, map: Map, bias: Option<(&Array, usize)>) -> Map {
        let (bias, blades) = bias.map_or((0, 0), |(array, blades)| (array.cuda_address(), blades));
        Map { bias, biased: (blades * self.batch) as u64, ..map }
    }

    /// Stretches of each group's rows, for blocks that take `lanes` rows at a time and `across` blocks to a row.
    fn stretches(&self, lanes: usize, across: usize) -> usize {
        let multiprocessors = self.device.info().multiprocessors as usize;
        let with = |blocks: usize| (blocks * multiprocessors / (self.groups() * across)).max(1);
        let turns = self.rows.div_ceil(lanes);
        // Where blocks would have a few turns only, fewer blocks: beginning and end take longer than a turn. Groups of many rows have as many
        // blocks as the others; to have more than run at a time evens that out.
        let blocks = match turns / with(1) {
            0..8 => 1,
            8..64 => 2,
            _ if self.groups() > 1 => 4,
            _ if self.few == 1 => 3,
            _ => 2,
        };
        turns.min(with(blocks))
    }

    /// The blocks of `spread` and `sums`, for rows of so many packs.
    fn blocks(&self, row: usize) -> Blocks {
        let across = row.div_ceil(MOST_PACKS);
        let packs = row.div_ceil(across);
        Blocks { stretches: self.stretches(THREADS / packs, across), packs, across }
    }

    /// # Safety
    /// The map's addresses are those of arrays of the sizes of this map that live, `shared` is what the kernel keeps of a row or of its sums,
    /// and what the kernel writes is new.
    unsafe fn launch(&self, kernel: Kernel, grid: [usize; 3], shared: usize, map: &Map) -> Result<()> {
        let grid = Grid::new(grid, [THREADS as u32, 1, 1]).shared(shared);
        // SAFETY: 1, 2 and 4: as the caller vouches. 3: 256 threads, and the shared memory that the caller counted.
        unsafe { self.device.launch(NAME, kernel, grid, Args::new().value(map)) }
    }

    /// out = f·w + bias.
    fn spread(&self, few: &Array, w: &Array, bias: Option<(&Array, usize)>, out: &Array) -> Result<()> {
        let pack = self.pack([out, out]);
        let Blocks { stretches, packs, across } = self.blocks(self.many / pack);
        let map = Map {
            few: few.cuda_address(),
            many_out: out.cuda_address(),
            packs: packs as i32,
            ..self.with_bias(self.map(w), bias)
        };
        // SAFETY: features, matrices and the bias were compared with the sizes where the operator is entered, and are borrowed; packs fit
        // all rows; `out` is new; the kernel keeps nothing in dynamic shared memory.
        unsafe { self.launch(self.kernel(SPREAD, pack), [stretches, self.groups(), across], 0, &map) }
    }

    /// out = m·wᵀ + bias.
    fn collect(&self, many: &Array, w: &Array, bias: Option<(&Array, usize)>, out: &Array) -> Result<()> {
        let stretches = self.stretches(THREADS / LANES, 1);
        let map = Map {
            many: many.cuda_address(),
            few_out: out.cuda_address(),
            ..self.with_bias(self.map(w), bias)
        };
        // The kernels for 1, 4 and 8 features fill up with zeros.
        let width = if self.few == 2 { 4 } else { self.few.next_power_of_two() };
        let shared = matrix(width, self.many);
        let kernel = self.kernel(COLLECT, self.pack([many, many]));
        // SAFETY: as in `spread`; the kernel keeps the matrix of a group in shared memory, in f32.
        unsafe { self.launch(kernel, [stretches, self.groups(), 1], shared, &map) }
    }

    /// The gradients of the matrices and, where blades are biased, of the bias; and out = f·w, if it is given.
    fn sums(
        &self,
        few: &Array,
        many: &Array,
        w: &Array,
        biased_blades: usize,
        out: Option<&Array>,
    ) -> Result<(Array, Option<Array>)> {
        let pack = self.pack([many, out.unwrap_or(many)]);
        let row = self.many / pack;
        let blocks = self.blocks(row);
        let stretches = blocks.stretches.max(self.rows.div_ceil(LONGEST * blocks.lanes()));
        let Blocks { packs, across, .. } = blocks;
        let (side, bias, bias_of_block) = match (biased_blades, self.from_few) {
            (0, _) => (BiasSide::None, 0, 0),
            (_, true) => (BiasSide::Many, self.many, packs * pack),
            (_, false) => (BiasSide::Few, self.few, self.few),
        };
        let matrices = w.elements();
        let count = matrices + bias;
        let sums = if stretches == 1 {
            self.array([count], self.of_few)?
        } else {
            self.array([stretches, count], DType::F32)?
        };
        let map = Map {
            few: few.cuda_address(),
            many: many.cuda_address(),
            many_out: out.map_or(0, Array::cuda_address),
            sums: sums.cuda_address(),
            biased: (biased_blades * self.batch) as u64,
            gradients: count as u64,
            bias_at: matrices as u64,
            packs: packs as i32,
            bias_side: side as i32,
            ..self.map(w)
        };
        let kernel = if out.is_some() { self.kernel(BOTH, pack) } else { self.kernel(SUMS, pack) };
        let shared = shared_of_sums(blocks.lanes(), self.few, packs * pack, bias_of_block);
        // SAFETY: as in `spread`; `sums` is new and has room for those of all stretches; the kernel adds up its rows in shared memory.
        unsafe { self.launch(kernel, [stretches, self.groups(), across], shared, &map)? };
        let sums = if stretches == 1 {
            sums
        } else {
            sum_partials(self.device, NAME, &sums, [count], self.of_few, 1.0)?
        };
        let of_w = sums.slice(0, 0..matrices)?.reshape(w.shape())?;
        let of_bias = if bias > 0 { Some(sums.slice(0, matrices..count)?) } else { None };
        Ok((of_w, of_bias))
    }
}
