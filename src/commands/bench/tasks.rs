//! `bench tasks`: a training step of every task and preset.

use super::arguments::TaskTimes;
use gradewise_runner::{
    Program,
    error::{Error, Result},
    output, process,
};
use serde::{Deserialize, Serialize};
use std::{fmt::Write, process::Stdio};

/// The contents of tasks.json.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    steps: Vec<Step>,
    /// Tasks that could not be measured, with the reason.
    failed: Vec<(String, String)>,
}

/// A step of a task with the settings of a preset.
#[derive(Debug, Serialize)]
struct Step {
    task: &'static str,
    preset: Option<&'static str>,
    #[serde(flatten)]
    measured: Measured,
    /// The least time in which the device can move the bytes and do the arithmetic of the operations, one by one.
    floor_seconds: f64,
}

/// What `profile --json` prints, as far as it is shown.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    device: String,
    parameters: usize,
    batch_size: usize,
    eager_seconds: f64,
    captured_seconds: Option<f64>,
    captured_nodes: Option<usize>,
    fused_seconds: Option<f64>,
    fused_nodes: Option<usize>,
    #[serde(skip_serializing)]
    profile: Rows,
    #[serde(skip_serializing)]
    parts: Vec<Part>,
    #[serde(default)]
    peak_bytes: usize,
}

#[derive(Debug, Deserialize)]
struct Rows {
    rows: Vec<Row>,
}

/// An operation: its time, and the share of it that the device needs at least.
#[derive(Debug, Deserialize)]
struct Row {
    seconds: f64,
    roofline: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Part {
    peak_bytes: usize,
}

pub fn run(program: &Program, arguments: &TaskTimes) -> Result<()> {
    let known: Vec<&str> = program.tasks().iter().map(|task| task.name).collect();
    if let Some(unknown) = arguments.tasks.iter().find(|name| !known.contains(&name.as_str())) {
        let tasks = known.join(", ");
        return Err(Error::Usage(format!("there is no task `{unknown}`; there are {tasks}")));
    }
    std::fs::create_dir_all(&arguments.out)
        .map_err(|error| Error::Output { path: arguments.out.clone(), reason: error.to_string() })?;
    let mut report = Report { device: String::new(), steps: Vec::new(), failed: Vec::new() };
    for task in program.tasks() {
        if !(arguments.tasks.is_empty() || arguments.tasks.iter().any(|name| name == task.name)) {
            continue;
        }
        let presets = task.presets.iter().map(|&(name, _)| Some(name));
        for preset in std::iter::once(None).chain(presets) {
            match measure(arguments, task.name, preset) {
                Ok(step) => {
                    report.device.clone_from(&step.measured.device);
                    output::note(&line(&step));
                    report.steps.push(step);
                }
                Err(reason) => {
                    let name = named(task.name, preset);
                    output::note(&format!("{name}: not measured: {reason}"));
                    report.failed.push((name, reason));
                }
            }
        }
    }
    output::write_json(&arguments.out.join("tasks.json"), &report)?;
    output::print(&table(&report))
}

fn named(task: &str, preset: Option<&str>) -> String {
    preset.map_or_else(|| task.to_owned(), |preset| format!("{task} {preset}"))
}

/// Profiles a task in a process of its own, so that memory and caches of one do not count for another.
fn measure(
    arguments: &TaskTimes,
    task: &'static str,
    preset: Option<&'static str>,
) -> std::result::Result<Step, String> {
    let (executable, launcher) = process::program().map_err(|error| error.to_string())?;
    let mut command = std::process::Command::new(executable);
    command.args(launcher).args(["profile", task, "--json"]);
    if let Some(preset) = preset {
        command.args(["--preset", preset]);
    }
    command.args(["--device", &arguments.device.to_string(), "--steps", &arguments.steps.to_string()]);
    let done = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        return Err(text.lines().last().unwrap_or("it printed no reason").to_owned());
    }
    let mut measured: Measured = serde_json::from_slice(&done.stdout).map_err(|error| error.to_string())?;
    measured.peak_bytes = measured.parts.iter().map(|part| part.peak_bytes).max().unwrap_or(0);
    let floor_seconds =
        measured.profile.rows.iter().map(|row| row.seconds * row.roofline.unwrap_or(0.0)).sum();
    Ok(Step { task, preset, measured, floor_seconds })
}

