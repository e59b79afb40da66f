//! Totals of calls by operation, compared with the ceilings of the device.

use super::{Call, Recording};
use crate::{Ceilings, Result, Work};
use gradewise_core::DType;
use gradewise_kernels::Compute;
use serde::Serialize;
use std::{collections::HashMap, fmt};

/// The calls of an operation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct OperationRow {
    /// The operation.
    pub operation: &'static str,
    /// `forward` or `backward`.
    pub pass: String,
    /// Sizes of its inputs, unless calls with different sizes are grouped.
    pub shapes: Option<String>,
    /// The arithmetic of its matrix products: `f32`, `tf32`, ….
    pub arithmetic: String,
    /// Number of calls per step.
    pub calls: f64,
    /// Seconds per step.
    pub seconds: f64,
    /// Share of the time of a step.
    pub share: f64,
    /// Minimum bytes per step.
    pub bytes: f64,
    /// Operations per step.
    pub flops: f64,
    /// Achieved bytes per second.
    pub bytes_per_s: f64,
    /// Achieved operations per second.
    pub flops_per_s: f64,
    /// The lower bound on the time from the ceilings, over the measured time; above 1 if data were in a cache.
    pub roofline: Option<f64>,
}

/// The profile of a step.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Profile {
    /// Steps that were recorded.
    pub steps: usize,
    /// Mean time of a step.
    pub step_seconds: f64,
    /// The time outside of operations: sums of gradients, norms, the update, copies, and waiting.
    pub other_seconds: f64,
    /// The measured ceilings of the device.
    pub ceilings: Ceilings,
    /// The operations, the longest first.
    pub rows: Vec<OperationRow>,
}

/// How calls are grouped into rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grouping {
    /// One row for each operation, pass and set of shapes.
    #[default]
    Shapes,
    /// One row for each operation and pass.
    Operations,
}

/// The key of an arithmetic in [`Ceilings::products`].
fn arithmetic(dtype: Option<DType>) -> &'static str {
    match (dtype, Compute::current()) {
        (Some(DType::F32), Compute::Tf32) => "tf32",
        (Some(dtype), _) => dtype.name(),
        (None, _) => "f32",
    }
}

fn shapes(call: &Call) -> String {
    let shape = |dims: &Vec<usize>| dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("×");
    let mut texts: Vec<String> =
        call.shapes.iter().map(|dims| if dims.is_empty() { "1".to_owned() } else { shape(dims) }).collect();
    let more = texts.len().saturating_sub(3);
    texts.truncate(3);
    texts.join(" ") + &if more > 0 { format!(" +{more}") } else { String::new() }
}

impl Profile {
    /// Sums the calls of recordings, one recording for each step; `step_seconds` is the mean time of a step.
    ///
    /// # Errors
    /// From the clock.
    pub fn new(
        recordings: &[Recording],
        step_seconds: f64,
        ceilings: Ceilings,
        grouping: Grouping,
    ) -> Result<Self> {
        let steps = recordings.len().max(1) as f64;
        let mut places: HashMap<(&str, String, Option<String>, &str), usize> = HashMap::new();
        let mut rows: Vec<OperationRow> = Vec::new();
        let mut floors: Vec<Option<f64>> = Vec::new();
        let mut accounted = 0.0;
        for call in recordings.iter().flat_map(|recording| &recording.calls).filter(|call| !call.inside) {
            let seconds = call.marks[1].since(&call.marks[0])?;
            accounted += seconds / steps;
            let (pass, arithmetic) = (call.pass.to_string(), arithmetic(call.dtype));
            let shapes = (grouping == Grouping::Shapes).then(|| shapes(call));
            let key = (call.operation, pass.clone(), shapes.clone(), arithmetic);
            let place = *places.entry(key).or_insert_with(|| {
                rows.push(OperationRow {
                    operation: call.operation,
                    pass,
                    shapes,
                    arithmetic: arithmetic.to_owned(),
                    calls: 0.0,
                    seconds: 0.0,
                    share: 0.0,
                    bytes: 0.0,
                    flops: 0.0,
                    bytes_per_s: 0.0,
                    flops_per_s: 0.0,
                    roofline: None,
                });
                floors.push(Some(0.0));
                rows.len() - 1
            });
            let row = &mut rows[place];
            row.calls += 1.0 / steps;
            row.seconds += seconds / steps;
            let Work { bytes, flops, .. } = call.work;
            row.bytes += bytes as f64 / steps;
            row.flops += flops as f64 / steps;
            let floor = call.work.floor_ms_in(arithmetic, &ceilings);
            floors[place] = floors[place].zip(floor).map(|(sum, floor)| sum + floor * 1e-3 / steps);
        }
        for (row, floor) in rows.iter_mut().zip(floors) {
            row.share = row.seconds / step_seconds;
            (row.bytes_per_s, row.flops_per_s) = (row.bytes / row.seconds, row.flops / row.seconds);
            row.roofline = floor.filter(|&floor| floor > 0.0).map(|floor| floor / row.seconds);
        }
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let other_seconds = (step_seconds - accounted).max(0.0);
        Ok(Self { steps: recordings.len(), step_seconds, other_seconds, ceilings, rows })
    }

