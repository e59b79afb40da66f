//! Elementwise functions.

use super::prelude::*;

/// An elementwise function: its struct, its derivative at input `x` given also the output `y`, and its method on tensors.
macro_rules! unary {
    ($type:ident, $name:literal, $rule:expr, $values:expr, $kernel:expr, |$x:pat_param, $y:pat_param| $slope:expr) => {
        #[derive(Serialize, Deserialize)]
        pub(crate) struct $type;

        impl Operation for $type {
            const NAME: &'static str = $name;
            const RULE: Rule = $rule;
            const DERIVATIVE: Derivative = Derivative::Differentiable;

            fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
                Ok(vec![Sample::new($type, [Input::with(matrix(sizes), $values)])])
            }

            fn forward(&self, inputs: &[Array]) -> Result<Forward> {
                Ok($kernel(&inputs[0])?.into())
            }

            fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
                let slope = |$x: &Tensor, $y: &Tensor| -> Result<Tensor> { $slope };
                Ok(vec![Some(grad.mul(&slope(&context.inputs[0], context.output)?)?)])
            }

            fn formula(&self, _: &[&[usize]], output: &[usize]) -> Option<Formula> {
                Some(Formula::unary(output, |x| x.function(Function::$type)))
            }
        }
    };
}

unary!(Abs, "abs", Rule::Widest, Values::AwayFromZero, ops::abs, |x, _| Ok(Tensor::new(ops::sign(
    x.array()
)?)));
unary!(Exp, "exp", Rule::Full, Values::Normal, ops::exp, |_, y| Ok(y.clone()));
unary!(Log, "log", Rule::Full, Values::Positive, ops::log, |x, _| x.recip());
unary!(Sqrt, "sqrt", Rule::Full, Values::Positive, ops::sqrt, |_, y| y.recip()?.mul_scalar(0.5));
unary!(Rsqrt, "rsqrt", Rule::Full, Values::Positive, ops::rsqrt, |x, y| y.div(x)?.mul_scalar(-0.5));
unary!(Recip, "recip", Rule::Full, Values::Positive, ops::recip, |_, y| y.square()?.neg());
unary!(Square, "square", Rule::Full, Values::Normal, ops::square, |x, _| x.mul_scalar(2.0));
unary!(Sin, "sin", Rule::Full, Values::Normal, ops::sin, |x, _| x.cos());
unary!(Cos, "cos", Rule::Full, Values::Normal, ops::cos, |x, _| x.sin()?.neg());
unary!(Tanh, "tanh", Rule::Widest, Values::Normal, ops::tanh, |_, y| y.square()?.neg()?.add_scalar(1.0));
unary!(Sigmoid, "sigmoid", Rule::Widest, Values::Normal, ops::sigmoid, |_, y| y.sub(&y.square()?));
unary!(Silu, "silu", Rule::Widest, Values::Normal, ops::silu, |x, _| Tensor::apply(SiluDerivative, &[x]));
unary!(SiluDerivative, "silu_derivative", Rule::Widest, Values::Normal, ops::silu_derivative, |x, _| {
    let s = x.sigmoid()?;
    let slope = s.sub(&s.square()?)?;
    slope.mul(&x.mul(&s.mul_scalar(-2.0)?.add_scalar(1.0)?)?.add_scalar(2.0)?)
});
unary!(Gelu, "gelu", Rule::Widest, Values::Normal, ops::gelu, |x, _| Tensor::apply(GeluDerivative, &[x]));
unary!(GeluDerivative, "gelu_derivative", Rule::Widest, Values::Normal, ops::gelu_derivative, |x, _| {
    let inv_sqrt_tau = (2.0 * std::f64::consts::PI).sqrt().recip();
    let square = x.square()?;
    let pdf = square.mul_scalar(-0.5)?.exp()?.mul_scalar(inv_sqrt_tau)?;
    pdf.mul(&square.neg()?.add_scalar(2.0)?)
});
unary!(Relu, "relu", Rule::Widest, Values::AwayFromZero, ops::relu, |_, y| Ok(Tensor::new(ops::sign(
    y.array()
)?)));
unary!(Erf, "erf", Rule::Full, Values::Normal, ops::erf, |x, _| {
    x.square()?.neg()?.exp()?.mul_scalar(std::f64::consts::FRAC_2_SQRT_PI)
});

/// A constant power.
#[derive(Serialize, Deserialize)]
pub(crate) struct Pow {
    #[serde(with = "attributes::number")]
    exponent: f64,
}

