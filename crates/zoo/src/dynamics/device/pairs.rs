//! Pairs of neighbours on a device, as many as a captured step has room for.

use super::slot::by_axis;
use crate::data::atoms::{AtomBatch, Frame, Neighbourhood, Neighbours, SPECIES, SkinList};
use gradewise_autograd::Tensor;
use gradewise_kernels::{DType, ops::neighbours::NeighbourList};
use gradewise_nn::{Placement, Result, data::Edges};

/// Rooms are multiples of this.
const MULTIPLE: usize = 64;

/// The pairs within the cutoff and the skin, and beyond these pairs of the last atom with itself, too far apart to have an effect.
pub struct Pairs {
    batch: AtomBatch,
    list: NeighbourList,
    /// How far an atom may be from where pairs were sought.
    slack: f64,
}

impl Pairs {
    /// The pairs of the last search of `skin`. `room` is how many there is room for, or more if these are more.
    pub fn new(system: &Frame, skin: &SkinList, place: &Placement, room: usize) -> Result<Self> {
        let room = if skin.wide().len() <= room { room } else { room_for(skin.wide().len()) };
        let (cutoff, device) = (skin.cutoff() + skin.skin(), &place.device);
        let mut list =
            NeighbourList::new(system.len(), DType::F64, system.cell.as_ref(), cutoff, room, device)?;
        list.search(&by_axis(skin.searched_at())?.to_device(device)?)?;
        list.report()?.require(room)?;
        let frame = Frame { positions: skin.searched_at().to_vec(), ..system.clone() };
        let one = Neighbourhood::of(frame, Neighbours::default());
        let batch = AtomBatch::new(std::iter::once(&one), skin.cutoff(), &[0.0; SPECIES], room, place)?;
        let edges = Edges { receivers: list.receivers().clone(), senders: list.senders().clone() };
        Ok(Self { batch: AtomBatch { edges, ..batch }, list, slack: skin.skin() / 2.0 })
    }

    /// Seeks pairs again where an atom of these `[3, atoms, 1]` has moved by half the skin. Of a captured step, the device decides.
    pub fn follow(&mut self, positions: &Tensor) -> Result<()> {
        Ok(self.list.search_where_moved(positions.array(), self.slack)?)
    }

    /// What is known of the pairs.
    pub fn list(&self) -> &NeighbourList {
        &self.list
    }

    /// The graph of the pairs. The vectors of its edges are not those between atoms, and not read.
    pub fn batch(&self) -> &AtomBatch {
        &self.batch
    }

    /// `[3, pairs, 1]`: the vector of each pair from receiver to sender, for atoms at `[3, atoms, 1]`.
    pub fn vectors(&self, positions: &Tensor) -> Result<Tensor> {
        let of = |ends| positions.index_select(1, ends);
        let (from, to) = (of(&self.batch.edges.receivers)?, of(&self.batch.edges.senders)?);
        Ok(to.sub(&from)?.add(&Tensor::new(self.list.shifts().clone()))?)
    }
}

/// A sixteenth more than there are, so that a later search seldom finds too many.
fn room_for(pairs: usize) -> usize {
    (pairs + pairs / 16 + 1).next_multiple_of(MULTIPLE)
}
