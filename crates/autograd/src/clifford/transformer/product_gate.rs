//! Gates of vectors by products of vectors.

use super::{
    super::prelude::*,
    activation::{WrittenActivation, activated},
};
use crate::concat;
use gradewise_kernels::ops::clifford::{
    Order,
    product_gate::{self as kernel, Options},
};

/// Of feature planes `[2 · scalars + planes · 3 · channels, rows]`, a plane of which has the channels v, then a, then b, and whose scalars are s, then
/// g: v times f(½ ⟨a, b⟩), with the quadratic form's product, and s times h(g), `[scalars + planes · channels, rows]` (the gated linear unit of
/// L-GATr-slim behind its linear map, Petitjean et al. 2025, arXiv:2512.17011). `blades` are those of the planes.
///
/// # Errors
/// Planes that are not those of the algebra; a shape, named.
pub fn product_gate(algebra: &Algebra, blades: &[u16], x: &Tensor, options: Options) -> Result<Tensor> {
    let operation = ProductGate {
        algebra: algebra.clone(),
        order: Order::of_some(ProductGate::NAME, algebra, blades)?,
        options,
    };
    Tensor::apply(operation, &[x])
}

/// Input: x.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
#[derive(Clone)]
pub(crate) struct ProductGate {
    algebra: Algebra,
    order: Order,
    options: Options,
}

/// The attributes in records.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
    /// The blade of each plane.
    order: Vec<u16>,
    channels: usize,
    gate: WrittenActivation,
    scalar_gate: WrittenActivation,
}

impl TryFrom<Written> for ProductGate {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let Written { algebra, order, channels, gate, scalar_gate } = written;
        let order = Order::of_some(Self::NAME, &algebra, &order)?;
        let options = Options { channels, gate: gate.read(), scalar_gate: scalar_gate.read() };
        Ok(Self { algebra, order, options })
    }
}

impl From<ProductGate> for Written {
    fn from(operation: ProductGate) -> Self {
        let ProductGate { algebra, order, options: Options { channels, gate, scalar_gate } } = operation;
        let (gate, scalar_gate) = (WrittenActivation::of(gate), WrittenActivation::of(scalar_gate));
        Self { algebra, order: order.blades().to_vec(), channels, gate, scalar_gate }
    }
}

impl ProductGate {
    /// The numbers of scalars and of rows of the result.
    fn sizes(&self, shape: &[usize]) -> [usize; 2] {
        let width = 3 * self.order.blades().len() * self.options.channels;
        [shape[0].saturating_sub(width) / 2, shape[1]]
    }
}

impl Operation for ProductGate {
    const NAME: &'static str = "product_gate";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::array("x")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        use gradewise_kernels::ops::clifford::Activation::{Gelu, GeluTanh, Sigmoid, Silu, Tanh};
        let algebra = &sizes.algebra;
        let blades = algebra.blade_count() as u16;
        let vectors: Vec<u16> =
            (0..blades).filter(|&blade| algebra.grades()[usize::from(blade)] == 1).rev().collect();
        let all: Vec<u16> = (0..blades).collect();
        let sample = |blades: &[u16], scalars: usize, gate, scalar_gate| {
            let channels = sizes.features;
            let operation = Self {
                algebra: algebra.clone(),
                order: Order::of_some(Self::NAME, algebra, blades)?,
                options: Options { channels, gate, scalar_gate },
            };
            let height = 2 * scalars + 3 * blades.len() * channels;
            Ok(Sample::new(operation, [Input::normal([height, sizes.batch])]))
        };
        [sample(&vectors, 3, Sigmoid, Gelu), sample(&vectors, 0, Silu, Tanh), sample(&all, 1, Tanh, GeluTanh)]
            .into_iter()
            .collect()
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(&self.order, self.options, &inputs[0])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        Ok(constants([Some(kernel::backward(&self.order, self.options, &inputs[0], grad.array())?)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, planes, channels) = (&inputs[0], self.order.blades().len(), self.options.channels);
        let [scalars, rows] = self.sizes(x.shape().dims());
        let height = x.shape()[0];
        let gates = activated(self.options.scalar_gate, &x.slice(0, scalars..2 * scalars)?)?;
        let s = x.slice(0, 0..scalars)?.mul(&gates)?;
        let vectors = x.slice(0, 2 * scalars..height)?.reshape([planes, 3, channels, rows])?;
        let part = |part: usize| vectors.slice(1, part..part + 1);
        let factors: Vec<f64> = self.order.factors().iter().map(|&factor| factor.into()).collect();
        let factors = Array::constant(&factors, [planes, 1, 1, 1], x.dtype(), &x.device())?;
        let products = part(1)?.mul(&part(2)?)?.mul(&Tensor::new(factors))?.sum(&[0], true)?;
        let v = part(0)?.mul(&activated(self.options.gate, &products.mul_scalar(0.5)?)?)?;
        concat(&[&s, &v.reshape([planes * channels, rows])?], 0)
    }
}
