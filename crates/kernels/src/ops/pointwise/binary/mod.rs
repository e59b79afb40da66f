//! Elementwise functions of two arrays, broadcast together by NumPy's rule.

mod cpu;
mod cuda;

use crate::{
    Array, Device, Element, Result,
    array::{elementwise::map, layout::collapse},
    cpu::element::with_element,
};

/// A function of two numbers.
trait Function: Send + Sync + 'static {
    /// The function on a device.
    const NAME: cuda::Name;

    fn call<T: Element>(&self, a: T, b: T) -> T;
}

fn binary<F: Function>(name: &'static str, a: &Array, b: &Array, function: F) -> Result<Array> {
    b.require_like(a, name, "b")?;
    let shape = a.shape().broadcast(b.shape(), name)?;
    let (left, right) = (a.broadcast_to(&shape)?, b.broadcast_to(&shape)?);
    if let Device::Cuda(device) = a.device() {
        return cuda::run(&device, name, F::NAME, &left, &right);
    }
    with_element!(a.dtype(), name, T => map(name, &shape, [&left, &right], cpu::Apply::<T, _>::new(function)))
}

macro_rules! binary {
    ($(#[$doc:meta])* $name:ident, $type:ident, |$a:ident, $b:ident| $body:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// If the shapes cannot be broadcast together, or dtypes or devices differ.
        pub fn $name(a: &Array, b: &Array) -> Result<Array> {
            binary(stringify!($name), a, b, $type)
        }

        struct $type;

        impl Function for $type {
            const NAME: cuda::Name = cuda::Name::$type;

            #[inline(always)]
            fn call<T: Element>(&self, $a: T, $b: T) -> T {
                $body
            }
        }
    };
}

fn mask<T: Element>(condition: bool) -> T {
    if condition { T::one() } else { T::zero() }
}

binary!(
    /// a + b.
    add, Add, |a, b| a + b
);
binary!(
    /// a − b.
    sub, Sub, |a, b| a - b
);
binary!(
    /// a·b.
    mul, Mul, |a, b| a * b
);
binary!(
    /// a/b; division by zero gives what IEEE 754 says.
    div, Div, |a, b| a / b
);
binary!(
    /// The greater of a and b; NaN if either is.
    max, Max, |a, b| if a > b || a.is_nan() { a } else { b }
);
binary!(
    /// The lesser of a and b; NaN if either is.
    min, Min, |a, b| if a < b || a.is_nan() { a } else { b }
);
binary!(
    /// 1 where a = b, else 0.
    equal, Equal, |a, b| mask(a == b)
);
binary!(
    /// 1 where a ≠ b, else 0; NaN differs from everything.
    not_equal, NotEqual, |a, b| mask(a != b)
);
binary!(
    /// 1 where a > b, else 0.
    greater, Greater, |a, b| mask(a > b)
);
binary!(
    /// 1 where a ≥ b, else 0.
    greater_equal, GreaterEqual, |a, b| mask(a >= b)
);
binary!(
    /// 1 where a < b, else 0.
    less, Less, |a, b| mask(a < b)
);
binary!(
    /// 1 where a ≤ b, else 0.
    less_equal, LessEqual, |a, b| mask(a <= b)
);

/// Adds `b`, broadcast to its shape, to `a` in place, without a copy if `a` does not share its storage.
///
/// # Errors
/// If `b` does not broadcast to the shape of `a`, or dtypes or devices differ.
pub fn add_assign(a: &mut Array, b: &Array) -> Result<()> {
    const NAME: &str = "add_assign";
    b.require_like(a, NAME, "b")?;
    let right = b.broadcast_to(a.shape())?;
    // Where values are recorded, the sum waits as well.
    let waits = match a.device() {
        Device::Cuda(device) => device.records(),
        Device::Cpu => Array::describes(a.elements(), &[a, &right]),
    };
    if waits || !(a.is_unique() && a.is_contiguous()) {
        *a = add(a, &right)?;
        return Ok(());
    }
    if let Device::Cuda(device) = a.device() {
        // SAFETY: b was compared with a and broadcast to its shape; a is contiguous and unique.
        return unsafe { cuda::into(&device, NAME, cuda::Name::Add, a, [a, &right]) };
    }
    let own = a.strides().to_vec();
    let (sizes, [strides, _]) = collapse(a.dims(), [right.strides(), &own]);
    with_element!(b.dtype(), NAME, T => {
        let (right, _) = right.strided_slice::<T>(NAME)?;
        cpu::accumulate(&sizes, right, &strides, a.as_mut_slice::<T>()?);
        Ok(())
    })
}
