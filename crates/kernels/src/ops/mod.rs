//! The operators, one module each.

pub(crate) mod copy;
