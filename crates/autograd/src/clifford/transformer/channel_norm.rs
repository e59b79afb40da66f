//! Normalisation over channels, and gates.

use super::{
    super::prelude::*,
    activation::{WrittenActivation, activated},
};
use crate::concat;
use gradewise_kernels::{
    Index,
    ops::clifford::{
        Order,
        channel_norm::{self as kernel, Activation, Norm, Operands, Options},
    },
};

/// Feature planes `[scalars + blades · channels, rows]`, normalised over channels and gated: multivectors times gain / √max(m, ε), where m is
/// the mean over channels of Σ_grades |q_k|; scalars by layer normalisation; each grade of each channel times `gains` `[channels, grades]` and
/// each scalar times `scalar_gains` `[scalars]`, where they are there. Then each multivector is multiplied by a function of its scalar part
/// (Brehmer et al. 2023, arXiv:2305.18415; Spinner et al. 2024, arXiv:2405.14806).
///
/// # Errors
/// Planes that are not those of the algebra; shapes, dtypes or devices that do not fit together, named.
pub fn channel_norm(
    algebra: &Algebra,
    order: &[u16],
    channels: usize,
    operands: Operands<'_, Tensor>,
    options: Options,
) -> Result<Tensor> {
    let operation = ChannelNorm {
        algebra: algebra.clone(),
        order: Order::new(ChannelNorm::NAME, algebra, order)?,
        channels,
        options,
        gains: operands.gains.is_some(),
        scalar_gains: operands.scalar_gains.is_some(),
    };
    let inputs: Vec<&Tensor> =
        std::iter::once(operands.x).chain(operands.gains).chain(operands.scalar_gains).collect();
    Tensor::apply(operation, &inputs)
}

/// Inputs: the features, and the gains that the attributes tell of.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
#[derive(Clone)]
pub(crate) struct ChannelNorm {
    algebra: Algebra,
    order: Order,
    channels: usize,
    options: Options,
    gains: bool,
    scalar_gains: bool,
}

/// The attributes in records. Without `epsilon` there is no norm.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
    /// The blade of each plane.
    order: Vec<u16>,
    channels: usize,
    #[serde(default)]
    epsilon: Option<f64>,
    #[serde(default = "one")]
    gain: f64,
    #[serde(default)]
    gate: Option<WrittenActivation>,
    #[serde(default)]
    scalar_gate: Option<WrittenActivation>,
    #[serde(default)]
    gains: bool,
    #[serde(default)]
    scalar_gains: bool,
}

fn one() -> f64 {
    1.0
}

impl TryFrom<Written> for ChannelNorm {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let Written { algebra, order, channels, epsilon, gain, gate, scalar_gate, gains, scalar_gains } =
            written;
        let order = Order::new(Self::NAME, &algebra, &order)?;
        let read = |kind: Option<WrittenActivation>| kind.map(WrittenActivation::read);
        let options = Options {
            norm: epsilon.map(|epsilon| Norm { epsilon, gain }),
            gate: read(gate),
            scalar_gate: read(scalar_gate),
        };
        Ok(Self { algebra, order, channels, options, gains, scalar_gains })
    }
}

impl From<ChannelNorm> for Written {
    fn from(operation: ChannelNorm) -> Self {
        let ChannelNorm {
            algebra,
            order,
            channels,
            options: Options { norm, gate, scalar_gate },
            gains,
            scalar_gains,
        } = operation;
        Self {
            algebra,
            order: order.blades().to_vec(),
            channels,
            epsilon: norm.map(|norm| norm.epsilon),
            gain: norm.map_or(1.0, |norm| norm.gain),
            gate: gate.map(WrittenActivation::of),
            scalar_gate: scalar_gate.map(WrittenActivation::of),
            gains,
            scalar_gains,
        }
    }
}

/// Added to the variance of scalars.
const SCALAR_EPSILON: f64 = 1e-5;

impl ChannelNorm {
    fn operands<'a, T>(&self, inputs: &'a [T]) -> Result<Operands<'a, T>> {
        let mut rest = inputs.iter();
        let mut next = |there: bool| if there { rest.next() } else { None };
        let (x, gains, scalar_gains) = (next(true), next(self.gains), next(self.scalar_gains));
        let expected = 1 + usize::from(self.gains) + usize::from(self.scalar_gains);
        match x.filter(|_| inputs.len() == expected) {
            Some(x) => Ok(Operands { x, gains, scalar_gains }),
            None => Err(miscounted::<Self>(inputs.len())),
        }
    }

    /// The grade of each plane, as an index.
    fn grades(&self, device: &Device) -> Result<Index> {
        let grades: Vec<usize> = self.order.grades().iter().map(|&grade| grade.into()).collect();
        Ok(Index::constant(&grades, self.order.grade_count(), device)?)
    }
}

