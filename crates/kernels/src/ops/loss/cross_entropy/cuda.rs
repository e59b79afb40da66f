//! Cross-entropy on CUDA.

use super::{CrossEntropyOptions, Logits, NAME};
use crate::{
    Array, CudaDevice, DType, Result,
    array::{index::Resident, rows::row_grid},
    runtime::cuda::{Args, Kernel},
};

/// The ignored class, or a value that no target has: targets are below 2³² − 1.
fn ignored(options: &CrossEntropyOptions) -> usize {
    options.ignore.unwrap_or(u32::MAX as usize)
}

/// The loss of each row, whether it counts, and log Σ eˣ: `[3, rows]` in double precision.
pub(super) fn forward(
    device: &CudaDevice,
    logits: &Logits,
    targets: &Resident,
    options: &CrossEntropyOptions,
) -> Result<Array> {
    let Logits { array: x, rows, classes } = logits;
    let out = Array::for_kernel(NAME, [3, *rows], DType::F64, device)?;
    if *rows > 0 {
        let args = Args::new()
            .array(x)
            .pointer(targets.values())
            .array(&out)
            .size(*rows)
            .size(*classes)
            .size(ignored(options))
            .double(options.label_smoothing);
        // SAFETY: 1: the logits are contiguous rows of `classes`, targets are as many as rows and below the number of classes or ignored
        // (`check`); three numbers for each row. 2: `out` is new. 3: a grid of rows. 4: the list of targets is the caller's, who keeps it.
        unsafe {
            device.launch(
                NAME,
                Kernel::new("cross_entropy_fwd", x.dtype()),
                row_grid(*rows, *classes),
                args,
            )?
        };
    }
    Ok(out)
}

/// The gradient of the logits; that of each row is multiplied by `scale`.
pub(super) fn backward(
    device: &CudaDevice,
    logits: &Logits,
    targets: &Resident,
    options: &CrossEntropyOptions,
    log_sum_exp: &Array,
    scale: &Array,
) -> Result<Array> {
    let Logits { array: x, rows, classes } = logits;
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let args = Args::new()
            .array(x)
            .pointer(targets.values())
            .array(log_sum_exp)
            .array(scale)
            .array(&out)
            .size(*rows)
            .size(*classes)
            .size(ignored(options))
            .double(options.label_smoothing);
        // SAFETY: 1: as in the forward pass; the operator's entry checked that there is a sum for each row in double precision, and one
        // scale. 2: `out` is new. 3: a grid of rows. 4: the list of targets is the caller's, who keeps it.
        unsafe {
            device.launch(
                NAME,
                Kernel::new("cross_entropy_bwd", x.dtype()),
                row_grid(*rows, *classes),
                args,
            )?
        };
    }
    Ok(out)
}
