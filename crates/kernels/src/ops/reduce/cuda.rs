//! Reductions on CUDA: the mapping of results and their elements to threads depends on sizes only.

use super::{
    Layout,
    reducer::{Name, Reducer},
};
use crate::{
    Array, CudaDevice, DType, Error, Result,
    array::{
        fill,
        strided::{AXES, axes, strides, view},
    },
    runtime::cuda::{
        Args, Grid, Kernel,
        fuse::{Axes, Description, Function},
    },
};
use gradewise_core::{PerAxis, Shape};

/// Blocks that occupy a large device.
const BLOCKS: usize = 1024;

/// Fewest elements of a part, in rows and in columns.
const PART: [usize; 2] = [4096, 256];

/// Elements up to which one warp reduces a row, and up to which one thread does.
const WARP: usize = 1024;
const THREAD: usize = 16;

pub(super) fn run<R: Reducer>(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    layout: &Layout,
    reduced: &[bool],
    scale: f64,
    shape: &Shape,
) -> Result<Array> {
    let (outputs, count) = (shape.elements(), layout.reduced.0.iter().product::<usize>());
    if outputs > 0 && count == 0 {
        return fill::full(device, operation, shape, R::START * scale, x.dtype());
    }
    let out = Array::for_kernel(operation, shape, x.dtype(), device)?;
    if outputs == 0 {
        return Ok(out);
    }
    let task = Task { device, operation, reducer: R::NAME, outputs, count, scale };
    if layout.kept.0.len().max(layout.reduced.0.len()) <= AXES {
        task.run(x, layout, &out)?;
    } else {
        // More axes than a kernel supports: a copy in the order of the reduction has one kept and one reduced axis.
        let order: Vec<usize> = [false, true]
            .into_iter()
            .flat_map(|kind| (0..x.rank()).filter(move |&axis| reduced[axis] == kind))
            .collect();
        let copy = x.permute(&order)?.contiguous()?;
        let of = |size: usize, stride: usize| (PerAxis::from_elem(size, 1), PerAxis::from_elem(stride, 1));
        task.run(&copy, &Layout { kept: of(outputs, count), reduced: of(count, 1) }, &out)?;
    }
    Ok(out)
}

/// `scale`·Σ over the last axis of `partial` `[…, parts]`, which is double precision.
pub(crate) fn sum_parts(
    device: &CudaDevice,
    operation: &'static str,
    partial: &Array,
    out: &Array,
    scale: f64,
) -> Result<()> {
    let parts = partial.dims().last().copied().unwrap_or(1);
    combine(device, operation, Name::Sum, partial, parts, out, scale)
}

fn combine(
    device: &CudaDevice,
    operation: &'static str,
    reducer: Name,
    partial: &Array,
    parts: usize,
    out: &Array,
    scale: f64,
) -> Result<()> {
    let outputs = out.elements();
    let fits = partial.dtype() == DType::F64
        && partial.elements() == outputs * parts
        && partial.is_contiguous()
        && out.is_contiguous();
    if !fits {
        let (actual, expected) =
            (partial.shape().to_string(), "[…, parts] of each result, in double precision");
        return Err(Error::Argument { operation, argument: "partial", actual, expected });
    }
    let args =
        Args::new().array(partial).size(outputs).size(parts).double(scale).int(reducer as i32).array(out);
    let kernel = Kernel::new("reduce_combine", out.dtype());
    // SAFETY: 1: compared above. 2: `out` is what the caller has to write, and not the partial results. 3: a warp for each result, eight to
    // a block of 256 threads.
    unsafe {
        device.launch(operation, kernel, Grid::blocks(outputs.div_ceil(8).clamp(1, 1 << 16), 256), args)
    }
}

/// The number of parts of sums over `count` elements each, if all of them take `blocks` blocks in one part.
pub(crate) fn parts(blocks: usize, count: usize, fewest: usize) -> usize {
    (BLOCKS / blocks.max(1)).clamp(1, count.div_ceil(fewest).max(1))
}

struct Task<'a> {
    device: &'a CudaDevice,
    operation: &'static str,
    reducer: Name,
    outputs: usize,
    count: usize,
    scale: f64,
}

