//! A split of frames with their neighbours, and how it is read.

use super::{
    EnergyUnit, Frame, Labels, Neighbours, Units, Vector,
    check::Consistency,
    elements::listed,
    files,
    reference::reference_energies,
    splits::{frames_of, thinned},
};
use gradewise_nn::{Error, Result, data::Split, symmetry::Isometry};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// Endings of files that are read from a folder.
const ENDINGS: [&str; 3] = ["xyz", "extxyz", "npz"];

/// How frames are read and split.
#[derive(Clone, PartialEq, Debug)]
pub struct AtomSource {
    /// Where frames come from.
    pub origin: AtomOrigin,
    /// The units of files.
    pub units: Units,
    /// Most frames of the training, validation and test splits.
    pub counts: [usize; 3],
    /// How far neighbours are sought, in Å.
    pub cutoff: f64,
}

/// Where frames come from.
#[derive(Clone, PartialEq, Debug)]
pub enum AtomOrigin {
    /// 500 frames of ethanol at 500 K by GFN2-xTB, which are part of this crate ([`ETHANOL`]).
    Ethanol,
    /// A file, or a folder. A folder with files called `train`, `valid` (or `val`) and `test` has its splits in them; each file of another
    /// is a trajectory, and is split by blocks of time.
    Path(PathBuf),
}

/// The archive of the kept frames of ethanol: `z`, `R` (Å), `E` (eV) and `F` (eV/Å).
pub const ETHANOL: &[u8] = include_bytes!("ethanol.npz");

impl AtomOrigin {
    fn path(&self) -> &Path {
        match self {
            Self::Ethanol => Path::new("ethanol.npz"),
            Self::Path(path) => path,
        }
    }
}

impl AtomSource {
    /// The units, with that of energies which the format has where none is named.
    fn units_of_files(&self) -> Units {
        let first = files_of(self.origin.path()).ok().and_then(|files| files.into_iter().next());
        let energy = match &self.origin {
            AtomOrigin::Ethanol => EnergyUnit::ElectronVolt,
            AtomOrigin::Path(_) => {
                self.units.energy.or(first.map_or(EnergyUnit::ElectronVolt, |file| files::usual(&file)))
            }
        };
        Units { energy, ..self.units }
    }
}

/// A frame with its neighbours.
#[derive(Clone, PartialEq, Debug)]
pub struct Neighbourhood {
    /// The frame.
    pub frame: Frame,
    /// The pairs within the cutoff.
    pub neighbours: Neighbours,
    /// The vector of each pair from receiver to sender, in Å.
    pub differences: Vec<Vector>,
}

impl Neighbourhood {
    /// Finds the neighbours within `cutoff` (Å).
    ///
    /// # Errors
    /// As [`Neighbours::find`].
    pub fn find(frame: Frame, cutoff: f64) -> Result<Self> {
        let neighbours = Neighbours::find(&frame.positions, frame.cell.as_ref(), cutoff)?;
        Ok(Self::of(frame, neighbours))
    }

    /// A frame with its neighbours.
    pub fn of(frame: Frame, neighbours: Neighbours) -> Self {
        let of_pair = |k: usize| neighbours.difference(k, &frame.positions, frame.cell.as_ref());
        let differences = (0..neighbours.len()).map(of_pair).collect();
        Self { frame, neighbours, differences }
    }
}

/// Frames of a split, in eV and Å, with their neighbours.
#[derive(Clone, PartialEq, Debug)]
pub struct AtomSet {
    pub(super) frames: Vec<Neighbourhood>,
    pub(super) cutoff: f64,
    pub(super) reference: Vec<f64>,
    /// Most edges of a frame, if all frames have the same number of atoms, else 0.
    pub(super) edges: usize,
    force_scale: f64,
}

impl AtomSet {
    /// Frames with their neighbours within `cutoff` (Å). Reference energies and the size of forces are those of `training`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a frame with a fault, with coinciding atoms, or without an energy or forces where `labelled`.
    pub fn new(frames: Vec<Frame>, training: &[Frame], cutoff: f64, labelled: bool) -> Result<Self> {
        Self::require_sound(&frames, labelled)?;
        let found = frames.into_par_iter().map(|frame| Neighbourhood::find(frame, cutoff));
        let frames = Self::of_neighbourhoods(found.collect::<Result<_>>()?, cutoff);
        Ok(Self { reference: reference_energies(training), force_scale: force_scale(training), ..frames })
    }

    /// Frames whose neighbours within `cutoff` (Å) are known, with reference energies of 0.
    pub fn of_neighbourhoods(frames: Vec<Neighbourhood>, cutoff: f64) -> Self {
        let alike = frames.windows(2).all(|pair| pair[0].frame.len() == pair[1].frame.len());
        let edges = frames.iter().map(|one| one.neighbours.len()).max().filter(|_| alike).unwrap_or(0);
        Self { frames, cutoff, reference: reference_energies(&[]), edges, force_scale: 1.0 }
    }

