//! The arguments of a launch.

use crate::{DeviceMemory, sys::CUdeviceptr};
use smallvec::SmallVec;
use std::{ffi::c_void, marker::PhantomData};

/// Words of arguments for which no memory is allocated: more than almost any kernel has.
const COUNT: usize = 40;

/// The arguments of a launch, in the order of the kernel's parameters, for [`Function::launch`](crate::Function::launch).
///
/// Values are copied when they are given, large ones at the launch, and nothing is allocated for the usual number of them.
///
/// A [`buffer`](Self::buffer) stays borrowed until the arguments are gone, so it cannot be returned to the device ahead of the launch:
///
/// ```no_run
/// # use gradewise_ffi::{Arguments, DeviceMemory, Function, LaunchConfig, Result, Stream};
/// # fn scale(kernel: &Function, stream: &Stream) -> Result<()> {
/// let block = DeviceMemory::new(stream, 4 * 256)?;
/// let arguments = Arguments::new().buffer(&block).float(3.0).int(256);
/// // SAFETY: the kernel takes (float *, float, int) and touches so many elements; one thread for each; the block is returned after the
/// // kernel, in the order of the same stream.
/// unsafe { kernel.launch(&LaunchConfig::linear(1, 256), stream, &arguments)? };
/// drop(block);
/// # Ok(())
/// # }
/// ```
///
/// The same with the block returned before the launch does not compile,
///
/// ```compile_fail,E0505
/// # use gradewise_ffi::{Arguments, DeviceMemory, Function, LaunchConfig, Result, Stream};
/// # fn scale(kernel: &Function, stream: &Stream) -> Result<()> {
/// let block = DeviceMemory::new(stream, 4 * 256)?;
/// let arguments = Arguments::new().buffer(&block).float(3.0).int(256);
/// drop(block);
/// unsafe { kernel.launch(&LaunchConfig::linear(1, 256), stream, &arguments)? };
/// # Ok(())
/// # }
/// ```
///
/// nor does a temporary block, which would be gone at the end of the line:
///
/// ```compile_fail,E0716
/// # use gradewise_ffi::{Arguments, DeviceMemory, Function, LaunchConfig, Result, Stream};
/// # fn scale(kernel: &Function, stream: &Stream) -> Result<()> {
/// let arguments = Arguments::new().buffer(&DeviceMemory::new(stream, 4 * 256)?).float(3.0).int(256);
/// unsafe { kernel.launch(&LaunchConfig::linear(1, 256), stream, &arguments)? };
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Arguments<'a> {
    words: SmallVec<[u64; COUNT]>,
    places: SmallVec<[Place; 20]>,
    /// A struct that stays where it is, and its index among the arguments.
    large: Option<(usize, &'a [u8])>,
    /// Device memory that is named by its address among the words.
    buffers: PhantomData<&'a DeviceMemory>,
}

/// Where an argument begins among the words, and its size in bytes. A kernel's parameters have 32 KiB at most in all; what is larger than
/// these numbers is told as the largest, which no kernel takes.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u16,
    size: u16,
}

impl Place {
    #[inline(always)]
    fn new(start: usize, size: usize) -> Self {
        let most = |value: usize| value.min(usize::from(u16::MAX)) as u16;
        Self { start: most(start), size: most(size) }
    }
}

