//! The arguments of `hardware`.

use clap::Args;

/// Settings for kinds of machines, which --hardware takes; and which of them this machine is.
///
/// They lie under all other settings: what a file, an option or key=value says wins.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise hardware                              all presets, the one of this machine marked
  gradewise hardware gpu-12gb                     its file, to read, or to change and pass to --config
  gradewise train nbody --hardware auto           the preset of this machine
  gradewise train nbody --hardware h100 --compute exact")]
pub struct HardwareList {
    /// A preset, whose file is shown.
    pub name: Option<String>,
}
