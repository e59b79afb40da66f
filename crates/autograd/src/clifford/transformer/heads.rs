//! Between feature planes and the heads of an attention.

use crate::{
    backend::{back, is_emulated, on_host},
    clifford::prelude::*,
};
use gradewise_kernels::{
    Index,
    ops::clifford::heads::{self as kernel, Merge, Norm, SCALAR_EPSILON, Split},
};

/// The heads of feature planes `[groups·scalars·heads + blades·groups·channels·heads, batch·items]`, for the attention behind the linear
/// map of queries, keys and values: `[groups, batch, heads, items, blades·channels + scalars]`.
///
/// Lines of the planes are the channels: first scalar (g·scalars + s)·heads + h, then for each blade multivector
/// (g·channels + c)·heads + h. With an epsilon, each head's multivectors are multiplied by gain/√max(mean over channels of Σ_k |q_k|, epsilon),
/// where q_k is the quadratic form of grade k, and its scalars are normalised to mean 0 and variance 1. Then the multivectors of the group
/// `query` are multiplied by the diagonal of the quadratic form, so that their dot products with keys are inner products of multivectors
/// (Brehmer et al. 2023, arXiv:2305.18415).
///
/// # Errors
/// Blades that the algebra does not have, a group of queries that is not there, an epsilon that is not above 0; another shape, named.
pub fn split_heads(options: &SplitHeads, x: &Tensor) -> Result<Tensor> {
    Tensor::apply(options.clone(), &[x])
}

/// The feature planes `[heads·scalars + blades·channels·heads, batch·items]` of heads `[batch, heads, items, blades·channels + scalars]`, for
/// the linear map behind the attention. Lines are first scalar h·scalars + s, then for each blade multivector h·channels + c.
///
/// # Errors
/// Another shape, named.
pub fn merge_heads(options: &MergeHeads, x: &Tensor) -> Result<Tensor> {
    Tensor::apply(*options, &[x])
}

/// What [`split_heads`] does. Input: x.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SplitHeads {
    /// The algebra whose quadratic form it takes.
    #[serde(with = "attributes::algebra")]
    pub algebra: Algebra,
    /// The blade of each plane; each at most once.
    pub order: Vec<u16>,
    /// Groups that lie side by side: three for queries, keys and values.
    pub groups: usize,
    /// Channels of multivectors of each head.
    pub channels: usize,
    /// Scalars of each head.
    pub scalars: usize,
    /// Heads of each group.
    pub heads: usize,
    /// Sequences of items.
    pub batch: usize,
    /// Items of each sequence.
    pub items: usize,
    /// With one, heads are normalised: the least mean of |q| that multivectors are divided by the root of.
    pub epsilon: Option<f64>,
    /// What normalised multivectors are multiplied by.
    pub gain: f64,
    /// The group whose multivectors are multiplied by the diagonal of the quadratic form.
    pub query: Option<usize>,
}

impl SplitHeads {
    fn kernel(&self) -> Split<'_> {
        let Self { ref algebra, ref order, groups, channels, scalars, heads, batch, items, .. } = *self;
        let norm = self.epsilon.map(|epsilon| Norm { epsilon, gain: self.gain });
        Split { algebra, order, groups, channels, scalars, heads, batch, items, norm, query: self.query }
    }

    /// The gradient of `x` for cotangents of each group, `[batch, heads, items, blades·channels + scalars]`, which an attention gives one by one:
    /// on a GPU they are read where they are.
    ///
    /// # Errors
    /// As [`split_heads`]; another number of cotangents than of groups.
    pub fn backward_of_groups(&self, x: &Array, grads: &[Array]) -> Result<Array> {
        let kernel = self.kernel();
        if is_emulated(x) {
            let grads = grads.iter().map(on_host).collect::<Result<Vec<_>>>()?;
            return back(
                &kernel::split_backward_of_groups(&kernel, &on_host(x)?, &grads)?,
                x.dtype(),
                &x.device(),
            );
        }
        Ok(kernel::split_backward_of_groups(&kernel, x, grads)?)
    }

    /// The quadratic form's entry for the blade of each plane.
    fn factors(&self) -> Vec<f64> {
        let norms = self.algebra.squared_norms();
        self.order.iter().map(|&blade| f64::from(norms[usize::from(blade)])).collect()
    }

    /// gain/√max(mean over channels of Σ_k |q_k|, epsilon) times `x` `[…, blades, channels]`.
    fn normalised(&self, x: &Tensor, epsilon: f64) -> Result<Tensor> {
        let grades: Vec<usize> =
            self.order.iter().map(|&blade| self.algebra.grades()[usize::from(blade)].into()).collect();
        let grades = Index::constant(&grades, self.algebra.grade_count(), &x.device())?;
        let factors = constant(&self.factors(), [1, 1, 1, 1, self.order.len(), 1], x)?;
        let forms = x.square()?.mul(&factors)?.segment_sum(4, &grades)?;
        let mean = forms.abs()?.sum(&[4], true)?.mean(&[5], true)?;
        x.mul(&mean.clamp(epsilon, f64::INFINITY)?.rsqrt()?.mul_scalar(self.gain)?)
    }
}

/// Numbers in the dtype and on the device of a tensor.
fn constant(values: &[f64], shape: [usize; 6], like: &Tensor) -> Result<Tensor> {
    Ok(Tensor::new(Array::constant(values, shape, like.dtype(), &like.device())?))
}

