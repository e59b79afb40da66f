//! The table of launches: threads and dynamic shared memory of kernels, as csrc/launch_table.cpp prints them.

use super::{Result, compile::Binary, sources::Sources, toolkit::Toolkit};
use std::{env::consts::EXE_SUFFIX, path::Path, process::Command};

/// How a kernel is launched.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Launch {
    /// The symbol.
    pub kernel: String,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared: u32,
}

/// Compiles the program in `out` with the C++ compiler of nvcc, for the machine that builds, and runs it. The launches are in the order of
/// their kernels.
pub fn make(sources: &Sources, toolkit: &Toolkit, out: &Path) -> Result<Vec<Launch>> {
    let source = sources.root.join("launch_table.cpp");
    let program = out.join(format!("launch_table{EXE_SUFFIX}"));
    let mut compiler = Command::new(&toolkit.nvcc);
    compiler
        .args(["-std=c++17", "--cudart=none", "-I"])
        .arg(&sources.root)
        .arg("-o")
        .arg(&program)
        .arg(&source);
    run(&mut compiler)?;
    parse(&run(&mut Command::new(program))?)
}

fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!(
        "{} failed on csrc/launch_table.cpp ({}):\n{}{}",
        program.display(),
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    ))
}

/// A launch for each line: symbol, threads, bytes.
pub fn parse(lines: &str) -> Result<Vec<Launch>> {
    let launch = |line: &str| {
        let [kernel, threads, shared] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        Some(Launch {
            kernel: kernel.to_owned(),
            threads: threads.parse().ok()?,
            shared: shared.parse().ok()?,
        })
    };
    let mut launches = lines
        .lines()
        .map(|line| launch(line).ok_or_else(|| format!("csrc/launch_table.cpp prints `{line}`")))
        .collect::<Result<Vec<_>>>()?;
    launches.sort();
    if let Some(pair) = launches.windows(2).find(|pair| pair[0].kernel == pair[1].kernel) {
        return Err(format!("csrc/launch_table.cpp prints {} twice", pair[0].kernel));
    }
    Ok(launches)
}

/// Refuses launches of kernels that there are not: their names are spelled in the table and where the kernels are defined.
pub fn require(launches: &[Launch], binaries: &[Binary]) -> Result<()> {
    let kernels: Vec<&str> = binaries.iter().flat_map(Binary::kernels).collect();
    match launches.iter().find(|launch| !kernels.contains(&launch.kernel.as_str())) {
        Some(Launch { kernel, .. }) => {
            Err(format!("{kernel} is in csrc/launch_table.cpp and in no kernel's file"))
        }
        None => Ok(()),
    }
}

/// The text of `launches.rs`.
pub fn generate(launches: &[Launch]) -> String {
    let lines: String = launches
        .iter()
        .map(|Launch { kernel, threads, shared }| format!("    ({kernel:?}, {threads}, {shared}),\n"))
        .collect();
    format!(
        "/// Threads of a block and bytes of its dynamic shared memory, by kernel in alphabetical order.\n\
         pub(crate) static LAUNCHES: &[(&str, u32, usize)] = &[\n{lines}];\n"
    )
}
