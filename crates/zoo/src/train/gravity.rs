//! Batches of systems of a star and planets.

use super::nbody::Example;
use crate::{data::gravity::GravityData, models::NBodyBatch};
use gradewise_nn::train::Samples;
use gradewise_nn::{Placement, Result};

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
