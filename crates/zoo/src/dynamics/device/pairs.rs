//! Pairs of neighbours on a device, as many as a captured step has room for.

use super::slot::{Slot, by_axis};
use crate::data::atoms::{AtomBatch, Frame, Neighbourhood, SPECIES, SkinList, Vector};
use gradewise_autograd::Tensor;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{Placement, Result, data::Batch};

/// Rooms are multiples of this.
const MULTIPLE: usize = 64;

/// The pairs within the cutoff and the skin, and beyond these pairs of the last atom with itself, too far apart to have an effect.
pub struct Pairs {
    batch: AtomBatch,
    /// `[3, pairs, 1]`, f64: what periodic images add to the difference of two positions, in Å.
    shifts: Slot,
}

impl Pairs {
    /// The pairs of the last search. `room` is how many there is room for, or more if these are more.
    pub fn new(system: &Frame, list: &SkinList, place: &Placement, room: usize) -> Result<Self> {
        let room = if list.wide().len() <= room { room } else { room_for(list.wide().len()) };
        let (batch, shifts) = on_host(system, list, place.dtype, room)?;
        let shifts = Slot::new(&by_axis(&shifts)?, &place.device)?;
        Ok(Self { batch: batch.to_device(&place.device)?, shifts })
    }

    /// Takes over the pairs of another search. Returns whether these are at the old addresses; if not, work that was captured reads old pairs.
    ///
    /// # Errors
    /// From the device.
    pub fn update(&mut self, system: &Frame, list: &SkinList, place: &Placement) -> Result<bool> {
        if place.device != Device::Cpu && list.wide().len() <= self.room() {
            let (batch, shifts) = on_host(system, list, place.dtype, self.room())?;
            if self.batch.overwrite(&batch)? {
                self.shifts.set(&by_axis(&shifts)?)?;
                return Ok(true);
            }
        }
        *self = Self::new(system, list, place, self.room())?;
        Ok(false)
    }

    /// Pairs for which there is room.
    pub fn room(&self) -> usize {
        self.batch.edge_count()
    }

    /// The graph of the pairs. The vectors of its edges are those of the last search, and not read.
    pub fn batch(&self) -> &AtomBatch {
        &self.batch
    }

    /// `[3, pairs, 1]`: the vector of each pair from receiver to sender, for atoms at `[3, atoms, 1]`.
    pub fn vectors(&self, positions: &Tensor) -> Result<Tensor> {
        let of = |ends| positions.index_select(1, ends);
        let (from, to) = (of(&self.batch.edges.receivers)?, of(&self.batch.edges.senders)?);
        Ok(to.sub(&from)?.add(&self.shifts.0)?)
    }
}

/// A sixteenth more than there are, so that a later search seldom finds too many.
fn room_for(pairs: usize) -> usize {
    (pairs + pairs / 16 + 1).next_multiple_of(MULTIPLE)
}

/// The pairs with what periodic images add to their vectors.
fn on_host(system: &Frame, list: &SkinList, dtype: DType, room: usize) -> Result<(AtomBatch, Vec<Vector>)> {
    let pairs = list.wide();
    let far = [2.0 * list.cutoff(), 0.0, 0.0];
    let mut shifts: Vec<Vector> = pairs
        .images
        .iter()
        .map(|&images| system.cell.filter(|_| images != [0; 3]).map_or([0.0; 3], |cell| cell.shift(images)))
        .collect();
    shifts.resize(room, far);
    let frame = Frame { positions: list.searched_at().to_vec(), ..system.clone() };
    let one = Neighbourhood::of(frame, pairs.clone());
    let place = Placement::new(&Device::Cpu, dtype);
    let batch = AtomBatch::new(std::iter::once(&one), list.cutoff(), &[0.0; SPECIES], room, &place)?;
    Ok((batch, shifts))
}
