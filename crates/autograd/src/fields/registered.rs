//! The operators of this folder as operations of the registry, by name and attributes.
//!
//! The functions of this folder compose primitives, each a node of the graph. Checks over the registry, records that are run again, and
//! front ends of other languages name an operator as one: here it is one node, whose re-expression is the composition.

use super::{
    Aggregation, BatchNorm, ConjugateLinear, ConvolutionOptions, NormOptions, Padding, SpectralOptions,
    Whitening, prelude::*,
};

/// An operation without kernels of its own: its name, attributes, inputs, samples and re-expression.
macro_rules! operation {
    (
        $(#[$doc:meta])*
        $type:ident { $($field:ident: $kind:ty),* $(,)? }, $name:literal, [$($operand:expr),+], $products:expr,
        |$sizes:ident| $samples:expr, |$self:ident, $inputs:ident| $body:expr
    ) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize)]
        pub(crate) struct $type {
            $($field: $kind,)*
        }

        impl Operation for $type {
            const NAME: &'static str = $name;
            const RULE: Rule = Rule::Widest;
            const DERIVATIVE: Derivative = Derivative::Reexpressed;
            const OPERANDS: &'static [Operand] = &[$($operand),+];
            const HAS_MATRIX_PRODUCTS: bool = $products;

            fn samples($sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
                $samples
            }

            fn serves(&self, _: &[Array]) -> bool {
                false
            }

            fn forward(&self, inputs: &[Array]) -> Result<Forward> {
                crate::operation::reexpressed(|inputs| self.reexpress(inputs), inputs)
            }

            /// The engine differentiates the re-expression of what has no kernels.
            fn backward(&self, _: &BackwardContext<'_>, _: &Tensor) -> Result<Vec<Option<Tensor>>> {
                refuse($name, "it is differentiated by its re-expression")
            }

            fn reexpress(&$self, $inputs: &[Tensor]) -> Result<Tensor> {
                $body
            }
        }
    };
}

const X: Operand = Operand::array("x");
const WEIGHT: Operand = Operand::array("weight");
const BIAS: Operand = Operand::array("bias");

/// The squares of the first generators of the algebra that samples are made for, `most` at most and one at least.
fn squares(sizes: &Sizes, most: usize) -> Vec<i8> {
    let signature = sizes.algebra.signature();
    let count = signature.dimension().clamp(1, most);
    // The last generators, so that negative and null ones occur, in reverse, so that the metric is not sorted.
    (0..count).map(|at| signature.square(signature.dimension().saturating_sub(1 + at))).collect()
}

fn metric(squares: &[i8]) -> Result<OrderedMetric> {
    Ok(OrderedMetric::new(squares).map_err(gradewise_kernels::Error::from)?)
}

/// A metric of as many axes as `squares` without null generators.
fn regular(squares: Vec<i8>) -> Vec<i8> {
    squares.into_iter().map(|square| if square == 0 { -1 } else { square }).collect()
}

fn field(blades: usize, sizes: &Sizes, space: &[usize], channels: usize) -> Input {
    Input::normal([&[blades, sizes.batch], space, &[channels]].concat())
}

fn weights(blades: usize, a: usize, b: usize, taps: &[usize]) -> Input {
    Input::normal([&[blades, a, b], taps].concat())
}

operation!(
    /// Inputs: x, weights and, if there is one, the bias.
    CliffordConv { metric: Vec<i8>, options: ConvolutionOptions }, "clifford_conv", [X, WEIGHT, BIAS.optional()], true,
    |sizes| {
        let (squares, c) = (squares(sizes, 3), sizes.features);
        let (n, blades) = (squares.len(), 1 << squares.len());
        let options = ConvolutionOptions { padding: vec![[1, 0]; n], ..ConvolutionOptions::new(n) };
        let space = [3, 2, 2];
        let inputs = vec![
            field(blades, sizes, &space[..n], c),
            weights(blades, c + 1, c, &[2, 1, 2][..n]),
            Input::normal([blades, c + 1]),
        ];
        let circular = ConvolutionOptions { mode: Padding::Circular, stride: vec![2; n], ..options.clone() };
        Ok(vec![
            Sample::new(Self { metric: squares.clone(), options }, inputs.clone()),
            Sample::new(Self { metric: squares, options: circular }, &inputs[..2]),
        ])
    },
    |self, inputs| super::clifford_conv(&metric(&self.metric)?, &inputs[0], &inputs[1], inputs.get(2), &self.options)
);

