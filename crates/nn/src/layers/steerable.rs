//! The steerable geometric product layer.

use super::{Layer, MvLinear, MvNormalization, mv_linear::Bias};
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{
    Tensor,
    clifford::{self, FullSteerableLayer, Steerable, SteerableLayer},
};
use gradewise_core::{Algebra, Signature};

/// `(linear_left(x) + product(x, normalization(linear_right(x)), weight)) / √2`, or the product alone (Ruhe et al. 2023,
/// arXiv:2305.11141).
///
/// The product is `sgp`, with a weight per feature and path, or, fully connected, `fcgp` with a matrix per path.
/// Parameters: `weight` `[features, paths]` with variance 1/(n+1), or `[paths, in, out]` with variance 1/(in·(n+1));
/// `linear_right.weight`, `normalization.a`, `linear_left.weight`, `linear_left.bias`.
#[derive(Debug, Module, DeepClone)]
pub struct SteerableProduct {
    #[module(skip)]
    algebra: Algebra,
    weight: Parameter,
    #[module(skip)]
    fully_connected: bool,
    linear_right: MvLinear,
    normalization: MvNormalization,
    linear_left: Option<MvLinear>,
}

/// Settings of a [`SteerableProduct`] of `features` over the algebra of `signature`.
#[derive(Clone, Debug, Builder)]
pub struct SteerableProductBuilder {
    features: usize,
    signature: Signature,
    #[builder(default, skip)]
    outputs: Option<usize>,
    /// Whether the linear map of `x` is added to the product (the default).
    #[builder(default = true)]
    first_order: bool,
}

impl SteerableProduct {
    /// A fully connected product from `inputs` to `outputs` features.
    pub fn fully_connected(inputs: usize, outputs: usize, signature: Signature) -> SteerableProductBuilder {
        SteerableProductBuilder { outputs: Some(outputs), ..Self::new(inputs, signature) }
    }
}

impl SteerableProductBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<SteerableProduct> {
        at_least_one(
            "SteerableProduct",
            &[("features", self.features), ("outputs", self.outputs.unwrap_or(1))],
        )?;
        let placement = placement.into();
        let Self { features: inputs, signature, outputs, first_order } = self;
        let algebra = Algebra::new(signature)?;
        let (paths, grades) = (algebra.paths().len(), algebra.grade_count() as f64);
        let linear_right = MvLinear::new(inputs, inputs, signature).bias(None).init(&placement, rng)?;
        let normalization = MvNormalization::new(inputs, signature).init(&placement)?;
        let weight = match outputs {
            Some(outputs) => {
                let variance = 1.0 / (inputs.max(1) as f64 * grades);
                placement.normal([paths, inputs, outputs], variance.sqrt(), rng)?
            }
            None => placement.normal([inputs, paths], grades.sqrt().recip(), rng)?,
        };
        let linear_left = if first_order {
            let left = MvLinear::new(inputs, outputs.unwrap_or(inputs), signature);
            Some(left.bias(Some(Bias::Scalar)).init(&placement, rng)?)
        } else {
            None
        };
        let fully_connected = outputs.is_some();
        Ok(SteerableProduct { algebra, weight, fully_connected, linear_right, normalization, linear_left })
    }
}

impl SteerableProduct {
    /// The product weights.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }

    /// The map of the right factor.
    pub fn linear_right(&self) -> &MvLinear {
        &self.linear_right
    }

    /// The normalisation of the right factor.
    pub fn normalization(&self) -> &MvNormalization {
        &self.normalization
    }

    /// The map that is added to the product.
    pub fn linear_left(&self) -> Option<&MvLinear> {
        self.linear_left.as_ref()
    }

    /// The layer as one fused operator.
    fn forward_fused(&self, x: &Tensor) -> Result<Tensor> {
        let left =
            self.linear_left.as_ref().and_then(|left| Some((left.weight().tensor(), left.bias()?.tensor())));
        let (right, a) = (self.linear_right.weight().tensor(), self.normalization.a().tensor());
        let operands = SteerableLayer {
            x,
            right: &right,
            a: &a,
            w: &self.weight.tensor(),
            left: left.as_ref().map(|(left, bias)| (left, bias)),
        };
        Ok(clifford::steerable_layer(&self.algebra, &operands)?)
    }

    fn forward_fully_connected(&self, x: &Tensor) -> Result<Tensor> {
        let left =
            self.linear_left.as_ref().and_then(|left| Some((left.weight().tensor(), left.bias()?.tensor())));
        let (right, a) = (self.linear_right.weight().tensor(), self.normalization.a().tensor());
        let operands = FullSteerableLayer {
            x,
            right: &right,
            a: &a,
            w: &self.weight.tensor(),
            left: left.as_ref().map(|(left, bias)| (left, bias)),
        };
        Ok(clifford::fc_steerable_layer(&self.algebra, &operands)?)
    }
}

impl Layer for SteerableProduct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("SteerableProduct::forward", x, || {
            if self.fully_connected {
                return self.forward_fully_connected(x);
            }
            if clifford::steerable_layer_pays(self.weight.shape()[0]) {
                return self.forward_fused(x);
            }
            let right = self.linear_right.forward(x)?;
            let left = self.linear_left.as_ref().map(|left| left.forward(x)).transpose()?;
            let weight = self.weight.tensor();
            let a = self.normalization.a().tensor();
            let operands = Steerable { x, right: &right, a: &a, w: &weight, left: left.as_ref() };
            Ok(clifford::steerable_product(&self.algebra, &operands)?)
        })
    }
}
