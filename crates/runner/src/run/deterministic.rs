//! What could give other bits the next time.

use crate::{
    config::Runtime,
    error::{Error, Result},
};
use gradewise_distributed::{DETERMINISTIC, Launch, Wanted};
use gradewise_kernels::DeviceName;

/// Refuses what chooses by measurement, and so perhaps differently the next time, unless `runtime.deterministic` is false. Everything
/// else is deterministic by itself: no operator adds in an order that is left to chance, and none depends on the number of threads.
///
/// # Errors
/// cuBLASLt, which is chosen by time; another way to add than the one that processes of one device each are told.
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
            // Processes that this program starts are told.
            None if launch.is_some() => tracing::warn!(
                "NCCL chooses how it adds, which may change with its version; for bits that repeat, let the launcher set {name}={wanted}"
            ),
            _ => {}
        }
    }
    Ok(())
}
