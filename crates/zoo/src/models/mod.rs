//! Models of published experiments.

#[cfg(feature = "archives")]
mod core_repulsion;
mod fields;
mod force_field;
mod gpt;
mod gravity;
mod hull;
mod jets;
mod message_passing;
mod nbody;
mod points;
#[cfg(feature = "archives")]
mod potential;
mod track_field;

pub use crate::data::nbody::NBodyBatch;
pub use fields::{FieldModel, FieldModelConfig, FieldModelKind, FieldTask};
pub use force_field::{ForceField, ForceFieldConfig, ForceFieldKind, MessageField};
pub use gpt::{Gpt, GptConfig, Sampling};
pub use gradewise_nn::data::Edges;
pub use gravity::{GravityConfig, GravityKind, GravityModel, GravityTransformer};
pub use hull::{HullConfig, HullKind, HullModel, HullSimplices};
pub use jets::{JetKind, JetLGATr, JetMessages, JetPairs, JetSlim, JetTagger, JetTaggerConfig, Reference};
pub use message_passing::{MessagePassing, MvMlp};
pub use nbody::{NBody, NBodyConfig, NBodyGraph};
pub use points::{CL5, HullVolume, O5Config, O5Regression, PerceptronConfig, SignedVolume};
#[cfg(feature = "archives")]
pub use potential::{CoreRepulsion, Potential, PotentialConfig};
pub use track_field::TrackField;
