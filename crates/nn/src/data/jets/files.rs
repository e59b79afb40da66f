//! Jets read from files: the published tables of top tagging, arrays prepared from them, and NumPy arrays.

use super::{FourMomentum, JetSets, sets::OPERATION};
use crate::{
    Error, Result,
    data::{Split, npy::NpyArray},
};
use std::path::{Path, PathBuf};

/// A shuffled file does not begin with this many jets of one class.
const ONE_CLASS: usize = 64;

impl JetSets {
    /// Reads the first `jets` jets of the file of a split in `folder`, and of each the `particles` particles of largest transverse
    /// momentum. The file of a split is one of
    ///
    /// - `train.h5`, `val.h5` or `valid.h5`, `test.h5`: the top-tagging reference data as published (Zenodo 2603256), a table that
    ///   pandas wrote, with the columns `E_0`, `PX_0`, `PY_0`, `PZ_0`, `E_1`, … and `is_signal_new`; or datasets `Pmu` `[jets, any, 4]`
    ///   and `is_signal` `[jets]`
    ///   (with the feature `hdf5`, which is on by default);
    /// - `jets_{split}_momenta.npy` `[jets, any, 4]` with `jets_{split}_labels.npy` `[jets]`.
    ///
    /// Rows are E, px, py, pz in GeV; rows without transverse momentum are padding. Jets without a mass are skipped, with a warning.
    /// Besides the momenta that are kept, one block of rows is in memory at a time.
    ///
    /// # Errors
    /// [`Error::DataSet`] for files that are missing, ambiguous, or hold only one class; [`Error::Io`] or [`Error::Format`] for files that
    /// are damaged or hold something else; [`Error::NotFinite`].
    pub fn load(folder: &Path, split: Split, particles: usize, jets: usize) -> Result<Self> {
        let path = find(folder, split)?;
        let mut kept = Kept::new(&path, particles, jets);
        if path.extension().is_some_and(|extension| extension == "npy") {
            read_npy(&path, &folder.join(format!("jets_{split}_labels.npy")), &mut kept)?;
        } else {
            read_hdf5(&path, &mut kept)?;
        }
        kept.finish(split)
    }
}

/// The file with the momenta of a split.
fn find(folder: &Path, split: Split) -> Result<PathBuf> {
    let refused = |reason| Error::DataSet { path: folder.to_owned(), reason };
    if !folder.is_dir() {
        return Err(refused("it is not a folder; give the folder that holds the files".to_owned()));
    }
    let mut names = vec![format!("{split}.h5"), format!("jets_{split}_momenta.npy")];
    if split == Split::Valid {
        names.insert(0, "val.h5".to_owned());
    }
    let there: Vec<&String> = names.iter().filter(|name| folder.join(name).is_file()).collect();
    match there[..] {
        [name] => Ok(folder.join(name)),
        [] => Err(refused(format!("it holds none of {} for {split}", names.join(", ")))),
        _ => Err(refused(format!("it holds several files for {split}, of which one must go: {there:?}"))),
    }
}

#[cfg(feature = "hdf5")]
fn read_hdf5(path: &Path, kept: &mut Kept) -> Result<()> {
    super::tables::read(path, kept)
}

#[cfg(not(feature = "hdf5"))]
fn read_hdf5(path: &Path, _: &mut Kept) -> Result<()> {
    let reason =
        "reading HDF5 takes the feature `hdf5` of gradewise-nn; build with it, or convert the file to .npy"
            .to_owned();
    Err(Error::DataSet { path: path.to_owned(), reason })
}

fn read_npy(path: &Path, labels_path: &Path, kept: &mut Kept) -> Result<()> {
    let momenta = NpyArray::read(path)?;
    momenta.expect_shape(path, &[None, None, Some(4)], "jets, particles, E px py pz")?;
    let labels = NpyArray::read(labels_path)?;
    labels.expect_shape(labels_path, &[Some(momenta.shape[0])], "jets, as in the momenta file")?;
    kept.extend(momenta.shape[1], &momenta.values, &labels.values)
}

