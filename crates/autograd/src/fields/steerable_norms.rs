//! What steerable networks do at single points: normalisations by norms of at least 0.1, and the gate by the scalar part (Zhdanov et al.
//! 2024, arXiv:2402.14730). Each is one kernel forward and one backward; the algebra of the kernels has its generators in the order of
//! the signature, so that fields of other metrics have their blades permuted first.

use super::prelude::*;
use crate::{attributes, clifford::smooth_norm, operation::constants};
use gradewise_core::Algebra;
use gradewise_kernels::ops::clifford::{
    cs_layer_norm as layer_kernel, cs_mv_gelu as gate_kernel,
    mv_normalization::{self as grade_kernel, LEAST_SQUARE, Norm},
};

/// Added to the divisor of a normalisation.
const EPSILON: f64 = 1e-6;

/// x⁽ᵏ⁾/(σ(a_k)(ν_k − 1) + 1 + 1e-6) for `x` `[I, …, channels]` of the metric and `factor` `[1, channels, grades]`, where ν_k is the norm of
/// the part of grade k, at least 0.1. Commutes with the isometries of the metric.
///
/// # Errors
/// Shapes that do not fit together.
pub fn cs_grade_norm(metric: &OrderedMetric, x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    let blades = Blades::new(CsGradeNorm::NAME, metric, x)?;
    let (channels, grades) = (blades.channels, blades.algebra.grade_count());
    let reason = "one entry for each channel and grade";
    require_shape(CsGradeNorm::NAME, "factor", factor, &[1, channels, grades], reason)?;
    let factor = factor.reshape([channels, grades])?;
    blades.applied(x, |algebra, x| grade_norm(algebra, x, &factor))
}

/// [`cs_grade_norm`] for `x` `[blades, points, channels]` of an algebra and `a` `[channels, grades]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub(super) fn grade_norm(algebra: &Algebra, x: &Tensor, a: &Tensor) -> Result<Tensor> {
    Tensor::apply(CsGradeNorm { algebra: algebra.clone() }, &[x, a])
}

/// `x` `[I, …, channels]` over the mean of its channels' norms at each point, plus 1e-6; norms are 0.1 at least. Commutes with the
/// isometries of the metric.
///
/// # Errors
/// A field of other blades.
pub fn cs_layer_norm(metric: &OrderedMetric, x: &Tensor) -> Result<Tensor> {
    Blades::new(CsLayerNorm::NAME, metric, x)?
        .applied(x, |algebra, x| Tensor::apply(CsLayerNorm { algebra: algebra.clone() }, &[x]))
}

/// x·½(1 + tanh(√(2/π)(x₀ + 0.044715 x₀³))) for `x` `[I, …]`: a gate by the scalar part.
///
/// # Errors
/// A tensor without blades.
pub fn cs_mv_gelu(x: &Tensor) -> Result<Tensor> {
    Tensor::apply(CsMvGelu {}, &[x])
}

/// A sign for each blade, `[I, 1, …]`.
pub(super) fn blade_signs(signs: impl Iterator<Item = i8>, x: &Tensor) -> Result<Tensor> {
    let signs: Vec<f64> = signs.map(f64::from).collect();
    let mut shape = vec![1; x.shape().rank()];
    shape[0] = signs.len();
    constant(&signs, &shape, x)
}

/// How the blades of a metric lie in the algebra of its signature. Quadratic forms do not see the signs that some of them get there.
struct Blades {
    algebra: Algebra,
    /// For each blade of the metric its place in the algebra.
    places: Vec<usize>,
    channels: usize,
}

impl Blades {
    fn new(operation: &'static str, metric: &OrderedMetric, x: &Tensor) -> Result<Self> {
        let blades = metric.blade_count();
        let channels = match x.shape().dims() {
            &[own, .., channels] if own == blades => channels,
            _ => {
                let expected = format!("`x` has shape {}, expected [{blades}, …, channels]", x.shape());
                return refuse(operation, expected);
            }
        };
        let algebra = Algebra::new(metric.signature()).map_err(gradewise_kernels::Error::from)?;
        Ok(Self { algebra, places: metric.to_sorted().iter().map(|&(place, _)| place).collect(), channels })
    }

