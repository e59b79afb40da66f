//! Settings that are one of a few names: the names, their help and their parsing have one source.

use crate::data::Split;
use gradewise_autograd::{Rule, backend::Backend};
use gradewise_core::DType;
use gradewise_kernels::Compute;
use serde::{Deserialize, Deserializer, Serializer};

/// A setting that is one of a few names. The macro [`choices!`](crate::choices) makes one.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// All values, in the order in which help lists them.
    const ALL: &'static [Self];

    /// The name in files and on the command line.
    fn name(self) -> &'static str;

    /// A description in a few words, for help texts.
    fn about(self) -> &'static str;

    /// Other names that are accepted.
    fn aliases(self) -> &'static [&'static str] {
        &[]
    }

    /// The value of a name, regardless of case.
    ///
    /// # Errors
    /// [`UnknownName`], which lists the nearest name and all names.
    fn parse(text: &str) -> Result<Self, UnknownName> {
        let is = |name: &str| name.eq_ignore_ascii_case(text);
        let found =
            Self::ALL.iter().find(|value| is(value.name()) || value.aliases().iter().copied().any(is));
        found.copied().ok_or_else(|| UnknownName {
            actual: text.to_owned(),
            known: Self::ALL.iter().map(|value| value.name()).collect(),
        })
    }
}

/// An unknown name for a setting; the message lists the valid ones.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{actual}`{}, expected {}", self.meant(), self.expected())]
pub struct UnknownName {
    /// The name that was given.
    pub actual: String,
    /// The valid names.
    pub known: Vec<&'static str>,
}

impl UnknownName {
    fn meant(&self) -> String {
        nearest(&self.actual, &self.known)
            .map(|near| format!(" (did you mean `{near}`?)"))
            .unwrap_or_default()
    }

    fn expected(&self) -> String {
        match self.known.as_slice() {
            [only] => format!("{only}, the only one there is"),
            all => format!("one of {}", all.join(", ")),
        }
    }
}

/// The candidate closest to `name`, if one is close enough; `None` in a build without the feature `files`.
pub fn nearest<'a, S: AsRef<str>>(name: &str, candidates: &'a [S]) -> Option<&'a str> {
    #[cfg(not(feature = "files"))]
    {
        let _ = (name, candidates);
        None
    }
    #[cfg(feature = "files")]
    candidates
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate.as_ref()), candidate.as_ref()))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Serializes a value as its name. `#[serde(with = "gradewise_nn::choice")]` is for choices that are types of other crates.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Choice, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.name())
}

/// Deserializes a value from its name.
///
/// # Errors
/// A value that is not a string; [`UnknownName`] as the deserializer's message.
pub fn deserialize<'de, T: Choice, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// As [`serialize`] and [`deserialize`], for the values of a map: `#[serde(with = "gradewise_nn::choice::map")]`.
pub mod map {
    use super::Choice;
    use serde::{Deserialize, Deserializer, Serializer, ser::SerializeMap};
    use std::collections::BTreeMap;

    /// Serializes the values as their names.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<T: Choice, S: Serializer>(
        map: &BTreeMap<String, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut entries = serializer.serialize_map(Some(map.len()))?;
        for (key, value) in map {
            entries.serialize_entry(key, value.name())?;
        }
        entries.end()
    }

    /// Deserializes the values from their names.
    ///
    /// # Errors
    /// As [`deserialize`](super::deserialize).
    pub fn deserialize<'de, T: Choice, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, T>, D::Error> {
        let names = BTreeMap::<String, String>::deserialize(deserializer)?;
        let value = |(key, name): (String, String)| T::parse(&name).map(|value| (key, value));
        names.into_iter().map(value).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
    }
}

