//! Products of the momenta of two particles, as networks take them.

use gradewise_autograd::Tensor;
use gradewise_nn::Result;

/// Added to products in units of the squared mass of the jet, before their logarithm is taken. Products of nearly parallel momenta lose
/// their digits to the rounding of the input; below a thousandth of the jet's mass, pairs count as parallel.
const SMALLEST: f64 = 1e-6;

/// The logarithms of products, shifted and scaled to be of order one.
pub fn logarithms(products: &Tensor) -> Result<Tensor> {
    Ok(products.add_scalar(SMALLEST)?.log()?.mul_scalar(0.25)?.add_scalar(1.5)?)
}