/// Both parts of a row of a head, `[…, blades, channels]` and `[…, scalars]`, one after the other.
fn joined(multivectors: &Tensor, scalars: &Tensor) -> Result<Tensor> {
    let [groups, batch, heads, items, blades, channels] = axes(multivectors)?;
    let multivectors = multivectors.reshape([groups, batch, heads, items, blades * channels])?;
    crate::concat(&[&multivectors, scalars], 4)
}

/// The sizes of a tensor of so many axes.
fn axes<const RANK: usize>(x: &Tensor) -> Result<[usize; RANK]> {
    x.shape().dims().try_into().map_err(|_| Error::Argument {
        operation: SplitHeads::NAME,
        message: format!("the shape is {}, expected {RANK} axes", x.shape()),
    })
}

impl Operation for SplitHeads {
    const NAME: &'static str = "split_heads";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::array("x")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let algebra = &sizes.algebra;
        // Another order than the algebra's own, in which grades do not lie together.
        let order: Vec<u16> = (0..algebra.blade_count() as u16).rev().collect();
        let sample = |groups, channels, scalars, heads, epsilon, query| {
            let (order, algebra) = (order.clone(), algebra.clone());
            let (batch, items, gain) = (2, sizes.batch, 1.25);
            let operation =
                Self { algebra, order, groups, channels, scalars, heads, batch, items, epsilon, gain, query };
            let lines = groups * heads * (operation.order.len() * channels + scalars);
            Sample::new(operation, [Input::normal([lines, batch * items])])
        };
        // Of two scalars or one the variance may be near 0, where layer normalisation bends with 1/√ε.
        let (some, scalars) = (sizes.features.min(5), sizes.features.min(5) + 2);
        Ok(vec![
            sample(3, some, scalars, 2, Some(0.01), Some(0)),
            sample(2, 1, 0, 3, Some(0.01), None),
            sample(1, some, 1, 1, Some(0.01), Some(0)),
            // All means are below this ε.
            sample(2, 2, scalars, 1, Some(1e4), Some(1)),
            sample(3, some, 1, 2, None, Some(0)),
            sample(1, 2, 0, 2, None, None),
        ])
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(self.kernel().heads_shape().map(Axis::Size).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::split(&self.kernel(), &inputs[0])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        Ok(constants([Some(kernel::split_backward(&self.kernel(), &inputs[0], grad.array())?)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (x, blades) = (&inputs[0], self.order.len());
        self.kernel().require(x.array())?;
        let Self { groups, channels, scalars, heads, batch, items, .. } = *self;
        let first = groups * scalars * heads;
        let lines = first + blades * groups * channels * heads;
        let mut multivectors = x
            .slice(0, first..lines)?
            .reshape([blades, groups, channels, heads, batch, items])?
            .permute(&[1, 4, 3, 5, 0, 2])?;
        let mut rest = x
            .slice(0, 0..first)?
            .reshape([groups, scalars, heads, batch, items])?
            .permute(&[0, 3, 2, 4, 1])?;
        if let Some(epsilon) = self.epsilon {
            multivectors = self.normalised(&multivectors, epsilon)?;
            if scalars > 0 {
                rest = rest.layer_norm(None, None, SCALAR_EPSILON)?;
            }
        }
        if let Some(query) = self.query {
            let factors = self.factors();
            let of_group = |group| if group == query { factors.clone() } else { vec![1.0; blades] };
            let all: Vec<f64> = (0..groups).flat_map(of_group).collect();
            multivectors = multivectors.mul(&constant(&all, [groups, 1, 1, 1, blades, 1], x)?)?;
        }
        joined(&multivectors, &rest)
    }

    /// With a norm: a square, its sum, a dot product and the scaling of each element.
    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let elements: usize = inputs[0].iter().product();
        let each = if self.epsilon.is_some() { 4 } else { 0 };
        Cost { matrix_flops: 0, element_flops: each * elements as u64 }
    }
}

/// What [`merge_heads`] takes apart: the sizes of a row of its input. Input: x.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MergeHeads {
    /// Blades of a multivector.
    pub blades: usize,
    /// Channels of multivectors of each head.
    pub channels: usize,
    /// Scalars of each head.
    pub scalars: usize,
}

impl MergeHeads {
    fn kernel(self) -> Merge {
        let Self { blades: planes, channels, scalars } = self;
        Merge { planes, channels, scalars }
    }
}

impl Operation for MergeHeads {
    const NAME: &'static str = "merge_heads";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[Operand::array("x")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let blades = sizes.algebra.blade_count();
        let sample = |channels, scalars, heads| {
            let shape = [2, heads, sizes.batch, blades * channels + scalars];
            Sample::new(Self { blades, channels, scalars }, [Input::normal(shape)])
        };
        Ok(vec![sample(sizes.features.min(5), 3, 2), sample(1, 0, 3)])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(kernel::merge(&self.kernel(), &inputs[0])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inputs = context.arrays();
        Ok(constants([Some(kernel::merge_backward(&self.kernel(), &inputs[0], grad.array())?)]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        self.kernel().require(x.array())?;
        let Self { blades, channels, scalars } = *self;
        let [batch, heads, items, width] = axes(x)?;
        let multivectors = x
            .slice(3, 0..blades * channels)?
            .reshape([batch, heads, items, blades, channels])?
            .permute(&[3, 1, 4, 0, 2])?
            .reshape([blades * heads * channels, batch * items])?;
        let rest = x
            .slice(3, blades * channels..width)?
            .permute(&[1, 3, 0, 2])?
            .reshape([heads * scalars, batch * items])?;
        crate::concat(&[&rest, &multivectors], 0)
    }
}