impl Operation for Pow {
    const NAME: &'static str = "pow";
    const RULE: Rule = Rule::Full;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let sample = |exponent| Sample::new(Pow { exponent }, [Input::with(matrix(sizes), Values::Positive)]);
        Ok([2.5, -1.0, 1.0, 0.0].map(sample).into())
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::pow_scalar(&inputs[0], self.exponent)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = &context.inputs[0];
        if self.exponent == 0.0 {
            // A constant: 0·x⁻¹ would be NaN at 0.
            return Ok(vec![Some(Tensor::zeros(x.shape(), x.dtype(), &x.device())?)]);
        }
        Ok(vec![Some(grad.mul(&x.pow(self.exponent - 1.0)?.mul_scalar(self.exponent)?)?)])
    }

    fn formula(&self, _: &[&[usize]], output: &[usize]) -> Option<Formula> {
        Some(Formula::unary(output, |x| x.with(Operator::Pow, Scalar::Number(self.exponent))))
    }
}

/// Limits of the elements.
#[derive(Serialize, Deserialize)]
pub(crate) struct Clamp {
    #[serde(with = "attributes::number")]
    low: f64,
    #[serde(with = "attributes::number")]
    high: f64,
}

impl Operation for Clamp {
    const NAME: &'static str = "clamp";
    const RULE: Rule = Rule::Widest;
    const DERIVATIVE: Derivative = Derivative::Differentiable;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let sample = |low, high| Sample::new(Clamp { low, high }, [Input::normal(matrix(sizes))]);
        Ok(vec![sample(-0.5, 0.7), sample(f64::NEG_INFINITY, 0.2)])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(ops::clamp(&inputs[0], self.low, self.high)?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let inside = ops::equal(context.inputs[0].array(), context.output.array())?;
        Ok(vec![Some(grad.mul(&Tensor::new(inside))?)])
    }

    fn formula(&self, _: &[&[usize]], output: &[usize]) -> Option<Formula> {
        Some(Formula::unary(output, |mut x| {
            for (operator, bound) in [(Operator::Max, self.low), (Operator::Min, self.high)] {
                if bound.is_finite() {
                    x = x.with(operator, Scalar::Number(bound));
                }
            }
            x
        }))
    }
}

impl Tensor {
    /// −x.
    ///
    /// # Errors
    /// The device has no memory or does not serve the dtype.
    pub fn neg(&self) -> Result<Tensor> {
        self.mul_scalar(-1.0)
    }

    /// |x|; its derivative at 0 is 0.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn abs(&self) -> Result<Tensor> {
        Self::apply(Abs, &[self])
    }

    /// e^x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn exp(&self) -> Result<Tensor> {
        Self::apply(Exp, &[self])
    }

    /// The natural logarithm; −∞ at 0, where its derivative 1/x is infinite.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn log(&self) -> Result<Tensor> {
        Self::apply(Log, &[self])
    }

    /// √x; its derivative at 0 is infinite, so that an upstream gradient of 0 gives NaN there: add an ε where 0 can occur.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn sqrt(&self) -> Result<Tensor> {
        Self::apply(Sqrt, &[self])
    }

    /// 1/√x; infinite at 0, where its derivative is −∞.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn rsqrt(&self) -> Result<Tensor> {
        Self::apply(Rsqrt, &[self])
    }

    /// 1/x; infinite at 0, where its derivative is −∞.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn recip(&self) -> Result<Tensor> {
        Self::apply(Recip, &[self])
    }

    /// x².
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn square(&self) -> Result<Tensor> {
        Self::apply(Square, &[self])
    }

    /// x to a constant power p. Its derivative p·x^(p−1) at 0 is 0 for p = 0 (and everywhere, whatever x⁻¹ is) and for p > 1, 1 for p = 1,
    /// and infinite for other p below 1.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn pow(&self, exponent: f64) -> Result<Tensor> {
        Self::apply(Pow { exponent }, &[self])
    }

    /// sin x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn sin(&self) -> Result<Tensor> {
        Self::apply(Sin, &[self])
    }

    /// cos x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn cos(&self) -> Result<Tensor> {
        Self::apply(Cos, &[self])
    }

    /// tanh x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn tanh(&self) -> Result<Tensor> {
        Self::apply(Tanh, &[self])
    }

    /// The logistic function σ(x) = 1/(1 + e^−x).
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn sigmoid(&self) -> Result<Tensor> {
        Self::apply(Sigmoid, &[self])
    }

    /// x·σ(x).
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn silu(&self) -> Result<Tensor> {
        Self::apply(Silu, &[self])
    }

    /// x·Φ(x) with the exact error function.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn gelu(&self) -> Result<Tensor> {
        Self::apply(Gelu, &[self])
    }

    /// max(x, 0); its derivative at 0 is 0.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn relu(&self) -> Result<Tensor> {
        Self::apply(Relu, &[self])
    }

    /// The error function.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn erf(&self) -> Result<Tensor> {
        Self::apply(Erf, &[self])
    }

    /// Limits every element to `low..=high`; the derivative is 1 inside and 0 outside.
    ///
    /// # Errors
    /// As [`neg`](Self::neg); a range that is empty or NaN.
    pub fn clamp(&self, low: f64, high: f64) -> Result<Tensor> {
        Self::apply(Clamp { low, high }, &[self])
    }
}
