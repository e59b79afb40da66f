//! What ptxas says about the resources of each kernel (`-Xptxas -v`), and the threads of its blocks, which the portable code has.

/// One kernel compiled for one architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The kernel's symbol.
    pub kernel: String,
    /// The architecture, such as `90a`.
    pub target: String,
    /// Most threads of a block: what `__launch_bounds__` says, or 0 without.
    pub threads: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Statically allocated shared memory in bytes per block.
    pub shared: u32,
    /// Stack in bytes per thread, of the kernel and the functions it calls.
    pub stack: u32,
    /// Bytes that registers are spilled to, stores and loads, likewise.
    pub spills: u32,
}

/// Lines for [`parse`]: the threads of each kernel of a file of portable code.
pub fn bounds(ptx: &str) -> String {
    let mut kernel = None;
    let mut lines = String::new();
    for line in ptx.lines() {
        if let Some((_, name)) = line.split_once(".entry ") {
            kernel = name.split(|character: char| !(character.is_alphanumeric() || character == '_')).next();
        } else if let Some(sizes) = line.strip_prefix(".maxntid ")
            && let Some(kernel) = kernel.take()
        {
            let threads: u32 = sizes.split(',').filter_map(|size| size.trim().parse::<u32>().ok()).product();
            lines += &format!("{BOUNDS}{kernel}: {threads}\n");
        }
    }
    lines
}

/// What lines of [`bounds`] begin with.
pub const BOUNDS: &str = "threads of a block of ";

/// Reads ptxas' messages, and [`bounds`] after them.
pub fn parse(messages: &str) -> Vec<Usage> {
    let mut kernels: Vec<Usage> = Vec::new();
    for line in messages.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let mut parts = rest.split('\'');
            let (kernel, target) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
            let target = target.strip_prefix("sm_").unwrap_or(target);
            let [kernel, target] = [kernel, target].map(str::to_owned);
            kernels.push(Usage { kernel, target, ..Usage::default() });
        } else if let Some((kernel, threads)) =
            line.strip_prefix(BOUNDS).and_then(|rest| rest.split_once(": "))
        {
            for usage in kernels.iter_mut().filter(|usage| usage.kernel == kernel) {
                usage.threads = threads.parse().unwrap_or(0);
            }
        } else if let Some(usage) = kernels.last_mut() {
            let before = |unit: &str| number_before(line, unit);
            usage.stack += before(" bytes stack frame").unwrap_or(0);
            usage.spills +=
                before(" bytes spill stores").unwrap_or(0) + before(" bytes spill loads").unwrap_or(0);
            usage.registers = before(" registers").unwrap_or(usage.registers);
            usage.shared = before(" bytes smem").unwrap_or(usage.shared);
        }
    }
    kernels
}

/// The number in front of `unit`.
fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    before.rsplit(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// A message that names every kernel with spills, if there are any.
pub fn spills(kernels: &[Usage]) -> Option<String> {
    let list: Vec<String> = kernels
        .iter()
        .filter(|usage| usage.spills > 0)
        .map(|Usage { kernel, target, registers, spills, .. }| {
            format!("  {kernel} for sm_{target}: {spills} bytes, at {registers} registers")
        })
        .collect();
    (!list.is_empty()).then(|| {
        format!(
            "kernels spill registers to local memory, which costs more than any optimisation gains:\n{}\n\
             give them fewer live values or smaller blocks; GRADEWISE_ALLOW_SPILLS=1 builds them all the same",
            list.join("\n")
        )
    })
}

/// A table of all kernels.
pub fn table(kernels: &[Usage]) -> String {
    let mut lines = vec![format!(
        "{:<48} {:>6} {:>7} {:>9} {:>8} {:>6} {:>7}",
        "kernel", "target", "threads", "registers", "shared", "stack", "spills"
    )];
    lines.extend(kernels.iter().map(
        |Usage { kernel, target, threads, registers, shared, stack, spills }| {
            format!("{kernel:<48} {target:>6} {threads:>7} {registers:>9} {shared:>8} {stack:>6} {spills:>7}")
        },
    ));
    lines.join("\n") + "\n"
}
