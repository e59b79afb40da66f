//! Matrix products.

use super::prelude::*;

/// Inputs: `[…, m, k]` and `[…, k, n]`, or the transposes that the attributes say.
#[derive(Serialize, Deserialize)]
pub(crate) struct Matmul {
    transpose_self: bool,
    transpose_other: bool,
}

impl Operation for Matmul {
    const NAME: &'static str = "matmul";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("a"), Operand::array("b")];
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let [batch, features] = matrix(sizes);
        let turned = |turned: bool, [rows, columns]: [usize; 2]| {
            if turned { [columns, rows] } else { [rows, columns] }
        };
        let mut samples = Vec::new();
        for (transpose_self, transpose_other) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let (a, b) = (turned(transpose_self, [batch, features]), turned(transpose_other, [features, 3]));
            let operation = || Matmul { transpose_self, transpose_other };
            samples.push(Sample::new(operation(), [Input::normal(a), Input::normal(b)]));
            // Leading axes: one matrix for all of them, and one for each of some.
            samples.push(Sample::new(operation(), [Input::normal([2, a[0], a[1]]), Input::normal(b)]));
            let (a, b) = ([2, 1, a[0], a[1]], [3, b[0], b[1]]);
            samples.push(Sample::new(operation(), [Input::normal(a), Input::normal(b)]));
        }
        Ok(samples)
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::matmul(&inputs[0], &inputs[1], self.transpose_self, self.transpose_other)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let Self { transpose_self, transpose_other } = *self;
        let [a, b] = [&context.inputs[0], &context.inputs[1]];
        // With C = A·B: dA = dC·Bᵀ and dB = Aᵀ·dC; transposed if the operand was.
        let grad_a = || match transpose_self {
            false => grad.matmul_transposed(b, false, !transpose_other)?.sum_to(a.shape()),
            true => b.matmul_transposed(grad, transpose_other, true)?.sum_to(a.shape()),
        };
        // One matrix for all rows of the other operand: its gradient is one product, not a sum of many.
        let shared = b.shape().rank() == 2 && a.shape().rank() > 2 && !transpose_self;
        if shared && a.shape().elements() > 0 && grad.shape().elements() > 0 {
            let rows = |tensor: &Tensor| {
                let columns = tensor.shape()[tensor.shape().rank() - 1];
                tensor.reshape([tensor.shape().elements() / columns, columns])
            };
            let grad_b = || match transpose_other {
                false => rows(a)?.matmul_transposed(&rows(grad)?, true, false),
                true => rows(grad)?.matmul_transposed(&rows(a)?, true, false),
            };
            return Ok(vec![context.when_needed(0, grad_a)?, context.when_needed(1, grad_b)?]);
        }
        let grad_b = || match transpose_other {
            false => a.matmul_transposed(grad, !transpose_self, false)?.sum_to(b.shape()),
            true => grad.matmul_transposed(a, true, transpose_self)?.sum_to(b.shape()),
        };
        Ok(vec![context.when_needed(0, grad_a)?, context.when_needed(1, grad_b)?])
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        let [a, b] = inputs else { return None };
        let (rank, contracted) = (output.len(), a.len() - if self.transpose_self { 2 } else { 1 });
        let mut sizes = output.to_vec();
        sizes.push(a[contracted]);
        // Leading axes are broadcast; `last` are the counters of the last two.
        let load = |input: usize, operand: &[usize], last: [usize; 2]| {
            let leading = operand.len() - 2;
            let first = rank - operand.len();
            let mut at: Vec<At> = (0..leading)
                .map(|axis| if operand[axis] == 1 { At::fixed(0) } else { At::counter(first + axis) })
                .collect();
            at.extend(last.map(At::counter));
            Scalar::Load(input, at)
        };
        let [row, column, along] = [rank - 2, rank - 1, rank];
        let turned = |turned: bool, [a, b]: [usize; 2]| if turned { [b, a] } else { [a, b] };
        let left = load(0, a, turned(self.transpose_self, [row, along]));
        let right = load(1, b, turned(self.transpose_other, [along, column]));
        Some(Formula::sum(sizes, At::counters(rank), left.mul(right)))
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [a, b] = inputs else { return Cost::default() };
        let ([.., rows, columns], [.., b_rows, b_columns]) = (a, b) else { return Cost::default() };
        let (m, k) = if self.transpose_self { (*columns, *rows) } else { (*rows, *columns) };
        let n = if self.transpose_other { *b_rows } else { *b_columns };
        let leading = |sizes: &[usize]| sizes[..sizes.len() - 2].iter().product::<usize>();
        Cost { matrix_flops: 2 * (leading(a).max(leading(b)) * m * k * n) as u64, element_flops: 0 }
    }
}

impl Tensor {
    /// The product of the matrices in the last two axes, `[…, m, k]` by `[…, k, n]`; leading axes are broadcast.
    ///
    /// # Errors
    /// Sizes that do not fit, ranks below 2, different dtypes or devices.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.matmul_transposed(other, false, false)
    }

    /// [`matmul`](Self::matmul) of the matrices or of their transposes, which are not formed.
    ///
    /// # Errors
    /// As [`matmul`](Self::matmul).
    pub fn matmul_transposed(
        &self,
        other: &Tensor,
        transpose_self: bool,
        transpose_other: bool,
    ) -> Result<Tensor> {
        Self::apply(Matmul { transpose_self, transpose_other }, &[self, other])
    }
}
