//! The file of predictions that `infer` writes.

use super::Target;
use crate::error::{Error, Result};
use gradewise_kernels::DType;
use gradewise_nn::{
    Prediction,
    checkpoint::{StoredTensor, TensorFile},
};
use gradewise_zoo::data::npy;
use std::path::{Path, PathBuf};

/// A safetensors file with the tensor `prediction`, and `deviation` if there are several models; or NAME.npy and NAME.deviation.npy.
#[derive(Debug)]
pub struct PredictionFile<'a> {
    path: &'a Path,
    overwrite: bool,
    inputs: &'a [&'a Path],
    is_npy: bool,
    /// The .npy file of the deviations, beside that of the predictions.
    deviations: Option<PathBuf>,
}

impl<'a> PredictionFile<'a> {
    /// The file that `--output` names, with the flag `--overwrite`, of a command that reads `inputs`; `are_several` says whether there are
    /// several models.
    ///
    /// # Errors
    /// [`Error::Usage`] for another ending than .safetensors and .npy.
    pub fn new(
        path: &'a Path,
        overwrite: bool,
        inputs: &'a [&'a Path],
        are_several: impl FnOnce() -> bool,
    ) -> Result<Self> {
        let is_npy = match path.extension().and_then(|ending| ending.to_str()) {
            Some(ending) if ending.eq_ignore_ascii_case("npy") => true,
            Some(ending) if ending.eq_ignore_ascii_case("safetensors") => false,
            _ => {
                let path = path.display();
                return Err(Error::Usage(format!(
                    "--output {path}: the name must end in .safetensors or .npy"
                )));
            }
        };
        let deviations = (is_npy && are_several()).then(|| path.with_extension("deviation.npy"));
        Ok(Self { path, overwrite, inputs, is_npy, deviations })
    }

    /// Refuses to write over anything but earlier predictions. `is_array` says whether a .npy file is one, which shows in its shape at most.
    ///
    /// # Errors
    /// As [`Target::require_free`].
    pub fn require_free(&self, is_array: impl Fn(&Path) -> bool) -> Result<()> {
        let target = |path: &'a Path| Target::new("--output", path, self.overwrite);
        if !self.is_npy {
            return target(self.path).require_free(self.inputs, is_tensors);
        }
        target(self.path).require_free(self.inputs, &is_array)?;
        match &self.deviations {
            Some(path) => Target::new("--output", path, self.overwrite).require_free(self.inputs, &is_array),
            None => Ok(()),
        }
    }

    /// Writes predictions of this shape, after [`require_free`](Self::require_free) once more, because the work may have taken long.
    ///
    /// # Errors
    /// [`Error::Failed`] for predictions that are not finite; as [`require_free`](Self::require_free); from writing.
    pub fn write(
        &self,
        shape: &[usize],
        prediction: &Prediction,
        dtype: DType,
        is_array: impl Fn(&Path) -> bool,
    ) -> Result<()> {
        require_finite(prediction)?;
        self.require_free(is_array)?;
        let Prediction { mean, deviation } = prediction;
        if self.is_npy {
            npy::write(self.path, shape, mean)?;
            if let (Some(path), Some(deviation)) = (&self.deviations, deviation) {
                npy::write(path, shape, deviation)?;
            }
            return Ok(());
        }
        let mut file = TensorFile::new();
        for (name, values) in [("prediction", Some(mean)), ("deviation", deviation.as_ref())] {
            if let Some(values) = values {
                file.insert(name, StoredTensor::from_f64(shape, values, dtype)?);
            }
        }
        Ok(file.write(self.path)?)
    }
}

/// Refuses predictions that are not finite.
///
/// # Errors
/// [`Error::Failed`], which names the first.
pub fn require_finite(prediction: &Prediction) -> Result<()> {
    match prediction.mean.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(bad) => {
            Err(Error::Failed(format!("prediction {bad} is {}; nothing was written", prediction.mean[bad])))
        }
    }
}

/// Whether a file holds earlier predictions and nothing else.
fn is_tensors(path: &Path) -> bool {
    TensorFile::read(path).is_ok_and(|file| {
        let known = |name: &str| ["prediction", "deviation"].contains(&name);
        file.get("prediction").is_some()
            && file.metadata.is_empty()
            && file.iter().all(|(name, _)| known(name))
    })
}
