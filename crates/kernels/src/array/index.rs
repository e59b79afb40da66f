//! Lists of indices that are checked once.

use crate::{
    Array, CudaDevice, DType, Device, Error, Result,
    runtime::{
        common_divisor,
        cuda::{Buffer, Key},
        external::Owner,
    },
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A list of indices below a known bound, checked when it is made, resident on a device, and cheap to clone.
///
/// Used to select along an axis and to name the segment of each element along one.
#[derive(Clone)]
pub struct Index(Arc<Inner>);

struct Inner {
    /// `None` until something on the host asks for the indices of a [`borrowed`](Index::borrow) list, and always of one that kernels write.
    lists: RwLock<Option<Arc<Lists>>>,
    length: usize,
    bound: usize,
    device: Device,
    resident: Option<Resident>,
    /// Whether [`Index::overwrite`] is refused.
    constant: bool,
    /// Whether kernels change the list in the device's memory, so that the host knows nothing of it.
    is_written_by_kernels: bool,
    /// [Parts](Index::parts) on which captured work relies; 0 for none.
    relied_on: AtomicUsize,
    reciprocals: Mutex<Vec<(DType, Array)>>,
}

/// The indices on the host.
pub(crate) struct Lists {
    pub values: Vec<u32>,
    groups: OnceLock<Groups>,
    parts: OnceLock<usize>,
}

/// The lists in a device's memory. They are there from the creation on, because a captured graph cannot wait for a transfer. Their sizes
/// follow from the length and the bound.
pub(crate) struct Resident {
    values: Buffer,
    starts: Buffer,
    order: Buffer,
}

impl Resident {
    fn new(device: &CudaDevice, operation: &'static str, lists: &Lists, bound: usize) -> Result<Self> {
        let room = |words: usize| Buffer::new(device, words * size_of::<u32>(), operation);
        let length = lists.values.len();
        let resident = Self { values: room(length)?, starts: room(bound + 1)?, order: room(length)? };
        resident.write(operation, lists, bound)?;
        Ok(resident)
    }

    fn write(&self, operation: &'static str, lists: &Lists, bound: usize) -> Result<()> {
        let groups = lists.groups(bound);
        let buffers = [&self.values, &self.starts, &self.order];
        for (buffer, words) in buffers.into_iter().zip([&lists.values, &groups.starts, &groups.order]) {
            buffer.write(0, bytemuck::cast_slice(words), operation)?;
        }
        Ok(())
    }

    /// The address of the indices.
    pub fn values(&self) -> u64 {
        self.values.pointer()
    }

    /// The addresses of [`Groups::starts`] and [`Groups::order`].
    pub fn groups(&self) -> [u64; 2] {
        [self.starts.pointer(), self.order.pointer()]
    }
}

impl Lists {
    fn new(values: Vec<u32>) -> Self {
        Self { values, groups: OnceLock::new(), parts: OnceLock::new() }
    }

    fn require_sizes(operation: &'static str, bound: usize, length: usize) -> Result<()> {
        for (argument, size) in [("bound", bound), ("values", length)] {
            if size > u32::MAX as usize {
                let actual = size.to_string();
                return Err(Error::Argument { operation, argument, actual, expected: "at most 2³² − 1" });
            }
        }
        Ok(())
    }

    fn checked(values: &[usize], bound: usize) -> Result<Self> {
        const NAME: &str = "Index::new";
        Self::require_sizes(NAME, bound, values.len())?;
        let check = |(position, &value): (usize, &usize)| {
            if value < bound {
                Ok(value as u32)
            } else {
                Err(Error::Index { operation: NAME, position, value, bound })
            }
        };
        let values = values.iter().enumerate().map(check).collect::<Result<_>>()?;
        Ok(Self::new(values))
    }
}

/// Positions of a list of indices, grouped by value.
pub(crate) struct Groups {
    /// `order[starts[v]..starts[v + 1]]` are the positions where the value is `v`.
    pub starts: Vec<u32>,
    /// Positions, ascending within a group.
    pub order: Vec<u32>,
}

/// A list of indices in the memory of a CUDA device that another library owns, with its positions grouped by value. All three are 32-bit
/// unsigned numbers in a row.
pub struct BorrowedIndex {
    /// The address of the `length` indices.
    pub values: u64,
    /// The address of `bound + 1` numbers: `order[starts[v]..starts[v + 1]]` are the positions where the index is `v`.
    pub starts: u64,
    /// The address of `length` positions, ascending within a group.
    pub order: u64,
    /// The number of indices.
    pub length: usize,
    /// The exclusive upper bound of the indices.
    pub bound: usize,
    /// What keeps the three lists where they are, and unchanged.
    pub owner: Owner,
}

impl Index {
    /// A list of indices that is on a CUDA device already, without a copy and without waiting for the device: work that makes one may be
    /// captured. It cannot be [overwritten](Self::overwrite).
    ///
    /// # Safety
    /// The addresses must be those of lists as [`BorrowedIndex`] describes them, readable at the device, and nobody may write to them until
    /// the owner is dropped; work of others that wrote them must come before the operators' in stream order. Indices must be below the bound:
    /// kernels read and write where they point.
    ///
    /// # Errors
    /// [`Error::Argument`] if the bound or the length exceeds 2³² − 1.
    pub unsafe fn borrow(index: BorrowedIndex, device: &CudaDevice) -> Result<Self> {
        let BorrowedIndex { values, starts, order, length, bound, owner } = index;
        Lists::require_sizes("Index::borrow", bound, length)?;
        let owner = Arc::new(owner);
        let shown = |address: u64, words: usize| {
            // SAFETY: as the caller says; each buffer holds a share of the owner.
            unsafe { Buffer::borrow(device, address, words * size_of::<u32>(), Box::new(Arc::clone(&owner))) }
        };
        let resident = Resident {
            values: shown(values, length),
            starts: shown(starts, bound + 1),
            order: shown(order, length),
        };
        Ok(Self(Arc::new(Inner {
            lists: RwLock::new(None),
            length,
            bound,
            device: Device::Cuda(device.clone()),
            resident: Some(resident),
            constant: true,
            is_written_by_kernels: false,
            relied_on: AtomicUsize::new(0),
            reciprocals: Mutex::default(),
        })))
    }

    /// A list of indices, each less than `bound`.
    ///
    /// # Errors
    /// [`Error::Index`] at the first one that is not; [`Error::Argument`] if the bound or the length exceeds 2³² − 1.
    pub fn new(values: &[usize], bound: usize, device: &Device) -> Result<Self> {
        Self::of(Lists::checked(values, bound)?, bound, device, false)
    }

    /// A constant list, such as one of an algebra: as [`new`](Self::new), but copied to a CUDA device only once and cached there, so that
    /// work which asks for it again can be captured. It cannot be [overwritten](Self::overwrite).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn constant(values: &[usize], bound: usize, device: &Device) -> Result<Self> {
        let make = || Self::of(Lists::checked(values, bound)?, bound, device, true);
        match device {
            Device::Cpu => make(),
            Device::Cuda(cuda) => {
                let (bytes, shape) = (bytemuck::cast_slice(values), [bound].into());
                Ok((*cuda.constant(Key::Numbers { bytes, dtype: None, shape }, make)?).clone())
            }
        }
    }

    /// A list whose memory on the device kernels of this crate write, beginning with these indices. The host reads it when it is asked to.
    pub(crate) fn written_by_kernels(values: &[usize], bound: usize, device: &CudaDevice) -> Result<Self> {
        const NAME: &str = "Index::written_by_kernels";
        let lists = Lists::checked(values, bound)?;
        Ok(Self(Arc::new(Inner {
            length: lists.values.len(),
            resident: Some(Resident::new(device, NAME, &lists, bound)?),
            lists: RwLock::new(None),
            bound,
            device: Device::Cuda(device.clone()),
            constant: false,
            is_written_by_kernels: true,
            relied_on: AtomicUsize::new(0),
            reciprocals: Mutex::default(),
        })))
    }

    fn of(lists: Lists, bound: usize, device: &Device, constant: bool) -> Result<Self> {
        let resident = match device {
            Device::Cpu => None,
            Device::Cuda(cuda) => Some(Resident::new(cuda, "Index::new", &lists, bound)?),
        };
        Ok(Self(Arc::new(Inner {
            length: lists.values.len(),
            lists: RwLock::new(Some(Arc::new(lists))),
            bound,
            device: device.clone(),
            resident,
            constant,
            is_written_by_kernels: false,
            relied_on: AtomicUsize::new(0),
            reciprocals: Mutex::default(),
        })))
    }

    /// Number of indices.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// The exclusive upper bound of the indices.
    pub fn bound(&self) -> usize {
        self.0.bound
    }

    /// The device of the list.
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
            let values = self.lists()?.values.clone();
            Self::of(Lists::new(values), self.bound(), device, false)
        }
    }

    /// Whether both lists hold the same indices below the same bound, wherever they are.
    ///
    /// # Errors
    /// As [`to_vec`](Self::to_vec).
    pub fn same_indices(&self, other: &Self) -> Result<bool> {
        Ok(Arc::ptr_eq(&self.0, &other.0)
            || (self.bound() == other.bound() && self.lists()?.values == other.lists()?.values))
    }

    /// Whether both are the same list, not only an equal one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Replaces the indices by those of `source`, which may be on another device, for every clone of this list: captured work that reads it
    /// sees the new ones. Returns `false` and changes nothing if the number of indices or their bound differs, if this is a
    /// [`constant`](Self::constant), or if captured work computes parts of the list by themselves that are none in `source`: such work has to
    /// be captured again.
    ///
    /// # Errors
    /// From the device; inside a capture.
    pub fn overwrite(&self, source: &Self) -> Result<bool> {
        const NAME: &str = "Index::overwrite";
        if self.0.constant || (self.len(), self.bound()) != (source.len(), source.bound()) {
            return Ok(false);
        }
        let lists = source.lists()?;
        let relied_on = self.0.relied_on.load(Ordering::Relaxed);
        if relied_on > 0 && !lists.falls_into(relied_on, self.bound()) {
            return Ok(false);
        }
        if let Some(resident) = &self.0.resident {
            resident.write(NAME, &lists, self.bound())?;
        }
        if !self.0.is_written_by_kernels {
            *self.0.lists.write().unwrap_or_else(PoisonError::into_inner) = Some(lists);
        }
        for (dtype, known) in self.0.reciprocals.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let current = self.reciprocals(*dtype, &Device::Cpu)?;
            match self.device() {
                Device::Cpu => *known = current,
                Device::Cuda(_) => known.overwrite_shared(&current)?,
            }
        }
        Ok(true)
    }

    /// 1 / (how often each value occurs), or 1 for a value that does not: `[bound]` in `dtype`, computed once; of a list that kernels
    /// write, at each call, by the host.
    ///
    /// # Errors
    /// If the device has no memory.
    pub fn reciprocal_counts(&self, dtype: DType) -> Result<Array> {
        let mut known = self.0.reciprocals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, array)) = known.iter().find(|(of, _)| *of == dtype) {
            return Ok(array.clone());
        }
        let array = self.reciprocals(dtype, self.device())?;
        if self.0.is_written_by_kernels {
            return Ok(array);
        }
        known.push((dtype, array.clone()));
        Ok(array)
    }

    fn reciprocals(&self, dtype: DType, device: &Device) -> Result<Array> {
        let mut counts = vec![0.0f64; self.bound()];
        for &value in &self.lists()?.values {
            counts[value as usize] += 1.0;
        }
        let weights: Vec<f64> = counts.iter().map(|count| 1.0 / count.max(1.0)).collect();
        Array::from_f64(&weights, [self.bound()], dtype, device)
    }

    /// The indices.
    ///
    /// # Errors
    /// From the device that a [`borrowed`](Self::borrow) list is on, which is read once; other lists are on the host, too.
    pub fn to_vec(&self) -> Result<Vec<usize>> {
        Ok(self.lists()?.values.iter().map(|&value| value as usize).collect())
    }

    /// The indices and their groups, as they are now.
    pub(crate) fn lists(&self) -> Result<Arc<Lists>> {
        if let Some(lists) = self.0.lists.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Ok(Arc::clone(lists));
        }
        let mut values = vec![0u32; self.len()];
        if let Some(resident) = self.resident() {
            resident.values.read(0, bytemuck::cast_slice_mut(&mut values), "Index::to_vec")?;
        }
        let lists = Arc::new(Lists::new(values));
        if self.0.is_written_by_kernels {
            return Ok(lists);
        }
        *self.0.lists.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&lists));
        Ok(lists)
    }

    /// The most parts of equal length into which the list falls, such that each points to its own of as many equal parts of what is indexed,
    /// as the edges of a batch of graphs of one size do: 1 if it does not fall apart, or if it is [borrowed](Self::borrow).
    pub fn parts(&self) -> usize {
        let lists = self.0.lists.read().unwrap_or_else(PoisonError::into_inner);
        lists.as_ref().map_or(1, |lists| lists.parts(self.bound()))
    }

    /// [`parts`](Self::parts) for work that is captured: indices that do not fall into them will not [overwrite](Self::overwrite) these.
    pub(crate) fn rely_on_parts(&self) -> usize {
        // Fewer do not occupy a device, and may fall apart by chance.
        const FEWEST: usize = 8;
        let parts = self.parts();
        if parts < FEWEST {
            return 1;
        }
        if !self.0.constant {
            self.0.relied_on.store(parts, Ordering::Relaxed);
        }
        parts
    }

    /// Parts into which both lists fall.
    pub(crate) fn rely_on_parts_with(&self, other: &Self) -> usize {
        common_divisor(self.rely_on_parts(), other.rely_on_parts())
    }

    /// The lists in the memory of the device; `None` on the host.
    pub(crate) fn resident(&self) -> Option<&Resident> {
        self.0.resident.as_ref()
    }
}

