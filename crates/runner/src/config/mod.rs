//! Configuration of runs: built-in defaults, a preset, settings for a kind of machine, a TOML file, and dotted overrides, in that
//! order.

#[cfg(test)]
mod fixture;
mod hardware;
mod merge;
mod names;
mod run;

pub use hardware::Hardware;
pub use merge::{ConfigError, Resolver, text};
pub use names::{Census, Fallback, Precision, Select, Strategy};
pub use run::{Config, DataSection, Runtime, Section, Train, at_least_one, refuse};
