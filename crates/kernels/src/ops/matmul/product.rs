//! A product of matrices on CUDA, as its callers describe it.

use crate::{Array, DType, cpu::gemm::Sizes, runtime::cuda::Words};
use std::cell::OnceCell;

/// One operand of a [`Product`].
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    /// The address of the first element.
    pub address: u64,
    /// Elements from one stored row to the next.
    pub row: usize,
    /// Elements from one matrix to the next.
    pub stride: usize,
    /// Whether matrices are stored transposed.
    pub transpose: bool,
    /// The matrix that each segment uses; if `None`, segment `s` uses matrix `s`.
    pub index: Option<&'a Words>,
    /// Cache for a transposed copy of the matrices. A product that writes one as a by-product stores it here, for a product that reads
    /// along the other axis.
    pub transposed: Option<&'a OnceCell<Array>>,
}

/// `count` products C[z] = scale·Σ A·B over the segments of z, see csrc/mma/problem.cuh.
pub(crate) struct Product<'a> {
    pub operation: &'static str,
    pub dtype: DType,
    /// Rows and columns of each C, and the length of the sum in each segment.
    pub sizes: Sizes,
    pub count: usize,
    pub a: Operand<'a>,
    pub b: Operand<'a>,
    /// Segments `starts[z]..starts[z + 1]` belong to z; if `None`, z has segment z.
    pub starts: Option<&'a Words>,
    /// The largest number of segments of any z.
    pub segments: usize,
    /// The address of a bias `[columns]`, added at z in the range.
    pub bias: Option<(u64, std::ops::Range<usize>)>,
    pub scale: f64,
    /// Offset of C[0] in the output array, and stride from one C to the next, in elements; contiguous if `None`.
    pub window: Option<(usize, usize)>,
}