/// Collects the jets of a file.
pub(super) struct Kept {
    path: PathBuf,
    particles: usize,
    pub(super) limit: usize,
    /// The particles of the current jet.
    pub(super) jet: Vec<FourMomentum>,
    /// The number of jets read, and of those without a mass.
    seen: usize,
    massless: usize,
    momenta: Vec<f64>,
    labels: Vec<bool>,
}

impl Kept {
    fn new(path: &Path, particles: usize, limit: usize) -> Self {
        let (path, jet, momenta, labels) = (path.to_owned(), Vec::new(), Vec::new(), Vec::new());
        Self { path, particles, limit, jet, seen: 0, massless: 0, momenta, labels }
    }

    /// Adds jets of `momenta` `[jets, stored, 4]`, up to the limit.
    pub(super) fn extend(&mut self, stored: usize, momenta: &[f64], labels: &[f64]) -> Result<()> {
        let room = self.limit - self.seen;
        for (position, &label) in labels.iter().enumerate().take(room) {
            let numbers = momenta.iter().skip(position * stored * 4).take(stored * 4).copied();
            let numbers: Vec<f64> = numbers.collect();
            self.jet.clear();
            self.jet
                .extend(numbers.chunks_exact(4).map(|row| FourMomentum([row[0], row[1], row[2], row[3]])));
            self.push(label)?;
        }
        Ok(())
    }

    /// Adds the current jet.
    pub(super) fn push(&mut self, label: f64) -> Result<()> {
        let number = self.seen;
        self.seen += 1;
        for (particle, momentum) in self.jet.iter().enumerate() {
            if let Some(axis) = momentum.0.iter().position(|value| !value.is_finite()) {
                return Err(Error::NotFinite {
                    operation: OPERATION,
                    argument: self.path.display().to_string(),
                    index: vec![number, particle, axis],
                    value: momentum.0[axis],
                });
            }
        }
        if label != 0.0 && label != 1.0 {
            let reason =
                format!("jet {number} is of class {label}; expected are 1 for signal and 0 for background");
            return Err(Error::DataSet { path: self.path.clone(), reason });
        }
        // Removes padding and beam particles.
        self.jet.retain(|particle| particle.transverse() > 0.0);
        if !self.jet.is_sorted_by(|a, b| a.transverse() >= b.transverse()) {
            self.jet.sort_by(|a, b| b.transverse().total_cmp(&a.transverse()));
        }
        self.jet.truncate(self.particles);
        let total = self.jet.iter().fold(FourMomentum([0.0; 4]), |sum, particle| sum.plus(particle));
        if total.dot(&total) <= 0.0 {
            self.massless += 1;
            return Ok(());
        }
        self.momenta.extend(self.jet.iter().flat_map(|particle| particle.0));
        self.labels.push(label == 1.0);
        self.momenta.resize(self.labels.len() * self.particles * 4, 0.0);
        Ok(())
    }

    fn finish(mut self, split: Split) -> Result<JetSets> {
        if self.massless > 0 {
            tracing::warn!(
                "{}: {} of {} jets are left out: their first {} particles have no mass together",
                self.path.display(),
                self.massless,
                self.seen,
                self.particles
            );
        }
        let signal = self.labels.iter().filter(|&&label| label).count();
        if self.labels.is_empty() || (self.labels.len() >= ONE_CLASS && signal % self.labels.len() == 0) {
            let reason = if self.labels.is_empty() {
                format!("none of the {} jets read can be used", self.seen)
            } else {
                format!(
                    "the first {} jets are of one class; shuffle the file, or raise data.{split} to read more",
                    self.seen
                )
            };
            return Err(Error::DataSet { path: self.path, reason });
        }
        self.momenta.shrink_to_fit();
        JetSets::new(self.particles, self.momenta, self.labels)
    }
}

#[cfg(all(test, feature = "hdf5"))]
mod tests;
