//! Binary arithmetic with broadcasting, and arithmetic with numbers.

use super::prelude::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The gradient of input `index`, summed over the axes it was broadcast along.
fn reduced(
    context: &BackwardContext<'_>,
    index: usize,
    gradient: impl FnOnce() -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    context.when_needed(index, || gradient()?.sum_to(context.inputs[index].shape()))
}

/// The values one after the other by an operator.
fn folded(values: Vec<Scalar>, operator: Operator) -> Scalar {
    let sum = values.into_iter().reduce(|a, b| a.with(operator, b));
    sum.unwrap_or(Scalar::Number(0.0))
}

/// A binary operation with broadcasting: its struct, and its operator on tensors.
macro_rules! binary {
    ($type:ident, $name:literal, $rule:expr, $right:expr, $kernel:expr, $operator:ident, |$context:ident, $grad:ident| $gradients:expr) => {
        #[derive(Serialize, Deserialize)]
        pub(crate) struct $type;

        impl Operation for $type {
            const NAME: &'static str = $name;
            const RULE: Rule = $rule;
            const DERIVATIVE: Derivative = Derivative::Differentiable;
            const OPERANDS: &'static [Operand] = &[Operand::array("a"), Operand::array("b")];

            fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
                let [batch, features] = matrix(sizes);
                // One shape, and each side broadcast.
                let shapes: [[Shape; 2]; 3] = [
                    [[batch, features].into(), [batch, features].into()],
                    [[batch, features].into(), [features].into()],
                    [[batch, 1].into(), [2, 1, features].into()],
                ];
                let sample = |[left, right]: [Shape; 2]| {
                    Sample::new($type, [Input::normal(left), Input::with(right, $right)])
                };
                Ok(shapes.into_iter().map(sample).collect())
            }

            fn forward(&self, inputs: &[Array]) -> Result<Forward> {
                Ok($kernel(&inputs[0], &inputs[1])?.into())
            }

            fn backward(
                &self,
                $context: &BackwardContext<'_>,
                $grad: &Tensor,
            ) -> Result<Vec<Option<Tensor>>> {
                let [left, right] = $gradients;
                Ok(vec![left, right])
            }

            fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
                Some(Formula::elementwise(inputs, output, |loads| folded(loads, Operator::$operator)))
            }
        }
    };
}

binary!(Sum, "add", Rule::Widest, Values::Normal, ops::add, Add, |context, grad| [
    reduced(context, 0, || Ok(grad.clone()))?,
    reduced(context, 1, || Ok(grad.clone()))?,
]);
binary!(Difference, "sub", Rule::Widest, Values::Normal, ops::sub, Sub, |context, grad| [
    reduced(context, 0, || Ok(grad.clone()))?,
    reduced(context, 1, || grad.neg())?,
]);
binary!(Product, "mul", Rule::Widest, Values::Normal, ops::mul, Mul, |context, grad| [
    reduced(context, 0, || grad.mul(&context.inputs[1]))?,
    reduced(context, 1, || grad.mul(&context.inputs[0]))?,
]);
binary!(Quotient, "div", Rule::Full, Values::Positive, ops::div, Div, |context, grad| {
    let divisor = &context.inputs[1];
    [
        reduced(context, 0, || grad.div(divisor))?,
        reduced(context, 1, || grad.mul(context.output)?.div(divisor)?.neg())?,
    ]
});
binary!(Maximum, "maximum", Rule::Widest, Values::Normal, ops::max, Max, |context, grad| {
    let (a, b) = (context.inputs[0].array(), context.inputs[1].array());
    // 1 where a is larger, 0 where b is, ½ where they are equal.
    let share = ops::mul_scalar(&ops::add(&ops::greater(a, b)?, &ops::greater_equal(a, b)?)?, 0.5)?;
    let share = Tensor::new(share);
    [
        reduced(context, 0, || grad.mul(&share))?,
        reduced(context, 1, || grad.mul(&share.mul_scalar(-1.0)?.add_scalar(1.0)?))?,
    ]
});

/// The sum of several tensors.
#[derive(Serialize, Deserialize)]
pub(crate) struct AddN;

impl Operation for AddN {
    const NAME: &'static str = "add_n";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::array("terms").repeated()];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let inputs = |count| vec![Input::normal(matrix(sizes)); count];
        Ok([1, 3, ops::ADD_N_AT_ONCE + 1].map(|count| Sample::new(AddN, inputs(count))).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::add_n(&inputs.iter().collect::<Vec<_>>())?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok((0..context.inputs.len()).map(|index| context.needs(index).then(|| grad.clone())).collect())
    }

    fn formula(&self, inputs: &[&[usize]], output: &[usize]) -> Option<Formula> {
        Some(Formula::elementwise(inputs, output, |loads| folded(loads, Operator::Add)))
    }
}

