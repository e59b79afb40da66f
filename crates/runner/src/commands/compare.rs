//! `compare`: where two runs, or two checkpoints, differ.

use crate::{
    Command, Program,
    config::differences,
    error::{Error, Result},
    output,
    run::{Contents, RunFolder},
    task::number,
};
use clap::Args;
use gradewise_nn::{checkpoint::TensorFile, train::MetricsLog};
use gradewise_verify::relative_error;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

/// Prefixes of numbers that depend on the machine, not on the computation.
const OF_THE_MACHINE: [&str; 6] = ["seconds", "joules", "memory", "devices", "gpu", "utilization"];

/// Compare two runs, or two checkpoints: where their parameters, numbers and settings differ.
///
/// For two run folders, shows the settings that differ, the results at the end, the relative difference of each parameter, and the first
/// step at which each number of metrics.jsonl differs. For files, shows the parameters. With --tolerance, lists the differences above it, the largest first. Exits
/// with 1 if anything but settings differs by more than the tolerance; the default, 0, tests whether two runs have the same bits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise compare runs/nbody-1 runs/nbody-2
  gradewise compare a/checkpoint.safetensors b/checkpoint.safetensors --tolerance 1e-6
  gradewise compare runs/cpu runs/gpu --tolerance 1e-3 --json")]
pub struct Compare {
    /// The folder of a run, or a file of tensors.
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// Another folder or file, to compare with.
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// The largest relative difference that passes.
    #[arg(long, default_value_t = 0.0)]
    pub tolerance: f64,
    /// Number of parameters to list, those that differ most first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl Command for Compare {
    const NAME: &'static str = "compare";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Compare) -> Result<()> {
    let (first, second) = (Side::read(&arguments.first)?, Side::read(&arguments.second)?);
    let report = Report::new(&first, &second);
    if arguments.json {
        output::print_json(&report)?;
    } else {
        output::print(&report.text(arguments.limit, arguments.tolerance))?;
    }
    let differences = report.beyond(arguments.tolerance);
    if differences == 0 {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "{differences} parameters or numbers differ by more than {}",
        arguments.tolerance
    )))
}

/// One of the two runs or files.
struct Side {
    tensors: TensorFile,
    records: Vec<Value>,
    settings: Option<toml::Table>,
}

impl Side {
    fn read(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Ok(Self { tensors: TensorFile::read(path)?, records: Vec::new(), settings: None });
        }
        if let Contents::Seeds(_) | Contents::Curve(_) = Contents::of(path)? {
            return Err(Error::Usage(format!(
                "{0} holds several runs; name two of them, or see all of them by `{1} export {0} --html`",
                path.display(),
                output::program()
            )));
        }
        let folder = RunFolder::at(path);
        let records =
            if folder.metrics().is_file() { MetricsLog::read(folder.metrics())? } else { Vec::new() };
        let settings = std::fs::read_to_string(folder.config()).ok().and_then(|text| text.parse().ok());
        Ok(Self { tensors: TensorFile::read(folder.checkpoint())?, records, settings })
    }

    /// The weights, without the training state.
    fn weights(&self) -> BTreeMap<&str, (Vec<usize>, Vec<f64>)> {
        let all = self.tensors.iter().filter(|(name, _)| !name.contains("::"));
        all.filter_map(|(name, tensor)| Some((name, (tensor.shape().to_vec(), tensor.to_f64_vec()?))))
            .collect()
    }

    /// Numbers by name and step.
    fn numbers(&self) -> BTreeMap<String, BTreeMap<u64, f64>> {
        let mut numbers: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
        for record in &self.records {
            let (Some(step), Some(fields)) = (record["step"].as_u64(), record.as_object()) else { continue };
            flatten("", fields, &mut |name, value| {
                numbers.entry(name.to_owned()).or_default().insert(step, value);
            });
        }
        numbers
    }
}

/// Calls `see` with every number of a record, under its dotted name.
fn flatten(prefix: &str, fields: &Map<String, Value>, see: &mut dyn FnMut(&str, f64)) {
    for (name, value) in fields {
        if prefix.is_empty() && (name == "step" || OF_THE_MACHINE.iter().any(|other| name.starts_with(other)))
        {
            continue;
        }
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(inner) => flatten(&name, inner, see),
            Value::Number(number) => see(&name, number.as_f64().unwrap_or(f64::NAN)),
            _ => {}
        }
    }
}

