//! `hardware`: the presets for kinds of machines.

use crate::{Command, Program, config::Hardware, error::Result, output};
use clap::Args;

/// Settings for kinds of machines, which --hardware takes; and which of them this machine is.
///
/// They have the lowest precedence: a file, an option or key=value overrides them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise hardware                              all presets, the one of this machine marked
  gradewise hardware gpu-12gb                     its file, to read, or to change and pass to --config
  gradewise train nbody --hardware auto           the preset of this machine
  gradewise train nbody --hardware h100 --compute exact")]
pub struct HardwareList {
    /// The preset whose file to show.
    pub name: Option<String>,
}

impl Command for HardwareList {
    const NAME: &'static str = "hardware";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &HardwareList) -> Result<()> {
    if let Some(name) = &arguments.name {
        return output::print(Hardware::find(name)?.hardware.text);
    }
    let detected = Hardware::detect()?;
    let mut text = format!("  {:<10}{:<14}{}\n", "preset", "at least", "for, and what it sets");
    for hardware in Hardware::all()? {
        let mark = if hardware.name == detected.hardware.name { '*' } else { ' ' };
        text += &format!("{mark} {:<10}{:<14}{}\n", hardware.name, hardware.requirement(), hardware.about);
        text += &format!("  {:<24}{}\n", "", hardware.summary());
    }
    text += &format!("\n* this machine: {}\n", detected.reason);
    output::print(&text)
}
