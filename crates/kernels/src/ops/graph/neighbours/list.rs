//! A list of neighbours at fixed addresses, for work that is captured.

use super::{Cell, OPERATION, Pairs, Search, Vector, atoms_of, cuda::DeviceSearch, refused, vectors};
use crate::{Array, DType, Device, Error, Index, Result, csrc::neighbours};

/// Pairs of neighbours as the edges of a graph, as many as there is room for, on a device or the host.
///
/// Pairs beyond those found have both ends at the last atom, and a shift beyond the cutoff: they have no effect in models that end there.
/// On a CUDA device a search is some launches, which can be captured, and of which nothing waits for the host:
/// [receivers](Self::receivers), [senders](Self::senders), [shifts](Self::shifts) and [numbers](Self::numbers) stay at their addresses and
/// change in place.
pub struct NeighbourList {
    search: Search,
    cutoff: f64,
    atoms: usize,
    room: usize,
    receivers: Index,
    senders: Index,
    shifts: Array,
    searched: Array,
    numbers: Array,
    place: Place,
}

enum Place {
    Host { images: Vec<[i32; 3]>, searches: usize },
    Device(Box<DeviceSearch>),
}

/// Why a search found no list; the list is then that of the search before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchFault {
    /// A position is not finite.
    NotFinite,
    /// An atom is 2¹⁸ cells or more away from the origin.
    TooFar,
    /// There are more pairs than there is room for.
    Full,
}

impl SearchFault {
    fn of(bits: usize) -> Option<Self> {
        if bits & neighbours::NOT_FINITE != 0 {
            Some(Self::NotFinite)
        } else if bits & neighbours::TOO_FAR != 0 {
            Some(Self::TooFar)
        } else {
            (bits & neighbours::FULL != 0).then_some(Self::Full)
        }
    }

    fn bits(self) -> usize {
        match self {
            Self::NotFinite => neighbours::NOT_FINITE,
            Self::TooFar => neighbours::TOO_FAR,
            Self::Full => neighbours::FULL,
        }
    }

    pub(super) fn error(self, pairs: usize, room: usize) -> Error {
        match self {
            Self::NotFinite => refused("positions", "not finite".to_owned(), "finite numbers"),
            Self::TooFar => {
                refused("positions", "too far away".to_owned(), "atoms within 2¹⁸ cells of the origin")
            }
            Self::Full => refused("room", format!("{room} for {pairs} pairs"), "room for all pairs"),
        }
    }
}

/// What came of the last search that was due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchReport {
    /// Why there is no list of it.
    pub fault: Option<SearchFault>,
    /// Pairs found.
    pub pairs: usize,
    /// The least square of a distance; infinite without pairs.
    pub closest: f64,
    /// Searches so far that gave a list.
    pub searches: usize,
    /// The greatest square of a distance from the positions of the search before, when this one was asked for, whether or not it was due.
    pub moved: f64,
}

impl SearchReport {
    /// How many numbers it is read from.
    pub const NUMBERS: usize = neighbours::REPORT;

    /// [`NeighbourList::numbers`], read.
    pub fn of(numbers: &[f64]) -> Self {
        let at = |k: usize| numbers.get(k).copied().unwrap_or(f64::NAN);
        let [fault, pairs, searches] = [at(0), at(1), at(3)].map(|number| number as usize);
        Self { fault: SearchFault::of(fault), pairs, closest: at(2), searches, moved: at(4) }
    }

    /// # Errors
    /// The fault; `room` is for its message.
    pub fn require(self, room: usize) -> Result<Self> {
        self.fault.map_or(Ok(self), |fault| Err(fault.error(self.pairs, room)))
    }
}

