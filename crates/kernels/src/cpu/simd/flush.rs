//! Arithmetic on the CPU counts subnormal numbers as zero.
//!
//! Many x86 processors execute an addition or a product with a subnormal operand or result in microcode, about a hundred times
//! slower than otherwise. Weight decay and small gradients drive weights and moments into that range, so that training
//! slows down as it goes on. With flush-to-zero and denormals-are-zero the processor takes them for zeros at full speed.

use std::marker::PhantomData;

/// While it lives, floating-point arithmetic of this thread takes and gives zeros in place of subnormal numbers. Dropping it
/// restores the thread's previous mode, on unwinding too.
///
/// Every thread that computes needs one: the operators' caller has it from [`with_element!`](crate::cpu::element::with_element),
/// threads of rayon's pool from [`Flushed`](crate::cpu::parallel::Flushed). A result must not depend on the thread that computed
/// it.
///
/// Loads, stores and other moves keep subnormal numbers as they are.
#[must_use = "the mode ends with this guard"]
pub(crate) struct FlushSubnormals {
    previous: control::Word,
    /// The mode belongs to a thread, so the guard stays on it.
    not_send: PhantomData<*const ()>,
}

impl FlushSubnormals {
    /// Enters the mode; costs a few cycles if the thread is in it already.
    #[inline]
    pub fn enter() -> Self {
        let previous = control::read();
        if previous & control::FLUSH != control::FLUSH {
            control::write(previous | control::FLUSH);
        }
        Self { previous, not_send: PhantomData }
    }
}

impl Drop for FlushSubnormals {
    #[inline]
    fn drop(&mut self) {
        if self.previous & control::FLUSH != control::FLUSH {
            control::write(self.previous);
        }
    }
}

/// While it lives, arithmetic of this thread keeps subnormal numbers, as conversions between dtypes do: for those of a value that is computed
/// with others, in their mode. Dropping it restores the thread's previous mode.
#[must_use = "the mode ends with this guard"]
pub(crate) struct KeepSubnormals {
    previous: control::Word,
    /// The mode belongs to a thread, so the guard stays on it.
    not_send: PhantomData<*const ()>,
}

impl KeepSubnormals {
    pub fn enter() -> Self {
        let previous = control::read();
        if previous & control::FLUSH != 0 {
            control::write(previous & !control::FLUSH);
        }
        Self { previous, not_send: PhantomData }
    }
}

impl Drop for KeepSubnormals {
    fn drop(&mut self) {
        if self.previous & control::FLUSH != 0 {
            control::write(self.previous);
        }
    }
}

/// The processor's floating-point control register.
///
/// The compiler assumes the default floating-point environment. It may therefore fold an operation on constants without
/// flushing; no kernel has a subnormal constant. Without a clobber list that excludes memory, each `asm!` block is a barrier for
/// the loads and stores of the kernels around it.
#[cfg(target_arch = "x86_64")]
mod control {
    use std::arch::asm;

    pub type Word = u32;

    /// Flush-to-zero (bit 15) for results and denormals-are-zero (bit 6) for operands, in MXCSR.
    pub const FLUSH: Word = 1 << 15 | 1 << 6;

    #[inline]
    pub fn read() -> Word {
        let mut word: Word = 0;
        // SAFETY: every x86-64 processor has MXCSR; the instruction stores its 4 bytes to `word`, which is that long, and changes nothing
        // else.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    #[inline]
    pub fn write(word: Word) {
        // SAFETY: reads 4 bytes from `word`. `word` comes from `read`, with at most the bits of `FLUSH` changed: no reserved bit is
        // set, exceptions stay masked and the rounding mode stays.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod control {
    use std::arch::asm;

    pub type Word = u64;

    /// FZ (bit 24 of FPCR): operands and results of f32 and f64 arithmetic.
    pub const FLUSH: Word = 1 << 24;

    #[inline]
    pub fn read() -> Word {
        let word: Word;
        // SAFETY: reads a control register that user code may read.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nostack, preserves_flags)) };
        word
    }

    #[inline]
    pub fn write(word: Word) {
        // SAFETY: `word` comes from `read`, with at most FZ changed; user code may write this register.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nostack, preserves_flags)) };
    }
}

/// Processors without such a mode compute with subnormal numbers; the optimisers leave none all the same.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod control {
    pub type Word = u32;
    pub const FLUSH: Word = 0;

    pub fn read() -> Word {
        0
    }

    pub fn write(_: Word) {}
}

#[cfg(test)]
mod tests {
    use super::{FlushSubnormals, KeepSubnormals};
    use std::hint::black_box;

    fn product_is_subnormal() -> bool {
        black_box(1e-30f32) * black_box(1e-10f32) != 0.0
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn guards_nest_and_restore() {
        assert!(product_is_subnormal());
        {
            let _outer = FlushSubnormals::enter();
            assert!(!product_is_subnormal());
            drop(FlushSubnormals::enter());
            assert!(!product_is_subnormal(), "the inner guard leaves the mode of the outer");
            assert_eq!(
                black_box(1e-320f64) + black_box(0.0),
                0.0,
                "operands count as zero, in double precision too"
            );
        }
        assert!(product_is_subnormal());
    }

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn subnormals_are_kept_inside_of_the_mode() {
        let outer = FlushSubnormals::enter();
        {
            let _exact = KeepSubnormals::enter();
            assert!(product_is_subnormal());
        }
        assert!(!product_is_subnormal(), "the mode before is restored");
        drop(outer);
        drop(KeepSubnormals::enter());
        assert!(product_is_subnormal());
    }

    #[test]
    fn a_panic_restores_the_mode() {
        let result = std::panic::catch_unwind(|| {
            let _flush = FlushSubnormals::enter();
            panic!("of a kernel");
        });
        assert!(result.is_err());
        assert!(product_is_subnormal());
    }
}
