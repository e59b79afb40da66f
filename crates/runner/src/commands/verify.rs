//! `verify`: operators against golden vectors.

use crate::{
    Command, Program,
    error::{Error, Result},
    options::RuntimeOptions,
    output, run,
};
use clap::Args;
use gradewise_verify::{Options, verify_dir};
use std::path::PathBuf;

/// Check operators and their gradients against golden vectors.
///
/// Runs every .safetensors file under a folder and compares the output and every gradient. Files that cannot be run
/// count as failures. Exits with 1 if anything is past its tolerance.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise verify golden/clifford
  gradewise verify golden/clifford --dtype f64")]
pub struct Verify {
    /// The folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub runtime: RuntimeOptions,
}

impl Command for Verify {
    const NAME: &'static str = "verify";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Verify) -> Result<()> {
    let placement = run::placement(&arguments.runtime.alone()?)?;
    let options = Options { device: placement.device, dtype: placement.dtype };
    let folder = &arguments.folder;
    let mut failure = None;
    let reports = verify_dir(folder, &options, |report| {
        if let Err(error) = output::print(&format!("{report}\n")) {
            failure.get_or_insert(error);
        }
    })
    .map_err(|source| gradewise_nn::Error::io("list golden files", folder, source))?;
    if let Some(error) = failure {
        return Err(error);
    }
    if reports.is_empty() {
        return Err(Error::Usage(format!("{} holds no .safetensors files", folder.display())));
    }
    let failed = reports.iter().filter(|report| !report.passes()).count();
    let ratio = |tensor: &gradewise_verify::TensorReport| {
        let ratio = tensor.error / tensor.tolerance;
        if ratio.is_nan() { f64::INFINITY } else { ratio }
    };
    let worst = reports
        .iter()
        .filter_map(|report| Some((report.path.display(), report.worst()?)))
        .max_by(|a, b| ratio(a.1).total_cmp(&ratio(b.1)));
    let mut text = format!("\n{} files in {} on {}: ", reports.len(), options.dtype, options.device);
    text += &if failed == 0 { "all pass".to_owned() } else { format!("{failed} FAIL") };
    if let Some((path, tensor)) = worst {
        let (error, tolerance) = (tensor.error, tensor.tolerance);
        text += &format!("; worst: {} of {path}, {error:.1e} of {tolerance:.1e}", tensor.name);
    }
    output::print(&(text + "\n"))?;
    if failed == 0 { Ok(()) } else { Err(Error::Failed(format!("{failed} of {} files fail", reports.len()))) }
}
