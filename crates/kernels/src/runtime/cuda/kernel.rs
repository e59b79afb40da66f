//! A kernel by its name, the grid it runs in, and its arguments.

use crate::DType;
use gradewise_core::Signature;
use gradewise_ffi::{Arguments, LaunchConfig};
use std::fmt;

/// A kernel by what it does: `gw_<operation>[_<p>_<q>_<r>]_<dtype>`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub operation: &'static str,
    pub signature: Option<Signature>,
    pub dtype: Option<DType>,
}

/// What tells a kernel from others at a launch, without its name being spelled: the address of the operation's static name, and a number
/// made of the algebra and the dtype. A name that the compiler stores twice has two ids, which are resolved to the same kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct KernelId {
    name: usize,
    variant: u64,
}

impl Kernel {
    /// The key of this kernel in the tables of a device.
    pub fn id(&self) -> KernelId {
        // None, or one more than the number: each fits eight bits.
        let dtype = self.dtype.map_or(0, |dtype| dtype as u64 + 1);
        let algebra = self.signature.map_or(0, |Signature { p, q, r }| {
            1 << 24 | u64::from(p) << 16 | u64::from(q) << 8 | u64::from(r)
        });
        let variant = (self.operation.len() as u64) << 40 | algebra << 8 | dtype;
        KernelId { name: self.operation.as_ptr().addr(), variant }
    }

    /// A kernel for elements of `dtype`.
    pub const fn new(operation: &'static str, dtype: DType) -> Self {
        Self { operation, signature: None, dtype: Some(dtype) }
    }

    /// A kernel that moves words of `bytes` bytes, whatever they mean: one of those for 2, 4, 8 and 16.
    pub fn of_words(operations: [&'static str; 4], bytes: usize) -> Self {
        let operation = operations[(bytes.clamp(2, 16).ilog2() - 1) as usize];
        Self { operation, signature: None, dtype: None }
    }

    /// A kernel unrolled for one algebra.
    pub const fn of(operation: &'static str, signature: Signature, dtype: DType) -> Self {
        Self { operation, signature: Some(signature), dtype: Some(dtype) }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gw_{}", self.operation)?;
        if let Some(signature) = self.signature {
            write!(f, "_{}_{}_{}", signature.p, signature.q, signature.r)?;
        }
        self.dtype.map_or(Ok(()), |dtype| write!(f, "_{dtype}"))
    }
}

/// Blocks and threads of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid(pub LaunchConfig);

impl Grid {
    /// Threads per block of a linear launch.
    pub const THREADS: u32 = 256;

    /// One thread for each of `work` pieces, up to a number of blocks that fills any device; the kernel strides on.
    pub fn linear(work: usize) -> Self {
        const MOST: usize = 1 << 16;
        Self::blocks(work.div_ceil(Self::THREADS as usize).clamp(1, MOST), Self::THREADS)
    }

    /// One thread for each of `work` pieces along x, as [`linear`](Self::linear), for each of `kinds` along y.
    pub fn linear_by(work: usize, kinds: usize) -> Self {
        let Self(config) = Self::linear(work);
        Self::new([config.grid[0] as usize, kinds, 1], config.block)
    }

    /// `blocks` blocks of `threads` threads.
    pub fn blocks(blocks: usize, threads: u32) -> Self {
        Self(LaunchConfig::linear(u32::try_from(blocks).unwrap_or(u32::MAX), threads))
    }

    /// Blocks along x, y, z and threads along x, y, z.
    pub fn new(grid: [usize; 3], block: [u32; 3]) -> Self {
        let grid = grid.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
        Self(LaunchConfig { grid, block, ..LaunchConfig::linear(1, 1) })
    }

    /// In clusters of `blocks` blocks.
    pub fn cluster(mut self, blocks: usize) -> Self {
        self.0.cluster = [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1];
        self
    }

    /// With dynamic shared memory.
    pub fn shared(mut self, bytes: usize) -> Self {
        self.0.shared = u32::try_from(bytes).unwrap_or(u32::MAX);
        self
    }
}

/// The arguments of a launch, in the order of the kernel's parameters: those of `gradewise-ffi`, and arrays.
pub(crate) struct Args<'a> {
    pub(super) all: Arguments<'a>,
    /// Whether one is an array on the host, which [`CudaDevice::launch`](super::CudaDevice) refuses.
    pub(super) is_on_host: bool,
}

impl<'a> Args<'a> {
    #[inline(always)]
    pub fn new() -> Self {
        Self { all: Arguments::new(), is_on_host: false }
    }

    /// The same with no borrow: whoever launches with them vouches for the arrays.
    pub fn into_owned(self) -> Args<'static> {
        Args { all: self.all.into_owned(), is_on_host: self.is_on_host }
    }

    #[inline(always)]
    fn and(self, add: impl FnOnce(Arguments<'a>) -> Arguments<'a>) -> Self {
        Self { all: add(self.all), is_on_host: self.is_on_host }
    }

    /// The address of an array's first element; without one, the array is on the host.
    #[inline(always)]
    pub fn address(mut self, address: Option<u64>) -> Self {
        self.is_on_host |= address.is_none();
        self.pointer(address.unwrap_or_default())
    }

    /// An address that is not an array's, or that of an array which lives by other means.
    #[inline(always)]
    pub fn pointer(self, address: u64) -> Self {
        self.and(|all| all.pointer(address))
    }

    /// A size or an offset, `long long` in the kernel.
    #[inline(always)]
    pub fn size(self, size: usize) -> Self {
        self.and(|all| all.size(size))
    }

    /// An `int`.
    #[inline(always)]
    pub fn int(self, value: i32) -> Self {
        self.and(|all| all.int(value))
    }

    /// A `float`.
    #[inline(always)]
    pub fn float(self, value: f32) -> Self {
        self.and(|all| all.float(value))
    }

    /// A `double`.
    #[inline(always)]
    pub fn double(self, value: f64) -> Self {
        self.and(|all| all.double(value))
    }

    /// A struct by value. Its alignment may be 8 bytes at most, which the compiler looks at.
    #[inline(always)]
    pub fn value<T: bytemuck::NoUninit>(self, value: &T) -> Self {
        const { assert!(align_of::<T>() <= 8, "an argument has an alignment of 8 bytes at most") };
        self.and(|all| all.value(bytemuck::bytes_of(value)))
    }

    /// A large struct by value, copied by the driver at the launch.
    #[inline(always)]
    pub fn large<T: bytemuck::NoUninit>(self, value: &'a T) -> Self {
        self.and(|all| all.large(bytemuck::bytes_of(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::{DType, Kernel, Signature};

    #[test]
    fn kernels_that_differ_have_different_ids() {
        let mut kernels = vec![Kernel::of_words(["a", "b", "c", "d"], 4)];
        for operation in ["mv_silu_fwd", "mv_silu_bwd", "mv_silu"] {
            kernels.extend(DType::ALL.map(|dtype| Kernel::new(operation, dtype)));
            for signature in Signature::COMMON {
                kernels.extend(DType::ALL.map(|dtype| Kernel::of(operation, signature, dtype)));
            }
        }
        for (index, kernel) in kernels.iter().enumerate() {
            assert!(kernels[..index].iter().all(|other| other.id() != kernel.id()), "{kernel}");
            let Kernel { operation, signature, dtype } = *kernel;
            assert_eq!(Kernel { operation, signature, dtype }.id(), kernel.id());
        }
    }
}
