//! Rotary position embedding.

use crate::{Result, Tensor};
use gradewise_kernels::ops::{self, RotaryTable};

impl Tensor {
    /// Turns each pair `(x[i], x[i + features/2])` of `[…, positions, features]` by the angle that `table` has for its position and i,
    /// so that products of two turned vectors depend on the distance of their positions (Su et al. 2021, arXiv:2104.09864).
    ///
    /// # Errors
    /// An odd number of features, another number of positions or pairs than the table has, another dtype or device.
    pub fn rotary(&self, table: &RotaryTable) -> Result<Tensor> {
        self.turn(table, false)
    }

    fn turn(&self, table: &RotaryTable, inverse: bool) -> Result<Tensor> {
        let output = ops::rotary(self.array(), table, inverse)?;
        let table = table.clone();
        Tensor::from_op("rotary", output, &[self], move |_, grad| {
            Ok(vec![Some(grad.turn(&table, !inverse)?)])
        })
    }
}
