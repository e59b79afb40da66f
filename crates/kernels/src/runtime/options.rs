//! Choices between implementations, read from the environment in one place.

use crate::{
    Error, Result,
    runtime::{
        debug,
        tuning::{Table, TableError},
    },
};
use std::{ffi::OsString, path::Path, sync::OnceLock};

/// Which kernels matrix products may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Products {
    /// All of them.
    #[default]
    All,
    /// Not those of compute capability 9.0: neither its copy engine nor its instructions of warpgroups.
    Portable,
    /// Ordinary multiply-adds, one tile after the other: no tensor cores, no copies in flight, no swizzled shared memory.
    Plain,
}

/// How operators of a device compute where there is a choice: for finding out whose fault a wrong result is, and for measurements. A
/// [`CudaDevice`](crate::CudaDevice) has one, from when it is opened; no operator reads the environment.
///
/// ```
/// use gradewise_kernels::{Error, Options, Products};
///
/// let options = Options::from_variables(|name| (name == "GRADEWISE_MATMUL").then(|| "plain".into()))?;
/// assert_eq!(options, Options { products: Products::Plain, ..Options::default() });
/// let error = Options::from_variables(|name| (name == "GRADEWISE_MATMUL").then(|| "plane".into())).unwrap_err();
/// assert!(matches!(&error, Error::Variable { name: "GRADEWISE_MATMUL", value, .. } if value == "plane"));
/// assert_eq!(error.to_string(), "GRADEWISE_MATMUL is `plane`; it can be all, portable or plain");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// `GRADEWISE_MATMUL`: `all`, `portable` or `plain`.
    pub products: Products,
    /// `GRADEWISE_ATTENTION`: whether attention uses the instructions of warpgroups where there are some; `warps` for not.
    pub attention_warpgroups: bool,
    /// `GRADEWISE_CUBLASLT`: whether plain matrix products are computed by cuBLASLt where it was measured to be faster; `1` for yes.
    pub cublaslt: bool,
    /// `GRADEWISE_OVERLAP`: whether a kernel may start before its predecessor in the stream has ended; `0` for not.
    pub overlap: bool,
    /// `GRADEWISE_RECYCLE`: whether small blocks of device memory are kept for the next arrays of their size; `0` for not, so that a memory
    /// checker sees every array's memory come and go.
    pub recycle: bool,
    /// `GRADEWISE_FUSE`: whether captured work, and scopes on the host, compute several operators at once; `0` for not.
    pub fuse: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            products: Products::All,
            attention_warpgroups: true,
            cublaslt: false,
            overlap: true,
            recycle: true,
            fuse: true,
        }
    }
}

const SWITCH: &str = "0 or 1";

impl Options {
    /// The options from the environment variables, read once. A [`Table`] that `GRADEWISE_TUNING` names is in use afterwards, unless one
    /// was installed before.
    ///
    /// # Errors
    /// [`Error::Variable`] for an invalid value, and for a table that cannot be read.
    pub fn from_environment() -> Result<Self> {
        static READ: OnceLock<Result<Options>> = OnceLock::new();
        let read = || {
            let options = Self::from_variables(|name| std::env::var_os(name))?;
            if let Some(path) = std::env::var_os(Table::VARIABLE).filter(|path| !path.is_empty()) {
                let table = Table::read(Path::new(&path)).map_err(|error| unreadable(&path, &error))?;
                table.install_first();
            }
            Ok(options)
        };
        READ.get_or_init(read).clone()
    }

    /// The options from these variables; an empty one counts as unset. Those of [debug mode](crate::runtime::debug) are only checked.
    ///
    /// # Errors
    /// [`Error::Variable`] for an invalid value.
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let text = |name| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(|value| value.to_string_lossy().into_owned())
        };
        let switch = |name: &'static str, unset: bool| match text(name).as_deref() {
            None => Ok(unset),
            Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(refuse(name, other, SWITCH)),
        };
        for name in debug::VARIABLES {
            switch(name, false)?;
        }
        Ok(Self {
            products: match text("GRADEWISE_MATMUL").as_deref() {
                None | Some("all") => Products::All,
                Some("portable") => Products::Portable,
                Some("plain") => Products::Plain,
                Some(other) => return Err(refuse("GRADEWISE_MATMUL", other, "all, portable or plain")),
            },
            attention_warpgroups: match text("GRADEWISE_ATTENTION").as_deref() {
                None | Some("all") => true,
                Some("warps") => false,
                Some(other) => return Err(refuse("GRADEWISE_ATTENTION", other, "all or warps")),
            },
            // Any other value is the library's path and does not enable it.
            cublaslt: text("GRADEWISE_CUBLASLT").as_deref() == Some("1"),
            overlap: switch("GRADEWISE_OVERLAP", true)?,
            recycle: switch("GRADEWISE_RECYCLE", true)?,
            fuse: switch("GRADEWISE_FUSE", true)?,
        })
    }
}

fn refuse(name: &'static str, value: &str, expected: &'static str) -> Error {
    Error::Variable { name, value: value.to_owned(), expected: expected.to_owned() }
}

fn unreadable(path: &std::ffi::OsStr, error: &TableError) -> Error {
    let value = path.to_string_lossy().into_owned();
    Error::Variable {
        name: Table::VARIABLE,
        value,
        expected: format!("a file written by the tuner ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<Options> {
        Options::from_variables(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn every_value_is_understood_or_refused_with_the_variable_and_the_values_it_can_have() {
        let default = Options::default();
        assert_eq!(Options::from_variables(|_| None), Ok(default));
        for (name, value, expected) in [
            ("GRADEWISE_MATMUL", "", default),
            ("GRADEWISE_MATMUL", "all", default),
            ("GRADEWISE_MATMUL", "portable", Options { products: Products::Portable, ..default }),
            ("GRADEWISE_ATTENTION", "warps", Options { attention_warpgroups: false, ..default }),
            ("GRADEWISE_CUBLASLT", "1", Options { cublaslt: true, ..default }),
            ("GRADEWISE_CUBLASLT", "0", default),
            ("GRADEWISE_CUBLASLT", "/opt/libcublasLt.so", default),
            ("GRADEWISE_OVERLAP", "0", Options { overlap: false, ..default }),
            ("GRADEWISE_RECYCLE", "0", Options { recycle: false, ..default }),
            ("GRADEWISE_FUSE", "0", Options { fuse: false, ..default }),
            ("GRADEWISE_POISON", "1", default),
            ("CUDA_LAUNCH_BLOCKING", "yes", default),
        ] {
            assert_eq!(with(name, value), Ok(expected), "{name}={value}");
        }
        for name in [
            "GRADEWISE_MATMUL",
            "GRADEWISE_ATTENTION",
            "GRADEWISE_OVERLAP",
            "GRADEWISE_RECYCLE",
            "GRADEWISE_FUSE",
        ]
        .into_iter()
        .chain(debug::VARIABLES)
        {
            let error = with(name, "Plain").unwrap_err();
            assert!(
                matches!(&error, Error::Variable { name: of, value, .. } if *of == name && value == "Plain"),
                "{error:?}"
            );
            let valid = error.to_string().split_once("can be ").map(|(_, valid)| valid.to_owned()).unwrap();
            let values: Vec<&str> =
                valid.split([',', ' ']).filter(|word| !matches!(*word, "" | "or")).collect();
            assert!(values.len() > 1, "{error}");
            for value in values {
                assert!(with(name, value).is_ok(), "{name}={value}");
            }
        }
    }
}
