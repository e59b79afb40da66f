//! Rotary position embedding.

use super::require_beside;
use crate::{Attributes, Result, Tensor};
use gradewise_kernels::{
    Array,
    ops::{self, RotaryTable},
};

impl Tensor {
    /// Turns each pair `(x[i], x[i + features/2])` of `[…, positions, features]` by the angle that `table` has for its position and i,
    /// so that products of two turned vectors depend on the distance of their positions (Su et al. 2021, arXiv:2104.09864).
    ///
    /// # Errors
    /// An odd number of features, another number of positions or pairs than the table has, another dtype or device.
    pub fn rotary(&self, table: &RotaryTable) -> Result<Tensor> {
        self.turn(table, false)
    }

    pub(crate) fn turn(&self, table: &RotaryTable, inverse: bool) -> Result<Tensor> {
        require_beside("rotary", "table", &table.device(), self.array())?;
        let (table, told, given) = (table.clone(), table.clone(), table.clone());
        let attributes = move || {
            let [cos, sin] = told.parts().unwrap_or_default();
            Attributes::new()
                .list("cos", cos)
                .list("sin", sin)
                .with("positions", told.positions())
                .with("inverse", inverse)
        };
        let forward = move |x: &[Array]| Ok(ops::rotary(&x[0], &given.beside(&x[0])?, inverse)?);
        Tensor::operate("rotary", &[self], attributes, forward, move |_, grad| {
            let table = table.beside(grad.array())?;
            Ok(vec![Some(grad.turn(&table, !inverse)?)])
        })
    }
}
