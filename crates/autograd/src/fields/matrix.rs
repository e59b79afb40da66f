//! A constant matrix on the blades of a field.

use super::prelude::*;
use gradewise_kernels::ops;

/// y_j = Σ_i M_ji x_i + b_j for a field `x` `[I, …, channels]` of 2, 4 or 8 blades I, the entries of the matrix M `[I, I]` by rows, and a
/// bias `[I, channels]` if there is one: a change of basis in one pass over memory.
///
/// # Errors
/// Another number of blades; a matrix or a bias that does not fit; dtypes or devices that do not fit together.
pub(super) fn blade_matrix(matrix: &[f64], x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let operation = BladeMatrix { matrix: matrix.to_vec() };
    match bias {
        Some(bias) => Tensor::apply(operation, &[x, bias]),
        None => Tensor::apply(operation, &[x]),
    }
}

/// Inputs: x and, if there is one, the bias.
#[derive(Serialize, Deserialize)]
pub(crate) struct BladeMatrix {
    /// The entries by rows.
    matrix: Vec<f64>,
}

impl BladeMatrix {
    /// The entries of the transposed matrix by rows.
    fn transposed(&self) -> Vec<f64> {
        let size = self.matrix.len().isqrt();
        (0..size * size).map(|at| self.matrix[at % size * size + at / size]).collect()
    }
}

impl Operation for BladeMatrix {
    const NAME: &'static str = "blade_matrix";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("x"), Operand::array("bias").optional()];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let channels = sizes.features;
        let sample = |blades: usize, space: &[usize], has_bias: bool| {
            // No pattern that a transposed or shifted matrix would share.
            let matrix =
                (0..blades * blades).map(|at| ((at * at + 3 * at) % 7) as f64 * 0.25 - 0.7).collect();
            let x = Input::normal([&[blades, sizes.batch], space, &[channels]].concat());
            let bias = has_bias.then(|| Input::normal([blades, channels]));
            Sample::new(Self { matrix }, [x].into_iter().chain(bias).collect::<Vec<_>>())
        };
        Ok(vec![sample(2, &[3], true), sample(4, &[2, 3], false), sample(8, &[2, 1, 3], true)])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::fields::blade_matrix(&self.matrix, &inputs[0], inputs.get(1))?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let mut gradients = vec![context.when_needed(0, || blade_matrix(&self.transposed(), grad, None))?];
        if context.inputs.len() > 1 {
            // The bias is one for all positions.
            let positions: Vec<usize> = (1..grad.shape().rank() - 1).collect();
            gradients.push(context.when_needed(1, || grad.sum(&positions, false))?);
        }
        Ok(gradients)
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let Some([blades, positions @ ..]) = inputs.first() else { return Cost::default() };
        let positions: usize = positions.iter().product();
        Cost { element_flops: 2 * (blades * blades * positions) as u64, ..Cost::default() }
    }
}
