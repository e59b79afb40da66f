//! The published transformers: golden vectors of the published packages, layers, derivatives, mistakes.

mod derivatives;
mod golden;
mod layers;
mod layout;
mod mistakes;
