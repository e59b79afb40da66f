//! What reductions combine elements by, on the CPU and on a GPU.

/// The reducers, numbered as in csrc/ops/reduce.cu.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Name {
    Sum,
    Greatest,
    Least,
}

/// How elements are combined. Widening to double precision is exact, so extrema are exact too.
pub(super) trait Reducer: Send + Sync + 'static {
    const START: f64;

    /// The reducer on a device.
    const NAME: Name;

    fn combine(a: f64, b: f64) -> f64;
}

pub(super) struct Sum;
pub(super) struct Greatest;
pub(super) struct Least;

impl Reducer for Sum {
    const START: f64 = 0.0;
    const NAME: Name = Name::Sum;

    #[inline(always)]
    fn combine(a: f64, b: f64) -> f64 {
        a + b
    }
}

impl Reducer for Greatest {
    const START: f64 = f64::NEG_INFINITY;
    const NAME: Name = Name::Greatest;

    #[inline(always)]
    fn combine(a: f64, b: f64) -> f64 {
        if a > b || a.is_nan() { a } else { b }
    }
}

impl Reducer for Least {
    const START: f64 = f64::INFINITY;
    const NAME: Name = Name::Least;

    #[inline(always)]
    fn combine(a: f64, b: f64) -> f64 {
        if a < b || a.is_nan() { a } else { b }
    }
}