impl NeighbourList {
    /// A list with `room` for pairs of so many atoms, all of it filled up: nothing has been sought yet. `dtype` is that of positions and
    /// shifts, f32 or f64.
    ///
    /// # Errors
    /// [`Error::Argument`] for a cutoff that is not positive, or a cell without volume; another dtype; from the device.
    pub fn new(
        atoms: usize,
        dtype: DType,
        cell: Option<&Cell>,
        cutoff: f64,
        room: usize,
        device: &Device,
    ) -> Result<Self> {
        let search = Search::new(cell, cutoff)?;
        let room = if atoms == 0 { 0 } else { room };
        if u32::try_from(room).is_err() {
            return Err(refused("room", room.to_string(), "fewer than 2³² pairs"));
        }
        let far = 2.0 * cutoff;
        let shifts: Vec<f64> = (0..3 * room).map(|at| if at < room { far } else { 0.0 }).collect();
        let shifts = Array::from_f64(&shifts, [3, room, 1], dtype, device)?;
        let searched = Array::zeros([3, atoms, 1], dtype, device)?;
        atoms_of(&searched)?;
        let numbers = Array::from_slice(&[0.0, 0.0, f64::INFINITY, 0.0, 0.0], [neighbours::REPORT], device)?;
        let last = vec![atoms.saturating_sub(1); room];
        let (receivers, senders, place) = match device {
            Device::Cpu => {
                let index = || Index::new(&last, atoms, device);
                (index()?, index()?, Place::Host { images: vec![[0; 3]; room], searches: 0 })
            }
            Device::Cuda(cuda) => {
                let index = || Index::written_by_kernels(&last, atoms, cuda);
                (
                    index()?,
                    index()?,
                    Place::Device(Box::new(DeviceSearch::new(cuda, &search, atoms, room, far)?)),
                )
            }
        };
        Ok(Self { search, cutoff, atoms, room, receivers, senders, shifts, searched, numbers, place })
    }

    /// Seeks the neighbours of atoms at `positions`, `[3, atoms]` or `[3, atoms, 1]`. Faults are in the [report](Self::report) alone: a
    /// device is not waited for.
    ///
    /// # Errors
    /// Another number of atoms, dtype or device; from the device.
    pub fn search(&mut self, positions: &Array) -> Result<()> {
        self.search_if(positions, None)
    }

