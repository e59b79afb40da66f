//! What the tests on a GPU share.

use gradewise_kernels::Device;

/// The first GPU. Says why there is none, which is a failure with `GRADEWISE_REQUIRE_GPU=1`.
pub fn gpu() -> Option<Device> {
    match Device::cuda(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("GRADEWISE_REQUIRE_GPU").is_some_and(|value| value == "1") => {
            panic!("GRADEWISE_REQUIRE_GPU=1, but: {error}")
        }
        Err(error) => {
            eprintln!("no GPU tested: {error}");
            None
        }
    }
}
