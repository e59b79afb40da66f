//! Jets read from files: the published tables of top tagging, arrays prepared from them, and NumPy arrays.

use super::{JetSets, kept::Kept};
use crate::data::npy::NpyArray;
use gradewise_nn::{Error, Result, data::Split};
use std::path::{Path, PathBuf};

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
        "reading HDF5 takes the feature `hdf5` of gradewise-zoo; build with it, or convert the file to .npy"
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

#[cfg(all(test, feature = "hdf5"))]
mod tests;
