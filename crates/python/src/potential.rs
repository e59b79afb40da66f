//! Potentials of `train potential` in this process, for `gradewise.ase`.

use crate::{
    errors::{Class, raised},
    threads,
};
use gradewise_cli::calculator::Calculator;
use gradewise_kernels::Device;
use pyo3::prelude::*;
use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

type Matrix = [[f64; 3]; 3];
/// Energy, forces and stress, and their deviations over several models.
type Evaluated = (f64, Vec<[f64; 3]>, Option<Matrix>, Option<(f64, Vec<[f64; 3]>)>);

/// The potentials of checkpoints.
///
/// Args:
///     checkpoints: the files.
///     device: "cpu", "cuda" or "cuda:0".
///     dtype: "f32" or "f64".
///
/// Raises:
///     ArgumentError: a checkpoint that is missing, damaged, or of another task; another dtype.
///     DeviceError: there is no such device.
#[pyclass(frozen, module = "gradewise._core")]
pub struct Potential(Mutex<Calculator>);

#[pymethods]
impl Potential {
    #[new]
    fn new(py: Python<'_>, checkpoints: Vec<PathBuf>, device: &str, dtype: &str) -> PyResult<Self> {
        let device: Device = device.parse().map_err(|error: gradewise_kernels::Error| raised(py, error))?;
        let dtype = dtype.parse().map_err(|_| {
            Class::Argument
                .exception(py, &format!("Potential: dtype {dtype} is unknown, expected f32 or f64"))
        })?;
        let opened = py.detach(|| Calculator::open(&checkpoints, &device, dtype));
        let opened = opened.map_err(|error| Class::Argument.exception(py, &error.to_string()))?;
        Ok(Self(Mutex::new(opened)))
    }

    /// The distance beyond which atoms do not interact directly, in Å.
    #[getter]
    fn cutoff(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cutoff()
    }

    /// Energy (eV), forces (eV/Å), stress (eV/Å³; None unless the system repeats in three directions), and for several models the standard
    /// deviations of energy and forces.
    ///
    /// Args:
    ///     numbers: atomic numbers.
    ///     positions: positions, in Å.
    ///     cell: the vectors of the cell as rows, in Å.
    ///     pbc: whether the system repeats along each.
    ///
    /// Raises:
    ///     ArgumentError: no atoms, unknown species, atoms that coincide, numbers that are not finite.
    fn evaluate(
        &self,
        py: Python<'_>,
        numbers: Vec<u8>,
        positions: Vec<[f64; 3]>,
        cell: Matrix,
        pbc: [bool; 3],
    ) -> PyResult<Evaluated> {
        let cell = gradewise_cli::calculator::Cell { vectors: cell, periodic: pbc };
        let found = py.detach(|| {
            let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let cell = pbc.contains(&true).then_some(cell);
            let own = &mut *own;
            threads::within(0, || own.evaluate(&numbers, &positions, cell))
        });
        let (labels, deviations) =
            found.map_err(|error| Class::Argument.exception(py, &error.to_string()))?;
        let deviations = deviations.map(|of| (of.0.energy, of.0.forces));
        Ok((labels.energy, labels.forces, labels.stress, deviations))
    }
}
