//! Atoms at one moment, with what is known of their energy.

use super::elements::{self, symbol};
use gradewise_kernels::ops::neighbours::Cell;
use gradewise_nn::{Result, symmetry::Isometry};

/// Vectors in space.
pub type Vector = [f64; 3];
/// Atoms nearer than this, in Å, are refused as being one atom twice.
pub const COINCIDENT: f64 = 0.1;

/// Atoms at one moment. Energies are in eV, lengths in Å.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frame {
    /// Atomic numbers.
    pub numbers: Vec<u8>,
    /// Positions, in Å.
    pub positions: Vec<Vector>,
    /// The cell, if the system repeats.
    pub cell: Option<Cell>,
    /// The energy, in eV.
    pub energy: Option<f64>,
    /// The forces, in eV/Å.
    pub forces: Option<Vec<Vector>>,
    /// The stress, the derivative of the energy by the strain over the volume, in eV/Å³; positive under tension.
    pub stress: Option<[Vector; 3]>,
}

/// Energy, forces and stress of a frame, known or predicted.
#[derive(Clone, PartialEq, Debug)]
pub struct Labels {
    /// The energy, in eV.
    pub energy: f64,
    /// The forces, in eV/Å.
    pub forces: Vec<Vector>,
    /// The stress, in eV/Å³.
    pub stress: Option<[Vector; 3]>,
}

/// Standard deviations of [`Labels`] over several models, in their units.
#[derive(Clone, PartialEq, Debug)]
pub struct Deviations(pub Labels);

impl Labels {
    /// The labels of a frame from [`numbers`](Self::numbers) in a row, which go on after them. A stress is there if the frame repeats in
    /// three directions; numbers that are missing are NaN.
    pub fn take(frame: &Frame, rest: &mut &[f64]) -> Self {
        let mut next = || match rest.split_first() {
            Some((first, others)) => {
                *rest = others;
                *first
            }
            None => f64::NAN,
        };
        let energy = next();
        let forces = frame.numbers.iter().map(|_| [next(), next(), next()]).collect();
        let mut row = || [next(), next(), next()];
        let stress = frame.repeats_in_space().then(|| [row(), row(), row()]);
        Self { energy, forces, stress }
    }

    /// All numbers in a row: energy, forces, stress.
    pub fn numbers(&self) -> Vec<f64> {
        let stress = self.stress.iter().flatten().flatten();
        std::iter::once(&self.energy).chain(self.forces.as_flattened()).chain(stress).copied().collect()
    }
}

impl Frame {
    /// The energy, forces and stress, if there is at least an energy and forces.
    pub fn labels(&self) -> Option<Labels> {
        let (energy, forces) = (self.energy?, self.forces.clone()?);
        Some(Labels { energy, forces, stress: self.stress })
    }

    /// The frame with other labels.
    #[must_use]
    pub fn labelled(&self, labels: Labels) -> Self {
        let Labels { energy, forces, stress } = labels;
        Self { energy: Some(energy), forces: Some(forces), stress, ..self.clone() }
    }

    /// The frame turned or reflected by an isometry of space, moved by `shift` (Å), with its atoms in the opposite order.
    ///
    /// # Errors
    /// [`Error::Argument`](gradewise_nn::Error::Argument) for an isometry of another dimension.
    pub fn moved(&self, isometry: &Isometry, shift: Vector) -> Result<Self> {
        let turn = |vector: Vector| -> Result<Vector> {
            let turned = isometry.apply(&vector)?;
            Ok(std::array::from_fn(|axis| turned[axis]))
        };
        let reversed = |vectors: &[Vector], shift: Vector| -> Result<Vec<Vector>> {
            let moved = vectors.iter().rev().map(|&vector| {
                let turned = turn(vector)?;
                Ok(std::array::from_fn(|axis| turned[axis] + shift[axis]))
            });
            moved.collect()
        };
        let rows = |matrix: &[Vector; 3]| -> Result<[Vector; 3]> {
            let [a, b, c] = *matrix;
            Ok([turn(a)?, turn(b)?, turn(c)?])
        };
        let transposed = |m: [Vector; 3]| std::array::from_fn(|i| std::array::from_fn(|j| m[j][i]));
        let cell = self
            .cell
            .map(|cell| Ok::<_, gradewise_nn::Error>(Cell { vectors: rows(&cell.vectors)?, ..cell }));
        Ok(Self {
            numbers: self.numbers.iter().rev().copied().collect(),
            positions: reversed(&self.positions, shift)?,
            cell: cell.transpose()?,
            energy: self.energy,
            forces: self.forces.as_deref().map(|forces| reversed(forces, [0.0; 3])).transpose()?,
            // Both of its axes turn.
            stress: self.stress.map(|stress| rows(&transposed(rows(&stress)?))).transpose()?,
        })
    }

