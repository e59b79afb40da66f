//! Kernels that wait for their checks on a GPU.

use std::sync::OnceLock;

/// Whether kernels are used that have not yet been through parity tests and the sanitizer on a GPU
/// (`GRADEWISE_PREVIEW=1`): the product with gates and norm row by row, and blocks of equivariant networks in one launch.
/// docs/kernels.md says what is known of them.
pub fn preview() -> bool {
    static PREVIEW: OnceLock<bool> = OnceLock::new();
    *PREVIEW.get_or_init(|| std::env::var_os("GRADEWISE_PREVIEW").is_some_and(|value| value == "1"))
}
