//! Work whose operators on elements are computed together where PyTorch captures.

use super::Here;
use gradewise_core::{DType, PerAxis};
use gradewise_ffi::sys::CUstream;
use gradewise_kernels::{Array, Device};
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// What the kernels of some work depend on, apart from dtype and device.
#[derive(PartialEq, Eq, Hash)]
pub struct Kind {
    is_backward: bool,
    needs: Vec<bool>,
    shapes: Vec<PerAxis>,
}

impl Kind {
    /// Of forward or backward passes, by the inputs whose gradients a history keeps something for, and by inputs or gradients of the result.
    pub fn new(is_backward: bool, needs: &[bool], arrays: &[Array]) -> Self {
        let shapes = arrays.iter().map(|array| PerAxis::from(array.dims())).collect();
        Self { is_backward, needs: needs.into(), shapes }
    }
}

/// The most kinds for which kernels are compiled: each takes seconds.
const MOST_KINDS: usize = 64;

/// Kinds of work whose kernels are there.
#[derive(Default)]
pub struct Fused(Mutex<HashSet<(Kind, DType, usize)>>);

impl Here {
    /// As [`run`](Self::run), with operators on elements of a GPU computed [together](gradewise_kernels::CudaDevice::fused) under captures: a
    /// launch costs the host less than finding out what to fuse, and a replay nothing. So are those of the first call of a kind in a stream that
    /// is not the default one, where PyTorch has whoever captures warm up: its kernels are compiled then.
    pub fn run_as<R: Send, E: From<gradewise_kernels::Error> + Send>(
        &self,
        kind: Option<(&Fused, Kind)>,
        work: impl FnOnce() -> Result<R, E> + Send,
    ) -> Result<R, E> {
        let (Device::Cuda(device), Some((fused, kind))) = (&self.device, kind) else { return self.run(work) };
        let kind = (kind, self.dtype, device.ordinal());
        let kinds = || fused.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(|| {
            let (is_known, is_full) = {
                let known = kinds();
                (known.contains(&kind), known.len() >= MOST_KINDS)
            };
            let is_captured = device.is_captured()?;
            let warms_up = self.stream != CUstream::NULL && !is_known && !is_full;
            if !(if is_captured { is_known } else { warms_up }) {
                return work();
            }
            let value = device.fused(work)?;
            if !is_captured {
                kinds().insert(kind);
            }
            Ok(value)
        })
    }
}