    /// Time of all operations per step.
    pub fn operation_seconds(&self) -> f64 {
        self.rows.iter().map(|row| row.seconds).sum()
    }

    /// The first `limit` rows as a table.
    pub fn table(&self, limit: usize) -> Table<'_> {
        Table(self, limit)
    }
}

/// A [`Profile`] as text.
#[derive(Debug)]
pub struct Table<'a>(&'a Profile, usize);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(profile, limit) = *self;
        let (shown, rest) = profile.rows.split_at(limit.min(profile.rows.len()));
        // At least two spaces follow each name.
        let width = shown.iter().map(|row| row.operation.len() + 2).max().unwrap_or(0).max(18);
        writeln!(
            f,
            "{:<width$}{:<9}{:>6}{:>11}{:>7}{:>9}{:>9}{:>9}{:>7}  shapes",
            "operation", "pass", "calls", "ms", "share", "MB", "GB/s", "GFLOP/s", "roof"
        )?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, pass: &str, rows: &[&OperationRow]| {
            let sum = |of: fn(&OperationRow) -> f64| rows.iter().map(|row| of(row)).sum::<f64>();
            let (seconds, bytes, flops) =
                (sum(|row| row.seconds), sum(|row| row.bytes), sum(|row| row.flops));
            let rate = |amount: f64| {
                if amount > 0.0 { format!("{:.1}", amount / seconds * 1e-9) } else { "-".to_owned() }
            };
            let roof = match rows {
                [row] => row.roofline.map_or("-".to_owned(), |roof| format!("{:.0}%", 100.0 * roof)),
                _ => "-".to_owned(),
            };
            let shapes = match rows {
                [row] => row.shapes.as_deref().unwrap_or_default(),
                _ => "",
            };
            let line = format!(
                "{name:<width$}{pass:<9}{:>6.0}{:>11.4}{:>6.1}%{:>9.2}{:>9}{:>9}{roof:>7}  {shapes}",
                sum(|row| row.calls),
                1e3 * seconds,
                100.0 * seconds / profile.step_seconds,
                1e-6 * bytes,
                rate(bytes),
                rate(flops),
            );
            writeln!(f, "{}", line.trim_end())
        };
        for shown in shown {
            row(f, shown.operation, &shown.pass, &[shown])?;
        }
        if !rest.is_empty() {
            let rest: Vec<&OperationRow> = rest.iter().collect();
            row(f, &format!("{} more", rest.len()), "", &rest)?;
        }
        let line = |f: &mut fmt::Formatter<'_>, name: &str, seconds: f64| {
            let width = width + 15;
            writeln!(
                f,
                "{name:<width$}{:>11.4}{:>6.1}%",
                1e3 * seconds,
                100.0 * seconds / profile.step_seconds
            )
        };
        line(f, "between operations, update", profile.other_seconds)?;
        line(f, "step", profile.step_seconds)?;
        if shown.iter().any(|row| row.roofline.is_some_and(|roof| roof > 1.0)) {
            writeln!(
                f,
                "roof above 100%: what is read lies in a cache, which is faster than the memory that the roof is measured on"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ProductRate,
        profile::{Mark, trace},
    };
    use gradewise_autograd::observe::Pass;
    use std::time::{Duration, Instant};

    fn call(start: Instant, operation: &'static str, [from, to]: [u64; 2], inside: bool, work: Work) -> Call {
        let at = |milliseconds| Mark::Host(start + Duration::from_millis(milliseconds));
        Call {
            operation,
            pass: Pass::Forward,
            inside,
            marks: [at(from), at(to)],
            host: [from as f64 * 1e-3, to as f64 * 1e-3],
            shapes: vec![vec![2, 3], vec![]],
            dtype: Some(DType::F32),
            work,
        }
    }

    fn recording() -> Recording {
        let start = Instant::now();
        let copy = Work { bytes: 1_000_000, matrix_flops: 0, flops: 0 };
        let product = Work { bytes: 1000, matrix_flops: 8_000_000, flops: 8_000_000 };
        let calls = vec![
            call(start, "add", [0, 2], false, copy),
            call(start, "add", [2, 4], false, copy),
            call(start, "matmul", [4, 12], false, product),
            call(start, "matmul", [4, 5], true, product),
        ];
        Recording { start: Some(Mark::Host(start)), calls }
    }

    fn ceilings() -> Ceilings {
        let rate = ProductRate { ours: Some(2e9), vendor: None };
        Ceilings { copy_bytes_per_s: Some(1e9), vendor: None, products: [("f32".to_owned(), rate)].into() }
    }

    #[test]
    fn times_are_added_up_and_compared_with_the_ceilings() {
        let profile = Profile::new(&[recording(), recording()], 0.02, ceilings(), Grouping::Shapes).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b.abs().max(1e-9);
        let [product, add] = &profile.rows[..] else { panic!("{profile:?}") };
        assert_eq!(
            (product.operation, add.operation, add.shapes.as_deref()),
            ("matmul", "add", Some("2×3 1"))
        );
        assert!(near(add.calls, 2.0) && near(add.seconds, 4e-3) && near(add.share, 0.2), "{add:?}");
        // Two copies of a megabyte at a gigabyte per second take two of the four milliseconds.
        assert!(near(add.roofline.unwrap(), 0.5) && near(add.bytes_per_s, 5e8), "{add:?}");
        // Eight million operations at two thousand million per second take four of eight milliseconds.
        assert!(near(product.roofline.unwrap(), 0.5) && near(product.flops_per_s, 1e9), "{product:?}");
        assert!(near(profile.other_seconds, 8e-3) && near(profile.operation_seconds(), 12e-3), "{profile:?}");
        let text = profile.table(1).to_string();
        for part in ["matmul            forward       1     8.0000  40.0%", " 50%  2×3 1", "1 more", "update"]
        {
            assert!(text.contains(part), "`{part}` is not in:\n{text}");
        }
        assert!(!text.contains("above 100%"), "{text}");
        // A long name widens its column, and a roofline above 100% is explained.
        let (mut long, mut fast) = (recording(), ceilings());
        long.calls[2].operation = "concat_segment_mean";
        fast.copy_bytes_per_s = Some(1e8);
        let text = Profile::new(&[long], 0.02, fast, Grouping::Shapes).unwrap().table(9).to_string();
        assert!(text.contains("concat_segment_mean  forward"), "{text}");
        assert!(text.contains("roof above 100%: what is read lies in a cache"), "{text}");
        let column = |line: &str, end: &str| line.find(end).map(|at| line[..at + end.len()].chars().count());
        let lines: Vec<&str> = text.lines().collect();
        let step = lines.iter().find(|line| line.starts_with("step ")).unwrap();
        assert_eq!(column(lines[0], "share"), column(step, "%"), "{text}");
        let unknown = Profile::new(&[recording()], 0.02, Ceilings::default(), Grouping::Operations).unwrap();
        assert!(unknown.rows.iter().all(|row| row.roofline.is_none() && row.shapes.is_none()));
    }

    #[test]
    fn a_trace_has_every_call_once_for_each_clock() {
        let trace = trace(&[recording()], "device").unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let calls: Vec<_> =
            events.iter().filter(|event| event["ph"] == "X" && event["cat"] == "device").collect();
        assert_eq!(calls.len(), 4);
        assert_eq!(
            (&calls[2]["name"], &calls[2]["ts"], &calls[2]["dur"]),
            (&"matmul".into(), &4e3.into(), &8e3.into())
        );
        assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 8);
    }
}
