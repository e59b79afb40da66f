//! How the sources of the workspace depend on each other.

mod circles;
mod order;
mod source;
