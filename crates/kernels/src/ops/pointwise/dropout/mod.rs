//! Dropout masks (Srivastava et al. 2014) from a counter-based generator.

mod cuda;
pub(in crate::ops) mod philox;

use crate::{
    Array, Device, Element, Error, Result,
    cpu::{
        element::{with_element, with_storage},
        simd::{Kernel, Simd, dispatch},
        split,
    },
};
use gradewise_core::{DType, Shape};

/// Which of the generator's random numbers are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomStream {
    /// The key of the generator.
    pub seed: u64,
    /// One of the independent streams of that key.
    pub stream: u64,
}

/// An array that is 0 with probability `p` and 1/(1 − p) otherwise, independently at each element.
///
/// Element `i` depends on `random` and `i` only: the same numbers come out on any device and any number of
/// threads, and a recomputation gets them again. Use another [`stream`](RandomStream::stream) for every layer and step.
///
/// # Errors
/// If `p` is not in [0, 1); if the device does not support the dtype.
pub fn dropout_mask(
    shape: impl Into<Shape>,
    p: f64,
    random: RandomStream,
    dtype: DType,
    device: &Device,
) -> Result<Array> {
    const NAME: &str = "dropout_mask";
    if !(0.0..1.0).contains(&p) {
        let actual = p.to_string();
        return Err(Error::Argument { operation: NAME, argument: "p", actual, expected: "in [0, 1)" });
    }
    device.require(dtype, NAME)?;
    if let Device::Cuda(cuda) = device
        && cuda.gate().is_mine()
    {
        // The host advances the stream of random numbers, so every replay of a capture would draw the same mask.
        return Err(Error::InCapture { operation: NAME });
    }
    // 32 random bits are below the threshold with probability p, to within 2⁻³².
    let threshold = (p * 2f64.powi(32)) as u32;
    if let Device::Cuda(device) = device {
        let kept = with_storage!(dtype, T => T::narrow(1.0 / (1.0 - p)).widen());
        return cuda::mask(device, NAME, shape, random, threshold, kept, dtype);
    }
    with_element!(dtype, NAME, T => {
        let kept = T::narrow(1.0 / (1.0 - p));
        Array::build(shape, device, |out: &mut [T]| {
            split::for_chunks(out, split::CHUNK, |start, out| {
                dispatch(Mask { start, random, threshold, kept, out });
            });
        })
    })
}

struct Mask<'a, T> {
    start: usize,
    random: RandomStream,
    threshold: u32,
    kept: T,
    out: &'a mut [T],
}

impl<T: Element> Kernel for Mask<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        // Four elements per counter; chunks start at a multiple of that.
        let mut counter = self.start as u64 / 4;
        for group in self.out.chunks_mut(4 * philox::LANES) {
            let words = philox::random(counter, self.random.stream, self.random.seed);
            counter += philox::LANES as u64;
            for (position, out) in group.iter_mut().enumerate() {
                let bits = words[position % 4][position / 4];
                *out = if bits < self.threshold { T::zero() } else { self.kept };
            }
        }
    }
}
