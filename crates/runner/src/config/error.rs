//! Errors of configurations, and the origin of settings.

use std::{fmt, path::PathBuf};

/// Where a setting came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A configuration file.
    File(PathBuf),
    /// An argument such as `train.steps=60` or `--seed 3`.
    Argument(String),
    /// A preset for a kind of machine.
    Hardware(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "configuration {}", path.display()),
            Self::Argument(text) => write!(f, "argument `{text}`"),
            Self::Hardware(name) => write!(f, "hardware preset {name}"),
        }
    }
}

/// An error of a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML. The parser's message shows the line.
    #[error("configuration {} is not valid TOML:\n{source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: Box<toml::de::Error>,
    },
    /// Not of the form `key=value`.
    #[error("`{text}` is not an override; write key=value, such as train.steps=60")]
    NotAnOverride {
        /// The argument.
        text: String,
    },
    /// An unknown key.
    #[error(transparent)]
    UnknownKey(Box<UnknownKey>),
    /// A value of the wrong type.
    #[error("{origin}: `{key}` is {actual}, expected {expected}")]
    WrongType {
        /// The layer that sets it.
        origin: Origin,
        /// The setting.
        key: String,
        /// The type and the value that were found.
        actual: String,
        /// The type of the setting.
        expected: &'static str,
    },
    /// A value that is invalid, alone or in combination with others.
    #[error("configuration: `{key}` is {actual}, expected {expected}")]
    Value {
        /// The setting.
        key: &'static str,
        /// Its value.
        actual: String,
        /// What is accepted.
        expected: String,
    },
    /// A value of the right type that the setting does not accept, such as an unknown name.
    #[error("configuration: `{key}` is {reason}")]
    Unacceptable {
        /// The setting.
        key: String,
        /// The value and what is accepted.
        reason: String,
    },
    /// A negative count.
    #[error("configuration: `{key}` is {actual}, expected a whole number, {expected}")]
    Negative {
        /// The setting.
        key: String,
        /// Its value.
        actual: i64,
        /// The least that is accepted, such as `at least 1`.
        expected: String,
    },
    /// The merged table does not have the form of the configuration.
    #[error("configuration: {0}")]
    Form(String),
}

/// An unknown key, with suggestions.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: unknown key `{key}`{}; {}", self.suggest(), self.list())]
pub struct UnknownKey {
    pub(super) origin: Origin,
    pub(super) key: String,
    /// Full keys that may have been meant, in quotes.
    pub(super) suggestion: Option<String>,
    /// The table in which the key was looked up; empty for the top level.
    pub(super) table: String,
    pub(super) valid: Vec<String>,
}

impl UnknownKey {
    fn suggest(&self) -> String {
        self.suggestion.as_ref().map_or_else(String::new, |key| format!(", did you mean {key}?"))
    }

    fn list(&self) -> String {
        let keys = self.valid.join(", ");
        if self.table.is_empty() {
            format!("the tables are {keys}")
        } else {
            format!("[{}] has {keys}", self.table)
        }
    }
}
