//! An operator with its attributes, ready for tensors of candle.

use crate::{Error, call::Call};
use candle_core::{Error as CandleError, Result, Tensor};
use gradewise_autograd::{
    Attributes, Prepared,
    clifford::{Bias, LayerOptions, ProductOptions},
};
use gradewise_core::{Algebra, Signature};
use serde_json::{Value, json};
use std::fmt;

/// A fused operator for tensors of candle. Made once, as a layer is, and applied at every step; cloning is cheap.
///
/// Multivector features are `[blades, batch, features]`. Each constructor names the function of `gradewise_autograd` that
/// defines the operator and the order of its inputs.
#[derive(Clone)]
pub struct Fused(Prepared);

impl Fused {
    /// The operator of this name in the registry of `gradewise_autograd`, with attributes as JSON, such as
    /// `mv_silu` with `{"algebra": "3,0,0"}`. `gradewise_autograd::registry` lists the names.
    ///
    /// # Errors
    /// A name that the registry does not have; attributes that are not the operator's.
    pub fn new(name: &str, attributes: &str) -> Result<Self> {
        let attributes: Attributes = attributes.parse().map_err(CandleError::wrap)?;
        Prepared::new(name, &attributes).map(Self).map_err(CandleError::wrap)
    }

    /// The geometric product of two multivectors: inputs `x` and `y`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn geometric_product(algebra: &Algebra) -> Result<Self> {
        Self::of("table_product", json!({ "product": "geometric", "algebra": signature(algebra) }))
    }

    /// The regressive product of two multivectors, in projective algebras the join of points: inputs `x` and `y`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn regressive_product(algebra: &Algebra) -> Result<Self> {
        Self::of("table_product", json!({ "product": "regressive", "algebra": signature(algebra) }))
    }

    /// The weighted product ([`sgp`](gradewise_autograd::clifford::sgp)): inputs `x`, `y`, and `w` `[features, paths]`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn sgp(algebra: &Algebra, options: ProductOptions) -> Result<Self> {
        Self::weighted(["sgp", "gelu_sgp_norm"], algebra, options)
    }

    /// The fully connected product ([`fcgp`](gradewise_autograd::clifford::fcgp)): inputs `x`, `y`, and `w`
    /// `[paths, in, out]`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn fcgp(algebra: &Algebra, options: ProductOptions) -> Result<Self> {
        Self::weighted(["fcgp", "gelu_fcgp_norm"], algebra, options)
    }

    /// The grade-wise linear map ([`mv_linear`](gradewise_autograd::clifford::mv_linear)): inputs `x`, `w`
    /// `[grades, in, out]` or `[in, out]`, and a bias `[out]` if there is one.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn mv_linear(algebra: &Algebra, bias: Option<Bias>) -> Result<Self> {
        Self::of("mv_linear", json!({ "algebra": signature(algebra), "bias": written(bias) }))
    }

    /// The multivector SiLU ([`mv_silu`](gradewise_autograd::clifford::mv_silu)): inputs `x`, and `a` and `b`
    /// `[features, grades]`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn mv_silu(algebra: &Algebra) -> Result<Self> {
        Self::of("mv_silu", json!({ "algebra": signature(algebra) }))
    }

    /// The layer norm ([`mv_layer_norm`](gradewise_autograd::clifford::mv_layer_norm)): inputs `x` and `a` `[features]`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn mv_layer_norm(algebra: &Algebra) -> Result<Self> {
        Self::of("mv_layer_norm", json!({ "algebra": signature(algebra) }))
    }

    /// The normalisation by grade ([`mv_normalization`](gradewise_autograd::clifford::mv_normalization)): inputs `x` and
    /// `a` `[features, grades]`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn mv_normalization(algebra: &Algebra) -> Result<Self> {
        Self::of("mv_normalization", json!({ "algebra": signature(algebra) }))
    }

    /// The steerable product ([`steerable_product`](gradewise_autograd::clifford::steerable_product)): inputs `x`, the
    /// right factor, its normalisation `[features, grades]`, `w` `[features, paths]`, and what is added if there is
    /// something.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn steerable_product(algebra: &Algebra) -> Result<Self> {
        Self::of("steerable_gp", json!({ "algebra": signature(algebra) }))
    }

    /// A whole layer of the Clifford-group-equivariant networks
    /// ([`steerable_layer`](gradewise_autograd::clifford::steerable_layer)): inputs `x`, the right matrices
    /// `[grades, features, features]`, the normalisation `[features, grades]`, `w` `[features, paths]`, and, if there are
    /// any, the left matrices and their bias `[features]`.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn steerable_layer(algebra: &Algebra) -> Result<Self> {
        Self::of("steerable_layer", json!({ "algebra": signature(algebra) }))
    }

    /// The layer of the Flash-Clifford family ([`clifford_layer`](gradewise_autograd::clifford::clifford_layer)), fully
    /// connected or not: inputs `x`, the matrices `[grades, features, features]`, the weights of the product, and a bias
    /// `[features]` if there is one.
    ///
    /// # Errors
    /// None that an algebra which exists has.
    pub fn clifford_layer(algebra: &Algebra, bias: Option<Bias>, options: LayerOptions) -> Result<Self> {
        let LayerOptions { fully_connected, product, recompute } = options;
        let name = if fully_connected { "fc_clifford_layer" } else { "clifford_layer" };
        let ProductOptions { gate, normalize } = product;
        let product = json!({ "gate": gate, "normalize": normalize });
        Self::of(
            name,
            json!({
                "algebra": signature(algebra), "bias": written(bias), "product": product, "recompute": recompute
            }),
        )
    }

    fn weighted(names: [&'static str; 2], algebra: &Algebra, options: ProductOptions) -> Result<Self> {
        let name = names[usize::from(options.gate)];
        Self::of(name, json!({ "algebra": signature(algebra), "normalize": options.normalize }))
    }

    fn of(name: &'static str, attributes: Value) -> Result<Self> {
        let attributes = Attributes::of(name, &attributes).map_err(CandleError::wrap)?;
        Prepared::new(name, &attributes).map(Self).map_err(CandleError::wrap)
    }

    /// The name in the registry.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Applies the operator. The result is part of candle's graph if one of the inputs is.
    ///
    /// # Errors
    /// [`Error`] for inputs of other dtypes or on devices that are not served; whatever the operator refuses, with the
    /// shapes.
    pub fn apply(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let call = |given: &[&Tensor], joined| Call::new(self.0.clone(), given, joined);
        match inputs {
            [] => Err(Error::NoInputs { operation: self.name() }.into()),
            [x] => x.apply_op1(call(inputs, &[])),
            [x, y] => x.apply_op2(y, call(inputs, &[])),
            [x, y, z] => x.apply_op3(y, z, call(inputs, &[])),
            [x, y, rest @ ..] => {
                let flat = rest.iter().map(|tensor| tensor.flatten_all()).collect::<Result<Vec<_>>>()?;
                let pack = Tensor::cat(&flat, 0)?;
                x.apply_op3(y, &pack, call(&[x, y, &pack], rest))
            }
        }
    }
}

impl fmt::Debug for Fused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fused").field(&self.0).finish()
    }
}

fn signature(algebra: &Algebra) -> String {
    let Signature { p, q, r } = algebra.signature();
    format!("{p},{q},{r}")
}

fn written(bias: Option<Bias>) -> Option<&'static str> {
    bias.map(|bias| match bias {
        Bias::Scalar => "scalar",
        Bias::AllBlades => "all_blades",
    })
}
