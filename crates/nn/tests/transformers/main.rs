//! The published transformers: golden vectors of the published packages, derivatives, and mistakes.

mod golden;
mod layout;
