//! Linear maps of multivectors, grade by grade.

pub mod mv_linear;
