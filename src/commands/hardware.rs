//! `hardware`: the presets of kinds of machines.

use crate::{cli::HardwareList, config::Hardware, error::Result, output};

pub fn run(arguments: &HardwareList) -> Result<()> {
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