/// A parameter in both, and the difference of its values.
#[derive(Debug, Serialize)]
struct Parameter {
    name: String,
    /// ‖a − b‖ / ‖b‖; `None` if it is NaN or infinite, or shapes differ.
    difference: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shapes: Option<[Vec<usize>; 2]>,
}

/// A number of the record that differs.
#[derive(Debug, Serialize)]
struct Parting {
    name: String,
    /// The first step at which it differs.
    step: u64,
    values: [f64; 2],
    /// The largest relative difference at any step; `None` if it is NaN or infinite.
    largest: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    parameters: Vec<Parameter>,
    /// The relative difference of all parameters together.
    difference: Option<f64>,
    only_first: Vec<String>,
    only_second: Vec<String>,
    /// The results at the end of both runs: the name, and both values.
    results: Vec<(String, f64, f64)>,
    /// Steps that both records have.
    steps: usize,
    partings: Vec<Parting>,
    /// Settings that differ: the key, and both values.
    settings: Vec<(String, String, String)>,
}

/// Whether a difference exceeds the tolerance; a missing one always does.
fn beyond(difference: Option<f64>, tolerance: f64) -> bool {
    difference.is_none_or(|difference| difference > tolerance)
}

/// The sort key of a difference.
fn size(difference: Option<f64>) -> f64 {
    difference.unwrap_or(f64::INFINITY)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

impl Report {
    fn new(first: &Side, second: &Side) -> Self {
        let (a, b) = (first.weights(), second.weights());
        let only = |one: &BTreeMap<&str, _>, other: &BTreeMap<&str, _>| -> Vec<String> {
            one.keys().filter(|name| !other.contains_key(*name)).map(|name| (*name).to_owned()).collect()
        };
        let (mut parameters, mut all) = (Vec::new(), (Vec::new(), Vec::new()));
        for (name, (shape, values)) in &a {
            let Some((other_shape, other)) = b.get(name) else { continue };
            let shapes = (shape != other_shape).then(|| [shape.clone(), other_shape.clone()]);
            let difference = if shapes.is_some() { None } else { finite(relative_error(values, other)) };
            all.0.extend_from_slice(values);
            all.1.extend_from_slice(other);
            parameters.push(Parameter { name: (*name).to_owned(), difference, shapes });
        }
        parameters.sort_by(|a, b| size(b.difference).total_cmp(&size(a.difference)));
        let difference =
            if all.0.len() == all.1.len() { finite(relative_error(&all.0, &all.1)) } else { None };
        let (mut partings, mut steps) = (Vec::new(), BTreeSet::new());
        let (of_first, of_second) = (first.numbers(), second.numbers());
        for (name, values) in &of_first {
            let Some(others) = of_second.get(name) else { continue };
            let mut parting: Option<Parting> = None;
            for (&step, &a) in values {
                let Some(&b) = others.get(&step) else { continue };
                steps.insert(step);
                if a == b || (a.is_nan() && b.is_nan()) {
                    continue;
                }
                let relative = relative_error(&[a], &[b]);
                let parting = parting.get_or_insert_with(|| Parting {
                    name: name.clone(),
                    step,
                    values: [a, b],
                    largest: Some(0.0),
                });
                parting.largest =
                    parting.largest.and_then(|largest| finite(relative).map(|now| largest.max(now)));
            }
            partings.extend(parting);
        }
        // Numbers of single parameters come after total ones.
        partings.sort_by_key(|parting| (parting.step, parting.name.contains('.'), parting.name.clone()));
        Self {
            only_first: only(&a, &b),
            only_second: only(&b, &a),
            parameters,
            difference,
            results: results(&of_first, &of_second),
            steps: steps.len(),
            partings,
            settings: match (&first.settings, &second.settings) {
                (Some(first), Some(second)) => differences(first, second),
                _ => Vec::new(),
            },
        }
    }

    /// The number of parameters and numbers that exceed a tolerance.
    fn beyond(&self, tolerance: f64) -> usize {
        self.parameters.iter().filter(|parameter| beyond(parameter.difference, tolerance)).count()
            + self.partings.iter().filter(|parting| beyond(parting.largest, tolerance)).count()
            + self.only_first.len()
            + self.only_second.len()
    }

    /// Lists differences above the tolerance, the largest first, and counts the others.
    fn text(&self, limit: usize, tolerance: f64) -> String {
        let mut text = String::new();
        for (position, (key, a, b)) in self.settings.iter().enumerate() {
            text += &format!("{:<12}{key}: {a} and {b}\n", if position == 0 { "settings" } else { "" });
        }
        for (position, (name, a, b)) in self.results.iter().enumerate() {
            let ratio = if *b != 0.0 { format!(", {:.3} times", a / b) } else { String::new() };
            let head = if position == 0 { "results" } else { "" };
            text += &format!("{head:<12}{name}: {} and {}{ratio}\n", number(*a), number(*b));
        }
        let differ = self.parameters.iter().filter(|parameter| parameter.difference != Some(0.0)).count();
        text += &format!("parameters  {} in both, {differ} differ", self.parameters.len());
        if differ > 0 {
            text += &format!("; all together by {}", Shown(self.difference));
        }
        // The parameters are sorted by difference.
        let past =
            self.parameters.iter().take_while(|parameter| beyond(parameter.difference, tolerance)).count();
        if tolerance > 0.0 && differ > 0 {
            text += &format!("; {past} by more than {tolerance:e}");
        }
        let differ = past;
        text.push('\n');
        for parameter in self.parameters.iter().take(differ.min(limit)) {
            text += &match &parameter.shapes {
                Some([a, b]) => format!("  shapes {a:?} and {b:?}  {}\n", parameter.name),
                None => format!("  {:>8}  {}\n", Shown(parameter.difference).to_string(), parameter.name),
            };
        }
        if differ > limit {
            text += &format!("            and {} more (--limit)\n", differ - limit);
        }
        for (which, names) in [("first", &self.only_first), ("second", &self.only_second)] {
            if !names.is_empty() {
                text += &format!("            only in the {which}: {}\n", names.join(", "));
            }
        }
        if self.steps > 0 {
            text += &match self.partings.first() {
                None => format!("metrics     the same at all {} steps that both have\n", self.steps),
                Some(first) => format!("metrics     part at step {}\n", first.step),
            };
        }
        let mut past: Vec<&Parting> =
            self.partings.iter().filter(|parting| beyond(parting.largest, tolerance)).collect();
        if tolerance > 0.0 {
            // By default in the order of their first difference, because the first one is where the runs diverged.
            past.sort_by(|a, b| size(b.largest).total_cmp(&size(a.largest)));
            if !self.partings.is_empty() {
                let (parted, past) = (self.partings.len(), past.len());
                text += &format!("            {parted} numbers part, {past} by more than {tolerance:e}\n");
            }
        }
        for Parting { name, step, values: [a, b], largest } in past.iter().take(limit) {
            // Numbers of 17 digits differ in the last ones, which three do not show.
            let [a, b] =
                [a, b].map(|value| if *largest < Some(1e-3) { value.to_string() } else { number(*value) });
            text += &format!("  {name}: {a} and {b} at step {step}, at most {} apart\n", Shown(*largest));
        }
        if past.len() > limit {
            text += &format!("            and {} more numbers (--limit)\n", past.len() - limit);
        }
        text
    }
}

/// The last value of the measures that both records have: of the test split, of the valid one, and of the training loss.
fn results(
    first: &BTreeMap<String, BTreeMap<u64, f64>>,
    second: &BTreeMap<String, BTreeMap<u64, f64>>,
) -> Vec<(String, f64, f64)> {
    let last = |values: &BTreeMap<u64, f64>| values.last_key_value().map(|(_, value)| *value);
    let is_result = |name: &str| {
        !name.contains('.')
            && ["test_", "valid_", "train_loss", "asymmetry"].iter().any(|start| name.starts_with(start))
    };
    let found = first.iter().filter(|(name, _)| is_result(name));
    let both =
        found.filter_map(|(name, values)| Some((name.clone(), last(values)?, last(second.get(name)?)?)));
    let mut both: Vec<_> = both.collect();
    both.sort_by_key(|(name, ..)| !name.starts_with("test_"));
    both
}

/// Formats a relative difference, if there is one.
struct Shown(Option<f64>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(difference) => write!(f, "{difference:.1e}"),
            None => f.write_str("no number"),
        }
    }
}
