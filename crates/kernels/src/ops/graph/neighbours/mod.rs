//! Neighbours within a cutoff, with the images of periodic cells.
//!
//! A pair is a receiver, a sender, and images: how often each vector of the cell is added to the position of the sender. It is in the list
//! if the distance is below the cutoff, computed in double precision from the positions as they are. The list is sorted by receiver, sender
//! and images, so it follows from positions, cell and cutoff alone: host and device find the same.

mod bins;
mod cell;
mod cuda;
mod list;

pub use cell::Cell;
pub use list::{NeighbourList, SearchFault, SearchReport};

use crate::{Array, DType, Device, Error, Result, cpu::parallel::Flushed, csrc::neighbours};
use bins::Bins;
use cell::Frame;
use rayon::prelude::*;

const OPERATION: &str = "neighbours";
/// Vectors in space.
type Vector = [f64; 3];
/// Atoms whose neighbours one piece of work finds. Pieces depend on the number of atoms alone, so results have one order.
const PIECE: usize = 512;
/// Atoms have to be within so many cells of the one at the origin; images are sorted by numbers of 21 bits.
const FARTHEST: i32 = neighbours::FARTHEST as i32;

/// What is sought.
struct Search {
    frame: Frame,
    /// The least width of a bin, a little more than the cutoff: rounding may put an atom into the bin beside its own.
    width: f64,
    /// The square of the cutoff.
    limit: f64,
    /// That of the distance of rounded positions beyond which pairs are not looked at again.
    loose: f64,
}

impl Search {
    fn new(cell: Option<&Cell>, cutoff: f64) -> Result<Self> {
        if !(cutoff > 0.0 && cutoff.is_finite()) {
            return Err(refused("cutoff", cutoff.to_string(), "a distance above 0"));
        }
        let frame = Frame::new(cell)?;
        let least = (0..3).filter(|&k| frame.periodic[k]).map(|k| frame.heights[k]).fold(f64::MAX, f64::min);
        if cutoff >= 1e4 * least {
            return Err(refused("cutoff", cutoff.to_string(), "less than 10,000 heights of the cell"));
        }
        let (limit, width) = (cutoff * cutoff, cutoff * (1.0 + 1e-7));
        Ok(Self { frame, width, limit, loose: limit * (1.0 + 1e-6) })
    }
}

/// Ordered pairs of atoms nearer than a cutoff, on the host, sorted by receiver, sender and images. A pair of images counts on its own: in
/// a cell smaller than the cutoff an atom may be its own neighbour, and the neighbour of another several times.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Pairs {
    /// The atom at which each pair begins.
    pub receivers: Vec<u32>,
    /// The atom at which it ends.
    pub senders: Vec<u32>,
    /// How often each cell vector is added to the position of the sender.
    pub images: Vec<[i32; 3]>,
    /// The nearest pair and the square of its distance; `None` without pairs, and of pairs that are read from a list.
    pub closest: Option<(usize, f64)>,
}

impl Pairs {
    /// The pairs of atoms at `positions`, by cells: the work grows with the number of atoms. Large systems are searched by several threads.
    ///
    /// # Errors
    /// [`Error::Argument`] for a cutoff that is not positive, a cell without volume, 2³² atoms or more, positions that are not finite, and
    /// atoms that are 2¹⁸ cells away from the origin.
    pub fn find(positions: &[Vector], cell: Option<&Cell>, cutoff: f64) -> Result<Self> {
        let search = Search::new(cell, cutoff)?;
        Self::of(positions, &search).map_err(|fault| fault.error(0, 0))
    }

    fn of(positions: &[Vector], search: &Search) -> Result<Self, SearchFault> {
        if !positions.as_flattened().iter().all(|x| x.abs() < 1e300) {
            return Err(SearchFault::NotFinite);
        }
        let bins = Bins::new(positions, search).ok_or(SearchFault::TooFar)?;
        let pieces = (0..positions.len().div_ceil(PIECE)).into_par_iter();
        let found = pieces.flushed_map(|piece| {
            let mut part = Self::default();
            for atom in piece * PIECE..((piece + 1) * PIECE).min(positions.len()) {
                part.add_receiver(atom, &bins);
            }
            part
        });
        let count = found.iter().map(Self::len).sum();
        let mut all = Self {
            receivers: Vec::with_capacity(count),
            senders: Vec::with_capacity(count),
            images: Vec::with_capacity(count),
            closest: None,
        };
        for part in found {
            all.keep_closest(part.closest.map(|(at, square)| (all.len() + at, square)));
            all.receivers.extend(part.receivers);
            all.senders.extend(part.senders);
            all.images.extend(part.images);
        }
        Ok(all)
    }

    fn add_receiver(&mut self, atom: usize, bins: &Bins<'_>) {
        let mut found = Vec::new();
        bins.near(atom, |sender, images, square| found.push((sender as u32, images, square)));
        found.sort_unstable_by_key(|&(sender, images, _)| (sender, images));
        for (sender, images, square) in found {
            self.keep_closest(Some((self.len(), square)));
            self.receivers.push(atom as u32);
            self.senders.push(sender);
            self.images.push(images);
        }
    }

    fn keep_closest(&mut self, other: Option<(usize, f64)>) {
        let square = |closest: Option<(usize, f64)>| closest.map_or(f64::INFINITY, |(_, square)| square);
        if square(other) < square(self.closest) {
            self.closest = other;
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
}

/// The neighbours of atoms at `positions`, `[3, atoms]` or `[3, atoms, 1]` in f32 or f64, where these are, with room for exactly the pairs
/// found. Waits for the device.
///
/// # Errors
/// As [`NeighbourList::new`]; the [faults](SearchFault) of a search.
pub fn find(positions: &Array, cell: Option<&Cell>, cutoff: f64) -> Result<NeighbourList> {
    let atoms = atoms_of(positions)?;
    let mut room = 0;
    loop {
        let mut list = NeighbourList::new(atoms, positions.dtype(), cell, cutoff, room, &positions.device())?;
        list.search(positions)?;
        let report = list.report()?;
        if report.fault != Some(SearchFault::Full) {
            report.require(room)?;
            return Ok(list);
        }
        room = report.pairs;
    }
}

/// Number of atoms of `[3, atoms]` or `[3, atoms, 1]`.
fn atoms_of(positions: &Array) -> Result<usize> {
    if !matches!(positions.dtype(), DType::F32 | DType::F64) {
        return Err(Error::UnsupportedDType {
            operation: OPERATION,
            dtype: positions.dtype(),
            device: positions.device(),
            supported: "f32 and f64",
        });
    }
    match *positions.dims() {
        [3, atoms] | [3, atoms, 1] if u32::try_from(atoms).is_ok() => Ok(atoms),
        _ => Err(gradewise_core::Error::Shape {
            operation: OPERATION,
            argument: "positions",
            actual: positions.shape().clone(),
            expected: "[3, atoms] or [3, atoms, 1]".to_owned(),
            reason: "a row for each axis of space, and fewer than 2³² atoms".to_owned(),
        }
        .into()),
    }
}

/// Positions on the host, atom by atom.
fn vectors(positions: &Array) -> Result<Vec<Vector>> {
    let values = positions.to_device(&Device::Cpu)?.to_f64_vec()?;
    let atoms = values.len() / 3;
    Ok((0..atoms).map(|atom| [0, 1, 2].map(|axis| values[axis * atoms + atom])).collect())
}

fn refused(argument: &'static str, actual: String, expected: &'static str) -> Error {
    Error::Argument { operation: OPERATION, argument, actual, expected }
}
