//! The published NumPy files of a split: `loc_*.npy`, `vel_*.npy`, `charges_*.npy`, `edges_*.npy`.

use super::Trajectories;
use crate::data::npy::{self, NpyArray};
use gradewise_nn::{
    Error, Result,
    data::{Split, check_finite},
};
use std::path::{Path, PathBuf};

impl Trajectories {
    /// Reads the four files of `split` in `folder`: `loc_{split}{suffix}.npy` and so on, as the generator of the
    /// E(n)-GNN work writes them (its suffix is `_charged5_initvel1small`). The suffix is found automatically if the
    /// folder holds one set per split.
    ///
    /// # Errors
    /// [`Error::DataSet`] if files are missing, ambiguous, or contradict each other; [`Error::Format`] for a file
    /// that is truncated, foreign or of another shape; [`Error::NotFinite`] for NaN and infinity.
    pub fn load(folder: impl AsRef<Path>, split: Split, suffix: Option<&str>) -> Result<Self> {
        let folder = folder.as_ref();
        let suffix = match suffix {
            Some(suffix) => suffix.to_owned(),
            None => find_suffix(folder, split)?,
        };
        let read = |kind: &str| -> Result<(PathBuf, NpyArray)> {
            let path = folder.join(format!("{kind}_{split}{suffix}.npy"));
            if !path.is_file() {
                return Err(Error::DataSet {
                    reason:
                        "the file is missing; a split consists of loc_, vel_, charges_ and edges_ files with \
                             one suffix"
                            .to_owned(),
                    path,
                });
            }
            let array = NpyArray::read(&path)?;
            check_finite("read n-body data", &path.display().to_string(), &array.shape, &array.values)?;
            Ok((path, array))
        };
        let (loc_path, loc) = read("loc")?;
        loc.expect_shape(&loc_path, &[None, None, Some(3), None], "systems, frames, 3 axes, particles")?;
        let (systems, frames, particles) = (loc.shape[0], loc.shape[1], loc.shape[3]);
        let (path, vel) = read("vel")?;
        vel.expect_shape(
            &path,
            &[Some(systems), Some(frames), Some(3), Some(particles)],
            "as in the loc file: systems, frames, 3 axes, particles",
        )?;
        let (path, charges) = read("charges")?;
        charges.expect_shape(&path, &[Some(systems), Some(particles), Some(1)], "systems, particles, 1")?;
        let (path, edges) = read("edges")?;
        edges.expect_shape(
            &path,
            &[Some(systems), Some(particles), Some(particles)],
            "systems, particles, particles",
        )?;
        if particles == 0 {
            return Err(Error::DataSet {
                path: loc_path,
                reason: "its systems have no particles".to_owned(),
            });
        }
        // Edges are products of charges: if they disagree, the files do not belong together.
        for (position, &edge) in edges.values.iter().enumerate() {
            let (system, pair) = (position / (particles * particles), position % (particles * particles));
            let charge = |particle: usize| charges.values[system * particles + particle];
            let (i, j) = (pair / particles, pair % particles);
            let product = charge(i) * charge(j);
            if (edge - product).abs() > 1e-6 * product.abs().max(1.0) {
                return Err(Error::DataSet {
                    path,
                    reason: format!(
                        "edge [{system}, {i}, {j}] is {edge} but the charges file gives {product}; the files do not \
                         belong together"
                    ),
                });
            }
        }
        Ok(Self { systems, frames, particles, loc: loc.values, vel: vel.values, charges: charges.values })
    }

    /// Writes the four files of `split` into `folder` in the published layout.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn save(&self, folder: impl AsRef<Path>, split: Split, suffix: &str) -> Result<()> {
        let folder = folder.as_ref();
        let path = |kind: &str| folder.join(format!("{kind}_{split}{suffix}.npy"));
        let (s, f, n) = (self.systems, self.frames, self.particles);
        npy::write(path("loc"), &[s, f, 3, n], &self.loc)?;
        npy::write(path("vel"), &[s, f, 3, n], &self.vel)?;
        npy::write(path("charges"), &[s, n, 1], &self.charges)?;
        let edges: Vec<f64> = self
            .charges
            .chunks(n)
            .flat_map(|q| q.iter().flat_map(|a| q.iter().map(move |b| a * b)))
            .collect();
        npy::write(path("edges"), &[s, n, n], &edges)
    }
}

fn find_suffix(folder: &Path, split: Split) -> Result<String> {
    let refused = |reason: String| Error::DataSet { path: folder.to_owned(), reason };
    if !folder.is_dir() {
        return Err(refused(
            "it is not a folder; give the folder that holds loc_train*.npy and its companions".into(),
        ));
    }
    let entries = std::fs::read_dir(folder).map_err(|source| Error::io("list data set", folder, source))?;
    let mut suffixes = Vec::new();
    for entry in entries {
        let name = entry.map_err(|source| Error::io("list data set", folder, source))?.file_name();
        let suffix = name
            .to_str()
            .and_then(|name| name.strip_prefix("loc_")?.strip_prefix(split.name())?.strip_suffix(".npy"));
        suffixes.extend(suffix.filter(|rest| rest.is_empty() || rest.starts_with('_')).map(str::to_owned));
    }
    suffixes.sort();
    match suffixes.as_slice() {
        [] => Err(refused(format!("it holds no file loc_{split}*.npy"))),
        [one] => Ok(one.clone()),
        several => Err(refused(format!(
            "it holds several sets for {split}; choose a suffix: {}",
            several.join(", ")
        ))),
    }
}
