//! A kernel by its name, the grid it runs in, and its arguments.

use crate::DType;
use gradewise_core::Signature;
use gradewise_ffi::LaunchConfig;
use smallvec::SmallVec;
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

/// The most arguments of a kernel of a user's own.
pub(super) const COUNT: usize = 40;

/// The arguments of a launch, in the order of the kernel's parameters. Those of all but a few kernels need no allocation.
pub(crate) struct Args<'a> {
    /// A struct too large to be copied, and which argument it is.
    pub(super) borrowed: Option<(usize, &'a [u8])>,
    /// Whether one is an array on the host, which [`CudaDevice::launch`](super::CudaDevice) refuses.
    pub(super) is_on_host: bool,
    pub(super) words: SmallVec<[u64; 40]>,
    pub(super) places: SmallVec<[Place; 20]>,
}

/// Where an argument begins among the words, and its size in bytes.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) start: u16,
    size: u16,
}

/// The word that begins with these bytes.
fn first_half([a, b, c, d]: [u8; 4]) -> u64 {
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

impl<'a> Args<'a> {
    pub fn new() -> Self {
        Self { borrowed: None, is_on_host: false, words: SmallVec::new(), places: SmallVec::new() }
    }

    /// The address of an array's first element; without one, the array is on the host.
    #[inline(always)]
    pub fn address(mut self, address: Option<u64>) -> Self {
        self.is_on_host |= address.is_none();
        self.pointer(address.unwrap_or_default())
    }

    #[inline(always)]
    fn word(mut self, word: u64, size: usize) -> Self {
        self.places.push(Place { start: self.words.len() as u16, size: size as u16 });
        self.words.push(word);
        self
    }

    fn push(mut self, bytes: &[u8]) -> Self {
        let start = self.words.len();
        self.places.push(Place { start: start as u16, size: bytes.len() as u16 });
        self.words.resize(start + bytes.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut(&mut self.words[start..])[..bytes.len()].copy_from_slice(bytes);
        self
    }

    /// An address.
    #[inline(always)]
    pub fn pointer(self, address: u64) -> Self {
        self.word(address, 8)
    }

    /// A size or an offset, `long long` in the kernel.
    #[inline(always)]
    pub fn size(self, size: usize) -> Self {
        self.word(size as u64, 8)
    }

    /// An `int`.
    #[inline(always)]
    pub fn int(self, value: i32) -> Self {
        self.word(first_half(value.to_ne_bytes()), 4)
    }

    /// A `float`.
    #[inline(always)]
    pub fn float(self, value: f32) -> Self {
        self.word(first_half(value.to_ne_bytes()), 4)
    }

    /// How many more arguments there is room for.
    pub fn room(&self) -> usize {
        COUNT - self.places.len()
    }

    /// A `double`.
    #[inline(always)]
    pub fn double(self, value: f64) -> Self {
        self.word(value.to_bits(), 8)
    }

    /// A struct by value, of alignment at most 8.
    pub fn value<T: bytemuck::NoUninit>(self, value: &T) -> Self {
        self.push(bytemuck::bytes_of(value))
    }

    /// A large struct by value, one per launch, copied by the driver at the launch.
    pub fn large<T: bytemuck::NoUninit>(mut self, value: &'a T) -> Self {
        debug_assert!(self.borrowed.is_none(), "one per launch");
        self.borrowed = Some((self.places.len(), bytemuck::bytes_of(value)));
        self.places.push(Place { start: 0, size: size_of::<T>() as u16 });
        self
    }

    /// Sizes in bytes, in order.
    pub fn sizes(&self) -> Vec<usize> {
        self.places.iter().map(|place| usize::from(place.size)).collect()
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
