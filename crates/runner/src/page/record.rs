//! What the files of a run folder say about the run.

use super::About;
use crate::{
    error::{Error, Result},
    plots::{Figure, LossHistory, Panel},
    run::RunFolder,
};
use gradewise_nn::train::MetricsLog;
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

/// The numbers of a step, from all records that were written after it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Row {
    pub step: u64,
    pub train: Option<f64>,
    pub valid: Option<f64>,
    pub lr: Option<f64>,
    pub gradient_norm: Option<f64>,
    pub seconds: Option<f64>,
}

/// Norms of the gradients of each parameter.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Norms {
    pub names: Vec<String>,
    /// The step, and a norm for each name.
    pub rows: Vec<(u64, Vec<Option<f64>>)>,
}

/// A run, as its folder has it.
#[derive(Clone, Debug)]
pub struct Record {
    /// The name of the folder.
    pub name: String,
    pub about: Option<About>,
    /// By step, ascending.
    pub rows: Vec<Row>,
    pub norms: Norms,
    /// The record of the end; `Null` for a run that has not ended.
    pub end: Value,
    /// The error that ended the run.
    pub error: Option<String>,
    /// The settings, as TOML.
    pub config: String,
    /// Name and text of the drawings.
    pub figures: Vec<(String, String)>,
    /// Systems of particles with true and predicted motion.
    pub systems: Vec<Panel>,
}

impl Record {
    /// Reads a folder. Files that are missing or damaged, other than metrics.jsonl, count as absent.
    ///
    /// # Errors
    /// metrics.jsonl cannot be read.
    pub fn read(folder: &RunFolder) -> Result<Self> {
        let text = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let json = |path: &Path| serde_json::from_str::<Value>(&text(path)).unwrap_or(Value::Null);
        let records = match folder.metrics().exists() {
            true => MetricsLog::read(folder.metrics())?,
            false => Vec::new(),
        };
        let about = About::read(folder);
        let decides = about.as_ref().map_or("mse", |about| about.decides.as_str()).to_owned();
        let has_ended = |record: &Value| record.get(format!("test_{decides}")).is_some();
        let systems = serde_json::from_str(&text(&folder.file("trajectories.json")));
        Ok(Self {
            name: name(folder.path()),
            rows: rows(&records, &decides),
            norms: norms(&records),
            end: records.into_iter().rfind(has_ended).unwrap_or(Value::Null),
            error: json(&folder.error())["error"].as_str().map(str::to_owned),
            config: text(&folder.config()),
            figures: Vec::new(),
            systems: systems.unwrap_or_default(),
            about,
        })
    }

    /// Reads the drawings.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_figures(&mut self, folder: &RunFolder) -> Result<()> {
        self.figures = figures(folder)?;
        // The page has the data already.
        self.figures.iter_mut().for_each(|(_, svg)| *svg = Figure::strip(svg));
        Ok(())
    }

    /// The last step of which something is known.
    pub fn last_step(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.step)
    }

    /// The primary measure on the test split, if the run has ended and it is finite.
    pub fn test(&self) -> Option<f64> {
        let decides = self.about.as_ref().map_or("mse", |about| about.decides.as_str());
        self.end[format!("test_{decides}")].as_f64()
    }

    /// What `loss.svg` shows.
    pub fn history(&self) -> LossHistory {
        let series = |value: fn(&Row) -> Option<f64>| -> Vec<(u64, f64)> {
            self.rows.iter().filter_map(|row| Some((row.step, value(row)?))).collect()
        };
        LossHistory {
            train: series(|row| row.train),
            valid: series(|row| row.valid),
            test: self.test(),
            lr: series(|row| row.lr),
        }
    }
}

/// The records of each step together.
fn rows(records: &[Value], decides: &str) -> Vec<Row> {
    let valid = format!("valid_{decides}");
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    for record in records {
        let Some(step) = record["step"].as_u64() else { continue };
        let row = rows.entry(step).or_insert(Row { step, ..Row::default() });
        for (field, key) in [
            (&mut row.train, "train_loss"),
            (&mut row.valid, valid.as_str()),
            (&mut row.lr, "lr"),
            (&mut row.gradient_norm, "gradient_norm"),
            (&mut row.seconds, "seconds"),
        ] {
            *field = record[key].as_f64().or(*field);
        }
    }
    rows.into_values().collect()
}

/// The norms of each parameter, in the order of their names.
fn norms(records: &[Value]) -> Norms {
    let found = || records.iter().filter_map(|record| record["gradient_norms"].as_object());
    let names: Vec<String> = found().next().map_or_else(Vec::new, |norms| norms.keys().cloned().collect());
    let row = |record: &Value| {
        let norms = record["gradient_norms"].as_object()?;
        let values = names.iter().map(|name| norms.get(name).and_then(Value::as_f64)).collect();
        Some((record["step"].as_u64()?, values))
    };
    let rows = records.iter().filter_map(row).collect();
    Norms { names, rows }
}

/// The name of a folder.
pub fn name(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The drawings of a folder, by name.
pub fn figures(folder: &RunFolder) -> Result<Vec<(String, String)>> {
    let failed =
        |path: &Path, error: std::io::Error| Error::Usage(format!("read {}: {error}", path.display()));
    let entries = std::fs::read_dir(folder.path()).map_err(|error| failed(folder.path(), error))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "svg"));
    paths.sort();
    let read = |path: &std::path::PathBuf| -> Result<(String, String)> {
        let text = std::fs::read_to_string(path).map_err(|error| failed(path, error))?;
        Ok((path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(), text))
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn records_of_a_step_are_one_row() {
        let records = [
            json!({"step": 5, "train_loss": 0.5, "lr": 0.1, "gradient_norms": {"b": 2.0, "a": 1.0}}),
            json!({"step": 5, "valid_mse": 0.25, "seconds": 1.0}),
            json!({"step": 3, "train_loss": null, "gradient_norms": {"a": 4.0}}),
        ];
        let rows = rows(&records, "mse");
        let five = Row {
            step: 5,
            train: Some(0.5),
            valid: Some(0.25),
            lr: Some(0.1),
            seconds: Some(1.0),
            ..Row::default()
        };
        assert_eq!(rows, [Row { step: 3, ..Row::default() }, five]);
        let norms = norms(&records);
        assert_eq!(norms.names, ["a", "b"]);
        assert_eq!(norms.rows, [(5, vec![Some(1.0), Some(2.0)]), (3, vec![Some(4.0), None])]);
    }
}
