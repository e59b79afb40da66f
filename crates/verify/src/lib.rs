//! Checks of operators against golden vectors: files with inputs, the expected output, a cotangent, and the gradients
//! of Σ output·cotangent, all in double precision.
//!
//! A file's metadata names the operation and its options. The error is ‖a − b‖/‖b‖; NaN never passes.

pub mod bisect;
mod cases;
mod fields;
mod general;
mod inputs;
mod optimizers;
pub mod precision;
mod tolerance;

pub use tolerance::{Tolerance, relative_error};

use gradewise_core::{DType, Signature};
use gradewise_kernels::{Compute, Device};
use gradewise_nn::checkpoint::TensorFile;
use std::{
    collections::HashMap,
    fmt,
    path::{Path, PathBuf},
};

/// Device and arithmetic of the operators.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device.
    pub device: Device,
    /// The dtype that inputs are converted to.
    pub dtype: DType,
}

/// The error of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorReport {
    /// `y` for the output, `grad.<name>` for a gradient.
    pub name: String,
    /// Relative error.
    pub error: f64,
    /// The largest error that passes.
    pub tolerance: f64,
}

impl TensorReport {
    /// Whether the error is within the tolerance; `false` for NaN.
    pub fn passes(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// The outcome of one file.
#[derive(Clone, Debug)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// The errors of its tensors, or why it could not be run.
    pub outcome: Result<Vec<TensorReport>, String>,
}

impl FileReport {
    /// Whether every tensor is within its tolerance.
    pub fn passes(&self) -> bool {
        self.outcome
            .as_ref()
            .is_ok_and(|tensors| !tensors.is_empty() && tensors.iter().all(TensorReport::passes))
    }

    /// The tensor with the largest error in units of its tolerance.
    pub fn worst(&self) -> Option<&TensorReport> {
        let excess = |tensor: &TensorReport| {
            let ratio = tensor.error / tensor.tolerance;
            if ratio.is_nan() { f64::INFINITY } else { ratio }
        };
        let tensors = self.outcome.as_ref().ok()?;
        tensors.iter().max_by(|a, b| excess(a).total_cmp(&excess(b)))
    }
}

impl fmt::Display for FileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self
            .path
            .file_name()
            .map_or_else(|| self.path.display().to_string(), |name| name.to_string_lossy().into_owned());
        let verdict = if self.passes() { "ok  " } else { "FAIL" };
        write!(f, "{verdict} {name}")?;
        match &self.outcome {
            Err(reason) => write!(f, ": {reason}"),
            Ok(tensors) => {
                for tensor in tensors {
                    write!(f, "  {} {:.1e}", tensor.name, tensor.error)?;
                    if !tensor.passes() {
                        write!(f, " > {:.1e}", tensor.tolerance)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Checks every `.safetensors` file under `folder`, in the order of their paths, and calls `seen` after each.
///
/// # Errors
/// The folder cannot be read. Files that cannot be run are reports that do not pass.
pub fn verify_dir(
    folder: &Path,
    options: &Options,
    mut seen: impl FnMut(&FileReport),
) -> std::io::Result<Vec<FileReport>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "safetensors") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files
        .into_iter()
        .map(|path| {
            let report = verify_file(&path, options);
            seen(&report);
            report
        })
        .collect())
}

/// Checks one file.
pub fn verify_file(path: &Path, options: &Options) -> FileReport {
    let outcome = TensorFile::read(path)
        .map_err(|error| error.to_string())
        .and_then(|file| Golden::new(&file, options)?.run());
    FileReport { path: path.to_owned(), outcome }
}

/// A golden file with its metadata.
struct Golden<'a> {
    file: &'a TensorFile,
    options: &'a Options,
    operation: &'a str,
    /// Errors of a plain single-precision evaluation, by tensor.
    f32_error: HashMap<String, f64>,
}

impl<'a> Golden<'a> {
    fn new(file: &'a TensorFile, options: &'a Options) -> Result<Self, String> {
        let operation = file
            .metadata
            .get("op")
            .ok_or("the metadata has no key `op`: this is not a golden file")?
            .as_str();
        let f32_error = match file.metadata.get("f32_error") {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| format!("metadata `f32_error` is not a table of numbers: {error}"))?,
            None => HashMap::new(),
        };
        Ok(Self { file, options, operation, f32_error })
    }

    fn run(&self) -> Result<Vec<TensorReport>, String> {
        match self.operation {
            "adam" | "adamw" | "sgd" => optimizers::run(self),
            _ => cases::run(self),
        }
    }

    /// Whether the operation multiplies matrices, which TF32 affects.
    fn has_matrix_products(&self) -> bool {
        fields::has_matrix_products(self.operation)
            || matches!(
                self.operation,
                "matmul"
                    | "bmm"
                    | "attention"
                    | "fcgp"
                    | "gelu_fcgp_norm"
                    | "mv_linear"
                    | "clifford_layer"
                    | "steerable_gp"
                    | "fc_steerable_gp"
            )
    }

    /// A value of the metadata, parsed; `default` if the key is missing or empty.
    fn option<T: std::str::FromStr>(&self, key: &str, default: T) -> Result<T, String> {
        match self.file.metadata.get(key).map(String::as_str) {
            None | Some("") => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("metadata `{key}` has the value `{text}`")),
        }
    }

    /// A boolean of the metadata, in Python's form.
    fn flag(&self, key: &str, default: bool) -> Result<bool, String> {
        match self.file.metadata.get(key).map(String::as_str) {
            None | Some("") => Ok(default),
            Some("True" | "true" | "1") => Ok(true),
            Some("False" | "false" | "0") => Ok(false),
            Some(text) => Err(format!("metadata `{key}` has the value `{text}`, expected True or False")),
        }
    }

    fn signature(&self) -> Result<Signature, String> {
        let text = self.file.metadata.get("signature").ok_or("the metadata has no key `signature`")?;
        text.parse().map_err(|error: gradewise_core::Error| error.to_string())
    }

    /// The expected values of a tensor.
    fn expected(&self, name: &str) -> Result<Vec<f64>, String> {
        let tensor = self.file.get(name).ok_or_else(|| format!("the file has no tensor `{name}`"))?;
        tensor.to_f64_vec().ok_or_else(|| format!("tensor `{name}` is {}", tensor.dtype_name()))
    }

    /// Compares `actual` with tensor `stored` of the file, reported as `name`.
    fn compare(&self, name: &str, stored: &str, actual: &[f64]) -> Result<TensorReport, String> {
        self.measure(name, actual, &self.expected(stored)?)
    }

    /// Compares `actual` with `expected`, reported as `name`.
    fn measure(&self, name: &str, actual: &[f64], expected: &[f64]) -> Result<TensorReport, String> {
        if actual.len() != expected.len() {
            return Err(format!("{name} has {} elements, expected {}", actual.len(), expected.len()));
        }
        let table = Tolerance::of(self.options.dtype, Compute::current(), self.has_matrix_products());
        let tolerance = table.scaled(self.f32_error.get(name).copied());
        Ok(TensorReport { name: name.to_owned(), error: relative_error(actual, expected), tolerance })
    }
}
