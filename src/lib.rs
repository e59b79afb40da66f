//! Facade
pub mod verify;