impl Task<'_> {
    fn run(&self, x: &Array, layout: &Layout, out: &Array) -> Result<()> {
        let Layout { kept, reduced } = layout;
        let innermost = |strides: &[usize]| strides.last().copied().unwrap_or(usize::MAX);
        let columns =
            reduced.0.is_empty() || innermost(&kept.1) < innermost(&reduced.1) || self.count <= THREAD;
        if columns { self.columns(x, layout, out) } else { self.rows(x, layout, out) }
    }

    fn rows(&self, x: &Array, layout: &Layout, out: &Array) -> Result<()> {
        let whole_block = self.count > WARP;
        let parts = if whole_block { parts(self.outputs, self.count, PART[0]) } else { 1 };
        let units = self.outputs * parts;
        let blocks = if whole_block { units } else { units.div_ceil(8) };
        let grid = Grid::blocks(blocks.clamp(1, 1 << 16), 256);
        self.staged(
            parts,
            out,
            |partial, args, dtype| {
                let args = args.int(i32::from(whole_block)).array(out).optional(partial);
                // SAFETY: 1: the layout is that of x, and `out` and the partial results, which are new, have room for all results and their
                // parts. 2: they are new. 3: blocks of 256 threads, a warp or a block for each row. 4: x is borrowed; its address is in the
                // view.
                unsafe { self.device.launch(self.operation, Kernel::new("reduce_rows", dtype), grid, args) }
            },
            x,
            layout,
        )
    }

    fn columns(&self, x: &Array, layout: &Layout, out: &Array) -> Result<()> {
        let shape: [u32; 3] = if self.count <= 2 * THREAD { [256, 1, 1] } else { [32, 8, 1] };
        let tiles = self.outputs.div_ceil(shape[0] as usize);
        let parts = parts(tiles, self.count, PART[1]);
        let grid = Grid::new([(tiles * parts).clamp(1, 1 << 16), 1, 1], shape);
        // One thread adds all elements, as the functions of generated kernels do.
        let is_in_order = parts == 1 && shape[1] == 1 && matches!(self.reducer, Name::Sum);
        let describe = || is_in_order.then(|| self.described(x, layout, out)).flatten();
        self.staged(
            parts,
            out,
            |partial, args, dtype| {
                let args = args.array(out).optional(partial);
                // SAFETY: 1: the layout is that of x, and `out` and the partial results, which are new, have room for all results and their
                // parts. 2: they are new. 3: 256 threads of either shape, which the kernel reads. 4: x is borrowed; its address is in the
                // view.
                unsafe {
                    let kernel = Kernel::new("reduce_columns", dtype);
                    self.device.launch_value(self.operation, kernel, grid, args, describe)
                }
            },
            x,
            layout,
        )
    }

    fn described(&self, x: &Array, layout: &Layout, out: &Array) -> Option<Description> {
        let axes =
            |(sizes, strides): &(PerAxis, PerAxis)| Axes { sizes: sizes.clone(), strides: strides.clone() };
        let (kept, reduced) = (axes(&layout.kept), axes(&layout.reduced));
        out.described(Function::Reduce { kept, reduced, count: self.count, scale: self.scale }, &[x])
    }

    /// Runs the first stage with its common arguments and, for several parts, the second.
    fn staged(
        &self,
        parts: usize,
        out: &Array,
        first: impl FnOnce(Option<&Array>, Args, DType) -> Result<()>,
        x: &Array,
        Layout { kept, reduced }: &Layout,
    ) -> Result<()> {
        let partial = (parts > 1)
            .then(|| Array::for_kernel(self.operation, [self.outputs, parts], DType::F64, self.device))
            .transpose()?;
        let task = [self.outputs as u64, self.count as u64, parts as u64, self.scale.to_bits()];
        let args = Args::new()
            .value(&view(x.cuda_address(), &kept.1))
            .value(&strides(&reduced.1))
            .value(&axes(&kept.0))
            .value(&axes(&reduced.0))
            .value(&task)
            .int(self.reducer as i32);
        first(partial.as_ref(), args, x.dtype())?;
        match &partial {
            Some(partial) => {
                combine(self.device, self.operation, self.reducer, partial, parts, out, self.scale)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, parts};
    use crate::array::strided::tests::numbers;

    #[test]
    fn host_and_device_number_the_reducers_alike() {
        use Name::*;
        let host = [Sum, Greatest, Least];
        let device = numbers("ops/reduce.cu", "Reducer");
        assert_eq!(host.map(|name| format!("{name:?}")).to_vec(), device);
        assert!(host.iter().enumerate().all(|(number, &name)| name as usize == number));
    }

    #[test]
    fn few_long_results_are_cut_into_parts() {
        assert_eq!(parts(1, 10_000_000, 4096), 1024);
        assert_eq!(parts(1, 10_000, 4096), 3);
        assert_eq!(parts(1000, 10_000, 4096), 1);
        assert_eq!(parts(5000, 10_000, 4096), 1);
        assert_eq!(parts(0, 0, 4096), 1);
    }
}