impl Lists {
    /// The positions grouped by value, computed on first use: a sum over each group in ascending order is a
    /// deterministic scatter-add, whatever the number of threads.
    pub fn groups(&self, bound: usize) -> &Groups {
        self.groups.get_or_init(|| Groups::of(&self.values, bound))
    }

    /// See [`Index::parts`].
    pub fn parts(&self, bound: usize) -> usize {
        *self.parts.get_or_init(|| {
            let most = self.values.len().min(bound);
            (2..=most).rev().find(|&parts| self.falls_into(parts, bound)).unwrap_or(1)
        })
    }

    /// Whether the list falls into so many parts, or more that can be put together to these.
    fn falls_into(&self, parts: usize, bound: usize) -> bool {
        let length = self.values.len();
        if !(length.is_multiple_of(parts) && bound.is_multiple_of(parts)) {
            return false;
        }
        let (entries, targets) = (length / parts, bound / parts);
        let is_inside = |(position, &value): (usize, &u32)| value as usize / targets == position / entries;
        self.values.iter().enumerate().all(is_inside)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_falls_into_parts_that_stay_if_work_relies_on_them() {
        let index = |values: &[usize], bound| Index::new(values, bound, &Device::Cpu).unwrap();
        let graphs = index(&[1, 0, 1, 3, 3, 2, 4, 5, 4], 6);
        assert_eq!(graphs.parts(), 3);
        assert_eq!(index(&[1, 0, 1, 3, 3, 2, 4, 5, 3], 6).parts(), 1);
        assert_eq!(index(&[0, 1, 2, 3], 4).parts(), 4);
        assert_eq!(index(&[0, 1, 3, 3], 4).parts(), 2);
        assert_eq!([index(&[], 4).parts(), index(&[0, 0], 1).parts(), index(&[0, 1], 3).parts()], [1; 3]);
        assert_eq!(graphs.rely_on_parts(), 1, "too few");

        let pairs: Vec<usize> = (0..20).map(|edge| edge ^ 1).collect();
        let (pairs, loops) = (index(&pairs, 20), index(&(0..20).collect::<Vec<_>>(), 20));
        let mixed: Vec<usize> = (0..20).map(|edge| (edge + 1) % 20).collect();
        let mixed = index(&mixed, 20);
        assert_eq!([pairs.parts(), loops.parts(), mixed.parts()], [10, 20, 1]);
        assert!(pairs.overwrite(&mixed).unwrap() && pairs.overwrite(&loops).unwrap());
        assert!(pairs.overwrite(&index(&(0..20).map(|edge| edge ^ 1).collect::<Vec<_>>(), 20)).unwrap());
        assert_eq!(pairs.rely_on_parts_with(&loops), 10);
        assert!(!pairs.overwrite(&mixed).unwrap());
        assert!(pairs.overwrite(&loops).unwrap(), "it falls into finer parts");
    }

    #[test]
    fn overwriting_changes_every_holder_or_nothing() {
        let index = Index::new(&[0, 2, 2], 3, &Device::Cpu).unwrap();
        let holder = index.clone();
        let counts = || holder.reciprocal_counts(DType::F64).unwrap().to_vec::<f64>().unwrap();
        assert_eq!(counts(), [1.0, 1.0, 0.5]);
        assert!(index.overwrite(&Index::new(&[1, 1, 1], 3, &Device::Cpu).unwrap()).unwrap());
        assert_eq!(holder.to_vec().unwrap(), [1, 1, 1]);
        assert_eq!(counts(), [1.0, 1.0 / 3.0, 1.0]);
        assert_eq!(holder.lists().unwrap().groups(3).starts, [0, 0, 3, 3]);
        for other in [Index::new(&[0, 0], 3, &Device::Cpu), Index::new(&[0, 0, 0], 4, &Device::Cpu)] {
            assert!(!index.overwrite(&other.unwrap()).unwrap());
            assert_eq!(holder.to_vec().unwrap(), [1, 1, 1]);
        }
    }
}
