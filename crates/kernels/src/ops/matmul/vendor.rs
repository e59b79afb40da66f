//! Plain products by cuBLASLt, where it is wanted, present and faster.
//!
//! `GRADEWISE_CUBLASLT=1` asks for it: the first product of a shape is then computed by our kernels and by the library's
//! candidates, a few times each, and the fastest serves that shape from then on. Without the variable our kernels are used
//! always, because a choice by measurement may fall out differently the next time, and other kernels round otherwise.

use super::Matrices;
use crate::{Array, Compute, CudaDevice, DType, Result, cpu::gemm::Sizes, runtime::cuda::Key};
use gradewise_ffi::{
    Event,
    cublaslt::{CublasLt, Element, Handle, Plan, Product},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Multiply-adds from which a measurement pays.
const WORTH_MEASURING: usize = 1 << 22;
/// The library's candidates that are tried, all without workspace.
const CANDIDATES: usize = 4;

/// The library on one device, and the choice for each product.
struct Vendor {
    handle: Handle,
    choices: Mutex<HashMap<Product, Choice>>,
}

/// The library's plan and the candidate that won; `None` if our kernels did.
type Choice = Option<Arc<(Plan, usize)>>;

impl Vendor {
    /// The library, or `None` with the reason in the log.
    fn of(device: &CudaDevice) -> Result<Arc<Option<Self>>> {
        device.constant(Key::Device, || {
            let handle = CublasLt::load().and_then(|library| Handle::new(&library, device.context()));
            let handle = handle.inspect_err(|error| {
                tracing::warn!("GRADEWISE_CUBLASLT=1, but our own kernels are used: {error}");
            });
            Ok(handle.ok().map(|handle| Self { handle, choices: Mutex::default() }))
        })
    }
}

/// The library's element type for `dtype` in the compute mode in force.
fn element(dtype: DType) -> Element {
    match (dtype, Compute::current()) {
        (DType::F64, _) => Element::F64,
        (DType::F32, Compute::Exact) => Element::F32,
        (DType::F32, Compute::Tf32) => Element::Tf32,
        (DType::BF16, _) => Element::Bf16,
        (DType::F16, _) => Element::F16,
    }
}

/// Computes `out` by the library if that is enabled and was measured to be faster; returns whether it did. `ours` computes it otherwise.
pub(super) fn product(
    device: &CudaDevice,
    sizes: Sizes,
    count: usize,
    [a, b]: [&Matrices; 2],
    out: &Array,
    ours: &dyn Fn() -> Result<()>,
) -> Result<bool> {
    let Sizes { m, n, k } = sizes;
    if !device.options().cublaslt || count == 0 || (m * n).saturating_mul(k * count) < WORTH_MEASURING {
        return Ok(false);
    }
    let vendor = Vendor::of(device)?;
    let Some(vendor) = vendor.as_ref() else { return Ok(false) };
    let stride = |size: usize| if count == 1 { 0 } else { size as i64 };
    let addresses = [&a.array, &b.array, out].map(Array::cuda_address);
    let [a_size, b_size] = [a, b].map(|matrices| matrices.rows * matrices.columns);
    let bytes = [a_size, b_size, m * n].map(|size| (stride(size) as usize * out.dtype().size()) as u64);
    let alignment = addresses.into_iter().chain(bytes).fold(256u64, |all, one| all | one).trailing_zeros();
    let product = Product {
        transpose_a: a.transpose,
        transpose_b: b.transpose,
        batch: u32::try_from(count).unwrap_or(0),
        batch_strides: [stride(a_size), stride(b_size), stride(m * n)],
        alignment: 1 << alignment.min(8),
        ..Product::new(m as u64, k as u64, n as u64, element(out.dtype()))
    };
    if product.batch == 0 {
        return Ok(false);
    }
    let choices = || vendor.choices.lock().unwrap_or_else(PoisonError::into_inner);
    let known = choices().get(&product).cloned();
    let choice = match known {
        Some(choice) => choice,
        // Nothing can be measured inside a capture.
        None if device.gate().is_mine() => None,
        None => {
            let choice = fastest(device, vendor, &product, addresses, ours)?.map(Arc::new);
            choices().insert(product, choice.clone());
            choice
        }
    };
    let Some(choice) = choice else { return Ok(false) };
    let (plan, algorithm) = choice.as_ref();
    run(device, plan, *algorithm, addresses)?;
    Ok(true)
}

fn run(device: &CudaDevice, plan: &Plan, algorithm: usize, [a, b, out]: [u64; 3]) -> Result<()> {
    device.settle()?;
    let _gate = device.gate().enter();
    let describe = || "a product by cuBLASLt".to_owned();
    device.queue(super::NAME, describe, || {
        // SAFETY: the arrays have the plan's shapes, dtype and alignment, of which it was made; the caller's borrows keep them,
        // and their memory is returned in the order of this same stream; `out` is new or the caller's own to write.
        unsafe { plan.run(algorithm, device.stream(), 1.0, [a, b], 0.0, out, None) }
    })
}

/// The library's fastest candidate if it is faster than `ours`.
fn fastest(
    device: &CudaDevice,
    vendor: &Vendor,
    product: &Product,
    addresses: [u64; 3],
    ours: &dyn Fn() -> Result<()>,
) -> Result<Option<(Plan, usize)>> {
    const ROUNDS: usize = 5;
    let fail = |error| device.error(super::NAME, error);
    let Ok(plan) = vendor.handle.plan(product, 0, CANDIDATES) else { return Ok(None) };
    let time = |work: &dyn Fn() -> Result<()>| -> Result<f32> {
        let mut best = f32::INFINITY;
        for _ in 0..ROUNDS {
            let [start, end] = [Event::new(device.context(), true), Event::new(device.context(), true)];
            let (start, end) = (start.map_err(fail)?, end.map_err(fail)?);
            start.record(device.stream()).map_err(fail)?;
            work()?;
            end.record(device.stream()).map_err(fail)?;
            end.synchronize().map_err(fail)?;
            best = best.min(end.milliseconds_since(&start).map_err(fail)?);
        }
        Ok(best)
    };
    let own = time(ours)?;
    let mut found = (own, None);
    for algorithm in 0..plan.algorithms() {
        // One that fails is not chosen.
        if let Ok(theirs) = time(&|| run(device, &plan, algorithm, addresses))
            && theirs < found.0
        {
            found = (theirs, Some(algorithm));
        }
    }
    tracing::debug!("{product:?}: {own} ms by our kernels, at best {} ms", found.0);
    Ok(found.1.map(|algorithm| (plan, algorithm)))
}
