//! Strided copies on CUDA.

use super::collapse;
use crate::{
    Array, CudaDevice, Result,
    cuda::{
        Args, Grid, Kernel,
        strided::{AXES, axes, view},
    },
};

/// Side of the square tiles by which matrices are transposed.
const TILE: usize = 32;

/// Smallest number of rows and columns for which transposing by tiles pays.
const ENOUGH: usize = 16;

pub(super) fn contiguous(device: &CudaDevice, array: &Array) -> Result<Array> {
    const NAME: &str = "contiguous";
    let out = Array::for_kernel(NAME, array.shape(), array.dtype(), device)?;
    into(device, NAME, array, (out.cuda_address(), out.strides()))?;
    Ok(out)
}

/// Copies the elements of a view to addresses from `address` on, `strides` elements apart, which are distinct.
pub(crate) fn into(
    device: &CudaDevice,
    operation: &'static str,
    source: &Array,
    (address, strides): (u64, &[usize]),
) -> Result<()> {
    if source.elements() == 0 {
        return Ok(());
    }
    let (sizes, [from, to]) = collapse(source.dims(), [source.strides(), strides]);
    let size = source.dtype().size();
    Copy { device, operation, size }.run(&sizes, (source.cuda_address(), &from), (address, &to))
}

struct Copy<'a> {
    device: &'a CudaDevice,
    operation: &'static str,
    /// Bytes of an element.
    size: usize,
}

impl Copy<'_> {
    fn run(&self, sizes: &[usize], from: (u64, &[usize]), to: (u64, &[usize])) -> Result<()> {
        if sizes.len() > AXES {
            let [from_step, to_step] = [from.1[0], to.1[0]].map(|step| (step * self.size) as u64);
            return (0..sizes[0] as u64).try_for_each(|index| {
                let from = (from.0 + index * from_step, &from.1[1..]);
                self.run(&sizes[1..], from, (to.0 + index * to_step, &to.1[1..]))
            });
        }
        match self.transposed(sizes, from.1, to.1) {
            Some(row) => self.transpose(row, sizes, from, to),
            None => self.words(sizes, from, to),
        }
    }

    /// The axis along which the source is adjacent, if the target is adjacent along another one.
    fn transposed(&self, sizes: &[usize], from: &[usize], to: &[usize]) -> Option<usize> {
        let last = sizes.len().checked_sub(1)?;
        let suits = |&axis: &usize| from[axis] == 1 && sizes[axis] >= ENOUGH;
        let pays = to[last] == 1 && from[last] > 1 && sizes[last] >= ENOUGH && self.size <= 8;
        (0..last).find(suits).filter(|_| pays)
    }

    fn transpose(
        &self,
        row: usize,
        sizes: &[usize],
        from: (u64, &[usize]),
        to: (u64, &[usize]),
    ) -> Result<()> {
        let last = sizes.len() - 1;
        let others = |values: &[usize]| -> Vec<usize> {
            let kept = values.iter().enumerate().filter(|&(axis, _)| axis != row && axis != last);
            kept.map(|(_, &value)| value).collect()
        };
        let matrices: usize = others(sizes).iter().product();
        let tiles = matrices * sizes[row].div_ceil(TILE) * sizes[last].div_ceil(TILE);
        let args = Args::new()
            .value(&view(to.0, &others(to.1)))
            .value(&view(from.0, &others(from.1)))
            .value(&axes(&others(sizes)))
            .size(matrices)
            .size(sizes[row])
            .size(sizes[last])
            .size(to.1[row])
            .size(from.1[last]);
        let kernel = Kernel::of_words(["transpose_w2", "transpose_w4", "transpose_w8", ""], self.size);
        let grid = Grid::new([tiles.min(1 << 16), 1, 1], [TILE as u32, 8, 1]);
        self.device.launch(self.operation, kernel, grid, args)
    }

    /// Copies the longest words that neighbouring elements form in both views.
    fn words(&self, sizes: &[usize], from: (u64, &[usize]), to: (u64, &[usize])) -> Result<()> {
        let word =
            [16, 8, 4, 2].into_iter().find(|&word| word <= self.size || self.joins(word, sizes, from, to));
        let per_word = word.map_or(1, |word| word / self.size).max(1);
        let scale = |strides: &[usize]| -> Vec<usize> {
            let (innermost, outer) =
                strides.split_last().map_or((1, strides), |(&last, outer)| (last, outer));
            let outer = outer.iter().map(|step| step / per_word);
            if strides.is_empty() { Vec::new() } else { outer.chain([innermost]).collect() }
        };
        let mut sizes = sizes.to_vec();
        if let Some(innermost) = sizes.last_mut() {
            *innermost /= per_word;
        }
        let words: usize = sizes.iter().product();
        let args = Args::new()
            .value(&view(to.0, &scale(to.1)))
            .value(&view(from.0, &scale(from.1)))
            .value(&axes(&sizes))
            .size(words);
        let kernel = Kernel::of_words(["copy_w2", "copy_w4", "copy_w8", "copy_w16"], per_word * self.size);
        self.device.launch(self.operation, kernel, Grid::linear(words.div_ceil(4)), args)
    }

    fn joins(&self, word: usize, sizes: &[usize], from: (u64, &[usize]), to: (u64, &[usize])) -> bool {
        let per_word = word / self.size;
        let fits = |(address, strides): (u64, &[usize])| {
            address % word as u64 == 0
                && strides.split_last().is_some_and(|(&innermost, outer)| {
                    innermost == 1 && outer.iter().all(|step| step % per_word == 0)
                })
        };
        sizes.last().is_some_and(|size| size % per_word == 0) && fits(from) && fits(to)
    }
}
