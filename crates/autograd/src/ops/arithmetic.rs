//! Binary arithmetic with broadcasting, and arithmetic with numbers.

use crate::{Attributes, Result, Tensor, tensor::RuleContext};
use gradewise_kernels::{Array, ops};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The gradient of input `index`, summed over the axes it was broadcast along.
fn reduced(
    context: &RuleContext<'_>,
    index: usize,
    gradient: impl FnOnce() -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    if !context.needs(index) {
        return Ok(None);
    }
    gradient()?.sum_to(context.inputs[index].shape()).map(Some)
}

/// The elementwise sum of tensors of one shape, in order.
///
/// # Errors
/// No tensors, shapes, dtypes or devices that differ.
pub fn add_n(tensors: &[&Tensor]) -> Result<Tensor> {
    let forward = |x: &[Array]| Ok(ops::add_n(&x.iter().collect::<Vec<_>>())?);
    Tensor::operate("add_n", tensors, Attributes::new, forward, |context, grad| {
        Ok((0..context.inputs.len()).map(|index| context.needs(index).then(|| grad.clone())).collect())
    })
}

impl Tensor {
    /// Elementwise `self + other`, broadcast together.
    ///
    /// # Errors
    /// Shapes that do not broadcast, different dtypes or devices.
    pub fn add(&self, other: &Tensor) -> Result<Tensor> {
        let forward = |x: &[Array]| Ok(ops::add(&x[0], &x[1])?);
        Tensor::operate("add", &[self, other], Attributes::new, forward, |context, grad| {
            Ok(vec![reduced(context, 0, || Ok(grad.clone()))?, reduced(context, 1, || Ok(grad.clone()))?])
        })
    }

    /// Elementwise `self - other`, broadcast together.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn sub(&self, other: &Tensor) -> Result<Tensor> {
        let forward = |x: &[Array]| Ok(ops::sub(&x[0], &x[1])?);
        Tensor::operate("sub", &[self, other], Attributes::new, forward, |context, grad| {
            Ok(vec![reduced(context, 0, || Ok(grad.clone()))?, reduced(context, 1, || grad.neg())?])
        })
    }

    /// Elementwise `self · other`, broadcast together.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn mul(&self, other: &Tensor) -> Result<Tensor> {
        let forward = |x: &[Array]| Ok(ops::mul(&x[0], &x[1])?);
        Tensor::operate("mul", &[self, other], Attributes::new, forward, |context, grad| {
            Ok(vec![
                reduced(context, 0, || grad.mul(&context.inputs[1]))?,
                reduced(context, 1, || grad.mul(&context.inputs[0]))?,
            ])
        })
    }

    /// Elementwise `self / other`, broadcast together. Division by zero gives what IEEE 754 says.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn div(&self, other: &Tensor) -> Result<Tensor> {
        let forward = |x: &[Array]| Ok(ops::div(&x[0], &x[1])?);
        Tensor::operate("div", &[self, other], Attributes::new, forward, |context, grad| {
            let divisor = &context.inputs[1];
            Ok(vec![
                reduced(context, 0, || grad.div(divisor))?,
                reduced(context, 1, || grad.mul(context.output)?.div(divisor)?.neg())?,
            ])
        })
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
        let forward = |x: &[Array]| Ok(ops::max(&x[0], &x[1])?);
        Tensor::operate("maximum", &[self, other], Attributes::new, forward, |context, grad| {
            let (a, b) = (context.inputs[0].array(), context.inputs[1].array());
            // 1 where a is larger, 0 where b is, ½ where they are equal.
            let share = ops::mul_scalar(&ops::add(&ops::greater(a, b)?, &ops::greater_equal(a, b)?)?, 0.5)?;
            let share = Tensor::new(share);
            Ok(vec![
                reduced(context, 0, || grad.mul(&share))?,
                reduced(context, 1, || grad.mul(&share.mul_scalar(-1.0)?.add_scalar(1.0)?))?,
            ])
        })
    }

    /// Adds a number to every element.
    ///
    /// # Errors
    /// The device has no memory or does not serve the dtype.
    pub fn add_scalar(&self, value: f64) -> Result<Tensor> {
        let attributes = move || Attributes::new().with("value", value);
        let forward = move |x: &[Array]| Ok(ops::add_scalar(&x[0], value)?);
        Tensor::operate("add_scalar", &[self], attributes, forward, |_, grad| Ok(vec![Some(grad.clone())]))
    }

    /// Multiplies every element by a number.
    ///
    /// # Errors
    /// As [`add_scalar`](Self::add_scalar).
    pub fn mul_scalar(&self, value: f64) -> Result<Tensor> {
        let attributes = move || Attributes::new().with("value", value);
        let forward = move |x: &[Array]| Ok(ops::mul_scalar(&x[0], value)?);
        Tensor::operate("mul_scalar", &[self], attributes, forward, move |_, grad| {
            Ok(vec![Some(grad.mul_scalar(value)?)])
        })
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $function:ident) => {
        impl $trait for &Tensor {
            type Output = Result<Tensor>;

            fn $method(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$function(self, other)
            }
        }
    };
}

operator!(Add, add, add);
operator!(Sub, sub, sub);
operator!(Mul, mul, mul);
operator!(Div, div, div);

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}
