//! Vectors between points.

pub(super) fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

pub(super) fn scaled(factor: f64, a: [f64; 3]) -> [f64; 3] {
    a.map(|x| factor * x)
}

/// The vector from `from` to `to`.
pub(super) fn difference(to: [f64; 3], from: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| to[axis] - from[axis])
}

/// Adds to the force on a particle.
pub(super) fn add_at(forces: &mut [[f64; 3]], particle: usize, force: [f64; 3]) {
    forces[particle].iter_mut().zip(force).for_each(|(sum, x)| *sum += x);
}