    /// Number of atoms.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there is no atom.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The cell, if it repeats along at least one vector.
    pub fn repeating(&self) -> Option<&Cell> {
        self.cell.as_ref().filter(|cell| cell.periodic.contains(&true))
    }

    /// Whether the system repeats in three directions, so that it has a stress.
    pub fn repeats_in_space(&self) -> bool {
        self.cell.is_some_and(|cell| cell.periodic == [true; 3])
    }

    /// What is wrong with the frame on its own: no atoms, lists of different length, unknown elements, numbers that are not finite, a flat
    /// cell. `None` if nothing is. Whether atoms coincide is seen where neighbours are sought.
    pub fn fault(&self) -> Option<String> {
        let atoms = self.len();
        if atoms == 0 {
            return Some("it has no atoms".to_owned());
        }
        let forces = self.forces.as_ref().map_or(atoms, Vec::len);
        if self.positions.len() != atoms || forces != atoms {
            let (positions, numbers) = (self.positions.len(), atoms);
            return Some(format!("it has {numbers} species, {positions} positions and {forces} forces"));
        }
        if let Some(atom) = self.numbers.iter().position(|&number| symbol(number).is_none()) {
            return Some(format!(
                "atom {atom} has the atomic number {}; those from 1 to {} are elements",
                self.numbers[atom],
                elements::ELEMENTS
            ));
        }
        let bad = |vectors: &[Vector]| vectors.iter().position(|v| v.iter().any(|x| !x.is_finite()));
        if let Some(atom) = bad(&self.positions) {
            return Some(format!("the position of atom {atom} is {:?}", self.positions[atom]));
        }
        if let Some((atom, forces)) = self.forces.as_ref().and_then(|f| Some((bad(f)?, f))) {
            return Some(format!("the force on atom {atom} is {:?}", forces[atom]));
        }
        if let Some(energy) = self.energy.filter(|energy| !energy.is_finite()) {
            return Some(format!("its energy is {energy}"));
        }
        if self.stress.is_some_and(|stress| bad(&stress).is_some()) {
            return Some(format!("its stress is {:?}", self.stress.unwrap_or_default()));
        }
        self.repeating().and_then(Cell::fault)
    }
}

pub(super) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named() {
        let water = Frame {
            numbers: vec![8, 1, 1],
            positions: vec![[0.0; 3], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]],
            ..Frame::default()
        };
        assert_eq!(water.fault(), None);
        let flat = Cell::periodic([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]]);
        for (frame, part) in [
            (Frame::default(), "no atoms"),
            (Frame { numbers: vec![8, 1, 119], ..water.clone() }, "atom 2 has the atomic number 119"),
            (Frame { positions: vec![[f64::NAN; 3]; 3], ..water.clone() }, "position of atom 0"),
            (Frame { energy: Some(f64::INFINITY), ..water.clone() }, "energy is inf"),
            (Frame { forces: Some(vec![[0.0; 3]; 2]), ..water.clone() }, "2 forces"),
            (Frame { cell: Some(flat), ..water.clone() }, "no volume"),
        ] {
            assert!(frame.fault().is_some_and(|fault| fault.contains(part)), "{part}");
        }
        let open = Cell { periodic: [false; 3], ..flat };
        assert_eq!(
            Frame { cell: Some(open), ..water }.fault(),
            None,
            "a cell that does not repeat is not used"
        );
    }
}
