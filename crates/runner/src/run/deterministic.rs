//! Checks for sources of nondeterminism.

use crate::{
    config::Runtime,
    error::{Error, Result},
};
use gradewise_distributed::{DETERMINISTIC, Launch, Wanted};
use gradewise_kernels::DeviceName;

/// Unless `runtime.deterministic` is false, refuses algorithms that are chosen by timing, because the choice may differ between runs.
/// Everything else is deterministic: no operator sums in an unspecified order, and none depends on the number of threads.
///
/// # Errors
/// cuBLASLt, whose kernels are chosen by timing; NCCL variables that differ from those that this program sets.
pub fn require_deterministic(runtime: &Runtime, launch: Option<&Launch>) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok();
    if !runtime.deterministic || runtime.device == DeviceName::Cpu {
        return Ok(());
    }
    if variable("GRADEWISE_CUBLASLT").as_deref() == Some("1") {
        return Err(Error::Usage(
            "GRADEWISE_CUBLASLT=1 chooses kernels by their time, so that the next run may round otherwise; unset it, or allow \
             that by runtime.deterministic=false"
                .to_owned(),
        ));
    }
    let several = launch.is_some_and(|launch| launch.world > 1) || runtime.devices != Wanted::Count(1);
    for (name, wanted) in DETERMINISTIC.iter().filter(|_| several) {
        match variable(name) {
            Some(value) if value != *wanted => {
                return Err(Error::Usage(format!(
                    "{name}={value} lets NCCL add in another way than {wanted}, the one whose bits repeat; unset it, or allow that \
                     by runtime.deterministic=false"
                )));
            }
            // Processes that this program starts have the variable set.
            None if launch.is_some() => tracing::warn!(
                "NCCL chooses how it adds, which may change with its version; for bits that repeat, let the launcher set {name}={wanted}"
            ),
            _ => {}
        }
    }
    Ok(())
}
