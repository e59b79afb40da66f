//! Operands by name, of arrays or of what the crates above make of them.

/// Implements `Copy` and `Clone` by hand: operands are references, and deriving would require both of the type referred to.
macro_rules! shared {
    ($operands:ident) => {
        impl<T> Clone for $operands<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $operands<'_, T> {}
    };
}
pub(crate) use shared;
