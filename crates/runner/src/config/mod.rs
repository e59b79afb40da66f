//! Configuration of runs: built-in defaults, a preset, settings for a kind of machine, a TOML file, and dotted overrides, in that
//! order.

mod as_text;
mod bounds;
mod differences;
mod error;
#[cfg(test)]
mod fixture;
mod hardware;
mod merge;
mod names;
mod run;

pub use differences::differences;
pub use error::{ConfigError, Origin, UnknownKey};
pub use hardware::Hardware;
pub use merge::{Resolver, table, text};
pub use names::{BudgetOf, Census, Fallback, Precision, Select, Strategy};
pub use run::{Config, DataSection, Runtime, Section, Train, at_least_one, refuse};
