//! cuBLASLt's matrix products, for comparison.

use super::Timer;
use crate::{Case, Result};
use gradewise_core::DType;
use gradewise_ffi::{
    DeviceMemory,
    cublaslt::{CublasLt, Element, Handle, Product},
};
use gradewise_kernels::{Array, Compute, CudaDevice, Device};
use half::{bf16, f16};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The library on one device.
pub struct Vendor {
    handle: Handle,
    version: (u32, u32, u32),
}

/// Bytes of workspace for the library.
const WORKSPACE: usize = 64 << 20;
/// The number of algorithms of the library that are timed.
const CANDIDATES: usize = 8;

impl Vendor {
    /// The library, if it is found. `GRADEWISE_CUBLASLT` names the file or its folder.
    ///
    /// # Errors
    /// The library is not found; the error lists everything that was tried.
    pub fn open(device: &CudaDevice) -> Result<Self> {
        let library = CublasLt::load()?;
        let handle = Handle::new(&library, device.context())?;
        Ok(Self { version: library.version()?, handle })
    }

    /// Name and version, such as `cuBLASLt 13.0.2`.
    pub fn name(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("cuBLASLt {major}.{minor}.{patch}")
    }

    /// The median time in milliseconds of an m × k by k × n product with the library's fastest algorithm.
    ///
    /// # Errors
    /// From the device or the library.
    pub fn product(&self, timer: &Timer, (m, k, n): (usize, usize, usize), element: Element) -> Result<f64> {
        let stream = timer.device().stream();
        let product = Product { alignment: 256, ..Product::new(m as u64, k as u64, n as u64, element) };
        let plan = self.handle.plan(&product, WORKSPACE, CANDIDATES)?;
        let (a, b) = (matrix(timer, m * k, element, 6)?, matrix(timer, k * n, element, 7)?);
        let out = matrix(timer, m * n, element, 8)?;
        let workspace = DeviceMemory::new(stream, WORKSPACE)?;
        let mut best = f64::INFINITY;
        for algorithm in 0..plan.algorithms() {
            let times = timer.times(|| {
                let addresses = [a.pointer(), b.pointer()];
                // SAFETY: the blocks have the plan's sizes and element type and the alignment of allocations; they live
                // to the end of this function, their release follows in the order of the same stream, and nothing else
                // uses them.
                unsafe {
                    plan.run(algorithm, stream, 1.0, addresses, 0.0, out.pointer(), Some(&workspace))?;
                }
                Ok(())
            })?;
            best = best.min(times.median());
        }
        Ok(best)
    }
}

/// The library's element type and arithmetic for a case.
pub(super) fn element(case: &Case) -> Element {
    match (case.dtype, case.compute) {
        (DType::F64, _) => Element::F64,
        (DType::F32, Compute::Exact) => Element::F32,
        (DType::F32, Compute::Tf32) => Element::Tf32,
        (DType::BF16, _) => Element::Bf16,
        (DType::F16, _) => Element::F16,
    }
}

/// A matrix of random numbers: the rate of tensor cores depends on how many bits of the operands change.
fn matrix(timer: &Timer, elements: usize, element: Element, seed: u64) -> Result<DeviceMemory> {
    let dtype = match element {
        Element::F64 => DType::F64,
        Element::F32 | Element::Tf32 => DType::F32,
        Element::Bf16 => DType::BF16,
        Element::F16 => DType::F16,
    };
    const STRETCH: usize = 1 << 20;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let stretch = Array::randn([elements.min(STRETCH)], dtype, &Device::Cpu, &mut rng)?;
    let bytes: Vec<u8> = match dtype {
        DType::F64 => stretch.to_vec::<f64>()?.into_iter().flat_map(f64::to_le_bytes).collect(),
        DType::F32 => stretch.to_vec::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect(),
        DType::BF16 => stretch.to_vec::<bf16>()?.into_iter().flat_map(bf16::to_le_bytes).collect(),
        DType::F16 => stretch.to_vec::<f16>()?.into_iter().flat_map(f16::to_le_bytes).collect(),
    };
    let block = DeviceMemory::new(timer.device().stream(), elements * dtype.size())?;
    let mut at = 0;
    while at < block.bytes() {
        let part = bytes.len().min(block.bytes() - at);
        block.write(at, &bytes[..part])?;
        at += part;
    }
    Ok(block)
}