    /// Refuses frames with a fault, or without an energy or forces where they are to be `labelled`.
    ///
    /// # Errors
    /// [`Error::Argument`] that names the frame and the fault.
    pub fn require_sound(frames: &[Frame], labelled: bool) -> Result<()> {
        for (at, frame) in frames.iter().enumerate() {
            let missing = labelled && (frame.energy.is_none() || frame.forces.is_none());
            let missing = missing.then(|| "it lacks an energy or forces".to_owned());
            if let Some(fault) = frame.fault().or(missing) {
                return Err(Error::Argument {
                    operation: "atoms",
                    argument: "frames",
                    actual: format!("frame {at}: {fault}"),
                    expected: "frames with atoms, and with energies and forces to learn".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Reads a split.
    ///
    /// # Errors
    /// Those of [`read`](super::read); [`Error::DataSet`] for a folder without frames, splits that are too small, frames without energies or
    /// forces, atoms that coincide, and units that cannot be right.
    pub fn load(source: &AtomSource, split: Split) -> Result<Self> {
        let training = read_split(source, Split::Train)?;
        if split == Split::Train {
            Consistency::of(&training)
                .require(&source.units_of_files())
                .map_err(|reason| Error::DataSet { path: source.origin.path().to_owned(), reason })?;
        }
        let frames = match split {
            Split::Train => training.clone(),
            other => read_split(source, other)?,
        };
        Self::new(frames, &training, source.cutoff, true).map_err(|error| match error {
            Error::Argument { actual, expected, .. } => Error::DataSet {
                path: source.origin.path().to_owned(),
                reason: format!("{split} split: {actual}; expected {expected}"),
            },
            other => other,
        })
    }

    /// The frames with their neighbours.
    pub fn frames(&self) -> &[Neighbourhood] {
        &self.frames
    }

    /// Reference energies by atomic number, in eV.
    pub fn reference(&self) -> &[f64] {
        &self.reference
    }

    /// The root mean square of the components of the training forces, in eV/Å; 1 without forces.
    pub fn force_scale(&self) -> f64 {
        self.force_scale
    }

    /// Atomic numbers that occur, in order.
    pub fn species(&self) -> Vec<u8> {
        let mut found: Vec<u8> =
            self.frames.iter().flat_map(|one| one.frame.numbers.iter().copied()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// How far neighbours were sought, in Å.
    pub fn cutoff(&self) -> f64 {
        self.cutoff
    }

    /// The frames with other labels, as many as there are frames.
    #[must_use]
    pub fn labelled(mut self, labels: Vec<Labels>) -> Self {
        for (one, labels) in self.frames.iter_mut().zip(labels) {
            one.frame = one.frame.labelled(labels);
        }
        self
    }

    /// The frames turned by an isometry and moved, with their atoms in another order ([`Frame::moved`]).
    ///
    /// # Errors
    /// As [`Frame::moved`].
    pub fn moved(&self, isometry: &Isometry, shift: Vector) -> Result<Self> {
        let moved =
            self.frames.iter().map(|one| Neighbourhood::find(one.frame.moved(isometry, shift)?, self.cutoff));
        Ok(Self { frames: moved.collect::<Result<_>>()?, ..self.clone() })
    }

    /// The first `frames` frames, or all if there are fewer.
    #[must_use]
    pub fn take(mut self, frames: usize) -> Self {
        self.frames.truncate(frames);
        self
    }

    /// The frames in a sentence: how many, of what.
    pub fn about(&self) -> String {
        let atoms = self.frames.iter().map(|one| one.frame.len());
        let (least, most) = (atoms.clone().min().unwrap_or(0), atoms.max().unwrap_or(0));
        format!("{} frames of {least} to {most} atoms of {}", self.frames.len(), listed(self.species()))
    }
}

fn force_scale(frames: &[Frame]) -> f64 {
    let forces = frames.iter().filter_map(|frame| frame.forces.as_ref()).flatten().flatten();
    let (count, square) = forces.fold((0usize, 0.0), |(count, sum), x| (count + 1, sum + x * x));
    let scale = (square / count.max(1) as f64).sqrt();
    if scale > 0.0 { f64::from(scale as f32) } else { 1.0 }
}

/// The frames of a split, thinned to the number asked for.
fn read_split(source: &AtomSource, split: Split) -> Result<Vec<Frame>> {
    let AtomSource { origin, units, counts, .. } = source;
    let path = origin.path();
    let refused = |reason: String| Error::DataSet { path: path.to_owned(), reason };
    let count = counts[split as usize];
    let files = match origin {
        AtomOrigin::Ethanol => vec![path.to_owned()],
        AtomOrigin::Path(path) => files_of(path)?,
    };
    let read = |file: &Path| match origin {
        AtomOrigin::Ethanol => files::from_bytes(ETHANOL, file, &Units::EV_ANGSTROM),
        AtomOrigin::Path(_) => files::read(file, units),
    };
    let own = |file: &&PathBuf| {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        stem == split.name() || (split == Split::Valid && stem == "val")
    };
    let is_split = files.iter().any(|file| file.file_stem().is_some_and(|stem| stem == "train"));
    let mut available = Vec::new();
    if is_split {
        for file in files.iter().filter(own) {
            available.extend(read(file)?);
        }
    } else {
        for file in &files {
            let frames = read(file)?;
            let kept = frames_of(split, frames.len());
            let mut kept = kept.into_iter().peekable();
            let of_split = frames.into_iter().enumerate().filter(|(at, _)| kept.next_if_eq(at).is_some());
            available.extend(of_split.map(|(_, frame)| frame));
        }
    }
    if available.len() < count {
        let there = available.len();
        let by = if is_split { "in its file" } else { "in the blocks of time that are its share" };
        return Err(refused(format!(
            "the {split} split has {there} frames {by}, {count} are asked for; set data.{split}={there} or less, or give more frames"
        )));
    }
    let kept = thinned(&(0..available.len()).collect::<Vec<_>>(), count);
    let mut kept = kept.into_iter().peekable();
    let frames = available.into_iter().enumerate().filter(|(at, _)| kept.next_if_eq(at).is_some());
    Ok(frames.map(|(_, frame)| frame).collect())
}

/// The file itself, or the files of frames in a folder, in the order of their names.
fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(|source| Error::io("list frames", path, source))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(|source| Error::io("list frames", path, source))?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.contains(&ending) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        let reason = "it is a folder without .xyz, .extxyz or .npz files".to_owned();
        return Err(Error::DataSet { path: path.to_owned(), reason });
    }
    Ok(files)
}
