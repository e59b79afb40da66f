//! Normalisation of vectors and scalars together.

use super::super::prelude::*;
use crate::concat;
use gradewise_kernels::ops::clifford::{
    Order,
    joint_norm::{self as kernel, Operands, Options},
};

/// Feature planes `[groups · heads · (scalars + planes · channels), rows]`, divided by √(m + ε), where m is the mean over all vectors and scalars of
/// a head of |q| and of s², with the quadratic form q of a vector; each line times its gain, `[groups · channels · heads]` for those of a plane and
/// `[groups · scalars · heads]` for scalars, where they are there (the norm of L-GATr-slim, Petitjean et al. 2025, arXiv:2512.17011). `blades`
/// are those of the planes: e0 to e3 for vectors of space-time.
///
/// # Errors
/// Planes that are not those of the algebra; sizes of 0; an ε that is not above 0; shapes, dtypes or devices that do not fit together, named.
pub fn joint_norm(
    algebra: &Algebra,
    blades: &[u16],
    operands: Operands<'_, Tensor>,
    options: Options,
) -> Result<Tensor> {
    let Options { groups, heads, channels, epsilon } = options;
    let written = Written {
        algebra: algebra.clone(),
        order: blades.to_vec(),
        groups,
        heads,
        channels,
        epsilon,
        gains: operands.gains.is_some(),
        scalar_gains: operands.scalar_gains.is_some(),
    };
    let inputs: Vec<&Tensor> =
        std::iter::once(operands.x).chain(operands.gains).chain(operands.scalar_gains).collect();
    Tensor::apply(JointNorm::try_from(written)?, &inputs)
}

/// Inputs: the features, and the gains that the attributes tell of.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
#[derive(Clone)]
pub(crate) struct JointNorm {
    written: Written,
    order: Order,
}

/// The attributes.
#[derive(Clone, Serialize, Deserialize)]
struct Written {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
    /// The blade of each plane.
    order: Vec<u16>,
    #[serde(default = "one")]
    groups: usize,
    #[serde(default = "one")]
    heads: usize,
    channels: usize,
    epsilon: f64,
    #[serde(default)]
    gains: bool,
    #[serde(default)]
    scalar_gains: bool,
}

fn one() -> usize {
    1
}

impl TryFrom<Written> for JointNorm {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let order = Order::of_some(Self::NAME, &written.algebra, &written.order)?;
        Ok(Self { written, order })
    }
}

impl From<JointNorm> for Written {
    fn from(operation: JointNorm) -> Self {
        operation.written
    }
}

impl JointNorm {
    const fn options(&self) -> Options {
        let Written { groups, heads, channels, epsilon, .. } = self.written;
        Options { groups, heads, channels, epsilon }
    }

    fn operands<'a, T>(&self, inputs: &'a [T]) -> Result<Operands<'a, T>> {
        let Written { gains, scalar_gains, .. } = self.written;
        let mut rest = inputs.iter();
        let mut next = |there: bool| if there { rest.next() } else { None };
        let (x, of_vectors, of_scalars) = (next(true), next(gains), next(scalar_gains));
        let expected = 1 + usize::from(gains) + usize::from(scalar_gains);
        match x.filter(|_| inputs.len() == expected) {
            Some(x) => Ok(Operands { x, gains: of_vectors, scalar_gains: of_scalars }),
            None => Err(miscounted::<Self>(inputs.len())),
        }
    }
}

impl Operation for JointNorm {
    const NAME: &'static str = "joint_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[
        Operand::array("x"),
        Operand::parameter("gains").optional(),
        Operand::parameter("scalar_gains").optional(),
    ];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let algebra = &sizes.algebra;
        let blades = algebra.blade_count() as u16;
        let vectors: Vec<u16> =
            (0..blades).filter(|&blade| algebra.grades()[usize::from(blade)] == 1).rev().collect();
        let sample = |order: &[u16], (groups, heads), scalars: usize, epsilon, gains: bool| {
            let channels = sizes.features;
            let sets = groups * heads;
            let written = Written {
                algebra: algebra.clone(),
                order: order.to_vec(),
                groups,
                heads,
                channels,
                epsilon,
                gains,
                scalar_gains: gains && scalars > 0,
            };
            let mut inputs = vec![Input::normal([sets * (scalars + order.len() * channels), sizes.batch])];
            if gains {
                inputs.push(Input::normal([sets * channels]));
                if scalars > 0 {
                    inputs.push(Input::normal([sets * scalars]));
                }
            }
            Ok(Sample::new(Self::try_from(written)?, inputs))
        };
        // Planes of all blades, too.
        let all: Vec<u16> = (0..blades).collect();
        [
            sample(&vectors, (1, 1), 3, 0.01, true),
            sample(&vectors, (3, 2), 2, 0.01, false),
            sample(&all, (1, 1), 0, 0.5, true),
            sample(&all, (1, 2), 1, 0.5, true),
        ]
        .into_iter()
        .collect()
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(&self.order, self.options(), &self.operands(inputs)?)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let operands = self.operands(context.arrays())?;
        let found = kernel::backward(&self.order, self.options(), &operands, grad.array())?;
        let kernel::Gradients { x, gains, scalar_gains } = found;
        let given = [(true, Some(x)), (self.written.gains, gains), (self.written.scalar_gains, scalar_gains)];
        let given = given.into_iter().filter(|(is_operand, _)| *is_operand);
        Ok(given.map(|(_, gradient)| gradient.map(Tensor::new)).collect())
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let Operands { x, gains, scalar_gains } = self.operands(inputs)?;
        let Options { groups, heads, channels, epsilon } = self.options();
        let (planes, sets) = (self.order.blades().len(), groups * heads);
        let (height, rows) = (x.shape()[0], x.shape()[1]);
        let above = height - planes * sets * channels;
        let scalars = above / sets;
        let mut s = x.slice(0, 0..above)?.reshape([groups, scalars, heads, rows])?;
        let mut v = x.slice(0, above..height)?.reshape([planes, groups, channels, heads, rows])?;
        let factors: Vec<f64> = self.order.factors().iter().map(|&factor| factor.into()).collect();
        let factors = Array::constant(&factors, [planes, 1, 1, 1, 1], x.dtype(), &x.device())?;
        let forms = v.square()?.mul(&Tensor::new(factors))?.sum(&[0], false)?.abs()?;
        let total = forms.sum(&[1], true)?.add(&s.square()?.sum(&[1], true)?)?;
        let mean = total.mul_scalar(((channels + scalars) as f64).recip())?;
        let scale = mean.add_scalar(epsilon)?.pow(-0.5)?;
        (v, s) = (v.mul(&scale)?, s.mul(&scale)?);
        if let Some(gains) = gains {
            v = v.mul(&gains.reshape([groups, channels, heads, 1])?)?;
        }
        if let Some(gains) = scalar_gains {
            s = s.mul(&gains.reshape([groups, scalars, heads, 1])?)?;
        }
        concat(&[&s.reshape([above, rows])?, &v.reshape([planes * sets * channels, rows])?], 0)
    }
}
