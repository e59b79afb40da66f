//! Elementwise functions.

use crate::{Attributes, Result, Tensor, tensor::RuleContext};
use gradewise_kernels::{Array, ops};

/// The derivative of a function at its input, given also its output.
type Slope = fn(&Tensor, &Tensor) -> Result<Tensor>;

impl Tensor {
    fn unary(
        &self,
        name: &'static str,
        kernel: fn(&Array) -> gradewise_kernels::Result<Array>,
        slope: Slope,
    ) -> Result<Tensor> {
        let forward = move |x: &[Array]| Ok(kernel(&x[0])?);
        Tensor::operate(name, &[self], Attributes::new, forward, move |context: &RuleContext<'_>, grad| {
            Ok(vec![Some(grad.mul(&slope(&context.inputs[0], context.output)?)?)])
        })
    }

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
        self.unary("abs", ops::abs, |x, _| Ok(Tensor::new(ops::sign(x.array())?)))
    }

    /// e^x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn exp(&self) -> Result<Tensor> {
        self.unary("exp", ops::exp, |_, y| Ok(y.clone()))
    }

    /// The natural logarithm; −∞ at 0, where its derivative 1/x is infinite.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn log(&self) -> Result<Tensor> {
        self.unary("log", ops::log, |x, _| x.recip())
    }

    /// √x; its derivative at 0 is infinite, so that an upstream gradient of 0 gives NaN there: add an ε where 0 can occur.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn sqrt(&self) -> Result<Tensor> {
        self.unary("sqrt", ops::sqrt, |_, y| y.recip()?.mul_scalar(0.5))
    }

    /// 1/√x; infinite at 0, where its derivative is −∞.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn rsqrt(&self) -> Result<Tensor> {
        self.unary("rsqrt", ops::rsqrt, |x, y| y.div(x)?.mul_scalar(-0.5))
    }

    /// 1/x; infinite at 0, where its derivative is −∞.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn recip(&self) -> Result<Tensor> {
        self.unary("recip", ops::recip, |_, y| y.square()?.neg())
    }

    /// x².
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn square(&self) -> Result<Tensor> {
        self.unary("square", ops::square, |x, _| x.mul_scalar(2.0))
    }

    /// x to a constant power p. Its derivative p·x^(p−1) at 0 is 0 for p = 0 (and everywhere, whatever x⁻¹ is) and for p > 1, 1 for p = 1,
    /// and infinite for other p below 1.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn pow(&self, exponent: f64) -> Result<Tensor> {
        let attributes = move || Attributes::new().with("exponent", exponent);
        let forward = move |x: &[Array]| Ok(ops::pow_scalar(&x[0], exponent)?);
        Tensor::operate("pow", &[self], attributes, forward, move |context, grad| {
            let x = &context.inputs[0];
            if exponent == 0.0 {
                // A constant: 0·x⁻¹ would be NaN at 0.
                return Ok(vec![Some(Tensor::zeros(x.shape(), x.dtype(), &x.device())?)]);
            }
            Ok(vec![Some(grad.mul(&x.pow(exponent - 1.0)?.mul_scalar(exponent)?)?)])
        })
    }

    /// sin x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn sin(&self) -> Result<Tensor> {
        self.unary("sin", ops::sin, |x, _| x.cos())
    }

    /// cos x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn cos(&self) -> Result<Tensor> {
        self.unary("cos", ops::cos, |x, _| x.sin()?.neg())
    }

    /// tanh x.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn tanh(&self) -> Result<Tensor> {
        self.unary("tanh", ops::tanh, |_, y| y.square()?.neg()?.add_scalar(1.0))
    }

    /// The logistic function σ(x) = 1/(1 + e^−x).
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn sigmoid(&self) -> Result<Tensor> {
        self.unary("sigmoid", ops::sigmoid, |_, y| y.sub(&y.square()?))
    }

    /// x·σ(x).
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn silu(&self) -> Result<Tensor> {
        self.unary("silu", ops::silu, |x, y| {
            let s = x.sigmoid()?;
            s.add(&y.mul(&s.neg()?.add_scalar(1.0)?)?)
        })
    }

    /// x·Φ(x) with the exact error function.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn gelu(&self) -> Result<Tensor> {
        self.unary("gelu", ops::gelu, |x, _| {
            let cdf =
                x.mul_scalar(std::f64::consts::FRAC_1_SQRT_2)?.erf()?.add_scalar(1.0)?.mul_scalar(0.5)?;
            let inv_sqrt_tau = (2.0 * std::f64::consts::PI).sqrt().recip();
            let pdf = x.square()?.mul_scalar(-0.5)?.exp()?.mul_scalar(inv_sqrt_tau)?;
            cdf.add(&x.mul(&pdf)?)
        })
    }

    /// max(x, 0); its derivative at 0 is 0.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn relu(&self) -> Result<Tensor> {
        self.unary("relu", ops::relu, |_, y| Ok(Tensor::new(ops::sign(y.array())?)))
    }

    /// The error function.
    ///
    /// # Errors
    /// As [`neg`](Self::neg).
    pub fn erf(&self) -> Result<Tensor> {
        self.unary("erf", ops::erf, |x, _| {
            x.square()?.neg()?.exp()?.mul_scalar(std::f64::consts::FRAC_2_SQRT_PI)
        })
    }

    /// Limits every element to `low..=high`; the derivative is 1 inside and 0 outside.
    ///
    /// # Errors
    /// As [`neg`](Self::neg); a range that is empty or NaN.
    pub fn clamp(&self, low: f64, high: f64) -> Result<Tensor> {
        let attributes = move || Attributes::new().with("low", low).with("high", high);
        let forward = move |x: &[Array]| Ok(ops::clamp(&x[0], low, high)?);
        Tensor::operate("clamp", &[self], attributes, forward, |context, grad| {
            let (x, y) = (context.inputs[0].array(), context.output.array());
            let inside = ops::equal(x, y)?;
            Ok(vec![Some(grad.mul(&Tensor::new(inside))?)])
        })
    }
}
