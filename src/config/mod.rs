//! Configuration of runs: built-in defaults, a TOML file, and dotted overrides, in that order.

mod merge;
mod nbody;

pub use merge::{ConfigError, Resolver};
pub use nbody::{Data, NBody, PAPER_OVERRIDES, Runtime, Train};
