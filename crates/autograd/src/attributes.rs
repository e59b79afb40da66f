//! The attributes of an operation as a value: for files, log lines and error messages.
//!
//! An operation is a struct, and its fields are its attributes ([`Operation`](crate::Operation)). Nothing on the way of a
//! computation turns them into text; a record of an operation that is to be run again
//! ([`registry::rerun`](crate::registry::rerun)) keeps them as JSON.

use crate::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{fmt, str::FromStr};

/// The non-tensor attributes of an operation: enough to run it again on other inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(Value);

impl Attributes {
    /// The attributes of an operation, or of anything that serialises to JSON.
    ///
    /// # Errors
    /// Values that could not be read from their device.
    pub fn of<T: Serialize>(operation: &'static str, attributes: &T) -> Result<Self> {
        serde_json::to_value(attributes)
            .map(Self)
            .map_err(|error| Error::Argument { operation, message: format!("its attributes: {error}") })
    }

    /// The operation, or other value, that these are the attributes of.
    ///
    /// # Errors
    /// [`Error::Argument`] naming an attribute that is missing or has a value of another type.
    pub fn read<T: DeserializeOwned>(&self, operation: &'static str) -> Result<T> {
        serde_json::from_value(self.0.clone())
            .map_err(|error| Error::Argument { operation, message: format!("its attributes: {error}") })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Value::Null => true,
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        }
    }

    /// As JSON on one line, which [`FromStr`] reads back exactly.
    pub fn to_json(&self) -> String {
        self.0.to_string()
    }
}

impl FromStr for Attributes {
    type Err = Error;

    fn from_str(json: &str) -> Result<Self> {
        serde_json::from_str(json).map(Self).map_err(|error| Error::Argument {
            operation: "attributes",
            message: format!("`{json}` is not JSON: {error}"),
        })
    }
}

/// Characters of a value that are shown.
const SHOWN: usize = 60;

impl fmt::Display for Attributes {
    /// `name=value` for each, separated by spaces; long values are cut.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Value::Object(fields) = &self.0 else {
            return if self.is_empty() { Ok(()) } else { write!(f, "{}", self.0) };
        };
        for (index, (name, value)) in fields.iter().enumerate() {
            let text = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let shown: String = text.chars().take(SHOWN).collect();
            let more = if shown.len() < text.len() { "…" } else { "" };
            write!(f, "{}{name}={shown}{more}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Serialises a number of which JSON has no notation for infinities and NaN: these are written as text.
pub mod number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Text(String),
    }

    /// For `#[serde(with = "number")]`.
    ///
    /// # Errors
    /// From the serialiser.
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { value.serialize(serializer) } else { value.to_string().serialize(serializer) }
    }

    /// For `#[serde(with = "number")]`.
    ///
    /// # Errors
    /// Text that is not a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(value),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// Serialises a type through another that serde knows: `by!(module, Type, Written, to_written, from_written)`.
