//! Strided copies on CUDA.

use crate::{
    Array, CudaDevice, Error, Result,
    array::layout::collapse,
    array::strided::{AXES, axes, divisor, view},
    runtime::cuda::{
        Args, Grid, Kernel,
        fuse::{Columns, Description, Function},
    },
};
use gradewise_core::PerAxis;
use std::cell::Cell;

/// Side of the square tiles by which matrices are transposed.
const TILE: usize = 32;

/// Smallest number of rows and columns for which transposing by tiles pays.
const ENOUGH: usize = 16;

pub(super) fn contiguous(device: &CudaDevice, array: &Array) -> Result<Array> {
    const NAME: &str = "contiguous";
    let out = Array::for_kernel(NAME, array.shape(), array.dtype(), device)?;
    if array.elements() > 0 {
        let (sizes, [from, to]) = collapse(array.dims(), [array.strides(), out.strides()]);
        let value = Cell::new(if device.records() { out.described(Function::Copy, &[array]) } else { None });
        let copy = Copy { device, operation: NAME, size: array.dtype().size(), value };
        // SAFETY: `out` is new and has the shape of the array, which is borrowed.
        unsafe { copy.run(&sizes, (array.cuda_address(), &from), (out.cuda_address(), &to))? };
    }
    Ok(out)
}

/// Copies the elements of a view to addresses from `address` on, `strides` elements apart, which are distinct.
///
/// # Safety
/// These addresses are in an array of the dtype of `source` on its device, which lives, is the caller's to write and is not `source`.
pub(crate) unsafe fn into(
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
    // SAFETY: the source is borrowed; as for this function.
    unsafe {
        Copy { device, operation, size, value: Cell::default() }.run(
            &sizes,
            (source.cuda_address(), &from),
            (address, &to),
        )
    }
}

/// Most arrays that one launch joins, and most that are parameters of their own; more are looked through one by one.
pub(crate) use crate::csrc::copies::{FEW_JOINED as FEW, MOST_JOINED as JOINED};

/// Most elements of an array that is copied together with others: of larger ones, a launch is worth its time, and the kernel of its own that
/// turns matrices is faster.
pub(crate) const MOST_FLAT: usize = 1 << 16;

/// A part of a joined array: as many columns of each of its rows as the view has, in elements.
struct Part {
    sizes: PerAxis,
    address: u64,
    strides: PerAxis,
    start: usize,
    count: usize,
}

impl Part {
    /// `Part` of the kernel.
    fn words(&self, per_word: usize) -> [u64; 28] {
        let mut words = [0; 28];
        words[..9].copy_from_slice(&view(self.address, &in_words(&self.strides, per_word)));
        words[9..26].copy_from_slice(&axes(&sizes_in_words(&self.sizes, per_word)));
        words[26..].copy_from_slice(&[(self.start / per_word) as u64, (self.count / per_word) as u64]);
        words
    }
}

/// Fills `out`, contiguous, with views, at most [`JOINED`], each from a position along `axis` on, and zeros where none is: one launch,
/// unless a view is better turned first.
pub(crate) fn join(
    device: &CudaDevice,
    operation: &'static str,
    out: &Array,
    axis: usize,
    views: &[(&Array, usize)],
) -> Result<()> {
    if out.elements() == 0 {
        return Ok(());
    }
    let size = out.dtype().size();
    let step = out.strides()[axis];
    let row = out.dims()[axis] * step;
    let copy = Copy { device, operation, size, value: Cell::default() };
    let mut turned = Vec::new();
    let mut parts = Vec::new();
    let mut per_word = (16 / size).max(1);
    for &(array, start) in views.iter().filter(|(array, _)| array.elements() > 0) {
        array.require_like(out, operation, "arrays")?;
        let mut expected = out.dims().to_vec();
        expected[axis] = array.dims().get(axis).copied().unwrap_or(0);
        array.require_shape(operation, "arrays", &expected, || {
            "all sizes but that along the axis are those of the result".to_owned()
        })?;
        let collapsed = |array: &Array| collapse(array.dims(), [array.strides(), out.strides()]);
        let (mut array, (mut sizes, [mut from, mut to])) = (array.clone(), collapsed(array));
        if sizes.len() > AXES || copy.transposed(&sizes, &from, &to).is_some() {
            array = array.contiguous()?;
            (sizes, [from, to]) = collapsed(&array);
        }
        let [start, count] = [start, array.dims()[axis]].map(|length| length * step);
        let target = (out.cuda_address() + (start * size) as u64, &to[..]);
        per_word = per_word.min(copy.per_word(&sizes, (array.cuda_address(), &from), target));
        parts.push(Part { sizes, address: array.cuda_address(), strides: from, start, count });
        turned.push(array);
    }
    if device.records() {
        let arrays: Vec<&Array> = turned.iter().collect();
        copy.value.set(out.described(joined(row, &parts), &arrays));
    }
    // SAFETY: `turned` keeps the arrays, which were compared with `out` above, in all axes but `axis`.
    unsafe { launch_join(&copy, out, row, per_word, &parts) }
}

