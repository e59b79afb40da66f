//! Lists the CUDA devices of this machine with their properties, or says why there are none.
//!
//! ```text
//! cargo run -p gradewise-ffi --example devices
//! ```

use gradewise_ffi::{Context, DeviceInfo, Driver, Error, Nvml, Result, nvml};
use std::{fmt::Write, process::ExitCode};

fn main() -> ExitCode {
    match Driver::load().and_then(|driver| report(&driver, Nvml::load())) {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("no CUDA devices: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything about every device. NVML is asked for what only it knows, if it is there.
pub fn report(driver: &Driver, nvml: Result<Nvml>) -> Result<String> {
    let mut text = String::new();
    let (major, minor) = driver.version()?;
    line(&mut text, format_args!("driver: CUDA {major}.{minor} ({})", driver.provider()));
    match &nvml {
        Ok(nvml) => line(&mut text, format_args!("version: {}", nvml.driver_version()?)),
        Err(error) => line(&mut text, format_args!("no management library: {error}")),
    }
    for ordinal in 0..driver.device_count()? {
        let info = DeviceInfo::new(driver, ordinal)?;
        describe(&mut text, &info);
        // Needs a context, which a device in exclusive use by another process refuses.
        match Context::primary(driver, ordinal).and_then(|context| context.memory()) {
            Ok(memory) => line(&mut text, format_args!("  free memory       {:.2} GiB", gib(memory.free))),
            Err(error) => line(&mut text, format_args!("  free memory       unknown: {error}")),
        }
        if let Ok(device) = nvml.as_ref().map_err(Error::clone).and_then(|nvml| nvml.device_of(&info)) {
            now(&mut text, &device);
        }
    }
    Ok(text)
}

fn describe(text: &mut String, info: &DeviceInfo) {
    let (major, minor) = info.compute_capability;
    line(text, format_args!("device {}: {}", info.ordinal, info.name));
    line(text, format_args!("  compute capability {major}.{minor}"));
    line(text, format_args!("  memory            {:.2} GiB", gib(info.memory)));
    line(text, format_args!("  L2 cache          {:.2} MiB", info.l2_cache as f64 / f64::from(1 << 20)));
    line(text, format_args!("  multiprocessors   {}", info.multiprocessors));
    line(
        text,
        format_args!(
            "  threads           {} per block, {} per multiprocessor",
            info.max_threads_per_block, info.max_threads_per_multiprocessor
        ),
    );
    line(text, format_args!("  shared memory     {} KiB per block", info.max_shared_memory >> 10));
    line(text, format_args!("  clusters          {}", if info.cluster_launch { "yes" } else { "no" }));
    line(text, format_args!("  PCI bus           {}", info.pci_bus_id));
}

/// What it is doing; a device that cannot tell something leaves out the line.
fn now(text: &mut String, device: &nvml::Device) {
    if let Ok(busy) = device.utilization() {
        line(text, format_args!("  busy              {} %", busy.gpu));
    }
    if let (Ok(power), Ok(degrees)) = (device.power(), device.temperature()) {
        line(text, format_args!("  power             {power:.0} W at {degrees} degrees C"));
    }
    if let (Ok(clock), Ok(most)) =
        (device.clock(nvml::Clock::Multiprocessor), device.max_clock(nvml::Clock::Multiprocessor))
    {
        line(text, format_args!("  clock             {clock} of {most} MHz"));
    }
    if let Ok(processes) = device.processes() {
        line(text, format_args!("  processes         {}", processes.len()));
    }
}

fn gib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{arguments}");
}
