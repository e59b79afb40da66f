//! Neighbours within a cutoff, with the images of periodic cells.

mod skin;
#[cfg(test)]
mod tests;

pub use skin::SkinList;

use super::frame::{COINCIDENT, Vector};
use gradewise_kernels::ops::neighbours::{Cell, Pairs};
use gradewise_nn::{Error, Result};

const OPERATION: &str = "neighbours";

/// Ordered pairs of atoms within a cutoff, sorted by receiver, sender and images. A pair of images counts on its own: in a cell smaller than the cutoff an atom may be
/// its own neighbour, and the neighbour of another several times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Neighbours {
    /// The atom at which each pair begins.
    pub receivers: Vec<u32>,
    /// The atom at which it ends.
    pub senders: Vec<u32>,
    /// How often each cell vector is added to the position of the sender.
    pub images: Vec<[i32; 3]>,
}

impl Neighbours {
    /// The pairs with a distance below `cutoff` (Å) of atoms at `positions` (Å), by cells: the work grows with the number of atoms. Large
    /// systems are searched by several threads; the result does not depend on how many.
    ///
    /// # Errors
    /// [`Error::Argument`] for a cutoff that is not positive, a cell without volume, more atoms than 2³², or atoms that coincide;
    /// [`Error::NotFinite`].
    pub fn find(positions: &[Vector], cell: Option<&Cell>, cutoff: f64) -> Result<Self> {
        if !(cutoff > 0.0 && cutoff.is_finite()) {
            return Err(refused("cutoff", cutoff.to_string(), "a distance above 0"));
        }
        if u32::try_from(positions.len()).is_err() {
            return Err(refused("positions", positions.len().to_string(), "at most 2³² − 1 atoms"));
        }
        let flat = positions.as_flattened();
        if let Some(at) = flat.iter().position(|x| !x.is_finite()) {
            let (index, value) = (vec![at / 3, at % 3], flat[at]);
            return Err(Error::NotFinite {
                operation: OPERATION,
                argument: "positions".to_owned(),
                index,
                value,
            });
        }
        let cell = cell.filter(|cell| cell.periodic.contains(&true));
        if let Some(fault) = cell.and_then(Cell::fault) {
            return Err(refused("cell", fault, "three vectors that span a volume"));
        }
        let Pairs { receivers, senders, images, closest } = Pairs::find(positions, cell, cutoff)?;
        match closest.filter(|&(_, square)| square < COINCIDENT * COINCIDENT) {
            None => Ok(Self { receivers, senders, images }),
            Some((at, square)) => {
                let (atom, other, distance) = (receivers[at], senders[at], square.sqrt());
                Err(refused(
                    "positions",
                    format!("atoms {atom} and {other} coincide: {distance} Å apart"),
                    "atoms at least 0.1 Å apart; is a position missing, or the unit of lengths another?",
                ))
            }
        }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.receivers.len()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.receivers.is_empty()
    }

    /// The vector of pair `k` from receiver to sender, in Å, for atoms at these positions.
    pub fn difference(&self, k: usize, positions: &[Vector], cell: Option<&Cell>) -> Vector {
        let (from, to) = (positions[self.receivers[k] as usize], positions[self.senders[k] as usize]);
        let shift = match (cell, self.images[k]) {
            (Some(cell), images) if images != [0; 3] => cell.shift(images),
            _ => [0.0; 3],
        };
        std::array::from_fn(|axis| to[axis] - from[axis] + shift[axis])
    }

    /// The pairs for which `keep` returns true, in their order.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(usize) -> bool) -> Self {
        let mut kept = Self::default();
        for k in (0..self.len()).filter(|&k| keep(k)) {
            kept.receivers.push(self.receivers[k]);
            kept.senders.push(self.senders[k]);
            kept.images.push(self.images[k]);
        }
        kept
    }
}

fn refused(argument: &'static str, actual: String, expected: &str) -> Error {
    Error::Argument { operation: OPERATION, argument, actual, expected: expected.to_owned() }
}
