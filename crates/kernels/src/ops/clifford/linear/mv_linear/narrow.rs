//! Maps between at most 32 features on both sides on CUDA (csrc/clifford/linear/narrow.cuh), in `f32`: one launch forward, and backward one for
//! the gradient of x and one for the sums over stretches of rows. They are bound by memory, where tiles of a matrix product would be mostly
//! empty. Work is cut by the sizes alone, so that results do not depend on the device.

use super::{
    Gradients, NAME, Sizes,
    call::Backward,
    narrow_kernels::{
        LONG_PRODUCTS, MOST_FEATURES, MOST_GROUPS, MOST_ROWS, Map, PACK, PRODUCT_THREADS, SHORT_PRODUCTS,
        SUM_THREADS, SUMS, Sums, WIDTHS, pitch, product as shared_of_product, rows_of_thread,
        sums as shared_of_sums,
    },
};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::{LONGEST, sum_partials},
    ops::matmul::cuda::SHORT,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

/// Rows of a stretch below which beginning and end of a block take longer than the rows, and stretches that fill any device; more of them
/// only give the second stage more to read.
const LEAST_ROWS: usize = 256;
const ENOUGH_STRETCHES: usize = 144;

/// Elements of two tiles in shared memory, of x and of the gradient; a block has two such pairs.
const PAIR: usize = 5120;

/// Sides of which few_to_many serves the narrow one better: at most so many features on it, and more than these on the other.
const MOST_LOPSIDED: usize = 3;
const LEAST_LOPSIDED: usize = 16;

/// A map that the kernels serve.
pub(super) struct Narrow<'a> {
    device: &'a CudaDevice,
    batch: usize,
    inputs: usize,
    outputs: usize,
    /// The first blade of each group of rows that share a matrix, and one past the last.
    first: Vec<usize>,
    /// Rows of the largest group.
    rows: usize,
}

/// A product, x·w of the map or the gradient times the transposed matrix.
struct Product<'a> {
    x: &'a Array,
    out: &'a Array,
    w: &'a Array,
    bias: Option<(&'a Array, usize)>,
    transposed: bool,
    adds: bool,
}

impl<'a> Narrow<'a> {
    /// The map, if the kernels serve it.
    pub fn of(device: &'a CudaDevice, algebra: &Algebra, sizes: &Sizes, dtype: DType) -> Option<Self> {
        let Sizes { batch, inputs, outputs, .. } = *sizes;
        let is_narrow = |features| (1..=MOST_FEATURES).contains(&features);
        // Between so few features and so many, `few_to_many` takes a launch less, and rows that are packs on one side.
        let is_lopsided = inputs.min(outputs) <= MOST_LOPSIDED && inputs.max(outputs) > LEAST_LOPSIDED;
        if dtype != DType::F32 || batch == 0 || is_lopsided || !is_narrow(inputs) || !is_narrow(outputs) {
            return None;
        }
        let first = sizes.groups(algebra);
        let widest = first.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        // Blocks of all tiles are counted in 32 bits.
        let most_tiles = algebra.blade_count() * batch.div_ceil(PRODUCT_THREADS);
        let is_served = first.len() <= MOST_GROUPS + 1 && i32::try_from(most_tiles).is_ok();
        is_served.then_some(Self { device, batch, inputs, outputs, first, rows: widest * batch })
    }

    /// The map of x, which is contiguous.
    pub fn forward(&self, x: &Array, w: &Array, bias: Option<(&Array, usize)>) -> Result<Array> {
        let out = self.array(&[x.dims()[0], self.batch, self.outputs])?;
        self.product(&Product { x, out: &out, w, bias, transposed: false, adds: false })?;
        Ok(out)
    }

    /// The gradients that are needed, but for sums of so few rows that products of matrices form them in double precision, and for that of a
    /// bias of several groups. x and `grad` are contiguous, and so is what the gradient of x is added to, which has its shape; the bias is
    /// that of the first blades.
    pub fn backward(&self, call: &Backward<'_>, grad: &Array, biased_blades: usize) -> Result<Gradients> {
        let Backward { x, w, needs, add_to, .. } = *call;
        let mut gradients = Gradients::default();
        if needs.x {
            let out = match add_to {
                Some(target) => target.clone(),
                None => self.array(x.dims())?,
            };
            let adds = add_to.is_some();
            self.product(&Product { x: grad, out: &out, w, bias: None, transposed: true, adds })?;
            gradients.x = Some(out);
        }
        // The bias of one group alone: its sums are those of the first group's blocks.
        let is_in_one_group = self.groups() == 1 || biased_blades == 1;
        let biased = if needs.bias && is_in_one_group { biased_blades } else { 0 };
        if self.rows > SHORT && (needs.w || biased > 0) {
            // For the bias alone the first group's blocks run, so that its bits are the same.
            let groups = if needs.w { self.groups() } else { 1 };
            let (of_w, of_bias) = self.sums(x, grad, groups, biased)?;
            gradients.w = if needs.w { Some(of_w.reshape(w.shape())?) } else { None };
            gradients.bias = of_bias;
        }
        Ok(gradients)
    }

    const fn groups(&self) -> usize {
        self.first.len() - 1
    }

    fn array(&self, shape: &[usize]) -> Result<Array> {
        Array::for_kernel(NAME, shape, DType::F32, self.device)
    }

    fn first(&self) -> [i32; MOST_GROUPS + 1] {
        let mut first = [0; MOST_GROUPS + 1];
        for (word, &blade) in first.iter_mut().zip(&self.first) {
            *word = blade as i32;
        }
        first
    }