macro_rules! by {
    ($(#[$doc:meta])* $module:ident, $type:ty, $written:ty, $to:expr, $from:expr) => {
        $(#[$doc])*
        pub(crate) mod $module {
            #[allow(unused_imports)]
            use super::written::*;
            use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};

            pub(crate) fn serialize<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                let to: fn(&$type) -> crate::Result<$written> = $to;
                to(value).map_err(S::Error::custom)?.serialize(serializer)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let from: fn($written) -> crate::Result<$type> = $from;
                from(<$written>::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }
    };
}

/// The forms in which attributes of other crates' types are written.
mod written {
    pub(super) use gradewise_core::{Algebra, DType, Shape, Signature};
    pub(super) use gradewise_kernels::{
        Array, Device, Index, Positions,
        ops::{
            AttentionOptions, CrossEntropyOptions, RandomStream, RotaryTable,
            attention::{AttentionDropout, Sequences},
            clifford::{
                mv_linear::Bias,
                sgp::ProductOptions,
                table_product::{Table, TableTerm},
            },
        },
    };
    use serde::{Deserialize, Serialize};
    pub(super) use std::sync::Arc;

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenIndex {
        pub values: Vec<usize>,
        pub bound: usize,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenPositions {
        pub values: Vec<usize>,
        pub shape: Vec<usize>,
        pub bound: usize,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenArray {
        pub values: Vec<f64>,
        pub shape: Vec<usize>,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenRotary {
        pub cos: Vec<f64>,
        pub sin: Vec<f64>,
        pub positions: usize,
        #[serde(default)]
        pub pairs: Option<usize>,
    }

    /// A table is written by its terms; whoever writes attributes by hand may name a product of an algebra instead.
    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    pub(super) enum WrittenTable {
        Named {
            product: WrittenTableProduct,
            algebra: String,
            /// The blade of each component, for all three arrays; the algebra's order unless it is given.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            order: Option<Vec<u16>>,
        },
        Terms {
            sizes: [usize; 3],
            /// Left, right, result and sign.
            terms: Vec<(u16, u16, u16, i8)>,
        },
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub(super) enum WrittenTableProduct {
        Geometric,
        Regressive,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenAttention {
        pub causal: bool,
        pub scale: Option<f64>,
        pub lengths: Option<WrittenIndex>,
        pub mask: Option<WrittenArray>,
        #[serde(default)]
        pub sequences: Option<WrittenSequences>,
        #[serde(default)]
        pub dropout: Option<WrittenDropout>,
    }

    /// Cumulative lengths.
    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenSequences {
        pub queries: Vec<usize>,
        pub keys: Vec<usize>,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenDropout {
        pub p: f64,
        pub seed: u64,
        pub stream: u64,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenCrossEntropy {
        pub ignore: Option<usize>,
        pub label_smoothing: f64,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct WrittenProduct {
        pub gate: bool,
        pub normalize: bool,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub(super) enum WrittenBias {
        Scalar,
        AllBlades,
    }

    impl WrittenIndex {
        pub fn of(index: &Index) -> crate::Result<Self> {
            Ok(Self { values: index.to_vec()?, bound: index.bound() })
        }

        pub fn read(&self) -> crate::Result<Index> {
            Ok(Index::new(&self.values, self.bound, &Device::Cpu)?)
        }
    }

    impl WrittenArray {
        pub fn of(array: &Array) -> crate::Result<Self> {
            Ok(Self { values: array.to_f64_vec()?, shape: array.dims().to_vec() })
        }

        /// On the host, in `f64`; the reader converts it to the inputs' device and dtype.
        pub fn read(&self) -> crate::Result<Array> {
            Ok(Array::from_f64(&self.values, self.shape.clone(), DType::F64, &Device::Cpu)?)
        }
    }
}

by!(
    /// An algebra by its signature, as `p,q,r`.
    algebra, Algebra, String,
    |algebra| {
        let Signature { p, q, r } = algebra.signature();
        Ok(format!("{p},{q},{r}"))
    },
    |signature| Ok(Algebra::new(signature.parse()?)?)
);
by!(
    /// A dtype by its name.
    dtype, DType, String,
    |dtype| Ok(dtype.to_string()),
    |name| Ok(name.parse()?)
);
by!(
    /// A dtype by its name, if there is one.
    optional_dtype, Option<DType>, Option<String>,
    |dtype| Ok(dtype.map(|dtype| dtype.to_string())),
    |name| Ok(name.map(|name| name.parse()).transpose()?)
);
by!(
    /// A shape as a list of sizes.
    shape, Shape, Vec<usize>,
    |shape| Ok(shape.to_vec()),
    |sizes| Ok(Shape::from(sizes))
);
by!(
    /// Indices, on the host when read.
    index, Index, WrittenIndex,
    |index| WrittenIndex::of(index),
    |written| written.read()
);
by!(
    /// Positions, on the host when read.
    positions, Positions, WrittenPositions,
    |positions| Ok(WrittenPositions {
        values: positions.to_vec()?,
        shape: positions.shape().to_vec(),
        bound: positions.bound(),
    }),
    |written| {
        let WrittenPositions { values, shape, bound } = written;
        Ok(Positions::new(&values, shape, bound, &Device::Cpu)?)
    }
);
by!(
    /// An array, on the host and in `f64` when read.
    array, Array, WrittenArray,
    |array| WrittenArray::of(array),
    |written| written.read()
);
by!(
    /// A table of cosines and sines, on the host and in `f64` when read.
    rotary, RotaryTable, WrittenRotary,
    |table| {
        let [cos, sin] = table.parts()?;
        Ok(WrittenRotary { cos, sin, positions: table.positions(), pairs: Some(table.pairs()) })
    },
    |WrittenRotary { cos, sin, positions, pairs }| {
        // Records of earlier versions leave their number to be worked out, which a table without positions does not allow.
        let pairs = pairs.unwrap_or_else(|| cos.len().checked_div(positions).unwrap_or(0));
        Ok(RotaryTable::of_parts([&cos, &sin], [positions, pairs], DType::F64, &Device::Cpu)?)
    }
);
by!(
    /// The table of a bilinear product.
    table, Arc<Table>, WrittenTable,
    |table| Ok(WrittenTable::Terms {
        sizes: [table.a, table.b, table.out],
        terms: table.terms().map(|term| (term.a, term.b, term.out, term.sign)).collect(),
    }),
    |written| {
        let (sizes, terms) = match written {
            WrittenTable::Named { product, algebra, order } => {
                let algebra = Algebra::new(algebra.parse()?)?;
                let table = match product {
                    WrittenTableProduct::Geometric => Table::geometric(&algebra),
                    WrittenTableProduct::Regressive => Table::regressive(&algebra),
                };
                return Ok(match order {
                    Some(order) => table.ordered(&order)?,
                    None => table,
                });
            }
            WrittenTable::Terms { sizes, terms } => (sizes, terms),
        };
        let [a, b, out] = sizes;
        let fits = |&(left, right, result, _): &(u16, u16, u16, i8)| {
            usize::from(left) < a && usize::from(right) < b && usize::from(result) < out
        };
        if !terms.iter().all(fits) {
            let message = format!("a term lies outside of the sizes {a}, {b}, {out}");
            return Err(crate::Error::Argument { operation: "table_product", message });
        }
        let terms = terms.into_iter().map(|(a, b, out, sign)| TableTerm { a, b, out, sign });
        Ok(Arc::new(Table::new(a, b, out, terms)))
    }
);
by!(
    /// Options of attention; what they hold is on the host when read.
    attention, AttentionOptions, WrittenAttention,
    |options| Ok(WrittenAttention {
        causal: options.causal,
        scale: options.scale,
        lengths: options.lengths.as_ref().map(WrittenIndex::of).transpose()?,
        mask: options.mask.as_ref().map(WrittenArray::of).transpose()?,
        sequences: options.sequences.as_ref().map(Sequences::starts).transpose()?
            .map(|[queries, keys]| WrittenSequences { queries, keys }),
        dropout: options.dropout.map(|AttentionDropout { p, random }| {
            WrittenDropout { p, seed: random.seed, stream: random.stream }
        }),
    }),
    |WrittenAttention { causal, scale, lengths, mask, sequences, dropout }| Ok(AttentionOptions {
        causal,
        scale,
        lengths: lengths.map(|lengths| lengths.read()).transpose()?,
        mask: mask.map(|mask| mask.read()).transpose()?,
        sequences: sequences
            .map(|WrittenSequences { queries, keys }| match queries == keys {
                true => Sequences::alike(&queries, &Device::Cpu),
                false => Sequences::new(&queries, &keys, &Device::Cpu),
            })
            .transpose()?,
        dropout: dropout.map(|WrittenDropout { p, seed, stream }| {
            AttentionDropout { p, random: RandomStream { seed, stream } }
        }),
    })
);
by!(
    /// Options of the cross-entropy.
    cross_entropy, CrossEntropyOptions, WrittenCrossEntropy,
    |options| Ok(WrittenCrossEntropy { ignore: options.ignore, label_smoothing: options.label_smoothing }),
    |WrittenCrossEntropy { ignore, label_smoothing }| Ok(CrossEntropyOptions { ignore, label_smoothing })
);
by!(
    /// Gate and norm of a product.
    product, ProductOptions, WrittenProduct,
    |options| Ok(WrittenProduct { gate: options.gate, normalize: options.normalize }),
    |WrittenProduct { gate, normalize }| Ok(ProductOptions { gate, normalize })
);
by!(
    /// On which blades a bias is added, if there is one.
    bias, Option<Bias>, Option<WrittenBias>,
    |bias| Ok(bias.map(|bias| match bias {
        Bias::Scalar => WrittenBias::Scalar,
        Bias::AllBlades => WrittenBias::AllBlades,
    })),
    |bias| Ok(bias.map(|bias| match bias {
        WrittenBias::Scalar => Bias::Scalar,
        WrittenBias::AllBlades => Bias::AllBlades,
    }))
);