/// Copies views, at most [`JOINED`], into `out`, of one axis, contiguous: each from a position on, its elements in the order of its own
/// shape. One launch; elements of `out` that belong to no view become zeros.
pub(crate) fn gather_flat(
    device: &CudaDevice,
    operation: &'static str,
    out: &Array,
    views: &[(&Array, usize)],
) -> Result<()> {
    let size = out.dtype().size();
    let copy = Copy { device, operation, size, value: Cell::default() };
    let (mut kept, mut parts) = (Vec::new(), Vec::new());
    let mut per_word = (16 / size).max(1);
    for &(array, start) in views.iter().filter(|(array, _)| array.elements() > 0) {
        array.require_like(out, operation, "arrays")?;
        let order = array.shape().contiguous_strides();
        let (mut array, (mut sizes, [mut from, mut to])) =
            (array.clone(), collapse(array.dims(), [array.strides(), &order]));
        if sizes.len() > AXES {
            array = array.contiguous()?;
            (sizes, [from, to]) = collapse(array.dims(), [array.strides(), &order]);
        }
        let target = (out.cuda_address() + (start * size) as u64, &to[..]);
        per_word = per_word.min(copy.per_word(&sizes, (array.cuda_address(), &from), target));
        parts.push(Part {
            sizes,
            address: array.cuda_address(),
            strides: from,
            start,
            count: array.elements(),
        });
        kept.push(array);
    }
    if device.records() {
        let arrays: Vec<&Array> = kept.iter().collect();
        copy.value.set(out.described(joined(out.elements(), &parts), &arrays));
    }
    // SAFETY: `kept` keeps the arrays, whose elements follow each other in `out`, of one axis.
    unsafe { launch_join(&copy, out, out.elements(), per_word, &parts) }
}

/// # Safety
/// The parts are views of arrays that live, of the dtype of `out`, which is new, and have an element for each of its places from `start` on,
/// `count` in each row of `row`.
unsafe fn launch_join(
    copy: &Copy<'_>,
    out: &Array,
    row: usize,
    mut per_word: usize,
    parts: &[Part],
) -> Result<()> {
    // A single row's length and the places in it are in no stride.
    let mut places = parts.iter().flat_map(|part| [part.start, part.count]).chain([row]);
    if !places.all(|place| place.is_multiple_of(per_word)) {
        per_word = 1;
    }
    if parts.len() > JOINED || parts.iter().any(|part| part.start + part.count > row) {
        let ends: Vec<usize> = parts.iter().map(|part| part.start + part.count).collect();
        let (operation, argument) = (copy.operation, "arrays");
        let (actual, expected) =
            (format!("parts that end at {ends:?}, of {row}"), "at most 16, within each row");
        return Err(Error::Argument { operation, argument, actual, expected });
    }
    let words = out.elements() / per_word;
    let mut args = Args::new().array(out).size(words).value(&divisor(row / per_word));
    let word = per_word * copy.size;
    let part = |n: usize| parts.get(n).map_or([0; 28], |part| part.words(per_word));
    let many: [_; JOINED];
    let (kernel, grid) = if parts.len() <= FEW {
        for n in 0..FEW {
            args = args.value(&part(n));
        }
        (Kernel::of_words(["join_w2", "join_w4", "join_w8", "join_w16"], word), grid(words))
    } else {
        many = std::array::from_fn(part);
        args = args.large(&many);
        let names = ["join_many_w2", "join_many_w4", "join_many_w8", "join_many_w16"];
        (Kernel::of_words(names, word), Grid::linear(words))
    };
    // SAFETY: 1: `out` has that many words; each part reads the elements of its view, at places of `out` that were counted in the same
    // words. 2: `out` is new. 3: linear, with threads for one or up to four words each, over which the kernels stride. 4: the callers keep
    // the parts' arrays until this returns.
    unsafe { copy.launch(kernel, grid, args.int(parts.len() as i32)) }
}

/// What the kernels of joins compute.
fn joined(row: usize, parts: &[Part]) -> Function {
    let columns = |part: &Part| Columns { start: part.start, count: part.count };
    Function::Join { row, parts: parts.iter().map(columns).collect() }
}

/// Threads for so many words: each takes up to four, but one where there are few, as the code for each is fetched anew.
fn grid(words: usize) -> Grid {
    const FEW: usize = 1 << 18;
    Grid::linear(if words <= FEW { words } else { words.div_ceil(4) })
}

