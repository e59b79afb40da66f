//! Cells that repeat, and the box in which atoms are sorted into bins.

use super::{OPERATION, Vector};
use crate::{Error, Result};

/// A cell that repeats along some of its vectors.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cell {
    /// The vectors a, b and c as rows.
    pub vectors: [Vector; 3],
    /// Whether the system repeats along each.
    pub periodic: [bool; 3],
}

impl Cell {
    /// A cell that repeats along all of its vectors.
    pub fn periodic(vectors: [Vector; 3]) -> Self {
        Self { vectors, periodic: [true; 3] }
    }

    /// The volume.
    pub fn volume(&self) -> f64 {
        let [a, b, c] = self.vectors;
        dot(cross(a, b), c).abs()
    }

    /// The sum of `images[k]` times vector k.
    pub fn shift(&self, images: [i32; 3]) -> Vector {
        shift(&self.vectors, images)
    }

    /// Why the vectors span no cell, if they do not: numbers that are not finite, or three vectors (nearly) in a plane.
    pub fn fault(&self) -> Option<String> {
        if self.vectors.as_flattened().iter().any(|x| !x.is_finite()) {
            return Some(format!("its lattice {:?} is not finite", self.vectors));
        }
        let lengths = self.vectors.map(|vector| dot(vector, vector).sqrt());
        let flat = self.volume() <= 1e-6 * lengths.iter().product::<f64>();
        flat.then(|| format!("its lattice {:?} spans no volume", self.vectors))
    }
}

/// A cell with unit vectors normal to the others in place of those that do not repeat, and its inverse.
pub(super) struct Frame {
    pub vectors: [Vector; 3],
    /// The rows r_k with r_k·v_l = δ_kl: fractions of the vectors at a position.
    pub inverse: [Vector; 3],
    /// Distances of opposite faces.
    pub heights: Vector,
    pub periodic: [bool; 3],
}

impl Frame {
    /// # Errors
    /// [`Error::Argument`] for a cell without volume.
    pub fn new(cell: Option<&Cell>) -> Result<Self> {
        let cell = cell.filter(|cell| cell.periodic.contains(&true));
        if let Some(actual) = cell.and_then(Cell::fault) {
            let expected = "three vectors that span a volume";
            return Err(Error::Argument { operation: OPERATION, argument: "cell", actual, expected });
        }
        let vectors = vectors_of(cell);
        let [a, b, c] = vectors;
        let normals = [cross(b, c), cross(c, a), cross(a, b)];
        let volume = dot(cross(a, b), c);
        Ok(Self {
            vectors,
            inverse: normals.map(|normal| normal.map(|x| x / volume)),
            heights: normals.map(|normal| volume.abs() / dot(normal, normal).sqrt()),
            periodic: cell.map_or([false; 3], |cell| cell.periodic),
        })
    }

    /// Fractions of the vectors at a position.
    pub fn fractions(&self, position: Vector) -> Vector {
        self.inverse.map(|row| dot(row, position))
    }
}

fn vectors_of(cell: Option<&Cell>) -> [Vector; 3] {
    let unit = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let Some(cell) = cell else { return unit };
    let normalised = |v: Vector| {
        let length = dot(v, v).sqrt();
        v.map(|x| x / length)
    };
    let mut vectors = cell.vectors;
    let repeating: Vec<usize> = (0..3).filter(|&k| cell.periodic[k]).collect();
    match *repeating.as_slice() {
        [a] => {
            // The axis along which the vector is shortest is far from parallel to it.
            let vector = vectors[a];
            let least = (0..3).min_by(|&i, &j| vector[i].abs().total_cmp(&vector[j].abs())).unwrap_or(0);
            let side = normalised(cross(vector, unit[least]));
            vectors[(a + 1) % 3] = side;
            vectors[(a + 2) % 3] = normalised(cross(vector, side));
        }
        [a, b] => vectors[3 - a - b] = normalised(cross(vectors[a], vectors[b])),
        _ => {}
    }
    vectors
}

/// The sum of `images[k]` times vector k; products and sums in the order of csrc/graph/neighbours.cuh.
pub(super) fn shift(vectors: &[Vector; 3], images: [i32; 3]) -> Vector {
    let [a, b, c] = images.map(f64::from);
    std::array::from_fn(|axis| a * vectors[0][axis] + b * vectors[1][axis] + c * vectors[2][axis])
}

pub(super) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Vector, b: Vector) -> Vector {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}
