//! Operands by name, of arrays or of what the crates above make of them.

/// Operands are references, so they are copied whatever they refer to; deriving that would ask it of the type referred to.
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
pub(super) use shared;
