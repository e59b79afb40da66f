//! Operators that put elements at other places.

mod concat;
mod pad;

pub use concat::{concat, stack};
pub use pad::pad;
