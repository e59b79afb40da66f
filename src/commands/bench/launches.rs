//! What `bench step` and `bench predict` share: the launch modes of a device, and the lines of their figures.

use gradewise_kernels::Device;
use gradewise_runner::plots::Line;

/// The name of a device in a report, and whether work on it is captured, for each way to time it.
pub fn modes(device: &Device) -> (String, &'static [bool]) {
    match device {
        Device::Cpu => (format!("CPU, {} threads", rayon::current_num_threads()), &[false]),
        Device::Cuda(cuda) => (cuda.info().name.clone(), &[false, true]),
    }
}

/// Adds a point to the line of this label and launch mode. `device` is the name that [`modes`] gave.
pub fn add_point(lines: &mut Vec<Line>, label: &str, device: &str, captured: bool, point: (f64, f64)) {
    let way = match (captured, device.starts_with("CPU")) {
        (true, _) => ", captured",
        (false, true) => "",
        (false, false) => ", launched",
    };
    let label = format!("{label}{way}");
    match lines.iter_mut().find(|line| line.label == label) {
        Some(line) => line.points.push(point),
        None => lines.push(Line { label, points: vec![point] }),
    }
}
