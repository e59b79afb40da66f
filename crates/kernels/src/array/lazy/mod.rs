//! Values on the host that are computed when they are needed, several operators at once.
//!
//! In a [scope](crate::Device::fused) an operator on elements does not compute its result: the array that it returns has a [`Value`], which
//! says what it is computed from and how. Reading the array computes it, together with everything that it follows from and that waits too:
//! block of rows by block of rows, so that what one operator writes is in the cache when the next one reads it ([`host`]). What nothing
//! holds any more is never written to an array, and what nothing reads is never computed.
//!
//! The bits are those of the operators one by one. Each computes a block by the code that computes its whole array otherwise, in memory of
//! the block's own; no element depends on how the others are divided into blocks.
//!
//! A value owns what it reads: arrays share their storage with it, so that whatever writes to one of them in place copies it first. It can
//! be computed by any thread, at any time, and by two threads at once: whoever is first stores the result, and the other one's is dropped.

mod host;
#[cfg(test)]
mod tests;

pub(crate) use host::{Function, Host, Source, Value};

use super::{Array, Storage, layout::collapse};
use crate::{
    DType, Device, Error, Options, Result,
    runtime::{
        common_divisor, debug,
        memory::{account, census},
    },
};
use gradewise_core::Shape;
use host::{Local, Operand};
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Weak},
};

/// The fewest elements for which describing a value pays, where its operands do not wait. Unit tests have small arrays.
const LEAST: usize = if cfg!(test) { 1 } else { 2048 };

/// The longest chain of values that wait. Their descriptions are dropped one inside the other.
const LONGEST: usize = 128;

/// The most values that wait at a time: each keeps the memory of its operands.
const MOST_WAITING: usize = 512;

/// The values of a scope of this thread that may still wait.
#[derive(Default)]
struct Recording {
    /// By the address of their storage, with their number in the order in which operators described them.
    waiting: HashMap<usize, (usize, Weak<Host>)>,
    next: usize,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

impl Device {
    /// Runs `work`. Operators on elements that this thread calls meanwhile on this device may wait, to be computed together; the bits are the
    /// same. What arrays hold afterwards is computed, or queued on a CUDA device, when this returns.
    ///
    /// Inside of another scope, in [debug mode](crate::runtime::debug), under a [census](crate::runtime::memory::census) and without fusion
    /// ([`Options::fuse`]), `work` is all that runs.
    ///
    /// ```
    /// use gradewise_kernels::{Array, DType, Device, Error, ops};
    ///
    /// let x = Array::full([1000, 30], 2.0, DType::F32, &Device::Cpu)?;
    /// // Three passes over memory become one: neither the square nor the sum with 1 is an array.
    /// let root = Device::Cpu.fused(|| ops::sqrt(&ops::add_scalar(&ops::square(&x)?, 1.0)?))?;
    /// assert_eq!(root.to_vec::<f32>()?, [5f32.sqrt(); 30_000]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`; if there is no memory for what it computes; [`Error::Cuda`] from the driver.
    pub fn fused<R, E: From<Error>>(&self, work: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        if let Self::Cuda(cuda) = self {
            return cuda.fused(work);
        }
        if is_recording() || debug::is_on() || census::is_on() || !Options::from_environment()?.fuse {
            return work();
        }
        RECORDING.set(Some(Recording::default()));
        let scope = Scope;
        let result = work()?;
        settle(usize::MAX)?;
        drop(scope);
        Ok(result)
    }
}

/// Ends the recording of this thread, whether its work succeeds, fails or panics. Values that are still held can be computed later.
struct Scope;

impl Drop for Scope {
    fn drop(&mut self) {
        RECORDING.set(None);
    }
}

/// Whether operators of this thread describe values.
pub(crate) fn is_recording() -> bool {
    RECORDING.with_borrow(Option::is_some)
}

/// Computes the oldest `most` of the values that something holds, of these the newest first: what only newer ones read is not written.
fn settle(most: usize) -> Result<()> {
    let all = RECORDING.with_borrow(|recording| {
        let waiting = recording.iter().flat_map(|recording| recording.waiting.values().cloned());
        let mut all: Vec<_> = waiting.collect();
        all.sort_unstable_by_key(|(number, _)| usize::MAX - number);
        all
    });
    let skipped = all.len() - most.min(all.len());
    for (_, host) in all.into_iter().skip(skipped) {
        if let Some(host) = host.upgrade() {
            host.block()?;
        }
    }
    RECORDING.with_borrow_mut(|recording| {
        if let Some(recording) = recording {
            recording.waiting.retain(|_, (_, host)| host.upgrade().is_some_and(|host| host.waits()));
        }
    });
    Ok(())
}

/// Forgets a value of this thread that has been computed, so that its array can be written to in place.
fn forget(host: &Arc<Host>) {
    // While a thread ends, there is nothing to forget.
    let _ = RECORDING.try_with(|recording| {
        if let Ok(mut recording) = recording.try_borrow_mut()
            && let Some(recording) = recording.as_mut()
        {
            recording.waiting.remove(&Arc::as_ptr(host).addr());
        }
    });
}

/// What an operator says of its result instead of computing it.
pub(crate) struct Description<'a> {
    pub operation: &'static str,
    pub dtype: DType,
    pub shape: &'a Shape,
    pub operands: &'a [(&'a Array, Reads<'a>)],
    /// The number of equal parts of the result that can be computed apart from each other; 0 if any elements can.
    pub parts: usize,
    /// Whether subnormal numbers are moved as they are, instead of counting as zero.
    pub is_exact: bool,
    pub function: Box<dyn Function>,
}

