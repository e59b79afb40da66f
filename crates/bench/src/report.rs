//! Result files.
//!
//! A report is one JSON object. Its field `schema` names the version; a reader refuses others, and ignores fields it does not
//! know. Each field is described here.

use crate::{Case, Error, Pass, Result};
use gradewise_nn::checkpoint::replace_file;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// The version of the format written and read here.
pub const SCHEMA: &str = "gradewise-bench/1";

/// All measurements of one run, with the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The library that was measured, with its version, such as `gradewise 0.1.0` or `PyTorch 2.11.0`.
    pub library: String,
    /// The commit that was built, if it is known.
    pub commit: Option<String>,
    /// The date, in UTC: `2026-11-21T13:00:00Z`.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// The peak rates of the device, measured in the same run.
    pub ceilings: Ceilings,
    /// The measurements.
    pub rows: Vec<Row>,
}

/// A device and its driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The vendor's name of the device.
    pub device: String,
    /// The compute capability, such as `9.0`.
    pub compute_capability: String,
    /// Memory of the device.
    pub memory_bytes: u64,
    /// The driver's version, if it can be queried.
    pub driver: Option<String>,
    /// The CUDA version of the driver, such as `13.0`.
    pub cuda: String,
}

/// The measured peak rates of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes per second of a large copy within the device's memory, counting bytes read and bytes written.
    pub copy_bytes_per_s: Option<f64>,
    /// The vendor's library for matrix products and its version, where it was found.
    #[serde(default)]
    pub vendor: Option<String>,
    /// Large square matrix products, by arithmetic: `tf32`, `bf16`, `f16`, `f32` or `f64`.
    pub products: BTreeMap<String, ProductRate>,
}

/// Operations per second of a large matrix product, two for each multiply-add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProductRate {
    /// The rate of the measured library.
    pub ours: Option<f64>,
    /// The rate of cuBLASLt, if it was found.
    pub vendor: Option<f64>,
}

impl ProductRate {
    /// The larger of the two.
    pub fn best(&self) -> f64 {
        self.ours.unwrap_or(0.0).max(self.vendor.unwrap_or(0.0))
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The operator and its size.
    #[serde(flatten)]
    pub case: Case,
    /// The pass that was timed.
    pub pass: Pass,
    /// The implementation, if there are several, such as `compile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Median of the times, in milliseconds.
    pub ms: f64,
    /// The 10% quantile of the times, in milliseconds.
    pub low_ms: f64,
    /// The 90% quantile of the times, in milliseconds.
    pub high_ms: f64,
    /// Number of runs.
    pub runs: usize,
    /// Peak bytes of live tensors during the pass: inputs, parameters, results and intermediates.
    pub peak_bytes: Option<u64>,
    /// Minimum bytes of memory traffic ([`Work`](crate::Work)).
    pub bytes: u64,
    /// Operations, two for each multiply-add.
    pub flops: u64,
    /// The lower bound on the time from the ceilings.
    pub floor_ms: Option<f64>,
    /// cuBLASLt's time for the same product.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_ms: Option<f64>,
}

impl Report {
    /// An empty report of this library on `machine`, now.
    pub fn new(machine: Machine, commit: Option<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            library: format!("gradewise {}", env!("CARGO_PKG_VERSION")),
            commit,
            date: date(SystemTime::now()),
            machine,
            ceilings: Ceilings::default(),
            rows: Vec::new(),
        }
    }

    /// Reads a report.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] if the file is not a report, is of another version, or has invalid times.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| Error::Format { path: path.to_owned(), reason })
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match value.get("schema").and_then(serde_json::Value::as_str) {
            Some(SCHEMA) => {}
            Some(other) => return Err(format!("its schema is {other}, this program reads {SCHEMA}")),
            None => return Err("it has no field `schema`".to_owned()),
        }
        let report: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let mut seen = HashSet::new();
        for row in &report.rows {
            let name = || format!("the row {} {}", row.case, row.pass);
            let times = [row.ms, row.low_ms, row.high_ms];
            if !times.into_iter().all(|ms| ms.is_finite() && ms > 0.0) {
                return Err(format!("{} has times that are none: {times:?}", name()));
            }
            if !seen.insert((row.case, row.pass, row.variant.clone())) {
                return Err(format!("{} is there twice", name()));
            }
        }
        Ok(report)
    }

    /// Writes the report; a file at `path` is replaced atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut text = match serde_json::to_string_pretty(self) {
            Ok(text) => text,
            Err(error) => unreachable!("names and numbers can be written: {error}"),
        };
        text.push('\n');
        Ok(replace_file(path, |file| file.write_all(text.as_bytes()))?)
    }

    /// The rows of one variant, which becomes part of the library's name.
    ///
    /// # Errors
    /// No row has this variant; the message lists the known ones.
    pub fn only(&self, variant: &str) -> Result<Self> {
        let of = |row: &&Row| row.variant.as_deref() == Some(variant);
        let rows: Vec<Row> = self.rows.iter().filter(of).cloned().collect();
        if rows.is_empty() {
            let known: BTreeSet<_> = self.rows.iter().filter_map(|row| row.variant.as_deref()).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Error::Request(format!("the reference has no variant {variant}; it has: {known}")));
        }
        Ok(Self { library: format!("{} ({variant})", self.library), rows, ..self.clone() })
    }

    /// The fastest row of a case and pass among its variants.
    pub fn fastest(&self, case: &Case, pass: Pass) -> Option<&Row> {
        let rows = self.rows.iter().filter(|row| row.case == *case && row.pass == pass);
        rows.min_by(|a, b| a.ms.total_cmp(&b.ms))
    }

    /// The smallest peak memory of a case and pass among its variants.
    pub fn smallest_peak(&self, case: &Case, pass: Pass) -> Option<u64> {
        let rows = self.rows.iter().filter(|row| row.case == *case && row.pass == pass);
        rows.filter_map(|row| row.peak_bytes).min()
    }
}