    /// An operation on `[blades, points, channels]` of the algebra, for `x` `[I, …, channels]` of the metric.
    fn applied(
        &self,
        x: &Tensor,
        operation: impl FnOnce(&Algebra, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let count = self.places.len();
        let points = x.shape().elements().checked_div(count * self.channels).unwrap_or(0);
        let rows = x.reshape([count, points, self.channels])?;
        if self.places.is_sorted() {
            return operation(&self.algebra, &rows)?.reshape(x.shape());
        }
        let mut blade_at = vec![0; count];
        for (blade, &place) in self.places.iter().enumerate() {
            blade_at[place] = blade;
        }
        let sorted = rows.index_select(0, &positions(&blade_at, count, x)?)?;
        let y = operation(&self.algebra, &sorted)?;
        y.index_select(0, &positions(&self.places, count, x)?)?.reshape(x.shape())
    }
}

/// (max(q, 0.01)² + 1e-16)^¼.
fn clamped_norm(q: &Tensor) -> Result<Tensor> {
    smooth_norm(&q.clamp(LEAST_SQUARE, f64::INFINITY)?)
}

/// Inputs: x and a.
#[derive(Serialize, Deserialize)]
pub(crate) struct CsGradeNorm {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for CsGradeNorm {
    const NAME: &'static str = "cs_grade_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::array("x"), Operand::array("a")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let operation = CsGradeNorm { algebra: sizes.algebra.clone() };
        let a = Input::normal([sizes.features, sizes.algebra.grade_count()]);
        Ok(vec![Sample::new(operation, [Input::normal(sizes.multivectors()), a])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(grade_kernel::forward(Norm::Clamped, &self.algebra, &inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        let gradients =
            grade_kernel::backward(Norm::Clamped, &self.algebra, &inputs[0], &inputs[1], grad.array())?;
        Ok(constants([Some(gradients.x), Some(gradients.a)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, a) = (&inputs[0], &inputs[1]);
        let grades: Vec<usize> = self.algebra.grades().iter().map(|&grade| usize::from(grade)).collect();
        let index = positions(&grades, self.algebra.grade_count(), x)?;
        let signs = blade_signs(self.algebra.squared_norms().iter().copied(), x)?;
        let q = x.square()?.mul(&signs)?.segment_sum(0, &index)?;
        let gain = a.transpose(0, 1)?.unsqueeze(1)?.sigmoid()?;
        let divisor = clamped_norm(&q)?.add_scalar(-1.0)?.mul(&gain)?.add_scalar(1.0 + EPSILON)?;
        x.div(&divisor.index_select(0, &index)?)
    }
}

/// Input: x.
#[derive(Serialize, Deserialize)]
pub(crate) struct CsLayerNorm {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
}

impl Operation for CsLayerNorm {
    const NAME: &'static str = "cs_layer_norm";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let operation = CsLayerNorm { algebra: sizes.algebra.clone() };
        Ok(vec![Sample::new(operation, [Input::normal(sizes.multivectors())])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(layer_kernel::forward(&self.algebra, &inputs[0])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(constants([Some(layer_kernel::backward(&self.algebra, &context.arrays()[0], grad.array())?)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        let signs = blade_signs(self.algebra.squared_norms().iter().copied(), x)?;
        let norm = clamped_norm(&x.square()?.mul(&signs)?.sum(&[0], true)?)?;
        x.div(&norm.mean(&[2], true)?.add_scalar(EPSILON)?)
    }
}

/// Input: x.
#[derive(Serialize, Deserialize)]
pub(crate) struct CsMvGelu {}

impl Operation for CsMvGelu {
    const NAME: &'static str = "cs_mv_gelu";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(vec![Sample::new(CsMvGelu {}, [Input::normal(sizes.multivectors())])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(gate_kernel::forward(&inputs[0])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(constants([Some(gate_kernel::backward(&context.arrays()[0], grad.array())?)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        let scalar = x.slice(0, 0..1)?;
        let cubic = scalar.square()?.mul(&scalar)?.mul_scalar(0.044715)?;
        let argument = scalar.add(&cubic)?.mul_scalar((2.0 / std::f64::consts::PI).sqrt())?;
        x.mul(&argument.tanh()?.add_scalar(1.0)?.mul_scalar(0.5)?)
    }
}