    /// The block of each group's first tile, and how many blocks there are.
    fn tiles(&self, rows: usize) -> [i32; MOST_GROUPS + 1] {
        let mut tiles = [0; MOST_GROUPS + 1];
        for (group, pair) in self.first.windows(2).enumerate() {
            tiles[group + 1] = tiles[group] + ((pair[1] - pair[0]) * self.batch).div_ceil(rows) as i32;
        }
        tiles
    }

    fn product(&self, product: &Product<'_>) -> Result<()> {
        let Product { x, out, w, bias, transposed, adds } = *product;
        let (terms, results) =
            if transposed { (self.outputs, self.inputs) } else { (self.inputs, self.outputs) };
        let kind = WIDTHS.iter().position(|&width| results <= width).unwrap_or(WIDTHS.len() - 1);
        let (is_short, width) = (terms <= SHORT, WIDTHS[kind]);
        let rows = rows_of_thread(is_short.into(), width) * PRODUCT_THREADS;
        let tiles = self.tiles(rows);
        let (bias, biased_blades) = bias.map_or((0, 0), |(array, blades)| (array.cuda_address(), blades));
        let (in_step, out_step) = if transposed { (1, terms) } else { (results, 1) };
        let map = Map {
            x: x.cuda_address(),
            out: out.cuda_address(),
            w: w.cuda_address(),
            bias,
            batch: self.batch as u64,
            biased: (biased_blades * self.batch) as u64,
            inputs: terms as i32,
            outputs: results as i32,
            in_step: in_step as i32,
            out_step: out_step as i32,
            packs_in: is_in_packs(x, terms).into(),
            packs_out: is_in_packs(out, results).into(),
            adds: adds.into(),
            groups: self.groups() as i32,
            first: self.first(),
            tiles,
        };
        let entry = if is_short { size_of::<f64>() } else { size_of::<f32>() };
        let shared = shared_of_product(rows, terms, results, width, entry);
        let names = if is_short { SHORT_PRODUCTS } else { LONG_PRODUCTS };
        let blocks = tiles[self.groups()] as usize;
        let grid = Grid::new([blocks, 1, 1], [PRODUCT_THREADS as u32, 1, 1]).shared(shared);
        let kernel = Kernel::new(names[kind], DType::F32);
        // SAFETY: 1: features, matrices and the bias were compared with the sizes where the operator is entered, and are contiguous. 2: `out`
        // is new, or the caller's to add to, of the same shape. 3: 128 threads, room for a tile of either side, the matrix and the bias, and a
        // block for each tile. 4: all arrays are borrowed.
        unsafe { self.device.launch(NAME, kernel, grid, Args::new().value(&map)) }
    }

    /// The gradients of the matrices of the first groups and, where blades are biased, of the bias.
    fn sums(
        &self,
        x: &Array,
        grad: &Array,
        groups: usize,
        biased_blades: usize,
    ) -> Result<(Array, Option<Array>)> {
        let matrices = groups * self.inputs * self.outputs;
        let count = matrices + if biased_blades > 0 { self.outputs } else { 0 };
        let slices = SUM_THREADS / (self.inputs.div_ceil(PACK) * self.outputs.div_ceil(PACK));
        let stretches = self.stretches(slices);
        let sums = self.array(&[stretches, count])?;
        let row = pitch(self.inputs) + pitch(self.outputs);
        let rows = (PAIR / row / 32 * 32).min(MOST_ROWS);
        let map = Sums {
            x: x.cuda_address(),
            grad: grad.cuda_address(),
            sums: sums.cuda_address(),
            batch: self.batch as u64,
            biased: (biased_blades * self.batch) as u64,
            count: count as u64,
            bias_at: matrices as u64,
            inputs: self.inputs as i32,
            outputs: self.outputs as i32,
            packs_in: is_in_packs(x, self.inputs).into(),
            packs_out: is_in_packs(grad, self.outputs).into(),
            rows: rows as i32,
            unused: 0,
            first: self.first(),
        };
        // Two pairs of tiles; later a patch of each thread.
        let shared = shared_of_sums(rows, self.inputs, self.outputs);
        let grid = Grid::new([stretches, groups, 1], [SUM_THREADS as u32, 1, 1]).shared(shared);
        let kernel = Kernel::new(SUMS, DType::F32);
        // SAFETY: 1: x and the gradient were compared with the sizes where the operator is entered, and are contiguous. 2: `sums` is new and
        // has room for those of all stretches. 3: 256 threads, room for the tiles, and stretches that cover the rows of each group. 4: all
        // arrays are borrowed.
        unsafe { self.device.launch(NAME, kernel, grid, Args::new().value(&map))? };
        let sums = if stretches == 1 {
            sums.reshape([count])?
        } else {
            sum_partials(self.device, NAME, &sums, [count], DType::F32, 1.0)?
        };
        let of_bias = if biased_blades > 0 { Some(sums.slice(0, matrices..count)?) } else { None };
        Ok((sums.slice(0, 0..matrices)?, of_bias))
    }

    /// Stretches of each group's rows, for blocks that take so many rows at a time.
    fn stretches(&self, slices: usize) -> usize {
        let enough = self.rows.div_ceil(LEAST_ROWS).min(ENOUGH_STRETCHES);
        enough.max(self.rows.div_ceil(LONGEST * slices))
    }
}

/// Whether the rows of an array begin at packs.
fn is_in_packs(array: &Array, features: usize) -> bool {
    features.is_multiple_of(PACK) && array.cuda_address().is_multiple_of((PACK * size_of::<f32>()) as u64)
}
