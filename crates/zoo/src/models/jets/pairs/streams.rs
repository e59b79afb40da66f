//! Scalars and vectors of particles.

use gradewise_autograd::Tensor;
use gradewise_nn::Result;

/// The features of particles.
pub struct Streams {
    /// `[nodes, channels]`
    pub scalars: Tensor,
    /// `[4, nodes, channels]`
    pub vectors: Tensor,
}

/// Products of vectors in the metric +−−−, along the first axis: `[4, …]` and `[4, …]` give `[1, …]`.
pub fn products(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let terms = a.mul(b)?;
    Ok(terms.slice(0, 0..1)?.sub(&terms.slice(0, 1..4)?.sum(&[0], true)?)?)
}

/// x/(x² + 1)^¼: x near 0, and sign(x)·√|x| far from it. Squares of masses become masses.
pub fn smooth_root(x: &Tensor) -> Result<Tensor> {
    Ok(x.div(&x.square()?.add_scalar(1.0)?.sqrt()?.sqrt()?)?)
}
