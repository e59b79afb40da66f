//! Lists of indices that are checked once.

use crate::{Array, DType, Device, Error, Result, cuda::Words};
use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// A list of indices below a known bound, checked when it is made, resident on a device, and cheap to clone.
///
/// Used to select along an axis and to name the segment of each element along one.
#[derive(Clone)]
pub struct Index(Arc<Inner>);

struct Inner {
    values: Vec<u32>,
    bound: usize,
    device: Device,
    groups: OnceLock<Groups>,
    resident: Option<Resident>,
    reciprocals: Mutex<Vec<(DType, Array)>>,
}

/// The lists in a device's memory: from the start, because a captured graph cannot wait for a transfer.
pub(crate) struct Resident {
    pub values: Words,
    /// As in [`Groups`].
    pub starts: Words,
    pub order: Words,
}

/// Positions of a list of indices, grouped by value.
pub(crate) struct Groups {
    /// `order[starts[v]..starts[v + 1]]` are the positions where the value is `v`.
    pub starts: Vec<u32>,
    /// Positions, ascending within a group.
    pub order: Vec<u32>,
}

impl Index {
    /// A list of indices, each less than `bound`.
    ///
    /// # Errors
    /// [`Error::Index`] at the first one that is not; [`Error::Argument`] if the bound or the length exceeds 2³² − 1.
    pub fn new(values: &[usize], bound: usize, device: &Device) -> Result<Self> {
        const NAME: &str = "Index::new";
        let limit = u32::MAX as usize;
        for (argument, size) in [("bound", bound), ("values", values.len())] {
            if size > limit {
                let actual = size.to_string();
                return Err(Error::Argument {
                    operation: NAME,
                    argument,
                    actual,
                    expected: "at most 2³² − 1",
                });
            }
        }
        let check = |(position, &value): (usize, &usize)| {
            if value < bound {
                Ok(value as u32)
            } else {
                Err(Error::Index { operation: NAME, position, value, bound })
            }
        };
        let values: Vec<u32> = values.iter().enumerate().map(check).collect::<Result<_>>()?;
        let groups = OnceLock::new();
        let resident = match device {
            Device::Cpu => None,
            Device::Cuda(cuda) => {
                let words = |values: &[u32]| Words::new(cuda, NAME, values);
                let Groups { starts, order } = groups.get_or_init(|| Groups::of(&values, bound));
                Some(Resident { values: words(&values)?, starts: words(starts)?, order: words(order)? })
            }
        };
        Ok(Self(Arc::new(Inner {
            values,
            bound,
            device: device.clone(),
            groups,
            resident,
            reciprocals: Mutex::default(),
        })))
    }

    /// Number of indices.
    pub fn len(&self) -> usize {
        self.0.values.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.values.is_empty()
    }

    /// What every index is less than.
    pub fn bound(&self) -> usize {
        self.0.bound
    }

    /// Where the list is.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The same list on another device.
    ///
    /// # Errors
    /// If the device has no memory.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if device == self.device() {
            Ok(self.clone())
        } else {
            Self::new(&self.to_vec(), self.bound(), device)
        }
    }

    /// Whether both lists hold the same indices below the same bound, wherever they are.
    pub fn same_indices(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.bound() == other.bound() && self.values() == other.values())
    }

    /// 1 / (how often each value occurs), or 1 for a value that does not: `[bound]` in `dtype`, computed once.
    ///
    /// # Errors
    /// If the device has no memory.
    pub fn reciprocal_counts(&self, dtype: DType) -> Result<Array> {
        let mut known = self.0.reciprocals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, array)) = known.iter().find(|(of, _)| *of == dtype) {
            return Ok(array.clone());
        }
        let mut counts = vec![0.0f64; self.bound()];
        for &value in self.values() {
            counts[value as usize] += 1.0;
        }
        let weights: Vec<f64> = counts.iter().map(|count| 1.0 / count.max(1.0)).collect();
        let array = Array::from_f64(&weights, [self.bound()], dtype, self.device())?;
        known.push((dtype, array.clone()));
        Ok(array)
    }

    /// The indices.
    pub fn to_vec(&self) -> Vec<usize> {
        self.values().iter().map(|&value| value as usize).collect()
    }

    pub(crate) fn values(&self) -> &[u32] {
        &self.0.values
    }

    /// The positions grouped by value, computed on first use: a sum over each group in ascending order is a
    /// deterministic scatter-add, whatever the number of threads.
    pub(crate) fn groups(&self) -> &Groups {
        self.0.groups.get_or_init(|| Groups::of(self.values(), self.bound()))
    }

    /// The lists in the memory of the device; `None` on the host.
    pub(crate) fn resident(&self) -> Option<&Resident> {
        self.0.resident.as_ref()
    }
}

impl Groups {
    fn of(values: &[u32], bound: usize) -> Self {
        let mut starts = vec![0u32; bound + 1];
        for &value in values {
            starts[value as usize + 1] += 1;
        }
        for value in 0..bound {
            starts[value + 1] += starts[value];
        }
        let mut next = starts.clone();
        let mut order = vec![0; values.len()];
        for (position, &value) in values.iter().enumerate() {
            let slot = &mut next[value as usize];
            order[*slot as usize] = position as u32;
            *slot += 1;
        }
        Self { starts, order }
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({} indices below {} on {})", self.len(), self.bound(), self.device())
    }
}
