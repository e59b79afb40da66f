//! Configuration of runs: built-in defaults, a preset, settings for a kind of machine, a TOML file, and dotted overrides, in that
//! order.

mod hardware;
mod merge;
mod run;

pub use hardware::Hardware;
pub use merge::{ConfigError, Resolver};
pub use run::{Config, DataSection, Runtime, Section, Train, at_least_one, refuse};
