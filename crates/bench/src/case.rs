//! One operator at one size.

use clap::ValueEnum;
use gradewise_core::{DType, Signature};
use gradewise_kernels::Compute;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, str::FromStr};

/// The operator that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Op {
    /// gelu_sgp_norm: the product with a weight per feature and path, gate and norm.
    #[serde(rename = "product")]
    Product,
    /// gelu_fcgp_norm: the fully connected product, gate and norm.
    #[value(name = "fc")]
    #[serde(rename = "fc")]
    FcProduct,
    /// CliffordLayer: grade-wise linear map, then the product.
    #[serde(rename = "layer")]
    Layer,
    /// CliffordLayer, fully connected.
    #[serde(rename = "fc-layer")]
    FcLayer,
    /// The grade-wise linear map with a bias.
    #[serde(rename = "linear")]
    Linear,
    /// A plain matrix product, batch × features by features × features.
    #[serde(rename = "matmul")]
    Matmul,
    /// MvSilu.
    #[value(name = "mv_silu")]
    #[serde(rename = "mv_silu")]
    MvSilu,
    /// MvNormalization.
    #[value(name = "mv_normalization")]
    #[serde(rename = "mv_normalization")]
    MvNormalization,
    /// MvLayerNorm.
    #[value(name = "mv_layer_norm")]
    #[serde(rename = "mv_layer_norm")]
    MvLayerNorm,
    /// SteerableProduct: two linear maps, normalisation, product, sum.
    #[value(name = "steerable_layer")]
    #[serde(rename = "steerable_layer")]
    SteerableLayer,
    /// A training step of the n-body model; the batch is a number of systems.
    #[value(name = "nbody")]
    #[serde(rename = "nbody")]
    NBody,
}

impl Op {
    /// Every operator, in the order of the help.
    pub const ALL: [Self; 11] = [
        Self::Product,
        Self::FcProduct,
        Self::Layer,
        Self::FcLayer,
        Self::Linear,
        Self::Matmul,
        Self::MvSilu,
        Self::MvNormalization,
        Self::MvLayerNorm,
        Self::SteerableLayer,
        Self::NBody,
    ];

    /// Whether the operator contains matrix products.
    pub const fn has_matrix_products(self) -> bool {
        !matches!(self, Self::Product | Self::MvSilu | Self::MvNormalization | Self::MvLayerNorm)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.pad(value.get_name()),
            None => unreachable!("no operator is hidden"),
        }
    }
}

/// The pass of an operator that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Pass {
    /// Forward alone, without history.
    #[value(name = "fwd")]
    #[serde(rename = "fwd")]
    Forward,
    /// Forward and backward, to every input and parameter; of nbody a whole step, optimiser included.
    #[value(name = "both")]
    #[serde(rename = "both")]
    Both,
    /// The same, captured as a CUDA graph and replayed.
    #[value(name = "graph")]
    #[serde(rename = "graph")]
    Graph,
}

impl Pass {
    /// Every pass.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Both, Self::Graph];

    /// The name in figures.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Both => "forward + backward",
            Self::Graph => "forward + backward, graph",
        }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.pad(value.get_name()),
            None => unreachable!("no pass is hidden"),
        }
    }
}

/// Features of the n-body model's hidden layers.
pub const NBODY_HIDDEN: usize = 28;

/// One operator at one size and in one arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// The operator.
    pub op: Op,
    /// Its algebra, `[p, q, r]` in files; `[0, 0, 0]` for `matmul`.
    #[serde(with = "signature")]
    pub signature: Signature,
    /// Rows; systems for `nbody`.
    pub batch: usize,
    /// Features per row.
    pub features: usize,
    /// The storage dtype.
    #[serde(with = "text")]
    pub dtype: DType,
    /// The arithmetic of `f32` matrix products; `exact` for operators without matrix products.
    #[serde(with = "text")]
    pub compute: Compute,
}

impl Case {
    /// A case in canonical form: fields that do not affect the operator are set to fixed values, so that equal
    /// measurements have equal cases.
    pub fn new(
        op: Op,
        signature: Signature,
        (batch, features): (usize, usize),
        dtype: DType,
        compute: Compute,
    ) -> Self {
        let (signature, features) = match op {
            Op::Matmul => (Signature::new(0, 0, 0), features),
            Op::NBody => (Signature::CL3, NBODY_HIDDEN),
            _ => (signature, features),
        };
        let matters = dtype == DType::F32 && op.has_matrix_products();
        let compute = if matters { compute } else { Compute::Exact };
        Self { op, signature, batch, features, dtype, compute }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, signature, batch, features, dtype, compute } = self;
        let mut name = op.to_string();
        if *op != Op::Matmul {
            name += &format!(" {signature}");
        }
        name += &format!(" {batch}x{features} {dtype}");
        if *dtype == DType::F32 && op.has_matrix_products() {
            name += &format!(" {compute}");
        }
        f.pad(&name)
    }
}

/// A signature as `[p, q, r]`.
mod signature {
    use super::*;

    pub fn serialize<S: Serializer>(signature: &Signature, to: S) -> Result<S::Ok, S::Error> {
        [signature.p, signature.q, signature.r].serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Signature, D::Error> {
        let [p, q, r] = <[u8; 3]>::deserialize(from)?;
        Ok(Signature::new(p, q, r))
    }
}

/// Serializes a value through `Display` and `FromStr`.
mod text {
    use super::*;

    pub fn serialize<T: fmt::Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_the_same_after_a_file() {
        for op in Op::ALL {
            let case = Case::new(op, Signature::STA, (1024, 128), DType::BF16, Compute::Tf32);
            let json = serde_json::to_string(&case).unwrap();
            assert_eq!(serde_json::from_str::<Case>(&json).unwrap(), case, "{json}");
            // The command line and files use the same name.
            assert!(json.contains(&format!("\"op\":\"{op}\"")), "{json}");
        }
        for pass in Pass::ALL {
            assert_eq!(serde_json::to_string(&pass).unwrap(), format!("\"{pass}\""));
        }
        assert!(serde_json::from_str::<Case>(r#"{"op":"product","signature":[3,0]}"#).is_err());
    }

    #[test]
    fn what_an_operator_does_not_depend_on_does_not_tell_cases_apart() {
        let case = |op, signature, dtype, compute| Case::new(op, signature, (8, 28), dtype, compute);
        let [tf32, exact] = [Compute::Tf32, Compute::Exact];
        assert_eq!(
            case(Op::Matmul, Signature::CL2, DType::F32, tf32),
            case(Op::Matmul, Signature::CL3, DType::F32, tf32)
        );
        assert_eq!(
            case(Op::Layer, Signature::CL3, DType::BF16, tf32),
            case(Op::Layer, Signature::CL3, DType::BF16, exact)
        );
        assert_eq!(
            case(Op::Product, Signature::CL3, DType::F32, tf32),
            case(Op::Product, Signature::CL3, DType::F32, exact)
        );
        assert_ne!(
            case(Op::Layer, Signature::CL3, DType::F32, tf32),
            case(Op::Layer, Signature::CL3, DType::F32, exact)
        );
        assert_eq!(case(Op::Matmul, Signature::CL3, DType::F32, tf32).to_string(), "matmul 8x28 f32 tf32");
    }
}
