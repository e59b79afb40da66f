//! Conversion of fields from and to the layout of other libraries.

use crate::Result;
use gradewise_autograd::Tensor;

/// Converts a field `[batch, channels, *space, blades]`, the layout of the published implementations, to our layout `[blades, batch,
/// *space, channels]`.
///
/// # Errors
/// Less than three axes.
pub fn field_from_channels_first(x: &Tensor) -> Result<Tensor> {
    let rank = x.shape().rank();
    if rank < 3 {
        return super::refuse(
            "field_from_channels_first",
            "x",
            x.shape(),
            "[batch, channels, *space, blades]",
        );
    }
    let axes: Vec<usize> = [rank - 1, 0].into_iter().chain(2..rank - 1).chain([1]).collect();
    Ok(x.permute(&axes)?.contiguous()?)
}

/// Converts a field `[blades, batch, *space, channels]` to `[batch, channels, *space, blades]`.
///
/// # Errors
/// Less than three axes.
pub fn field_to_channels_first(x: &Tensor) -> Result<Tensor> {
    let rank = x.shape().rank();
    if rank < 3 {
        return super::refuse("field_to_channels_first", "x", x.shape(), "[blades, batch, *space, channels]");
    }
    let axes: Vec<usize> = [1, rank - 1].into_iter().chain(2..rank - 1).chain([0]).collect();
    Ok(x.permute(&axes)?.contiguous()?)
}
