//! Learning curves: runs that differ in the number of training samples.

use super::{
    Runs, refuse_existing,
    seeds::{self, Summary, precise},
};
use crate::{
    config::{DataSection, Resolver},
    error::{Error, Result},
    output, page, plots,
    run::RunFolder,
    task::{self, Statistic, Task, TaskConfig},
};
use serde::Serialize;
use std::{fmt::Write, path::Path};

/// The settings of each run, from fewest to most samples.
///
/// # Errors
/// Text that is not a list of at least two different numbers; numbers that the other settings do not allow.
pub fn configs<T: Task>(text: &str, resolver: &Resolver) -> Result<Vec<TaskConfig<T>>> {
    let numbers: Result<Vec<usize>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    let mut sizes = numbers.unwrap_or_default();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return Err(Error::Usage(format!(
            "--curve {text}: write at least two different numbers of training samples, such as 256,1024,4096"
        )));
    }
    let config = |size: &usize| -> Result<_> {
        let mut resolver = resolver.clone();
        let samples = i64::try_from(*size).unwrap_or(i64::MAX);
        Ok(task::resolve::<T>(resolver.set("data.train", samples, &format!("--curve {text}"))?)?)
    };
    sizes.iter().map(config).collect()
}

/// The results with one number of training samples.
#[derive(Debug, Serialize)]
struct Point {
    samples: usize,
    folder: String,
    #[serde(flatten)]
    summary: Summary,
}

/// The contents of curve.json.
#[derive(Debug, Serialize)]
struct Curve {
    task: &'static str,
    measure: &'static str,
    steps: u64,
    points: Vec<Point>,
}

/// Trains all runs, in `train-N/seed-S` of the folder; writes curve.json and curve.svg and prints a table of the results.
///
/// # Errors
/// Folders that exist already; those of the runs; [`Error::Diverged`], after everything is written.
pub fn train<T: Task>(
    runs: &Runs<T>,
    configs: &[TaskConfig<T>],
    seeds: &[u64],
    out: Option<&Path>,
) -> Result<()> {
    let parent = RunFolder::create(out, T::NAME)?;
    let name = |config: &TaskConfig<T>| format!("train-{}", config.data.train());
    refuse_existing(configs.iter().map(|config| parent.path().join(name(config))))?;
    let mut points = Vec::new();
    for config in configs {
        output::note(&format!("\n{} training samples", config.data.train()));
        let folder = parent.path().join(name(config));
        let summary = seeds::train(runs, config, seeds, &folder)?;
        points.push(Point { samples: config.data.train(), folder: name(config), summary });
    }
    let steps = configs.first().map_or(0, |config| config.train.trainer.steps);
    let curve = Curve { task: T::NAME, measure: T::DECIDES, steps, points };
    output::write_json(&parent.file("curve.json"), &curve)?;
    let series: Vec<plots::CurvePoint> = curve.points.iter().map(Point::plotted).collect();
    let title = format!("{}, {steps} steps", T::TITLE);
    plots::curve(&parent.file("curve.svg"), &series, &title, &format!("test {}", T::LOSS))?;
    page::refresh(parent.path());
    let folder = parent.path().display();
    output::print(&format!(
        "{}\nruns    {folder}\n        report.html curve.json curve.svg\n",
        curve.table()
    ))?;
    curve.points.iter().try_for_each(|point| point.summary.verdict())
}

impl Point {
    fn plotted(&self) -> plots::CurvePoint {
        let errors = self.summary.errors();
        plots::CurvePoint { samples: self.samples, mean: self.summary.statistic.mean, errors }
    }
}

impl Curve {
    fn table(&self) -> String {
        let mut text = format!("\n  samples  test {:<14}  seconds per run\n", self.measure);
        for Point { samples, summary, .. } in &self.points {
            let Statistic { mean, standard_deviation } = summary.statistic;
            let spread = standard_deviation.map_or_else(String::new, |s| format!(" ± {}", precise(s)));
            let seconds =
                summary.seeds.iter().map(|seed| seed.seconds).sum::<f64>() / summary.seeds.len() as f64;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{samples:>9}  {:<19}  {seconds:15.1}", precise(mean) + &spread);
        }
        text
    }
}