operation!(
    /// Inputs: x, weights and, if there is one, the bias.
    CliffordConvTranspose { metric: Vec<i8>, options: ConvolutionOptions, output_padding: Vec<usize> },
    "clifford_conv_transpose", [X, WEIGHT, BIAS.optional()], true,
    |sizes| {
        let (squares, c) = (squares(sizes, 3), sizes.features);
        let (n, blades) = (squares.len(), 1 << squares.len());
        let options = ConvolutionOptions { stride: vec![2; n], ..ConvolutionOptions::new(n) };
        let inputs = [
            field(blades, sizes, &[2, 1, 2][..n], c),
            weights(blades, c, c + 1, &[2, 2, 1][..n]),
            Input::normal([blades, c + 1]),
        ];
        Ok(vec![Sample::new(Self { metric: squares, options, output_padding: vec![1; n] }, inputs)])
    },
    |self, inputs| super::clifford_conv_transpose(
        &metric(&self.metric)?, &inputs[0], &inputs[1], inputs.get(2), &self.options, &self.output_padding,
    )
);

operation!(
    /// Inputs: x, weights and, if there is one, the bias.
    CliffordLinear { metric: Vec<i8> }, "clifford_linear", [X, WEIGHT, BIAS.optional()], true,
    |sizes| {
        let (squares, c) = (squares(sizes, 3), sizes.features);
        let blades = 1 << squares.len();
        let inputs = [field(blades, sizes, &[], c), weights(blades, c + 1, c, &[]), Input::normal([blades, c + 1])];
        Ok(vec![Sample::new(Self { metric: squares }, inputs)])
    },
    |self, inputs| super::clifford_linear(&metric(&self.metric)?, &inputs[0], &inputs[1], inputs.get(2))
);

operation!(
    /// Inputs: x and, if there is a product, the weights.
    CliffordSpectralConv { metric: Vec<i8>, options: SpectralOptions }, "clifford_spectral_conv", [X, WEIGHT.optional()], true,
    |sizes| {
        let (squares, c) = (squares(sizes, 3), sizes.features);
        let squares = if squares.len() < 2 { vec![1, -1] } else { squares };
        let (n, blades) = (squares.len(), 1 << squares.len());
        let options = SpectralOptions { octant_bug: n == 3, ..SpectralOptions::reference(&vec![1; n]) };
        let inputs = [field(blades, sizes, &[3, 2, 2][..n], c), weights(blades, c + 1, c, &[2, 2, 2][..n])];
        Ok(vec![Sample::new(Self { metric: squares, options }, inputs)])
    },
    |self, inputs| super::clifford_spectral_conv(&metric(&self.metric)?, &inputs[0], inputs.get(1), &self.options)
);

operation!(
    /// Inputs: x, the weight and the bias.
    CliffordBatchNorm { options: NormOptions }, "clifford_batch_norm", [X, WEIGHT, BIAS], true,
    |sizes| {
        // More samples than blades, whatever the batch.
        let x = Input::normal([4, 3, sizes.batch + 5, sizes.features]);
        let inputs = [x, Input::normal([4, 4, sizes.features]), Input::normal([4, sizes.features])];
        // A ridge of the size of the covariance keeps derivatives moderate.
        let options = |whitening| NormOptions { epsilon: 0.1, whitening };
        let sample = |whitening| Sample::new(Self { options: options(whitening) }, inputs.clone());
        Ok(vec![sample(Whitening::Lower), sample(Whitening::Reference)])
    },
    |self, inputs| {
        let parameters = BatchNorm { weight: Some(&inputs[1]), bias: Some(&inputs[2]) };
        Ok(super::clifford_batch_norm(&inputs[0], parameters, None, self.options)?.0)
    }
);

operation!(
    /// Inputs: x, the weight and the bias.
    CliffordGroupNorm { options: NormOptions, channels_per_group: usize }, "clifford_group_norm", [X, WEIGHT, BIAS], true,
    |sizes| {
        let options = NormOptions { epsilon: 0.1, whitening: Whitening::Lower };
        let groups = sizes.features;
        let x = Input::normal([2, sizes.batch + 1, 4, 2 * groups]);
        let inputs = [x, Input::normal([2, 2, groups]), Input::normal([2, groups])];
        Ok(vec![Sample::new(Self { options, channels_per_group: 2 }, inputs)])
    },
    |self, inputs| {
        let parameters = BatchNorm { weight: Some(&inputs[1]), bias: Some(&inputs[2]) };
        super::clifford_group_norm(&inputs[0], parameters, self.channels_per_group, self.options)
    }
);

