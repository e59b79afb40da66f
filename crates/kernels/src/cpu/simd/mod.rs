//! Portable SIMD: one scalar-looking kernel, compiled once per instruction set and chosen at run time.
//!
//! A [`Kernel`] is written over arrays of [`LANES`] elements. [`dispatch`] runs it inside a function compiled for the
//! best instruction set the machine has (AVX-512, AVX2 with FMA, NEON, or plain scalar code), where the compiler
//! turns those arrays into vector registers. Everything a kernel calls must be `#[inline(always)]`: a function that
//! is not inlined is compiled for the baseline instruction set.

mod flush;
mod math;
mod vectors;

pub(crate) use flush::{FlushSubnormals, KeepSubnormals};
pub(crate) use math::Real;
pub(crate) use pulp::Simd;
pub(crate) use vectors::Vectors;

/// Elements per tile: the unit of work of the Clifford kernels. Long enough to hide the latency of
/// an accumulation chain and to spread the cost of interpreting a term over several vector registers.
pub const LANES: usize = 64;

/// A group of adjacent elements that the compiler keeps in vector registers.
pub type Lanes<T> = [T; LANES];

/// Work to be compiled for each instruction set.
pub(crate) trait Kernel {
    type Output;

    /// Runs the work. `S` is the instruction set, for work that names its vector registers ([`Vectors`]); `FMA` says
    /// whether fused multiply-add is one instruction; without it, `mul_add` would be a library call. Implementations
    /// are `#[inline(always)]`.
    fn run<S: Simd, const FMA: bool>(self, simd: S) -> Self::Output;
}

/// A kernel as pulp runs it, which learns from the instruction set whether multiply-add is fused.
pub(crate) struct Entry<K>(pub K);

impl<K: Kernel> pulp::WithSimd for Entry<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> K::Output {
        if S::IS_SCALAR { self.0.run::<S, false>(simd) } else { self.0.run::<S, true>(simd) }
    }
}

/// Runs `kernel` with the best instruction set of this machine.
#[cfg(not(test))]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    pulp::Arch::new().dispatch(Entry(kernel))
}

/// Unit tests have scalar code alone: each instruction set is another copy of all kernels, which they would wait for a minute to be
/// compiled. The tests of operators (`tests/`) and those that name an instruction set run the others.
#[cfg(test)]
pub(crate) fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    pulp::Simd::vectorize(pulp::Scalar::new(), Entry(kernel))
}

/// `a·b + c`, fused where that is one instruction.
#[inline(always)]
pub(crate) fn mul_add<T: Real, const FMA: bool>(a: T, b: T, c: T) -> T {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `out += a·b`.
#[inline(always)]
pub(crate) fn accumulate<T: Real, const FMA: bool>(out: &mut Lanes<T>, a: &Lanes<T>, b: &Lanes<T>) {
    for lane in 0..LANES {
        out[lane] = mul_add::<T, FMA>(a[lane], b[lane], out[lane]);
    }
}

/// `out -= a·b`.
#[inline(always)]
pub(crate) fn subtract_product<T: Real, const FMA: bool>(out: &mut Lanes<T>, a: &Lanes<T>, b: &Lanes<T>) {
    for lane in 0..LANES {
        out[lane] = mul_add::<T, FMA>(-a[lane], b[lane], out[lane]);
    }
}
