//! Models of published experiments.

mod message_passing;
mod nbody;

pub use message_passing::{Edges, MessagePassing, MvMlp};
pub use nbody::{NBody, NBodyBatch, NBodyConfig};