/// Sizes of a view in words of so many neighbouring elements.
fn sizes_in_words(sizes: &[usize], per_word: usize) -> PerAxis {
    let mut sizes = PerAxis::from(sizes);
    if let Some(innermost) = sizes.last_mut() {
        *innermost /= per_word;
    }
    sizes
}

/// Strides of a view in words of so many neighbouring elements.
fn in_words(strides: &[usize], per_word: usize) -> PerAxis {
    let Some((&innermost, outer)) = strides.split_last() else { return PerAxis::new() };
    outer.iter().map(|step| step / per_word).chain([innermost]).collect()
}

struct Copy<'a> {
    device: &'a CudaDevice,
    operation: &'static str,
    /// Bytes of an element.
    size: usize,
    /// What the copy computes, if it is of a whole array that is new.
    value: Cell<Option<Description>>,
}

impl Copy<'_> {
    /// # Safety
    /// As for [`CudaDevice::launch_value`].
    unsafe fn launch(&self, kernel: Kernel, grid: Grid, args: Args<'_>) -> Result<()> {
        // SAFETY: as for this function.
        unsafe { self.device.launch_value(self.operation, kernel, grid, args, || self.value.take()) }
    }

    /// # Safety
    /// Both views, of elements of this size, are in arrays on the device that live. The target's elements are distinct, not in the source, and
    /// the caller's to write.
    unsafe fn run(&self, sizes: &[usize], from: (u64, &[usize]), to: (u64, &[usize])) -> Result<()> {
        if sizes.len() > AXES {
            // Several launches.
            self.value.take();
            let [from_step, to_step] = [from.1[0], to.1[0]].map(|step| (step * self.size) as u64);
            return (0..sizes[0] as u64).try_for_each(|index| {
                let from = (from.0 + index * from_step, &from.1[1..]);
                // SAFETY: a part of both views.
                unsafe { self.run(&sizes[1..], from, (to.0 + index * to_step, &to.1[1..])) }
            });
        }
        // SAFETY: as for this function.
        unsafe {
            match self.transposed(sizes, from.1, to.1) {
                Some(row) => self.transpose(row, sizes, from, to),
                None => self.words(sizes, from, to),
            }
        }
    }

    /// The axis along which the source is adjacent, if the target is adjacent along another one.
    fn transposed(&self, sizes: &[usize], from: &[usize], to: &[usize]) -> Option<usize> {
        let last = sizes.len().checked_sub(1)?;
        let suits = |&axis: &usize| from[axis] == 1 && sizes[axis] >= ENOUGH;
        let pays = to[last] == 1 && from[last] > 1 && sizes[last] >= ENOUGH && self.size <= 8;
        (0..last).find(suits).filter(|_| pays)
    }

    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn transpose(
        &self,
        row: usize,
        sizes: &[usize],
        from: (u64, &[usize]),
        to: (u64, &[usize]),
    ) -> Result<()> {
        let last = sizes.len() - 1;
        let others = |values: &[usize]| -> PerAxis {
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
        // Through shared memory, where threads that each compute an element would read far apart.
        if sizes.iter().product::<usize>() > MOST_FLAT {
            self.value.take();
        }
        // SAFETY: 1, 2 and 4: as the caller vouches for both views, of which these are all axes. 3: csrc/ops/copy.cu turns tiles of 32 by
        // 32 with 32 by 8 threads.
        unsafe { self.launch(kernel, grid, args) }
    }

    /// Copies the longest words that neighbouring elements form in both views.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    unsafe fn words(&self, sizes: &[usize], from: (u64, &[usize]), to: (u64, &[usize])) -> Result<()> {
        let per_word = self.per_word(sizes, from, to);
        let sizes = sizes_in_words(sizes, per_word);
        let words: usize = sizes.iter().product();
        let args = Args::new()
            .value(&view(to.0, &in_words(to.1, per_word)))
            .value(&view(from.0, &in_words(from.1, per_word)))
            .value(&axes(&sizes))
            .size(words);
        let kernel = Kernel::of_words(["copy_w2", "copy_w4", "copy_w8", "copy_w16"], per_word * self.size);
        // SAFETY: 1, 2 and 4: as the caller vouches for both views; words of several elements were found to fit both. 3: linear, the kernel
        // strides.
        unsafe { self.launch(kernel, grid(words), args) }
    }

    /// Elements of the longest words that neighbours form in both views.
    fn per_word(&self, sizes: &[usize], from: (u64, &[usize]), to: (u64, &[usize])) -> usize {
        let fits = |&word: &usize| word <= self.size || self.joins(word, sizes, from, to);
        [16, 8, 4, 2].into_iter().find(fits).map_or(1, |word| word / self.size).max(1)
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
