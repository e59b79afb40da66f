//! The functions that gates and scalars go through.

use super::super::prelude::*;
use gradewise_kernels::ops::clifford::Activation;

/// An activation as records have it.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WrittenActivation {
    Relu,
    Sigmoid,
    Tanh,
    Silu,
    Gelu,
    GeluTanh,
}

impl WrittenActivation {
    pub(super) const fn of(kind: Activation) -> Self {
        match kind {
            Activation::Relu => Self::Relu,
            Activation::Sigmoid => Self::Sigmoid,
            Activation::Tanh => Self::Tanh,
            Activation::Silu => Self::Silu,
            Activation::Gelu => Self::Gelu,
            Activation::GeluTanh => Self::GeluTanh,
        }
    }

    pub(super) const fn read(self) -> Activation {
        match self {
            Self::Relu => Activation::Relu,
            Self::Sigmoid => Activation::Sigmoid,
            Self::Tanh => Activation::Tanh,
            Self::Silu => Activation::Silu,
            Self::Gelu => Activation::Gelu,
            Self::GeluTanh => Activation::GeluTanh,
        }
    }
}

/// A function of numbers in operations that have derivatives of any order.
pub(super) fn activated(kind: Activation, x: &Tensor) -> Result<Tensor> {
    match kind {
        Activation::Relu => x.relu(),
        Activation::Sigmoid => x.sigmoid(),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x.mul(&x.sigmoid()?),
        Activation::Gelu => {
            let phi =
                x.mul_scalar(std::f64::consts::FRAC_1_SQRT_2)?.erf()?.add_scalar(1.0)?.mul_scalar(0.5)?;
            x.mul(&phi)
        }
        Activation::GeluTanh => {
            let cubic = x.square()?.mul(x)?.mul_scalar(0.044_715)?.add(x)?;
            let t = cubic.mul_scalar(0.797_884_560_802_865_4)?.tanh()?;
            x.mul(&t.add_scalar(1.0)?.mul_scalar(0.5)?)
        }
    }
}