/// What elements of an operand the elements of a result are computed from.
#[derive(Clone, Copy)]
pub(crate) enum Reads<'a> {
    /// Those at the same position of the operand, a view of the shape of the result.
    Same,
    /// For one of so many equal parts of the result, the same part of the operand, a view of any shape.
    Part,
    /// For the position of these sizes, at these strides, and at what is less than `inside` beyond.
    Strided { sizes: &'a [usize], strides: &'a [usize], inside: usize },
}

impl Array {
    /// Whether the array's value waits to be computed on the host.
    pub(crate) fn waits_on_host(&self) -> bool {
        matches!(&self.storage, Storage::Cpu(host) if host.waits())
    }

    /// Whether the result of an operator on elements of these operands, of so many elements, should be described.
    pub(crate) fn describes(elements: usize, operands: &[&Self]) -> bool {
        elements > 0
            && is_recording()
            && (elements >= LEAST || operands.iter().any(|operand| operand.waits_on_host()))
    }

    /// Whether an operand that waits would be computed block by block together with what reads it so.
    pub(crate) fn is_local(&self, reads: Reads<'_>) -> bool {
        self.waits_on_host() && !matches!(self.local(reads), Local::No)
    }

    /// How positions of a result lead to elements of the storage.
    fn local(&self, reads: Reads<'_>) -> Local {
        let stored = self.storage_bytes() / self.dtype.size();
        let is_all = |sizes: &[usize], strides: &[usize]| {
            self.offset == 0
                && matches!((sizes, strides), ([], _) | ([_], [1]))
                && sizes.first().copied().unwrap_or(1) == stored
        };
        let rows = |sizes: &[usize], strides: &[usize], inside: usize| {
            let ([leading, sizes @ ..], [step, strides @ ..]) = (sizes, strides) else { return Local::No };
            let inner: usize = sizes.iter().zip(strides).map(|(size, step)| (size - 1) * step).sum();
            let fits = leading * step == stored && self.offset + inner + inside <= *step;
            if fits { Local::Rows(*leading) } else { Local::No }
        };
        match reads {
            Reads::Strided { sizes, strides, inside } => rows(sizes, strides, inside),
            Reads::Same | Reads::Part => {
                let (sizes, [strides]) = collapse(self.dims(), [&self.strides[..]]);
                if is_all(&sizes, &strides) { Local::Same } else { rows(&sizes, &strides, 1) }
            }
        }
    }

    /// An array whose elements are computed when they are needed.
    pub(crate) fn waiting(description: Description<'_>) -> Result<Self> {
        let Description { operation, dtype, shape, operands, parts, is_exact, function } = description;
        let elements = shape.elements();
        let mut found = Vec::with_capacity(operands.len());
        let mut depth = 0;
        for &(array, reads) in operands {
            let Storage::Cpu(host) = &array.storage else {
                let device = array.device();
                return Err(Error::NotOnHost { operation, device });
            };
            let mut local = Local::No;
            if host.waits() {
                local = array.local(reads);
                depth = depth.max(host.depth());
            }
            found.push(Operand { host: Arc::clone(host), local });
        }
        if depth >= LONGEST {
            for operand in &mut found {
                operand.host.block()?;
            }
            depth = 0;
        }
        let value = Value {
            operation: account(operation),
            dtype,
            elements,
            depth: depth + 1,
            operands: found,
            rows: common_divisor(elements, parts),
            is_exact,
            function,
        };
        let host = Arc::new(Host::waiting(elements * dtype.size(), value));
        let is_full = RECORDING.with_borrow_mut(|recording| {
            let Some(recording) = recording else { return false };
            let entry = (recording.next, Arc::downgrade(&host));
            recording.next += 1;
            recording.waiting.insert(Arc::as_ptr(&host).addr(), entry);
            recording.waiting.len() >= MOST_WAITING
        });
        if is_full {
            settle(MOST_WAITING / 2)?;
        }
        let strides = shape.contiguous_strides();
        Ok(Self { storage: Storage::Cpu(host), dtype, shape: shape.clone(), strides, offset: 0 })
    }
}
