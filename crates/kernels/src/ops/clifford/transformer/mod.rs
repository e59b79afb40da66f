//! Steps of a geometric-algebra transformer on feature planes.

pub mod heads;