/// The word that begins with these bytes.
fn first_half([a, b, c, d]: [u8; 4]) -> u64 {
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

impl<'a> Arguments<'a> {
    /// No arguments.
    #[inline(always)]
    pub fn new() -> Self {
        Self { words: SmallVec::new(), places: SmallVec::new(), large: None, buffers: PhantomData }
    }

    #[inline(always)]
    fn word(mut self, word: u64, size: usize) -> Self {
        self.places.push(Place::new(self.words.len(), size));
        self.words.push(word);
        self
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let start = self.words.len();
        self.places.push(Place::new(start, bytes.len()));
        self.words.resize(start + bytes.len().div_ceil(8), 0);
        for (word, part) in self.words[start..].iter_mut().zip(bytes.chunks(8)) {
            let mut all = [0; 8];
            all[..part.len()].copy_from_slice(part);
            *word = u64::from_ne_bytes(all);
        }
    }

    /// An `int`, or another integer of 32 bits.
    #[inline(always)]
    #[must_use]
    pub fn int(self, value: i32) -> Self {
        self.word(first_half(value.to_ne_bytes()), 4)
    }

    /// A `float`.
    #[inline(always)]
    #[must_use]
    pub fn float(self, value: f32) -> Self {
        self.word(first_half(value.to_ne_bytes()), 4)
    }

    /// A `double`.
    #[inline(always)]
    #[must_use]
    pub fn double(self, value: f64) -> Self {
        self.word(value.to_bits(), 8)
    }

    /// A size or an offset: `long long` or `size_t` in the kernel.
    #[inline(always)]
    #[must_use]
    pub fn size(self, size: usize) -> Self {
        self.word(size as u64, 8)
    }

    /// A struct by value, as its bytes, such as `bytemuck::bytes_of` gives: copied here. Its alignment is 8 bytes at most.
    #[inline(always)]
    #[must_use]
    pub fn value(mut self, bytes: &[u8]) -> Self {
        self.push(bytes);
        self
    }

    /// A struct by value, as its bytes, that stays where it is: the driver copies it when the kernel is launched. Any after the first are
    /// copied here as well.
    #[inline(always)]
    #[must_use]
    pub fn large(mut self, bytes: &'a [u8]) -> Self {
        if self.large.is_some() {
            self.push(bytes);
        } else {
            self.large = Some((self.places.len(), bytes));
            self.places.push(Place::new(0, bytes.len()));
        }
        self
    }

    /// An address of device memory, as a number: whoever launches the kernel vouches for it. 0 is a null pointer.
    #[inline(always)]
    #[must_use]
    pub fn pointer(self, address: CUdeviceptr) -> Self {
        self.word(address, 8)
    }

    /// The address of a block of device memory, which stays borrowed.
    #[inline(always)]
    #[must_use]
    pub fn buffer(self, block: &'a DeviceMemory) -> Self {
        self.pointer(block.pointer())
    }

    /// The same arguments with no borrow: a large struct is copied here. Whoever launches with them vouches for the blocks that
    /// [`buffer`](Self::buffer) borrowed, as for any other address.
    #[must_use]
    pub fn into_owned(self) -> Arguments<'static> {
        let Self { words, places, large, .. } = self;
        let mut owned = Arguments { words, places, large: None, buffers: PhantomData };
        if let Some((index, bytes)) = large {
            let last = owned.places.len();
            owned.push(bytes);
            owned.places.swap_remove(index);
            debug_assert_eq!(owned.places.len(), last);
        }
        owned
    }

    /// The words of all arguments, eight bytes each, among which are all addresses: those given as such, and those inside of structs.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        let large = self.large.iter().flat_map(|(_, bytes)| bytes.as_chunks::<8>().0);
        self.words.iter().copied().chain(large.map(|&word| u64::from_ne_bytes(word)))
    }

    /// The number of arguments.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// The size in bytes of each argument, to be compared with [`Function::parameter_sizes`](crate::Function::parameter_sizes).
    pub fn sizes(&self) -> Vec<usize> {
        self.places.iter().map(|place| usize::from(place.size)).collect()
    }

    /// Where each argument lies, as the driver takes it. The driver reads there, and writes nowhere.
    pub(crate) fn pointers(&self) -> SmallVec<[*mut c_void; COUNT]> {
        let words = self.words.as_ptr().cast_mut();
        // Not past the words, but for an argument of no bytes, or one that is in `large`, whose place is replaced.
        let place = |place: &Place| words.wrapping_add(place.start.into()).cast::<c_void>();
        let mut pointers: SmallVec<_> = self.places.iter().map(place).collect();
        if let Some((index, bytes)) = self.large {
            pointers[index] = bytes.as_ptr().cast_mut().cast::<c_void>();
        }
        pointers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of each argument.
    fn bytes(arguments: &Arguments<'_>) -> Vec<Vec<u8>> {
        let places = arguments.pointers().into_iter().zip(arguments.sizes());
        // SAFETY: each points to as many bytes as its size says, which `arguments` owns or borrows.
        places
            .map(|(at, size)| unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) }.to_vec())
            .collect()
    }

    #[test]
    fn each_argument_lies_where_the_driver_is_told() {
        let (odd, large) = ([1u32, 2, 3].map(u32::to_ne_bytes).concat(), ([4u8; 512], [5u8; 256]));
        let arguments = Arguments::new()
            .large(&large.0)
            .int(-7)
            .value(&odd)
            .float(1.5)
            .large(&large.1)
            .double(-2.5)
            .size(1 << 40)
            .pointer(0xdead_beef);
        assert_eq!(arguments.sizes(), [512, 4, 12, 4, 256, 8, 8, 8]);
        assert_eq!(arguments.count(), 8);
        let expected: [&[u8]; 8] = [
            &large.0,
            &(-7i32).to_ne_bytes(),
            &odd,
            &1.5f32.to_ne_bytes(),
            &large.1,
            &(-2.5f64).to_ne_bytes(),
            &(1u64 << 40).to_ne_bytes(),
            &0xdead_beefu64.to_ne_bytes(),
        ];
        assert_eq!(bytes(&arguments), expected);
        let owned = arguments.clone().into_owned();
        assert_eq!((bytes(&owned), owned.count()), (bytes(&arguments), 8));
        for word in [u64::from_ne_bytes([4; 8]), u64::from_ne_bytes([5; 8]), 0xdead_beef, 1 << 40] {
            assert!(arguments.words().any(|found| found == word) && owned.words().any(|found| found == word));
        }
        // Moved, they lie elsewhere, and are still found.
        let moved = Box::new(arguments);
        assert_eq!(bytes(&moved), expected);
    }

    #[test]
    fn arguments_stand_for_those_of_a_shorter_lifetime() {
        fn with<'a>(arguments: Arguments<'static>, value: &'a [u8; 64]) -> Arguments<'a> {
            let shorter: Arguments<'a> = arguments;
            shorter.large(value)
        }
        assert_eq!(with(Arguments::new().int(1), &[0; 64]).sizes(), [4, 64]);
    }

    #[test]
    fn more_arguments_than_usual_only_take_memory() {
        let many = (0..100).fold(Arguments::new(), |arguments, value| arguments.int(value));
        assert!(many.words.spilled() && many.sizes() == [4; 100]);
        let expected: Vec<_> = (0..100i32).map(|value| value.to_ne_bytes().to_vec()).collect();
        assert_eq!(bytes(&many), expected);
        let usual = (0..19).fold(Arguments::new(), Arguments::size).large(&[0; 64]);
        assert!(!usual.words.spilled() && !usual.places.spilled() && !usual.pointers().spilled());
        assert_eq!(Arguments::new().count(), 0);
    }
}