impl Operation for ChannelNorm {
    const NAME: &'static str = "channel_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[
        Operand::array("x"),
        Operand::parameter("gains").optional(),
        Operand::parameter("scalar_gains").optional(),
    ];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let algebra = &sizes.algebra;
        // The scalar first, the others the other way round.
        let blades = algebra.blade_count() as u16;
        let order: Vec<u16> = std::iter::once(0).chain((1..blades).rev()).collect();
        let order = Order::new(Self::NAME, algebra, &order)?;
        let sample = |scalars: usize, norm, gate, scalar_gate, has_gains: bool| {
            let channels = sizes.features;
            let operation = ChannelNorm {
                algebra: algebra.clone(),
                order: order.clone(),
                channels,
                options: Options { norm, gate, scalar_gate },
                gains: has_gains,
                scalar_gains: has_gains && scalars > 0,
            };
            let height = scalars + order.blades().len() * channels;
            let mut inputs = vec![Input::normal([height, sizes.batch])];
            if has_gains {
                inputs.push(Input::normal([channels, order.grade_count()]));
                if scalars > 0 {
                    inputs.push(Input::normal([scalars]));
                }
            }
            Sample::new(operation, inputs)
        };
        let norm = Some(Norm { epsilon: 0.01, gain: 0.8 });
        Ok(vec![
            sample(3, norm, None, None, true),
            sample(2, norm, Some(Activation::GeluTanh), Some(Activation::Gelu), false),
            sample(0, norm, Some(Activation::Silu), None, true),
            sample(3, None, Some(Activation::Sigmoid), Some(Activation::Tanh), false),
            // A mean that is replaced by ε.
            sample(0, Some(Norm { epsilon: 1e4, gain: 1.0 }), None, None, false),
        ])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::forward(&self.order, self.channels, &self.operands(inputs)?, self.options)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let operands = self.operands(context.arrays())?;
        let found = kernel::backward(&self.order, self.channels, &operands, self.options, grad.array())?;
        let kernel::Gradients { x, gains, scalar_gains } = found;
        let all = [Some(x), gains, scalar_gains].into_iter().enumerate();
        let given = all.filter(|(place, _)| [true, self.gains, self.scalar_gains][*place]);
        Ok(given.map(|(_, gradient)| gradient.map(Tensor::new)).collect())
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let Operands { x, gains, scalar_gains } = self.operands(inputs)?;
        let (blades, channels) = (self.order.blades().len(), self.channels);
        let (height, rows) = (x.shape()[0], x.shape()[1]);
        let count = height - blades * channels;
        let (mut s, mv) = (x.slice(0, 0..count)?, x.slice(0, count..height)?);
        let mut mv = mv.reshape([blades, channels, rows])?;
        let grades = self.grades(&x.device())?;
        if let Some(Norm { epsilon, gain }) = self.options.norm {
            let factors: Vec<f64> = self.order.factors().iter().map(|&factor| factor.into()).collect();
            let factors = Tensor::new(Array::constant(&factors, [blades, 1, 1], x.dtype(), &x.device())?);
            let forms = mv.square()?.mul(&factors)?.segment_sum(0, &grades)?;
            let mean = forms.abs()?.sum(&[0], false)?.mean(&[0], false)?;
            let scale = mean.clamp(epsilon, f64::INFINITY)?.pow(-0.5)?.mul_scalar(gain)?;
            mv = mv.mul(&scale)?;
            if count > 0 {
                let centred = s.sub(&s.mean(&[0], true)?)?;
                let variance = centred.square()?.mean(&[0], true)?;
                s = centred.mul(&variance.add_scalar(SCALAR_EPSILON)?.pow(-0.5)?)?;
            }
        }
        if let Some(gains) = gains {
            let by_plane = gains.transpose(0, 1)?.index_select(0, &grades)?;
            mv = mv.mul(&by_plane.reshape([blades, channels, 1])?)?;
        }
        if let Some(gains) = scalar_gains {
            s = s.mul(&gains.reshape([count, 1])?)?;
        }
        if let Some(kind) = self.options.gate {
            mv = mv.mul(&activated(kind, &mv.slice(0, 0..1)?)?)?;
        }
        if let Some(kind) = self.options.scalar_gate {
            s = activated(kind, &s)?;
        }
        concat(&[&s, &mv.reshape([blades * channels, rows])?], 0)
    }
}
