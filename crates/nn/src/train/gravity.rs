//! Batches of systems of a star and planets.

use super::{Samples, nbody::Example};
use crate::{Placement, Result, data::gravity::GravityData, models::NBodyBatch};

impl Samples for GravityData {
    type Batch = Example;

    fn len(&self) -> usize {
        self.states().len()
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<Example> {
        let data = self.states().select(indices)?;
        let batch =
            NBodyBatch::gravity((data.loc(), data.vel(), data.charges()), data.particles(), placement)?;
        Example::of(batch, &data)
    }
}
