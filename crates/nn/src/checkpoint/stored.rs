//! A tensor as it is in a file.

use crate::{Error, Result};
use gradewise_core::DType;
use gradewise_kernels::Array;
use half::{bf16, f16};

#[cfg(feature = "files")]
pub(super) use safetensors::Dtype;

/// Stands in for `safetensors::Dtype` in builds without the feature `files`.
#[cfg(not(feature = "files"))]
#[allow(dead_code, clippy::upper_case_acronyms)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dtype {
    F64,
    F32,
    BF16,
    F16,
    I64,
    U64,
    I32,
    U32,
    I16,
    U16,
    I8,
    U8,
    BOOL,
    Other,
}

/// A tensor as stored in a file: shape, dtype and unconverted bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredTensor {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// Little-endian, row-major.
    pub(super) bytes: Vec<u8>,
}

impl StoredTensor {
    /// Stores an array's values in its own dtype, bit for bit.
    ///
    /// # Errors
    /// From the device, if the values cannot be brought to the host.
    pub fn from_array(array: &Array) -> Result<Self> {
        let (dtype, bytes) = match array.dtype() {
            DType::F32 => {
                (Dtype::F32, array.to_vec::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect())
            }
            dtype => return Self::from_f64(array.dims(), &array.to_f64_vec()?, dtype),
        };
        Ok(Self { dtype, shape: array.dims().to_vec(), bytes })
    }

    /// Stores row-major values rounded to `dtype`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the number of values does not fit the shape.
    pub fn from_f64(shape: &[usize], values: &[f64], dtype: DType) -> Result<Self> {
        if gradewise_core::Shape::from(shape).elements() != values.len() {
            return Err(Error::Argument {
                operation: "store tensor",
                argument: "values",
                actual: format!("{} values", values.len()),
                expected: format!("as many as the shape {shape:?} has elements"),
            });
        }
        let values = values.iter();
        let (dtype, bytes) = match dtype {
            DType::F64 => (Dtype::F64, values.flat_map(|v| v.to_le_bytes()).collect()),
            DType::F32 => (Dtype::F32, values.flat_map(|&v| (v as f32).to_le_bytes()).collect()),
            DType::BF16 => (Dtype::BF16, values.flat_map(|&v| bf16::from_f64(v).to_le_bytes()).collect()),
            DType::F16 => (Dtype::F16, values.flat_map(|&v| f16::from_f64(v).to_le_bytes()).collect()),
        };
        Ok(Self { dtype, shape: shape.to_vec(), bytes })
    }

    /// Stores integers in 64 bits.
    pub fn from_integers(shape: &[usize], values: &[i64]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { dtype: Dtype::I64, shape: shape.to_vec(), bytes }
    }

    /// Stores truth values.
    pub fn from_booleans(shape: &[usize], values: &[bool]) -> Self {
        let bytes = values.iter().map(|&v| u8::from(v)).collect();
        Self { dtype: Dtype::BOOL, shape: shape.to_vec(), bytes }
    }

    /// The same elements in another shape; `None` if it has another number of elements.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        let elements = |shape: &[usize]| gradewise_core::Shape::from(shape).elements();
        (elements(shape) == elements(&self.shape)).then(|| Self { shape: shape.to_vec(), ..self.clone() })
    }

    /// The tensor with axis `axes[k]` in place k, bit for bit; `None` unless `axes` are all axes in some order, and for elements
    /// of less than a byte.
    pub fn permuted(&self, axes: &[usize]) -> Option<Self> {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.shape.len()) {
            return None;
        }
        let shape: Vec<usize> = axes.iter().map(|&axis| self.shape[axis]).collect();
        let elements = gradewise_core::Shape::from(&shape[..]).elements();
        if elements == 0 {
            return Some(Self { shape, ..self.clone() });
        }
        let size = self.bytes.len() / elements;
        if size * elements != self.bytes.len() {
            return None;
        }
        let strides = gradewise_core::Shape::from(&self.shape[..]).contiguous_strides();
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut index = vec![0; shape.len()];
        for _ in 0..elements {
            let source: usize = index.iter().zip(axes).map(|(&i, &axis)| i * strides[axis]).sum();
            bytes.extend_from_slice(&self.bytes[source * size..(source + 1) * size]);
            for (position, &extent) in index.iter_mut().zip(&shape).rev() {
                *position += 1;
                if *position < extent {
                    break;
                }
                *position = 0;
            }
        }
        Some(Self { dtype: self.dtype, shape, bytes })
    }

    /// Sizes along the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The dtype, if arrays support it.
    pub fn dtype(&self) -> Option<DType> {
        match self.dtype {
            Dtype::F64 => Some(DType::F64),
            Dtype::F32 => Some(DType::F32),
            Dtype::BF16 => Some(DType::BF16),
            Dtype::F16 => Some(DType::F16),
            _ => None,
        }
    }

    /// The dtype's name in lower case: `f32`, `i64`, `bool`, …
    pub fn dtype_name(&self) -> String {
        format!("{:?}", self.dtype).to_lowercase()
    }

    /// Size of the data in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The values in row-major order; `None` for dtypes that are not plain real numbers (complex, 4 to 8-bit
    /// floats). Integers beyond 2⁵³ are rounded.
    pub fn to_f64_vec(&self) -> Option<Vec<f64>> {
        fn decode<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Option<Vec<f64>> {
            Some(bytes.as_chunks::<N>().0.iter().map(|&chunk| value(chunk)).collect())
        }
        let bytes = &self.bytes;
        match self.dtype {
            Dtype::F64 => decode(bytes, f64::from_le_bytes),
            Dtype::F32 => decode(bytes, |b| f32::from_le_bytes(b).into()),
            Dtype::BF16 => decode(bytes, |b| bf16::from_le_bytes(b).to_f64()),
            Dtype::F16 => decode(bytes, |b| f16::from_le_bytes(b).to_f64()),
            Dtype::I64 => decode(bytes, |b| i64::from_le_bytes(b) as f64),
            Dtype::U64 => decode(bytes, |b| u64::from_le_bytes(b) as f64),
            Dtype::I32 => decode(bytes, |b| i32::from_le_bytes(b).into()),
            Dtype::U32 => decode(bytes, |b| u32::from_le_bytes(b).into()),
            Dtype::I16 => decode(bytes, |b| i16::from_le_bytes(b).into()),
            Dtype::U16 => decode(bytes, |b| u16::from_le_bytes(b).into()),
            Dtype::I8 => decode(bytes, |b| i8::from_le_bytes(b).into()),
            Dtype::U8 | Dtype::BOOL => decode(bytes, |[b]: [u8; 1]| b.into()),
            _ => None,
        }
    }
}
