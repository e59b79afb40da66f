//! The arguments of `report`.

use clap::Args;
use std::path::PathBuf;

/// Make an archive for an issue: the machine, the doctor's report, and of a run its settings, last numbers and last error.
///
/// Secrets, names of the user and of the machine, addresses, and paths outside the run folder are left out. What goes in is shown
/// first, and nothing is written before you say so. It holds text alone: no weights, no data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise report runs/nbody-1                         shows what would go in, and asks
  gradewise report runs/nbody-1 --show environment.txt  the whole text of one of the files
  gradewise report runs/nbody-1 --yes --out issue.tar.gz
  gradewise report                                      of the machine alone")]
pub struct Report {
    /// The folder of a run.
    #[arg(value_name = "RUN")]
    pub run: Option<PathBuf>,
    /// The archive [default: gradewise-report-RUN.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write it without asking.
    #[arg(long)]
    pub yes: bool,
    /// Show the text of one of the files, as it goes in, and write nothing.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["yes", "out"])]
    pub show: Option<String>,
}