/// The elementwise sum of tensors of one shape, in order.
///
/// # Errors
/// No tensors, shapes, dtypes or devices that differ.
pub fn add_n(tensors: &[&Tensor]) -> Result<Tensor> {
    Tensor::apply(AddN, tensors)
}

/// Addition of a number.
#[derive(Serialize, Deserialize)]
pub(crate) struct AddScalar {
    #[serde(with = "attributes::number")]
    value: f64,
}

impl Operation for AddScalar {
    const NAME: &'static str = "add_scalar";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(vec![Sample::new(AddScalar { value: 0.3 }, [Input::normal(matrix(sizes))])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::add_scalar(&inputs[0], self.value)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.clone())])
    }

    fn formula(&self, _: &[&[usize]], output: &[usize]) -> Option<Formula> {
        Some(Formula::unary(output, |x| x.add(Scalar::Number(self.value))))
    }
}

/// Multiplication by a number.
#[derive(Serialize, Deserialize)]
pub(crate) struct MulScalar {
    #[serde(with = "attributes::number")]
    value: f64,
}

impl Operation for MulScalar {
    const NAME: &'static str = "mul_scalar";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        Ok(vec![Sample::new(MulScalar { value: -1.7 }, [Input::normal(matrix(sizes))])])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::mul_scalar(&inputs[0], self.value)?.into())
    }

    fn backward(&self, _: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(grad.mul_scalar(self.value)?)])
    }

    fn formula(&self, _: &[&[usize]], output: &[usize]) -> Option<Formula> {
        Some(Formula::unary(output, |x| x.mul(Scalar::Number(self.value))))
    }
}

impl Tensor {
    /// Elementwise `self + other`, broadcast together.
    ///
    /// # Errors
    /// Shapes that do not broadcast, different dtypes or devices.
    pub fn add(&self, other: &Tensor) -> Result<Tensor> {
        Self::apply(Sum, &[self, other])
    }

    /// Elementwise `self - other`, broadcast together.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn sub(&self, other: &Tensor) -> Result<Tensor> {
        Self::apply(Difference, &[self, other])
    }

    /// Elementwise `self · other`, broadcast together.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn mul(&self, other: &Tensor) -> Result<Tensor> {
        Self::apply(Product, &[self, other])
    }

    /// Elementwise `self / other`, broadcast together. Division by zero gives what IEEE 754 says.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn div(&self, other: &Tensor) -> Result<Tensor> {
        Self::apply(Quotient, &[self, other])
    }

    /// Elementwise smaller value, broadcast together. Where both are equal, each gets half of the gradient.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn minimum(&self, other: &Tensor) -> Result<Tensor> {
        self.neg()?.maximum(&other.neg()?)?.neg()
    }

    /// Elementwise larger value, broadcast together. Where both are equal, each gets half of the gradient.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn maximum(&self, other: &Tensor) -> Result<Tensor> {
        Self::apply(Maximum, &[self, other])
    }

    /// Adds a number to every element.
    ///
    /// # Errors
    /// The device has no memory or does not serve the dtype.
    pub fn add_scalar(&self, value: f64) -> Result<Tensor> {
        Self::apply(AddScalar { value }, &[self])
    }

    /// Multiplies every element by a number.
    ///
    /// # Errors
    /// As [`add_scalar`](Self::add_scalar).
    pub fn mul_scalar(&self, value: f64) -> Result<Tensor> {
        Self::apply(MulScalar { value }, &[self])
    }
}

/// An operator between tensors, by value or by reference, and between a tensor and a number: `(&a + &b)? * &c`.
macro_rules! operator {
    ($trait:ident, $method:ident, |$left:ident, $number:ident| $with_number:expr) => {
        operator!($trait, $method, &Tensor, &Tensor, |a, b| Tensor::$method(a, b));
        operator!($trait, $method, &Tensor, Tensor, |a, b| Tensor::$method(a, &b));
        operator!($trait, $method, Tensor, &Tensor, |a, b| Tensor::$method(&a, b));
        operator!($trait, $method, Tensor, Tensor, |a, b| Tensor::$method(&a, &b));
        operator!($trait, $method, &Tensor, f64, |$left, $number| $with_number);
        operator!($trait, $method, Tensor, f64, |$left, $number| $with_number);
    };
    ($trait:ident, $method:ident, $left:ty, $right:ty, |$a:ident, $b:ident| $result:expr) => {
        impl $trait<$right> for $left {
            type Output = Result<Tensor>;

            fn $method(self, other: $right) -> Result<Tensor> {
                let ($a, $b) = (self, other);
                $result
            }
        }
    };
}

operator!(Add, add, |a, number| a.add_scalar(number));
operator!(Sub, sub, |a, number| a.add_scalar(-number));
operator!(Mul, mul, |a, number| a.mul_scalar(number));
operator!(Div, div, |a, number| {
    let divisor = Tensor::full(Shape::scalar(), number, a.dtype(), &a.device())?;
    a.div(&divisor)
});

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
