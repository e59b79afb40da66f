//! What operators compute with on the CPU: element types, vector instructions, matrix products, and the division of work among threads.

pub(crate) mod element;
pub(crate) mod gemm;
pub(crate) mod parallel;
pub(crate) mod simd;
pub(crate) mod split;