/// Formats a moment as `2026-11-21T13:00:00Z`.
pub fn date(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Counts days from 1 March of year 0, so that the leap day is the last day of a year; 400 years have 146,097 days.
    let from_march = days + 719_468;
    let (era, day) = (from_march / 146_097, from_march % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let year = 400 * era + year;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;
    use gradewise_core::{DType, Signature};
    use gradewise_kernels::Compute;
    use std::time::Duration;

    fn report() -> Report {
        let machine = Machine {
            device: "NVIDIA H200".to_owned(),
            compute_capability: "9.0".to_owned(),
            memory_bytes: 150_000_000_000,
            driver: Some("580.159.04".to_owned()),
            cuda: "13.0".to_owned(),
        };
        let mut report = Report::new(machine, Some("0be66db".to_owned()));
        let case = Case::new(Op::Layer, Signature::CL3, (4096, 512), DType::F32, Compute::Tf32);
        let row = Row {
            case,
            pass: Pass::Forward,
            variant: None,
            ms: 0.3,
            low_ms: 0.29,
            high_ms: 0.31,
            runs: 50,
            peak_bytes: Some(1 << 28),
            bytes: 1 << 27,
            flops: 1 << 34,
            floor_ms: Some(0.048),
            vendor_ms: None,
        };
        report.rows.push(Row { pass: Pass::Both, ms: 0.9, ..row.clone() });
        report.rows.push(row);
        report.ceilings.copy_bytes_per_s = Some(4.24e12);
        report
    }

    #[test]
    fn a_report_is_the_same_after_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        // One report, because each has the time at which it was made.
        let written = report();
        written.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), written);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"schema\": \"gradewise-bench/1\""));
        assert!(text.contains("\"signature\""), "the case is part of its row");
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let parse = |text: &str| Report::parse(text).unwrap_err();
        assert!(parse("{").contains("EOF"));
        assert!(parse("[]").contains("no field `schema`"));
        assert!(parse(r#"{"schema": "gradewise-bench/2"}"#).contains("reads gradewise-bench/1"));
        assert!(parse(r#"{"schema": "gradewise-bench/1"}"#).contains("missing field"));
        let written = |change: fn(&mut Report)| {
            let mut report = report();
            change(&mut report);
            Report::parse(&serde_json::to_string(&report).unwrap()).unwrap_err()
        };
        assert!(written(|report| report.rows[0].ms = -1.0).contains("times that are none"));
        assert!(written(|report| report.rows[1].pass = Pass::Both).contains("there twice"));
        assert!(matches!(Report::read("nowhere.json"), Err(Error::Io { .. })));
    }

    #[test]
    fn unknown_fields_are_no_error() {
        let mut value = serde_json::to_value(report()).unwrap();
        value["weather"] = "rain".into();
        value["rows"][0]["clock_mhz"] = 1980.into();
        assert_eq!(Report::parse(&value.to_string()).unwrap(), report());
    }

    #[test]
    fn the_fastest_variant_counts() {
        let mut report = report();
        let case = report.rows[1].case;
        let slow =
            Row { variant: Some("eager".to_owned()), ms: 9.0, peak_bytes: Some(1), ..report.rows[1].clone() };
        report.rows.insert(0, slow);
        assert_eq!(report.fastest(&case, Pass::Forward).unwrap().ms, 0.3);
        assert_eq!(report.smallest_peak(&case, Pass::Forward), Some(1));
        assert!(report.fastest(&case, Pass::Graph).is_none());
        let eager = report.only("eager").unwrap();
        assert_eq!((eager.rows.len(), eager.fastest(&case, Pass::Forward).unwrap().ms), (1, 9.0));
        assert!(eager.library.ends_with(" (eager)"));
        assert!(report.only("flash").unwrap_err().to_string().ends_with("it has: eager"));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
