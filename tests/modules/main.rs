//! How the sources of the workspace depend on each other.

mod circles;
mod names;
mod order;
mod source;
