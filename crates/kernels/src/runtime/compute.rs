//! The arithmetic of matrix products.

use std::{
    cell::Cell,
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU8, Ordering},
};

/// How products of `f32` matrices are computed on CUDA. Other dtypes are not affected: `bf16` and `f16` are multiplied
/// exactly and accumulated in `f32`, `f64` is `f64`; and the CPU is always exact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compute {
    /// In `f32` throughout: relative error 1e-6.
    #[default]
    Exact,
    /// On tensor cores with operands rounded to TF32 (10 bits of mantissa), accumulated in `f32`: relative error 1e-3.
    Tf32,
}

static DEFAULT: AtomicU8 = AtomicU8::new(0);
thread_local! {
    static SCOPED: Cell<Option<Compute>> = const { Cell::new(None) };
}

impl Compute {
    /// The mode in force in this thread: the innermost [`scope`](Self::scope), else the process's default.
    pub fn current() -> Self {
        SCOPED.with(Cell::get).unwrap_or_else(|| match DEFAULT.load(Ordering::Relaxed) {
            0 => Self::Exact,
            _ => Self::Tf32,
        })
    }

    /// Makes this the default of the process.
    pub fn set_default(self) {
        DEFAULT.store(u8::from(self == Self::Tf32), Ordering::Relaxed);
    }

    /// Runs `work` with this arithmetic in this thread.
    pub fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        struct Restore(Option<Compute>);
        impl Drop for Restore {
            fn drop(&mut self) {
                SCOPED.with(|scoped| scoped.set(self.0));
            }
        }
        let _restore = Restore(SCOPED.with(|scoped| scoped.replace(Some(self))));
        work()
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::Tf32 => "tf32",
        })
    }
}

impl FromStr for Compute {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "exact" => Ok(Self::Exact),
            "tf32" => Ok(Self::Tf32),
            _ => Err(crate::Error::Argument {
                operation: "compute",
                argument: "text",
                actual: format!("`{text}`"),
                expected: "exact or tf32",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Compute;

    #[test]
    fn the_innermost_scope_applies_and_ends() {
        let before = Compute::current();
        Compute::Tf32.scope(|| {
            assert_eq!(Compute::current(), Compute::Tf32);
            Compute::Exact.scope(|| assert_eq!(Compute::current(), Compute::Exact));
            assert_eq!(Compute::current(), Compute::Tf32);
        });
        assert_eq!(Compute::current(), before);
        assert_eq!("TF32".parse::<Compute>().unwrap().to_string(), "tf32");
        assert!("fast".parse::<Compute>().is_err());
    }
}
