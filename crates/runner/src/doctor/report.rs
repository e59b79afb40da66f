//! The report of the doctor, as text and as JSON.

use serde::Serialize;
use std::fmt;

/// The outcome of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Passed.
    Ok,
    /// Information only.
    Info,
    /// Works, but not as well as it could.
    Warn,
    /// Does not work.
    Fail,
}

/// One line of the report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    pub check: String,
    pub verdict: Verdict,
    pub detail: String,
    /// Advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    fn new(check: impl Into<String>, verdict: Verdict, detail: impl Into<String>) -> Self {
        let detail: String = detail.into();
        let lines: Vec<&str> = detail.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        Self { check: check.into(), verdict, detail: lines.join("; "), advice: None }
    }

    pub fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, detail)
    }

    pub fn info(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(check, Verdict::Info, detail)
    }

    /// Information, with what to do for those who want it otherwise.
    pub fn optional(check: impl Into<String>, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..Self::new(check, Verdict::Info, detail) }
    }

    pub fn warn(check: impl Into<String>, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..Self::new(check, Verdict::Warn, detail) }
    }

    pub fn fail(check: impl Into<String>, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..Self::new(check, Verdict::Fail, detail) }
    }
}

impl Check {
    pub fn is_failed(&self) -> bool {
        self.verdict == Verdict::Fail
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Info => "info",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        let width = f.width().unwrap_or(0);
        write!(f, "{verdict} {:width$}  {}", self.check, self.detail)?;
        match &self.advice {
            Some(advice) => write!(f, " → {advice}"),
            None => Ok(()),
        }
    }
}

/// The information for bug reports.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct CudaInfo {
    /// Whether `--device cuda` finds a device on which this build's kernels run and, if tested, give correct results.
    pub available: bool,
    /// Number of devices that CUDA shows.
    pub count: usize,
    /// The device that `--device cuda` selects.
    pub current: Option<usize>,
    pub name: Option<String>,
    pub compute_capability: Option<String>,
    /// Memory in bytes.
    pub memory: Option<usize>,
    pub versions: Versions,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Versions {
    pub gradewise: String,
    /// The newest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// The version of the driver, from NVML.
    pub driver: Option<String>,
    /// The version of the compiler of this build's kernels.
    pub kernels: Option<String>,
    /// The version of the compiler that a build on this machine would use.
    pub nvcc: Option<String>,
    pub nvrtc: Option<String>,
    pub nvml: Option<String>,
    pub nccl: Option<String>,
}

/// The whole report.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Whether nothing failed.
    pub ok: bool,
    /// What works here, in a sentence for each device.
    pub summary: String,
    pub cuda: CudaInfo,
    pub checks: Vec<Check>,
}

impl Report {
    pub fn new(cuda: CudaInfo, checks: Vec<Check>) -> Self {
        let ok = checks.iter().all(|check| check.verdict != Verdict::Fail);
        Self { ok, summary: summary(&cuda, &checks), cuda, checks }
    }

    /// The self-tests of devices.
    pub fn self_tests(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.check.ends_with(" self-test"))
    }

    /// The information block.
    pub fn information(&self) -> String {
        let text = self.to_string();
        text.split("\n\n").find(|block| block.starts_with(BLOCK)).unwrap_or_default().to_owned()
    }

    pub fn failed(&self) -> usize {
        self.checks.iter().filter(|check| check.verdict == Verdict::Fail).count()
    }
}

/// The heading of the information block.
const BLOCK: &str = "[CUDA Info]";

/// What works: the CPU, then the GPU.
fn summary(cuda: &CudaInfo, checks: &[Check]) -> String {
    let processor = checks.iter().find(|check| check.check == "cpu");
    let cpu = match processor {
        Some(check) if check.is_failed() => "CPU: does not work, see below".to_owned(),
        Some(check) => {
            let about = check.detail.split("; ").next().unwrap_or_default();
            let tested = if check.detail.contains("self-test: ") { ", self-test passed" } else { "" };
            format!("CPU: works ({about}{tested})")
        }
        None => "CPU: not examined".to_owned(),
    };
    let gpu = match (&cuda.name, cuda.available) {
        (Some(name), true) => format!("GPU: works ({name})"),
        (Some(name), false) => format!("GPU: {name} cannot be used, see below"),
        (None, _) if checks.iter().any(Check::is_failed) => "GPU: cannot be used, see below".to_owned(),
        (None, _) => "GPU: none; --device cpu, the default, needs none".to_owned(),
    };
    format!("{cpu}. {gpu}.")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cuda, checks, .. } = self;
        let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let versions = &cuda.versions;
        writeln!(f, "{}\n\n{BLOCK}", self.summary)?;
        for (name, value) in [
            ("available", if cuda.available { "yes" } else { "no" }.to_owned()),
            ("count", cuda.count.to_string()),
            ("current", or_none(&cuda.current.map(|ordinal| format!("cuda:{ordinal}")))),
            ("name", or_none(&cuda.name)),
            ("compute capability", or_none(&cuda.compute_capability)),
            ("memory", or_none(&cuda.memory.map(|bytes| gib(bytes as u64)))),
            ("driver", or_none(&versions.driver)),
            ("CUDA of the driver", or_none(&versions.cuda)),
            ("CUDA of the kernels", or_none(&versions.kernels)),
            ("nvcc", or_none(&versions.nvcc)),
            ("NVRTC", or_none(&versions.nvrtc)),
            ("NVML", or_none(&versions.nvml)),
            ("NCCL", or_none(&versions.nccl)),
            ("gradewise", versions.gradewise.clone()),
        ] {
            writeln!(f, "{name:20} {value}")?;
        }
        writeln!(f, "\n[Checks]")?;
        let width = checks.iter().map(|check| check.check.len()).max().unwrap_or(0);
        for check in checks {
            writeln!(f, "{check:width$}")?;
        }
        let warned = checks.iter().filter(|check| check.verdict == Verdict::Warn).count();
        writeln!(f, "\n{} checks, {} failed, {warned} with a warning", checks.len(), self.failed())
    }
}

/// Bytes as GiB.
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}
