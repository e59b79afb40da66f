//! The name of this machine.

/// The name of this machine: the system's, else the variable `HOSTNAME`, which batch systems may carry over from another host. `None` if
/// neither says one.
pub fn host_name() -> Option<String> {
    let known = |name: &String| !name.trim().is_empty();
    let name = of_system().filter(known).or_else(|| std::env::var("HOSTNAME").ok().filter(known))?;
    Some(name.trim().to_owned())
}

#[cfg(target_os = "linux")]
fn of_system() -> Option<String> {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    files.iter().find_map(|path| std::fs::read_to_string(path).ok())
}

#[cfg(not(target_os = "linux"))]
fn of_system() -> Option<String> {
    gethostname::gethostname().into_string().ok()
}
