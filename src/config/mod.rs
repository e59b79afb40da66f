//! Configuration of runs: built-in defaults, a preset, a TOML file, and dotted overrides, in that order.

mod merge;
mod run;

pub use merge::{ConfigError, Resolver};
pub use run::{Config, DataSection, Runtime, Section, Train, at_least_one, refuse};
