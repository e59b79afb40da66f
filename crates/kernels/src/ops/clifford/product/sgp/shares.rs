//! How the kernels that read and write each row once divide rows among blocks and threads, and how they are launched.

use super::NAME;
use crate::{
    Array, CudaDevice, DType, Result,
    runtime::cuda::{
        Args, Grid, Kernel,
        image::{Code, build_info},
    },
};
use gradewise_core::Algebra;

/// A kernel that serves, and how it is launched.
pub(super) struct Launch {
    pub kernel: Kernel,
    pub grid: Grid,
    /// Blocks along the rows. They are persistent: each takes rows, or groups of rows, in turn.
    pub blocks: usize,
    /// Whether the gradient of y comes out transposed.
    pub turned: bool,
    /// Rows in flight.
    pub stages: usize,
    /// Threads along a row, for kernels whose block size does not state it.
    pub along: Option<usize>,
}

/// How a row is divided among threads, and rows among the threads of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shares {
    /// Blocks that share a row, as a cluster.
    pub slices: usize,
    /// Threads along a slice, a multiple of 32, and rows worked on at a time.
    pub along: usize,
    pub together: usize,
}

impl Shares {
    /// Divides rows of `features`, `width` adjacent ones per thread, among blocks of `threads`; `None` for rows that are too long. All
    /// slices but the last are full, and none is empty.
    pub fn new(features: usize, width: usize, threads: usize) -> Option<Self> {
        let needed = features.div_ceil(width);
        let slices = needed.div_ceil(threads);
        let along = needed.div_ceil(slices).next_multiple_of(32);
        let whole = slices <= MOST_SLICES && (slices - 1) * along * width < features;
        whole.then_some(Self { slices, along, together: threads / along })
    }
}

/// Blades, rows and features of an operand whose rows these kernels copy: neither short nor no multiple of 16 bytes.
pub(super) fn sizes(x: &Array) -> Option<[usize; 3]> {
    let [blades, rows, features] = x.dims()[..] else { return None };
    let serves = features >= FEWEST_FEATURES && (features * x.dtype().size()).is_multiple_of(16) && rows > 0;
    serves.then_some([blades, rows, features])
}

/// Co-resident blocks along the rows, if `blocks` fit on a multiprocessor.
pub(super) fn at_a_time(device: &CudaDevice, kernel: Kernel, grid: Grid, blocks: usize) -> Result<usize> {
    let slices = grid.0.cluster[1] as usize;
    let most = (device.info().multiprocessors as usize * blocks / slices).max(1);
    // Multiprocessors come in pairs, which suits clusters of two. Larger clusters may leave multiprocessors without work.
    if slices <= 2 { Ok(most) } else { Ok(device.clusters_at_a_time(NAME, kernel, grid)?.clamp(1, most)) }
}

/// Whether kernels may be launched in clusters. That needs machine code for a device that supports them: code that the driver compiles
/// from the PTX of an earlier one does not.
pub(super) fn has_clusters(device: &CudaDevice) -> bool {
    let info = device.info();
    info.cluster_launch && matches!(build_info().code_for(info.compute_capability), Some(Code::Machine(_)))
}

/// Fewest features for which the warps are busy enough.
const FEWEST_FEATURES: usize = 32;
/// Kernels that count rows in 32 bits, up to a few strides past the last, take fewer than this.
pub(super) const MOST_ROWS: usize = 1 << 30;
/// Most blocks of a cluster that every device with clusters runs.
const MOST_SLICES: usize = 8;
impl Launch {
    /// Of a kernel of which one block fits on a multiprocessor, and takes `together` of `rows` at a time; `grid` as for one block.
    pub fn in_turn(
        device: &CudaDevice,
        kernel: Kernel,
        mut grid: Grid,
        (rows, together): (usize, usize),
        stages: usize,
    ) -> Result<Self> {
        grid.0.cluster = grid.0.grid;
        let blocks = rows.div_ceil(together).min(at_a_time(device, kernel, grid, 1)?);
        grid.0.grid[0] = blocks as u32;
        Ok(Self { kernel, grid, blocks, turned: false, stages, along: None })
    }

    /// `args` before the sizes that every kernel has.
    ///
    /// # Safety
    /// The launch was found for these arrays; they hold so many rows and features and live, and those that are written are new.
    pub unsafe fn queue(
        &self,
        device: &CudaDevice,
        args: Args<'_>,
        rows: usize,
        features: usize,
    ) -> Result<()> {
        let args = args.size(rows).size(features).int(self.stages as i32);
        let args = match self.along {
            Some(along) => args.int(along as i32),
            None => args,
        };
        // SAFETY: 1, 2 and 4: as the caller vouches. 3: kernel, grid and stages were chosen together.
        unsafe { device.launch(NAME, self.kernel, self.grid, args) }
    }
}

/// The kernel, if it was compiled for the algebra and the dtype and can take arrays at these addresses.
pub(super) fn kernel(
    device: &CudaDevice,
    operation: &'static str,
    algebra: &Algebra,
    dtype: DType,
    arrays: &[&Array],
) -> Option<Kernel> {
    let kernel = Kernel::of(operation, algebra.signature(), dtype);
    let aligned = arrays.iter().all(|array| array.cuda_address().is_multiple_of(16));
    (dtype != DType::F64 && aligned && device.has_kernel(&kernel)).then_some(kernel)
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn rows_are_dealt_out_whole() {
        let shares = |features, width, threads| {
            Shares::new(features, width, threads)
                .map(|Shares { slices, along, together }| [slices, along, together])
        };
        assert_eq!(shares(32, 2, 256), Some([1, 32, 8]));
        assert_eq!(shares(96, 2, 512), Some([1, 64, 8]));
        assert_eq!(shares(512, 2, 256), Some([1, 256, 1]));
        assert_eq!(shares(516, 2, 256), Some([2, 160, 1]));
        assert_eq!(shares(2072, 2, 512), Some([3, 352, 1]));
        assert_eq!(shares(4096, 2, 256), Some([8, 256, 1]));
        assert_eq!(shares(4104, 2, 256), None);
        for features in 1..5000 {
            for (width, threads) in [(2, 256), (2, 512), (1, 256), (1, 512), (1, 128)] {
                let Some(Shares { slices, along, together }) = Shares::new(features, width, threads) else {
                    continue;
                };
                assert!(along * together <= threads && together >= 1 && along % 32 == 0);
                assert!(slices == 1 || together == 1, "a cluster works on one row at a time");
                let before = (slices - 1) * along * width;
                assert!(
                    before < features && features <= before + along * width,
                    "{features}: the last is not empty"
                );
            }
        }
    }
}
