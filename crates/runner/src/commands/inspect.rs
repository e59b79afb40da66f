//! `inspect`: names, shapes and statistics of the tensors in a file.

use crate::{
    Command, Program,
    error::{Error, Result},
    output,
    run::{Contents, RunFolder},
};
use clap::Args;
use gradewise_nn::checkpoint::{Checkpoint, StoredTensor, TensorFile};
use gradewise_zoo::data::npy::NpyArray;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
};

/// The most characters of a metadata value that the table shows.
const LONGEST_VALUE: usize = 160;

/// The description of a file.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    format: &'static str,
    metadata: BTreeMap<String, serde_json::Value>,
    elements: usize,
    bytes: usize,
    tensors: Vec<TensorReport>,
}

#[derive(Debug, Serialize)]
struct TensorReport {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    #[serde(flatten)]
    statistics: Option<Statistics>,
}

/// Statistics of the finite values, and counts of the others.
#[derive(Debug, PartialEq, Serialize)]
struct Statistics {
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    std: Option<f64>,
    nan: usize,
    infinite: usize,
}

/// Show what a file holds: names, shapes and statistics of its tensors.
///
/// Reads checkpoints, any safetensors file, and NumPy .npy files; of the folder of a run, its checkpoint.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise inspect runs/nbody-1
  gradewise inspect data/loc_train_charged5_initvel1small.npy
  gradewise inspect weights.safetensors --json")]
pub struct Inspect {
    /// The file, or the folder of a run.
    pub file: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

impl Command for Inspect {
    const NAME: &'static str = "inspect";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Inspect) -> Result<()> {
    let report = examine(arguments)?;
    if arguments.json {
        return output::print_json(&report);
    }
    output::print(&table(&report))
}

/// The checkpoint of a folder; other paths as they are.
fn file_of(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let runs = Contents::of(path)?.runs(path);
    let checkpoints: Vec<PathBuf> = runs.iter().map(|run| RunFolder::at(run).checkpoint()).collect();
    match &checkpoints[..] {
        [only] => Ok(only.clone()),
        several => Err(Error::Usage(format!(
            "{} holds {} runs; name one of {}",
            path.display(),
            several.len(),
            several.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn examine(arguments: &Inspect) -> Result<Report> {
    let path = &file_of(&arguments.file)?;
    let file = path.display().to_string();
    let is_npy = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npy"));
    if is_npy {
        let array = NpyArray::read(path)?;
        let tensor = TensorReport {
            name: path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
            dtype: array.descr.clone(),
            statistics: Some(statistics(&array.values)),
            shape: array.shape,
        };
        let elements = array.values.len();
        let width: usize =
            tensor.dtype.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(8);
        let (metadata, tensors) = (BTreeMap::new(), vec![tensor]);
        return Ok(Report {
            file,
            format: "NumPy array",
            metadata,
            elements,
            bytes: elements * width,
            tensors,
        });
    }
    let tensors = TensorFile::read(path)?;
    if !Checkpoint::is_checkpoint(&tensors) {
        let text = |(key, value): (&String, &String)| (key.clone(), value.clone().into());
        let metadata = tensors.metadata.iter().map(text).collect();
        return Ok(describe(file, "safetensors", metadata, &tensors));
    }
    let checkpoint = Checkpoint::from_tensor_file(tensors)?;
    let metadata = match serde_json::to_value(&checkpoint.metadata) {
        Ok(serde_json::Value::Object(fields)) => fields.into_iter().collect(),
        _ => BTreeMap::new(),
    };
    Ok(describe(file, "gradewise checkpoint", metadata, &checkpoint.tensors))
}

fn describe(
    file: String,
    format: &'static str,
    metadata: BTreeMap<String, serde_json::Value>,
    tensors: &TensorFile,
) -> Report {
    let report = |(name, tensor): (&str, &StoredTensor)| TensorReport {
        name: name.to_owned(),
        dtype: tensor.dtype_name(),
        shape: tensor.shape().to_vec(),
        statistics: tensor.to_f64_vec().map(|values| statistics(&values)),
    };
    Report {
        file,
        format,
        metadata,
        elements: tensors.iter().map(|(_, t)| t.shape().iter().product::<usize>()).sum(),
        bytes: tensors.iter().map(|(_, t)| t.byte_len()).sum(),
        tensors: tensors.iter().map(report).collect(),
    }
}

fn statistics(values: &[f64]) -> Statistics {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let count = finite.len() as f64;
    let some = |value: f64| (!finite.is_empty()).then_some(value);
    // Two passes: the textbook one-pass variance cancels.
    let mean = finite.iter().sum::<f64>() / count;
    let variance = finite.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    Statistics {
        min: some(finite.iter().copied().fold(f64::INFINITY, f64::min)),
        max: some(finite.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        mean: some(mean),
        std: some(variance.sqrt()),
        nan: values.iter().filter(|value| value.is_nan()).count(),
        infinite: values.iter().filter(|value| value.is_infinite()).count(),
    }
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    let tensors = if report.tensors.len() == 1 { "tensor" } else { "tensors" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}: {}, {} {tensors}, {} elements, {} bytes",
        report.file,
        report.format,
        report.tensors.len(),
        report.elements,
        report.bytes
    );
    for (key, value) in &report.metadata {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let length = value.chars().count();
        let shown: String = value.chars().take(LONGEST_VALUE).collect();
        let rest = if length > LONGEST_VALUE {
            format!("… ({length} characters; all with --json)")
        } else {
            String::new()
        };
        let _ = writeln!(text, "  {key} = {shown}{rest}");
    }
    let width = report.tensors.iter().map(|tensor| tensor.name.chars().count()).max().unwrap_or(0).max(4);
    let shapes: Vec<String> = report.tensors.iter().map(|tensor| format!("{:?}", tensor.shape)).collect();
    let shape_width = shapes.iter().map(String::len).max().unwrap_or(0).max(5);
    if !report.tensors.is_empty() {
        let _ = writeln!(
            text,
            "\n{:width$}  {:5}  {:shape_width$}  {:>11}  {:>11}  {:>11}  {:>11}",
            "name", "dtype", "shape", "min", "max", "mean", "std"
        );
    }
    for (tensor, shape) in report.tensors.iter().zip(&shapes) {
        let _ = write!(text, "{:width$}  {:5}  {shape:shape_width$}", tensor.name, tensor.dtype);
        let Some(statistics) = &tensor.statistics else {
            let _ = writeln!(text, "  (no real numbers)");
            continue;
        };
        for value in [statistics.min, statistics.max, statistics.mean, statistics.std] {
            let cell = value.map_or_else(|| "–".to_owned(), |value| format!("{value:.4e}"));
            let _ = write!(text, "  {cell:>11}");
        }
        for (count, what) in [(statistics.nan, "NaN"), (statistics.infinite, "infinite")] {
            if count > 0 {
                let _ = write!(text, "  {count} {what}");
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_of_the_finite_values() {
        let s = statistics(&[1e9 + 1.0, f64::NAN, 1e9 + 3.0, f64::INFINITY, f64::NEG_INFINITY]);
        assert_eq!(
            (s.min, s.max, s.mean, s.std),
            (Some(1e9 + 1.0), Some(1e9 + 3.0), Some(1e9 + 2.0), Some(1.0))
        );
        assert_eq!((s.nan, s.infinite), (1, 2));
        assert_eq!(statistics(&[f64::NAN]).mean, None);
        assert_eq!(statistics(&[]).std, None);
    }
}
