//! The source of data: a named one, or files.

use crate::config::{ConfigError, refuse};
use gradewise_nn::choice::{Choice, nearest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A named source, or the path of files: text in settings, such as `data.source`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source<N> {
    /// One of the names.
    Named(N),
    /// A path: any other text.
    Path(PathBuf),
}

impl<N: Choice> Source<N> {
    /// The path of files, if it is not a named source.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Named(_) => None,
            Self::Path(path) => Some(path),
        }
    }

    /// Refuses a path that does not exist and resembles a name, as a likely misspelling.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for `key`.
    pub fn validate(&self, key: &'static str) -> Result<(), ConfigError> {
        let names: Vec<&str> = N::ALL.iter().map(|name| name.name()).collect();
        match self {
            Self::Path(path) if !path.exists() => match nearest(&path.to_string_lossy(), &names) {
                Some(near) => refuse(
                    key,
                    format!("`{}` (did you mean `{near}`?)", path.display()),
                    &format!("{}, or a path", names.join(", ")),
                ),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

impl<N: Choice> From<&str> for Source<N> {
    /// Names are case-sensitive, because a folder may be called `Simulate`.
    fn from(text: &str) -> Self {
        let named = N::ALL.iter().find(|name| name.name() == text);
        named.map_or_else(|| Self::Path(PathBuf::from(text)), |name| Self::Named(*name))
    }
}

impl<N: Choice> fmt::Display for Source<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name.name()),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

impl<N: Choice> Serialize for Source<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => serializer.serialize_str(name.name()),
            Self::Path(path) => path.serialize(serializer),
        }
    }
}

impl<'de, N: Choice> Deserialize<'de> for Source<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    gradewise_nn::choices! {
        enum Name {
            /// Ours
            Simulate = "simulate",
        }
    }

    #[test]
    fn names_are_names_and_the_rest_are_paths() {
        assert_eq!(Source::from("simulate"), Source::Named(Name::Simulate));
        let path = Source::<Name>::from("some/folder");
        assert!(path.path() == Some(Path::new("some/folder")) && path.validate("data.source").is_ok());
        assert_eq!(path.to_string(), "some/folder");
        let message = Source::<Name>::from("simulat").validate("data.source").unwrap_err().to_string();
        assert!(message.contains("`simulat` (did you mean `simulate`?)"), "{message}");
    }
}