impl Step {
    /// The time of a step as training takes it.
    fn seconds(&self) -> f64 {
        let Measured { fused_seconds, captured_seconds, eager_seconds, .. } = self.measured;
        fused_seconds.or(captured_seconds).unwrap_or(eager_seconds)
    }
}

/// One row of the table.
fn cells(step: &Step) -> [String; 8] {
    let Measured { captured_seconds, captured_nodes, fused_nodes, eager_seconds, batch_size, .. } =
        step.measured;
    let ms = |seconds: f64| format!("{:.3}", 1e3 * seconds);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        named(step.task, step.preset),
        batch_size.to_string(),
        ms(eager_seconds),
        or_dash(captured_seconds.map(ms)),
        ms(step.seconds()),
        or_dash(captured_nodes.map(|before| match fused_nodes {
            Some(after) => format!("{before} → {after}"),
            None => before.to_string(),
        })),
        format!("{:.1}", step.measured.peak_bytes as f64 / f64::from(1 << 20)),
        format!("{:.0}%", 100.0 * step.floor_seconds / step.seconds()),
    ]
}

const HEADERS: [&str; 8] =
    ["task", "batch", "eager ms", "captured ms", "fused ms", "launches", "peak MiB", "of the roof"];

fn line(step: &Step) -> String {
    let cells = cells(step);
    let values: Vec<String> =
        HEADERS.iter().zip(&cells).skip(1).map(|(header, cell)| format!("{header} {cell}")).collect();
    format!("{}: {}", cells[0], values.join(", "))
}

/// The table, in Markdown.
fn table(report: &Report) -> String {
    let mut text = format!("training steps on {}\n\n| {} |\n", report.device, HEADERS.join(" | "));
    text += &format!("|{}\n", "---|".repeat(HEADERS.len()));
    for step in &report.steps {
        let _ = writeln!(text, "| {} |", cells(step).join(" | "));
    }
    for (name, reason) in &report.failed {
        let _ = writeln!(text, "\n{name}: not measured: {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_profile_prints_is_read_and_shown() {
        let text = r#"{"device": "a GPU", "parameters": 7, "batch_size": 64, "eager_seconds": 0.02, "captured_seconds": 0.004,
            "captured_nodes": 3085, "fused_seconds": 0.001, "fused_nodes": 300, "advice": [],
            "profile": {"rows": [{"seconds": 0.002, "roofline": 0.1}, {"seconds": 0.001, "roofline": null}]},
            "parts": [{"name": "step", "peak_bytes": 1048576}, {"name": "forward", "peak_bytes": 3}]}"#;
        let mut measured: Measured = serde_json::from_str(text).unwrap();
        measured.peak_bytes = measured.parts.iter().map(|part| part.peak_bytes).max().unwrap();
        let floor_seconds =
            measured.profile.rows.iter().map(|row| row.seconds * row.roofline.unwrap_or(0.0)).sum();
        let step = Step { task: "gravity", preset: Some("full"), measured, floor_seconds };
        let expected = ["gravity full", "64", "20.000", "4.000", "1.000", "3085 → 300", "1.0", "20%"];
        assert_eq!(cells(&step), expected);
        let report = Report { device: "a GPU".to_owned(), steps: vec![step], failed: Vec::new() };
        assert!(
            table(&report)
                .contains("| gravity full | 64 | 20.000 | 4.000 | 1.000 | 3085 → 300 | 1.0 | 20% |")
        );
    }
}