operation!(
    /// Inputs: x, the quaternions and the scales.
    G3Conv { options: ConvolutionOptions }, "g3_conv", [X, WEIGHT, Operand::array("scale")], true,
    |sizes| {
        let c = sizes.features;
        let inputs =
            [field(3, sizes, &[2, 3], c), weights(4, c + 1, c, &[2, 2]), Input::normal([c + 1, c, 2, 2])];
        Ok(vec![Sample::new(Self { options: ConvolutionOptions::new(2).same(&[2, 2]) }, inputs)])
    },
    |self, inputs| super::correlate(&inputs[0], &super::g3_kernel(&inputs[1], &inputs[2])?, &self.options)
);

operation!(
    /// Inputs: x, the weight and the bias.
    G3GroupNorm { groups: usize, scale: Option<f64> }, "g3_group_norm", [X, WEIGHT, BIAS], false,
    |sizes| {
        let c = sizes.features;
        let x = Input::normal([3, sizes.batch + 1, 4, 2 * c]);
        let inputs = [x, Input::normal([2 * c]), Input::normal([2 * c, 3])];
        let sample = |scale| Sample::new(Self { groups: c, scale }, inputs.clone());
        Ok(vec![sample(None), sample(Some(1e-6))])
    },
    |self, inputs| super::g3_group_norm(&inputs[0], &inputs[1], &inputs[2], self.groups, self.scale)
);

operation!(
    /// Inputs: x, and the weight and bias of a linear argument.
    MvAct { input_blades: Vec<usize>, kernel_blades: Vec<usize>, mean: bool }, "mv_act", [X, WEIGHT.optional(), BIAS.optional()], false,
    |sizes| {
        let c = sizes.features;
        let (input_blades, kernel_blades) = (vec![1, 2, 4], vec![2, 7, 1]);
        let sample = |mean, inputs: Vec<Input>| {
            Sample::new(Self { input_blades: input_blades.clone(), kernel_blades: kernel_blades.clone(), mean }, inputs)
        };
        let x = field(3, sizes, &[], c);
        let linear = vec![x.clone(), Input::normal([c, 3]), Input::normal([c])];
        Ok(vec![sample(false, linear), sample(false, vec![x.clone()]), sample(true, vec![x])])
    },
    |self, inputs| {
        let aggregation = match (inputs, self.mean) {
            ([_, weight, bias], _) => Aggregation::Linear { weight, bias },
            (_, true) => Aggregation::Mean,
            (_, false) => Aggregation::Sum,
        };
        super::mv_act(&inputs[0], &self.input_blades, &self.kernel_blades, aggregation)
    }
);

operation!(
    /// Inputs: x, the action, the weight and the homogeneous coordinates.
    PgaConjugateLinear { input_blades: Vec<usize>, action_blades: Vec<usize> }, "pga_conjugate_linear", [X, Operand::array("action"), WEIGHT, Operand::array("embed")], true,
    |sizes| {
        let c = sizes.features.min(4);
        let inputs = [
            field(4, sizes, &[], c),
            Input::normal([2, c, 8]),
            Input::normal([2, c]),
            Input::normal([c, 1]),
        ];
        let action_blades = vec![0, 5, 6, 7, 8, 9, 10, 15];
        Ok(vec![Sample::new(Self { input_blades: vec![11, 12, 13, 14], action_blades }, inputs)])
    },
    |self, inputs| {
        let operands = ConjugateLinear { x: &inputs[0], action: &inputs[1], weight: &inputs[2], embed: &inputs[3] };
        super::pga_conjugate_linear(&operands, &self.input_blades, &self.action_blades)
    }
);

operation!(
    /// The normalisation of each point by the mean norm of its channels, then the gate by the scalar part.
    SteerableGate { metric: Vec<i8>, norm: bool }, "cs_gate", [X], false,
    |sizes| {
        let squares = regular(squares(sizes, 3));
        let x = field(1 << squares.len(), sizes, &[2], sizes.features);
        let sample = |norm| Sample::new(Self { metric: squares.clone(), norm }, [x.clone()]);
        Ok(vec![sample(false), sample(true)])
    },
    |self, inputs| match self.norm {
        true => super::cs_mv_gelu(&super::cs_layer_norm(&metric(&self.metric)?, &inputs[0])?),
        false => super::cs_mv_gelu(&inputs[0]),
    }
);
