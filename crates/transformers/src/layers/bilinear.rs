//! Products of multivectors.

use gradewise_autograd::{Tensor, clifford};
use gradewise_kernels::ops::clifford::table_product::Table;
use gradewise_nn::Result;
use std::sync::Arc;

/// The product of multivectors `[blades · channels, rows]` by a table of planes, channel by channel: `[blades, channels, rows]`.
pub(crate) fn product(table: &Arc<Table>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let apart = |x: &Tensor| x.reshape([table.out, x.shape()[0] / table.out.max(1), x.shape()[1]]);
    Ok(clifford::product_by(table, &apart(x)?, &apart(y)?)?)
}
