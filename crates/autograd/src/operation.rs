//! What an operation is made of: a forward pass on arrays, a backward rule on tensors, and what it was told besides its inputs.

use crate::{Error, Result, Tensor, tensor::RuleContext};
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};
use std::{collections::BTreeMap, fmt, str::FromStr};

/// What an operation was told besides its inputs, as text by name: enough to run it again ([`rerun`](crate::recipe::rerun)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    /// No attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    /// With one more, a list.
    #[must_use]
    pub fn list<T: fmt::Display>(self, name: &str, values: impl IntoIterator<Item = T>) -> Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        self.with(name, values.join(","))
    }

    /// Whether there is one of this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of one, parsed.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is missing or means nothing.
    pub fn get<T: FromStr>(&self, operation: &'static str, name: &str) -> Result<T> {
        let value = self.0.get(name);
        value.and_then(|value| value.parse().ok()).ok_or_else(|| Error::Argument {
            operation,
            message: match value {
                Some(value) => format!("the attribute `{name}` has the value `{value}`"),
                None => format!("the attribute `{name}` is missing"),
            },
        })
    }

    /// The values of a list.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_list<T: FromStr>(&self, operation: &'static str, name: &str) -> Result<Vec<T>> {
        let text: String = self.get(operation, name)?;
        let value = |word: &str| {
            word.parse().map_err(|_| Error::Argument {
                operation,
                message: format!("the attribute `{name}` has the value `{word}` in its list"),
            })
        };
        text.split(',').filter(|word| !word.is_empty()).map(value).collect()
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.iter().enumerate() {
            let shown: String = value.chars().take(60).collect();
            let more = if shown.len() < value.len() { "…" } else { "" };
            write!(f, "{}{name}={shown}{more}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// The parts of an operation, without its inputs.
pub(crate) trait Body: Send + Sync {
    /// What it was told.
    fn attributes(&self) -> Attributes;

    /// The output, and what the backward pass will want to see again. What else it reads (indices, masks) follows the inputs to
    /// their device.
    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)>;

    /// The gradients of the inputs.
    fn backward(
        &self,
        context: &RuleContext<'_>,
        saved: &[Array],
        grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>>;

    /// Whether the backward pass runs kernels of its own rather than other operations.
    fn is_fused(&self) -> bool {
        false
    }

    /// Whether [`forward`](Self::forward) can be called: not for what is only a name for several operations.
    fn is_whole(&self) -> bool {
        true
    }

    /// The dtype of the output for inputs of these, where `found` is that of the output for wide inputs.
    fn output_dtype(&self, inputs: &[DType], found: DType) -> DType {
        inputs.first().copied().unwrap_or(found)
    }
}

/// A [`Body`] from closures, whose rule is written in operations.
pub(crate) struct Primitive<A, F, R> {
    pub attributes: A,
    pub forward: F,
    pub rule: R,
}

impl<A, F, R> Body for Primitive<A, F, R>
where
    A: Fn() -> Attributes + Send + Sync,
    F: Fn(&[Array]) -> Result<Array> + Send + Sync,
    R: Fn(&RuleContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync,
{
    fn attributes(&self) -> Attributes {
        (self.attributes)()
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        Ok(((self.forward)(inputs)?, Vec::new()))
    }

    fn backward(&self, context: &RuleContext<'_>, _: &[Array], grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        (self.rule)(context, grad)
    }
}

/// A rule without a forward pass that could run again.
pub(crate) struct Composite<R>(pub R);

impl<R> Body for Composite<R>
where
    R: Fn(&RuleContext<'_>, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync,
{
    fn attributes(&self) -> Attributes {
        Attributes::new()
    }

    fn forward(&self, _: &[Array]) -> Result<(Array, Vec<Array>)> {
        Err(Error::Argument { operation: "rerun", message: "several operations under one name".to_owned() })
    }

    fn backward(&self, context: &RuleContext<'_>, _: &[Array], grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        (self.0)(context, grad)
    }

    fn is_whole(&self) -> bool {
        false
    }
}

/// Whether a dtype has 16 bits.
pub(crate) fn is_short(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// An array on the host, in `f32` if it has 16 bits: what the reference computes from.
pub(crate) fn on_host(array: &Array) -> Result<Array> {
    let array = array.to_device(&Device::Cpu)?;
    Ok(if is_short(array.dtype()) { array.cast(DType::F32)? } else { array })
}

/// Arrays of a host computation as if the device had made them.
pub(crate) fn back(array: &Array, dtype: DType, device: &Device) -> Result<Array> {
    Ok(array.cast(dtype)?.to_device(device)?)
}
