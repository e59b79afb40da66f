//! Every operation of the registry: samples at any sizes, with inputs of any values, layouts and, now and then, shapes.

use crate::{Outcome, Source, values};
use gradewise_autograd::{Result, Sizes, Tensor, registry::Entry};

/// The output of a random sample and the gradients of its inputs for the cotangent 2·output. With `misfits` a shape or the number
/// of inputs may be wrong.
pub fn run(entry: &Entry, s: &Source, misfits: bool) -> Outcome {
    let differentiated = || -> Result<_> {
        let sizes = Sizes { algebra: s.algebra(), batch: s.size(), features: s.size().max(1) };
        let samples = entry.samples(&sizes)?;
        // Some have none in an algebra, such as a product by a learned metric where there is no generator.
        let Some(sample) = samples.get(s.below(samples.len().max(1))) else { return Ok(Vec::new()) };
        let misfits = misfits && s.chance(0.6);
        let mut inputs = Vec::new();
        for input in sample.inputs() {
            let mut dims = input.shape.to_vec();
            if misfits && s.chance(0.1) {
                dims = s.dims();
            } else if misfits && s.chance(0.1) && !dims.is_empty() {
                let axis = s.below(dims.len());
                dims[axis] = s.size();
            }
            inputs.push(s.tensor(&dims).requires_grad());
        }
        if misfits && s.chance(0.1) {
            inputs.pop();
        }
        let output = sample.run(&inputs)?;
        let mut arrays = vec![output.array().clone()];
        let gradients = output.square()?.sum_all()?.backward()?;
        for input in &inputs {
            arrays.extend(gradients.get(input).ok().map(|gradient: &Tensor| gradient.array().clone()));
        }
        Ok(arrays)
    };
    values(differentiated().map_err(|error| error.to_string())?)
}
