//! Models of published experiments.

mod fields;
mod force_field;
mod gpt;
mod gravity;
mod jets;
mod message_passing;
mod nbody;
mod points;

pub use crate::data::{Edges, nbody::NBodyBatch};
pub use fields::{FieldModel, FieldModelConfig, FieldModelKind, FieldTask};
pub use force_field::{ForceField, ForceFieldConfig};
pub use gpt::{Gpt, GptConfig, Sampling};
pub use gravity::{GravityConfig, GravityKind, GravityModel, GravityTransformer};
pub use jets::{JetTagger, JetTaggerConfig};
pub use message_passing::{MessagePassing, MvMlp};
pub use nbody::{NBody, NBodyConfig};
pub use points::{CL5, HullVolume, O5Config, O5Regression, PerceptronConfig, SignedVolume};
