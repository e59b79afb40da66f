//! Rotary position embedding.

use super::prelude::*;
use gradewise_kernels::ops::RotaryTable;

#[derive(Serialize, Deserialize)]
pub(crate) struct Rotary {
    #[serde(with = "attributes::rotary")]
    table: RotaryTable,
    inverse: bool,
}

impl Operation for Rotary {
    const NAME: &'static str = "rotary";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let (positions, features) = (sizes.batch, 2 * sizes.features);
        let sample = |inverse| -> Result<Sample<Self>> {
            let table = RotaryTable::new(positions, features, 10.0, DType::F64, &Device::Cpu)?;
            Ok(Sample::new(Rotary { table, inverse }, [Input::normal([2, positions, features])]))
        };
        Ok(vec![sample(false)?, sample(true)?])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::rotary(&inputs[0], &self.table.beside(&inputs[0])?, self.inverse)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let table = self.table.beside(grad.array())?;
        Ok(vec![Some(grad.turn(&table, !self.inverse)?)])
    }
}

impl Tensor {
    /// Turns each pair `(x[i], x[i + features/2])` of `[…, positions, features]` by the angle that `table` has for its position and i,
    /// so that products of two turned vectors depend on the distance of their positions (Su et al. 2021, arXiv:2104.09864).
    ///
    /// # Errors
    /// An odd number of features, another number of positions or pairs than the table has, another dtype or device.
    pub fn rotary(&self, table: &RotaryTable) -> Result<Tensor> {
        self.turn(table, false)
    }

    /// [`rotary`](Self::rotary), or its inverse.
    fn turn(&self, table: &RotaryTable, inverse: bool) -> Result<Tensor> {
        require_beside("rotary", "table", &table.device(), self.array())?;
        Self::apply(Rotary { table: table.clone(), inverse }, &[self])
    }
}
