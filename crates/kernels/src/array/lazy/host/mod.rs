//! Storage on the host, which may wait to be computed, and what it is computed from.

pub(super) mod plan;
mod run;

use crate::{DType, Element, Result, runtime::memory::Block};
use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Storage on the host: memory, or a value that will be in it.
pub(crate) struct Host {
    bytes: usize,
    block: OnceLock<Block>,
    /// What the memory will hold, until it is computed.
    value: Mutex<Option<Arc<Value>>>,
}

impl Host {
    pub fn new(block: Block) -> Self {
        Self { bytes: block.bytes().len(), block: OnceLock::from(block), value: Mutex::new(None) }
    }

    /// Storage of so many bytes that is computed once it is read.
    pub(super) fn waiting(bytes: usize, value: Value) -> Self {
        Self { bytes, block: OnceLock::new(), value: Mutex::new(Some(Arc::new(value))) }
    }

    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// Whether it is not computed yet.
    pub fn waits(&self) -> bool {
        self.block.get().is_none()
    }

    /// The memory, if it is computed.
    pub fn computed(&self) -> Option<&Block> {
        self.block.get()
    }

    /// The memory, for whoever has the only handle of the storage; `None` if it is not computed.
    pub fn computed_mut(&mut self) -> Option<&mut Block> {
        self.block.get_mut()
    }

    /// The memory. Computes it, with all that it follows from, if it waits.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn block(self: &Arc<Self>) -> Result<&Block> {
        loop {
            match self.block.get() {
                Some(block) => return Ok(block),
                None => run::compute(self)?,
            }
        }
    }

    /// What it is computed from, while it waits.
    pub(super) fn value(&self) -> Option<Arc<Value>> {
        self.lock().clone()
    }

    /// How many values that wait follow from each other up to this one; 0 if it does not wait.
    pub(super) fn depth(&self) -> usize {
        self.lock().as_ref().map_or(0, |value| value.depth)
    }

    /// Stores what was computed, unless another thread has.
    pub(super) fn store(&self, block: Block) {
        // A block that came too late is dropped.
        let _ = self.block.set(block);
        let value = self.lock().take();
        // The lock is free while operands are dropped, and what they wait for in turn.
        drop(value);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Value>>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an operator computes elements of its result.
pub(crate) trait Function: Send + Sync {
    /// Writes the elements from `first` on, in row-major order, to `out`. There is a source for each operand.
    fn compute(&self, sources: &[Source<'_>], first: usize, out: &mut [u8]);
}

/// A stretch of the storage of an operand.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub bytes: &'a [u8],
    /// The element of the storage that is the first one here.
    pub start: usize,
}

impl<'a> Source<'a> {
    /// The elements.
    pub fn elements<T: Element>(&self) -> &'a [T] {
        bytemuck::cast_slice(self.bytes)
    }
}

/// A result that waits, and what it is computed from.
pub(crate) struct Value {
    /// On whose account its memory will be.
    pub(super) operation: &'static str,
    pub(super) dtype: DType,
    pub(super) elements: usize,
    pub(super) depth: usize,
    pub(super) operands: Vec<Operand>,
    /// Into how many equal parts the result can be divided, or its divisors.
    pub(super) rows: usize,
    pub(super) is_exact: bool,
    pub(super) function: Box<dyn Function>,
}

impl Value {
    pub(super) fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }
}

/// The storage that an operand is in, and how it was read if it waited.
pub(super) struct Operand {
    pub host: Arc<Host>,
    pub local: Local,
}

/// Which part of an operand's storage a part of a result follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Local {
    /// The same elements.
    Same,
    /// Of so many equal parts, or a divisor of that, the same one.
    Rows(usize),
    /// Any elements: the operand is computed before.
    No,
}

/// A range of rows, in units of `size`.
pub(super) fn scaled(rows: &Range<usize>, size: usize) -> Range<usize> {
    rows.start * size..rows.end * size
}