    /// The same where an atom is at least `distance` from where it was at the last search; otherwise the list stays as it is. On a CUDA
    /// device the device decides, at each replay of a graph.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn search_where_moved(&mut self, positions: &Array, distance: f64) -> Result<()> {
        self.search_if(positions, Some(distance * distance))
    }

    fn search_if(&mut self, positions: &Array, due: Option<f64>) -> Result<()> {
        let atoms = atoms_of(positions)?;
        if atoms != self.atoms {
            return Err(refused(
                "positions",
                format!("of {atoms} atoms"),
                "as many atoms as the list is for",
            ));
        }
        let positions = positions.reshape([3, atoms, 1])?;
        positions.require_like(&self.searched, OPERATION, "positions")?;
        if atoms == 0 {
            return Ok(());
        }
        match &self.place {
            Place::Host { .. } => self.search_on_host(&positions, due),
            Place::Device(device) => {
                let positions = positions.contiguous()?;
                device.launch(
                    &positions,
                    [&self.receivers, &self.senders],
                    [&self.shifts, &self.searched],
                    &self.numbers,
                    due,
                )
            }
        }
    }

    fn search_on_host(&mut self, positions: &Array, due: Option<f64>) -> Result<()> {
        let (now, before) = (vectors(positions)?, vectors(&self.searched)?);
        let square = |(now, before): (&Vector, &Vector)| {
            let [x, y, z]: Vector = std::array::from_fn(|axis| now[axis] - before[axis]);
            let square = x * x + y * y + z * z;
            if square.is_nan() { f64::INFINITY } else { square }
        };
        let moved = now.iter().zip(&before).map(square).fold(0.0, f64::max);
        let mut numbers = self.numbers.to_vec::<f64>()?;
        numbers[4] = moved;
        if due.is_none_or(|due| moved >= due) {
            self.take(&now, positions, &mut numbers)?;
        }
        self.numbers = Array::from_vec(numbers, [neighbours::REPORT], &Device::Cpu)?;
        Ok(())
    }

    /// Searches on the host, and takes over what is found.
    fn take(&mut self, now: &[Vector], positions: &Array, numbers: &mut [f64]) -> Result<()> {
        let Place::Host { images, searches } = &mut self.place else { return Ok(()) };
        let mut found = match Pairs::of(now, &self.search) {
            Ok(found) => found,
            Err(fault) => {
                numbers[0] = fault.bits() as f64;
                return Ok(());
            }
        };
        let (pairs, room) = (found.len(), self.room);
        (numbers[1], numbers[2]) = (pairs as f64, found.closest.map_or(f64::INFINITY, |(_, square)| square));
        if pairs > room {
            numbers[0] = neighbours::FULL as f64;
            return Ok(());
        }
        *searches += 1;
        (numbers[0], numbers[3]) = (0.0, *searches as f64);
        let mut shifts = vec![0.0; 3 * room];
        shifts[pairs..room].fill(2.0 * self.cutoff);
        for (at, &images) in found.images.iter().enumerate() {
            for (axis, x) in super::cell::shift(&self.search.frame.vectors, images).into_iter().enumerate() {
                shifts[axis * room + at] = x;
            }
        }
        found.images.resize(room, [0; 3]);
        *images = found.images;
        for (index, mut ends) in [(&self.receivers, found.receivers), (&self.senders, found.senders)] {
            ends.resize(room, (self.atoms - 1) as u32);
            let ends: Vec<usize> = ends.into_iter().map(|atom| atom as usize).collect();
            index.overwrite(&Index::new(&ends, self.atoms, &Device::Cpu)?)?;
        }
        self.shifts = Array::from_f64(&shifts, [3, room, 1], self.shifts.dtype(), &Device::Cpu)?;
        self.searched = positions.copy()?;
        Ok(())
    }

    /// What came of the last search that was due. Waits for the device.
    ///
    /// # Errors
    /// From the device.
    pub fn report(&self) -> Result<SearchReport> {
        Ok(SearchReport::of(&self.numbers.to_vec::<f64>()?))
    }

    /// The report as an array, in f64, for work that reads several things at once.
    pub fn numbers(&self) -> &Array {
        &self.numbers
    }

    /// The atom at which each pair begins.
    pub fn receivers(&self) -> &Index {
        &self.receivers
    }

    /// The atom at which each pair ends.
    pub fn senders(&self) -> &Index {
        &self.senders
    }

    /// `[3, room, 1]`: what images add to the difference of the positions of sender and receiver.
    pub fn shifts(&self) -> &Array {
        &self.shifts
    }

    /// `[3, atoms, 1]`: where the atoms were at the last search.
    pub fn searched_at(&self) -> &Array {
        &self.searched
    }

    /// How often each vector of the cell is added to the position of each sender. Waits for the device.
    ///
    /// # Errors
    /// From the device.
    pub fn images(&self) -> Result<Vec<[i32; 3]>> {
        match &self.place {
            Place::Host { images, .. } => Ok(images.clone()),
            Place::Device(device) => device.images(),
        }
    }

    /// Pairs for which there is room.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The pairs found, on the host. Waits for the device.
    ///
    /// # Errors
    /// The fault of the last search; from the device.
    pub fn pairs(&self) -> Result<Pairs> {
        let report = self.report()?.require(self.room)?;
        let ends = |index: &Index| -> Result<Vec<u32>> {
            Ok(index.to_vec()?.into_iter().take(report.pairs).map(|atom| atom as u32).collect())
        };
        let mut images = self.images()?;
        images.truncate(report.pairs);
        Ok(Pairs { receivers: ends(&self.receivers)?, senders: ends(&self.senders)?, images, closest: None })
    }
}
