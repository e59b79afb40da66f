//! `kernels`: resource usage and occupancy of the GPU kernels of this build.

use crate::{
    Command, Program,
    error::{Error, Result},
    output,
};
use clap::Args;
use gradewise_kernels::{
    BuildInfo, Resources, build_info,
    occupancy::{Limits, Needs},
    shared_bytes_of_kernel,
};
use serde::Serialize;
use std::fmt::Write;

/// A kernel on an architecture.
#[derive(Debug, Serialize)]
struct Line {
    kernel: &'static str,
    target: &'static str,
    registers: u32,
    stack: u32,
    spills: u32,
    /// Threads and bytes of shared memory of a block.
    threads: u32,
    shared: u32,
    /// Occupancy of a multiprocessor, or why no block fits.
    #[serde(flatten)]
    fit: Fit,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Fit {
    Fits { blocks: u32, occupancy: f64, limit: String },
    Not { problem: String },
}

/// List the GPU kernels of this build: what each needs, and how many blocks of it a multiprocessor holds.
///
/// Registers, static shared memory, stack and spills are as the compiler reports them. Occupancy follows from these, from the threads that
/// a block has at most, and from the dynamic shared memory of a block. For matrix products and blocks the dynamic shared memory is
/// fixed; for other kernels it depends on shapes (--shared). Needs no GPU, but a build with kernels.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise kernels                                     all, on every architecture
  gradewise kernels sgp_bwd --target 90a                those whose name has this text, on one architecture
  gradewise kernels matmul_hopper                       tiles of matrix products
  gradewise kernels sgp_fwd --threads 128 --shared 65536    for blocks of another size
  gradewise kernels --json")]
pub struct Kernels {
    /// Only kernels whose name contains this text.
    pub name: Option<String>,
    /// An architecture, such as 90a.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Threads of a block [default: the most that each kernel is compiled for]
    #[arg(long)]
    pub threads: Option<u32>,
    /// Bytes of dynamic shared memory of a block.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub shared: u32,
    /// Print a JSON array.
    #[arg(long)]
    pub json: bool,
}

impl Command for Kernels {
    const NAME: &'static str = "kernels";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Kernels) -> Result<()> {
    let lines = lines(arguments, &build_info())?;
    if arguments.json {
        return output::print_json(&lines);
    }
    output::print(&table(&lines))
}

fn lines(arguments: &Kernels, build: &BuildInfo) -> Result<Vec<Line>> {
    if build.kernels == 0 {
        let advice = "this build has no GPU kernels; build it with --features cuda (docs/gpu.md)";
        return Err(Error::Usage(advice.to_owned()));
    }
    if let Some(target) = arguments.target.as_deref().filter(|target| !build.targets.contains(target)) {
        let there = build.targets.join(", ");
        return Err(Error::Usage(format!("--target {target}: this build has kernels for {there}")));
    }
    let wanted = |resources: &Resources| {
        arguments.target.as_deref().is_none_or(|target| target == resources.target)
            && arguments.name.as_deref().is_none_or(|name| resources.kernel.contains(name))
    };
    let lines: Vec<Line> =
        build.resources().into_iter().filter(wanted).map(|resources| line(arguments, resources)).collect();
    match &arguments.name {
        Some(name) if lines.is_empty() => {
            Err(Error::Usage(format!("no kernel has `{name}` in its name; `gradewise kernels` lists all")))
        }
        _ => Ok(lines),
    }
}

fn line(arguments: &Kernels, resources: Resources) -> Line {
    let Resources { kernel, target, threads, registers, shared, stack, spills } = resources;
    let fixed = shared_bytes_of_kernel(kernel);
    let (threads, dynamic) = match fixed {
        Some(shared) => (threads, u32::try_from(shared).unwrap_or(u32::MAX)),
        None => (arguments.threads.unwrap_or(threads), arguments.shared),
    };
    let shared = shared.saturating_add(dynamic);
    let fit = match Limits::of(target) {
        None => Fit::Not { problem: format!("nothing is known about sm_{target}") },
        // On other architectures these kernels are compiled empty, and are never launched.
        Some(limits) if limits.capability != 90 && fixed.is_some() => {
            Fit::Not { problem: "for sm_90a only".to_owned() }
        }
        Some(limits) => match limits.occupancy(Needs { threads, registers, shared }) {
            Ok(found) => Fit::Fits {
                blocks: found.blocks,
                occupancy: f64::from(found.warps) / f64::from(found.most),
                limit: found.limits().map(|limit| limit.to_string()).collect::<Vec<_>>().join(" and "),
            },
            Err(error) => Fit::Not { problem: error.to_string() },
        },
    };
    Line { kernel, target, registers, stack, spills, threads, shared, fit }
}

fn table(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.kernel.len()).max().unwrap_or(0).max("kernel".len());
    let mut text = format!(
        "{:<width$} {:>6} {:>9} {:>5} {:>6} {:>7} {:>7} {:>6} {:>9}  limited by\n",
        "kernel", "target", "registers", "stack", "spills", "threads", "shared", "blocks", "occupancy",
    );
    for Line { kernel, target, registers, stack, spills, threads, shared, fit } in lines {
        let fit = match fit {
            Fit::Fits { blocks, occupancy, limit } => {
                format!("{blocks:>6} {:>8.0}%  {limit}", 100.0 * occupancy)
            }
            Fit::Not { problem } => format!("{:>6} {:>9}  {problem}", "-", "-"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{kernel:<width$} {target:>6} {registers:>9} {stack:>5} {spills:>6} {threads:>7} {shared:>7} {fit}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "kernel target threads registers shared stack spills
gw_gate_fwd_f32 80 256 32 0 0 0
gw_gate_fwd_f32 90a 256 40 1024 0 0
gw_attention_warp_fwd_64_bf16 90a 128 128 0 0 0
gw_matmul_hopper_kk_256_2_f32 80 384 4 0 0 0
gw_matmul_hopper_kk_256_2_f32 90a 384 168 0 0 0
";
    const BUILD: BuildInfo = BuildInfo {
        targets: &["80", "90a"],
        ptx: "75",
        toolkit: "13.0.88",
        kernels: 2,
        assertions: false,
        report: REPORT,
    };

    fn arguments(name: Option<&str>, target: Option<&str>) -> Kernels {
        let [name, target] = [name, target].map(|text| text.map(str::to_owned));
        Kernels { name, target, threads: None, shared: 0, json: false }
    }

    #[test]
    fn a_line_for_each_kernel_and_architecture() {
        let text = table(&lines(&arguments(None, None), &BUILD).unwrap());
        let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words.len(), 6);
        assert_eq!(words[1][..9], ["gw_gate_fwd_f32", "80", "32", "0", "0", "256", "0", "8", "100%"]);
        assert_eq!(words[1][9..], ["threads", "and", "registers"], "both would keep a ninth block out");
        assert_eq!(
            words[2],
            ["gw_gate_fwd_f32", "90a", "40", "0", "0", "256", "1024", "6", "75%", "registers"]
        );
        assert!(text.contains("for sm_90a only"), "{text}");
        assert_eq!(
            words[3][5..],
            ["128", "0", "4", "25%", "registers"],
            "the block it is launched with: {text}"
        );
        let asked = Kernels { threads: Some(64), ..arguments(Some("attention"), None) };
        assert!(table(&lines(&asked, &BUILD).unwrap()).contains(" 64 "));
        assert_eq!(words[5][5..], ["384", "230400", "1", "19%", "registers", "and", "shared"], "{text}");
    }

    #[test]
    fn one_can_ask_for_some() {
        let found = lines(&arguments(Some("gate"), Some("90a")), &BUILD).unwrap();
        assert_eq!(found.len(), 1);
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!((json[0]["blocks"].as_u64(), json[0]["limit"].as_str()), (Some(6), Some("registers")));
        for (arguments, part) in
            [(arguments(Some("nothing"), None), "`nothing`"), (arguments(None, Some("75")), "80, 90a")]
        {
            let error = lines(&arguments, &BUILD).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let none = BuildInfo { targets: &[], kernels: 0, assertions: false, report: "", ..BUILD };
        assert!(lines(&arguments(None, None), &none).unwrap_err().to_string().contains("--features cuda"));
    }
}
