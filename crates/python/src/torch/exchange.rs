//! Describes tensors of PyTorch by a C function (DLPack's exchange API), which versions from 2.10 on have. It takes a twentieth of the time
//! of reading each property in Python.

use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLPackExchangeAPI, DLTensor};
use gradewise_core::{DType, PerAxis};
use pyo3::{ffi, prelude::*, types::PyCapsule};
use std::{ffi::c_int, ptr};

/// The functions that PyTorch offers.
pub struct Exchange {
    describe: unsafe extern "C" fn(*mut std::ffi::c_void, *mut DLTensor) -> c_int,
}

/// A tensor as its framework describes it.
pub struct Described {
    pub address: u64,
    pub dtype: Option<DType>,
    /// The number of the CUDA device; -1 for the CPU.
    pub device: i64,
    pub shape: PerAxis,
    pub strides: PerAxis,
}

impl Exchange {
    /// The functions of the class of tensors, if its version has them.
    pub fn of(class: &Bound<'_, PyAny>) -> Option<Self> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?.cast_into::<PyCapsule>().ok()?;
        let api = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?.cast::<DLPackExchangeAPI>();
        // SAFETY: the capsule of this name holds this struct, which its framework keeps for ever.
        let api = unsafe { api.as_ref() };
        if api.header.version.major != 1 {
            return None;
        }
        Some(Self { describe: api.dltensor_from_py_object_no_sync? })
    }

    /// The framework's description of a tensor; `None` for one that it cannot describe, such as a sparse one.
    pub fn describe(&self, tensor: &Bound<'_, PyAny>) -> Option<Described> {
        let mut described = DLTensor {
            data: ptr::null_mut(),
            device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
            ndim: 0,
            dtype: DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 1 },
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        // SAFETY: the object is of the class whose function this is, and alive; the struct is valid for the write. What it points to
        // belongs to the tensor, and is copied here.
        if unsafe { (self.describe)(tensor.as_ptr().cast(), &raw mut described) } != 0 {
            // SAFETY: this thread is attached to the interpreter; the exception is reported as `None`.
            unsafe { ffi::PyErr_Clear() };
            return None;
        }
        let axes = usize::try_from(described.ndim).ok()?;
        let sizes = |pointer: *const i64| -> Option<PerAxis> {
            if axes == 0 {
                return Some(PerAxis::new());
            }
            // SAFETY: as many numbers as there are axes, of the tensor, which is alive.
            let numbers =
                (!pointer.is_null()).then(|| unsafe { std::slice::from_raw_parts(pointer, axes) })?;
            numbers.iter().map(|&number| usize::try_from(number).ok()).collect()
        };
        let device = match described.device.device_type {
            DLDeviceType::CPU => -1,
            DLDeviceType::CUDA => i64::from(described.device.device_id),
            _ => return None,
        };
        let DLDataType { code, bits, lanes } = described.dtype;
        let dtype = match (code, bits, lanes) {
            (DLDataTypeCode::FLOAT, 64, 1) => Some(DType::F64),
            (DLDataTypeCode::FLOAT, 32, 1) => Some(DType::F32),
            (DLDataTypeCode::FLOAT, 16, 1) => Some(DType::F16),
            (DLDataTypeCode::BFLOAT, 16, 1) => Some(DType::BF16),
            _ => None,
        };
        let address = described.data.expose_provenance() as u64 + described.byte_offset;
        Some(Described {
            address,
            dtype,
            device,
            shape: sizes(described.shape)?,
            strides: sizes(described.strides)?,
        })
    }
}
