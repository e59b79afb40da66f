//! Gates of multivectors.

use gradewise_kernels::ops::clifford::channel_norm::Activation;

gradewise_nn::choices! {
    /// A function of numbers: what multivectors are multiplied by, of their scalar parts, and what scalars are mapped by.
    pub enum Nonlinearity {
        /// max(x, 0)
        Relu = "relu",
        /// σ(x)
        Sigmoid = "sigmoid",
        /// tanh x
        Tanh = "tanh",
        /// x·Φ(x)
        Gelu = "gelu",
        /// x·σ(x)
        Silu = "silu",
    }
}

/// Functions of the scalar parts of multivectors and of scalars.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub multivectors: Activation,
    pub scalars: Activation,
}

impl Nonlinearity {
    /// As PyTorch has it.
    pub(crate) const fn exact(self) -> Activation {
        match self {
            Self::Relu => Activation::Relu,
            Self::Sigmoid => Activation::Sigmoid,
            Self::Tanh => Activation::Tanh,
            Self::Gelu => Activation::Gelu,
            Self::Silu => Activation::Silu,
        }
    }

    /// With GELU by its approximation with tanh, as both published packages gate multivectors.
    pub(crate) const fn approximate(self) -> Activation {
        match self {
            Self::Gelu => Activation::GeluTanh,
            other => other.exact(),
        }
    }
}
