//! The description of a matrix product, and its translation to the library's layouts.

use crate::{Error, Result};
use std::ffi::c_int;

/// The type of the elements of all three matrices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Element {
    /// Double precision throughout.
    F64,
    /// Single precision throughout.
    F32,
    /// Single precision: factors are rounded to TF32 (10-bit mantissa), sums are in single precision.
    Tf32,
    /// bfloat16, summed in single precision.
    Bf16,
    /// Half precision, summed in single precision.
    F16,
}

impl Element {
    /// `CUDA_R_*`
    pub(super) fn dtype(self) -> c_int {
        match self {
            Self::F32 | Self::Tf32 => 0,
            Self::F64 => 1,
            Self::F16 => 2,
            Self::Bf16 => 14,
        }
    }

    /// `CUBLAS_COMPUTE_*`
    pub(super) fn compute(self) -> c_int {
        match self {
            Self::F64 => 70,
            Self::Tf32 => 77,
            Self::F32 | Self::Bf16 | Self::F16 => 68,
        }
    }

    /// `CUDA_R_*` of the factors α and β.
    pub(super) fn scale(self) -> c_int {
        if self == Self::F64 { 1 } else { 0 }
    }
}

/// Out (m × n) = α · A (m × k) · B (k × n) + β · Out, for matrices stored by rows without gaps; a transposed factor is
/// stored as k × m or n × k.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Product {
    /// m
    pub rows: u64,
    /// n
    pub columns: u64,
    /// k
    pub inner: u64,
    /// Whether A is stored transposed.
    pub transpose_a: bool,
    /// Whether B is stored transposed.
    pub transpose_b: bool,
    /// The elements.
    pub element: Element,
    /// Number of products in the batch.
    pub batch: u32,
    /// Batch stride of A, B and Out in elements; 0 repeats the same matrix.
    pub batch_strides: [i64; 3],
    /// Alignment of each matrix's address in bytes, a power of two. Larger alignments allow more algorithms, up to 256.
    pub alignment: u32,
}

/// The library's column-major layout of a matrix: a row-major matrix has the column-major layout of its transpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub rows: u64,
    pub columns: u64,
    pub stride: i64,
    pub batch_stride: i64,
}

impl Product {
    /// One product of full matrices.
    pub fn new(rows: u64, inner: u64, columns: u64, element: Element) -> Self {
        Self {
            rows,
            columns,
            inner,
            transpose_a: false,
            transpose_b: false,
            element,
            batch: 1,
            batch_strides: [0; 3],
            alignment: 16,
        }
    }

    /// The layouts of B, A and Out. In column-major terms, Outᵀ (n × m) = Bᵀ · Aᵀ, so the library's first factor is our second.
    pub(super) fn layouts(&self) -> Result<[Layout; 3]> {
        let sizes = [self.rows, self.columns, self.inner];
        let limit = i32::MAX as u64;
        if let Some(size) = sizes.into_iter().find(|size| !(1..=limit).contains(size)) {
            return Err(Error::Argument {
                call: "cublaslt::Handle::plan",
                problem: format!("a matrix of size {size}; sizes from 1 to {limit} are possible"),
            });
        }
        if self.batch == 0 || !self.alignment.is_power_of_two() {
            return Err(Error::Argument {
                call: "cublaslt::Handle::plan",
                problem: format!("{} products, aligned to {} bytes", self.batch, self.alignment),
            });
        }
        // A row-major matrix of `rows` × `columns`.
        let stored = |rows: u64, columns: u64, batch_stride| Layout {
            rows: columns,
            columns: rows,
            stride: columns as i64,
            batch_stride,
        };
        let turn = |transposed, rows, columns| if transposed { (columns, rows) } else { (rows, columns) };
        let (a_rows, a_columns) = turn(self.transpose_a, self.rows, self.inner);
        let (b_rows, b_columns) = turn(self.transpose_b, self.inner, self.columns);
        let [a, b, out] = self.batch_strides;
        Ok([stored(b_rows, b_columns, b), stored(a_rows, a_columns, a), stored(self.rows, self.columns, out)])
    }
}