/// Makes an enum a [`Choice`]: each variant has its help, its name, and other names that are accepted.
///
/// ```
/// use gradewise_nn::{choice::Choice, choices};
///
/// choices! {
///     /// How fast to go.
///     pub enum Pace {
///         /// As fast as possible
///         Fast = "fast",
///         /// Carefully
///         Slow = "slow" | "careful",
///     }
/// }
/// assert_eq!(Pace::parse("careful").unwrap(), Pace::Slow);
/// assert_eq!(
///     Pace::parse("slov").unwrap_err().to_string(),
///     "`slov` (did you mean `slow`?), expected one of fast, slow"
/// );
/// ```
#[macro_export]
macro_rules! choices {
    ($(#[$attribute:meta])* $visibility:vis enum $Name:ident {
        $(#[doc = $about:literal] $Variant:ident = $name:literal $(| $alias:literal)*,)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $visibility enum $Name {
            $(#[doc = $about] $Variant,)+
        }

        impl $crate::choice::Choice for $Name {
            const ALL: &'static [Self] = &[$(Self::$Variant),+];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }

            fn about(self) -> &'static str {
                match self {
                    $(Self::$Variant => $about.trim(),)+
                }
            }

            fn aliases(self) -> &'static [&'static str] {
                match self {
                    $(Self::$Variant => &[$($alias),*],)+
                }
            }
        }

        impl ::std::fmt::Display for $Name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::choice::Choice::name(*self))
            }
        }

        impl $crate::choice::serde::Serialize for $Name {
            fn serialize<S: $crate::choice::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                $crate::choice::serialize(self, serializer)
            }
        }

        impl<'de> $crate::choice::serde::Deserialize<'de> for $Name {
            fn deserialize<D: $crate::choice::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                $crate::choice::deserialize(deserializer)
            }
        }
    };
}

/// Re-exported for the code that [`choices!`](crate::choices) generates.
#[doc(hidden)]
pub use serde;

impl Choice for DType {
    const ALL: &'static [Self] = &DType::ALL;

    fn name(self) -> &'static str {
        DType::name(self)
    }

    fn about(self) -> &'static str {
        match self {
            Self::F64 => "IEEE 754 binary64",
            Self::F32 => "IEEE 754 binary32",
            Self::BF16 => "bfloat16: the upper half of a binary32",
            Self::F16 => "IEEE 754 binary16",
        }
    }
}

impl Choice for Compute {
    const ALL: &'static [Self] = &[Self::Exact, Self::Tf32];

    fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Tf32 => "tf32",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Exact => "products in the precision of storage",
            Self::Tf32 => "products of f32 on tensor cores, with 10 bits of mantissa",
        }
    }
}

impl Choice for Split {
    const ALL: &'static [Self] = &Split::ALL;

    fn name(self) -> &'static str {
        Split::name(self)
    }

    fn about(self) -> &'static str {
        match self {
            Self::Train => "samples the parameters are fitted to",
            Self::Valid => "samples watched during training",
            Self::Test => "samples reported at the end",
        }
    }
}

impl Choice for Rule {
    const ALL: &'static [Self] = &Rule::ALL;

    fn name(self) -> &'static str {
        Rule::name(self)
    }

    fn about(self) -> &'static str {
        match self {
            Self::Short => "inputs in the 16-bit dtype of the run",
            Self::Full => "inputs of 16 bits in f32",
            Self::Widest => "inputs as they come; in f32 if their dtypes differ",
            Self::First => "inputs in the dtype of the first",
        }
    }
}

impl Choice for Backend {
    const ALL: &'static [Self] = &Backend::ALL;

    fn name(self) -> &'static str {
        Backend::name(self)
    }

    fn about(self) -> &'static str {
        match self {
            Self::Reference => "the implementation for the CPU",
            Self::Device => "the kernels of the device",
        }
    }

    fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Reference => &[],
            Self::Device => &["device"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_case_and_errors_list_them() {
        assert_eq!(DType::parse("BF16"), Ok(DType::BF16));
        assert_eq!(Backend::parse("device"), Ok(Backend::Device));
        let message = Compute::parse("tf23").unwrap_err().to_string();
        assert_eq!(message, "`tf23` (did you mean `tf32`?), expected one of exact, tf32");
        assert!(!Rule::parse("qqq").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn the_names_are_those_that_the_types_print() {
        assert!(Compute::ALL.iter().all(|compute| compute.to_string() == compute.name()));
        assert!(Rule::ALL.iter().all(|rule| rule.to_string() == rule.name()));
        assert!(Rule::ALL.iter().all(|rule| rule.name().parse::<Rule>().is_ok_and(|read| read == *rule)));
    }
}
