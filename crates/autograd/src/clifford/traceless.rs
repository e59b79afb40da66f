//! The symmetric traceless part of the product of two vectors.

use super::{
    prelude::*,
    primitives::{broadcast, index},
};
use gradewise_core::Signature;
use gradewise_kernels::ops::clifford::traceless_product as kernel;

/// S = ½(u⊗v + v⊗u) − (u·v)/n · g⁻¹ for vectors `u` and `v` `[n, batch, features]` in the metric g of a signature (p,q,0), n = p + q:
/// `[n(n+1)/2 − 1, batch, features]`, the components S_ij with i ≤ j row by row without the last, which the trace determines. With
/// u·v and u∧v, the scalar and the bivector of the geometric product, it is all that two vectors have to give. The axes after the first are
/// broadcast as in [`geometric_product`](super::geometric_product).
///
/// # Errors
/// A signature with generators that square to 0, or with less than two; shapes, dtypes or devices that do not fit together, named.
pub fn traceless_product(signature: Signature, u: &Tensor, v: &Tensor) -> Result<Tensor> {
    let Signature { p, q, r } = signature;
    let (u, v) = broadcast(u, v)?;
    Tensor::apply(TracelessProduct { signature: [p, q, r] }, &[&u, &v])
}

/// Inputs: u and v.
#[derive(Serialize, Deserialize)]
pub(crate) struct TracelessProduct {
    signature: [u8; 3],
}

impl TracelessProduct {
    fn signature(&self) -> Signature {
        let [p, q, r] = self.signature;
        Signature::new(p, q, r)
    }
}

impl Operation for TracelessProduct {
    const NAME: &'static str = "traceless_product";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::rows("u"), Operand::rows("v")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        // Without the generators that square to 0, and with two at least.
        let Signature { p, q, .. } = sizes.algebra.signature();
        let signature = if p + q < 2 { [1, 1, 0] } else { [p, q, 0] };
        let vector = Input::normal([usize::from(signature[0] + signature[1]), sizes.batch, sizes.features]);
        Ok(vec![Sample::new(TracelessProduct { signature }, [vector.clone(), vector])])
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        let ([p, q, _], [_, rows, features]) = (self.signature.map(usize::from), Axis::all_of(0));
        Some(vec![Axis::Size(kernel::components(p + q)), rows, features])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(self.signature(), &inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let kernel::Gradients { u, v } =
            kernel::backward(self.signature(), &inputs[0], &inputs[1], grad.array())?;
        Ok(constants([Some(u), Some(v)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (u, v) = (&inputs[0], &inputs[1]);
        let [p, q, _] = self.signature.map(u32::from);
        let (n, count) = ((p + q) as usize, kernel::components((p + q) as usize));
        let metric = |component: u32| if component < p { 1.0 } else { -1.0 };
        let pairs = (0..p + q).flat_map(|i| (i..p + q).map(move |j| (i, j)));
        let (rows, columns): (Vec<u32>, Vec<u32>) = pairs.take(count).unzip();
        let inverse: Vec<f64> =
            rows.iter().zip(&columns).map(|(i, j)| if i == j { metric(*i) } else { 0.0 }).collect();
        let diagonal: Vec<f64> = (0..p + q).map(metric).collect();
        let constant = |values: &[f64]| -> Result<Tensor> {
            Ok(Tensor::new(Array::constant(values, [values.len(), 1, 1], u.dtype(), &u.device())?))
        };
        let [rows, columns] = [index(&rows, n, &u.device())?, index(&columns, n, &u.device())?];
        let half = |a: &Tensor, b: &Tensor| {
            a.index_select(0, &rows)?.mul(&b.index_select(0, &columns)?)?.mul_scalar(0.5)
        };
        let mean = u.mul(v)?.mul(&constant(&diagonal)?)?.sum(&[0], true)?.mul_scalar(1.0 / n as f64)?;
        half(u, v)?.add(&half(v, u)?)?.sub(&mean.mul(&constant(&inverse)?)?)
    }

    /// Three operations for each of the n² products.
    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let elements: usize = inputs[0].iter().product();
        Cost { matrix_flops: 0, element_flops: 3 * (elements * inputs[0][0]) as u64 }
    }
}
