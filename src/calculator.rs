//! A potential for programs that move atoms: positions in; energy, forces and stress out.

use crate::tasks::PotentialTask;
use gradewise_kernels::{DType, Device};
use gradewise_nn::{Ensemble, Placement, checkpoint::Checkpoint};
use gradewise_runner::{error::Result, task};
use gradewise_zoo::{
    data::atoms::{AtomSet, Frame, Neighbourhood, SkinList},
    models::Potential,
};
use std::path::Path;

pub use gradewise_zoo::data::atoms::{Cell, Deviations, Labels};

/// How much farther than the cutoff neighbours are kept, in Å, so that most steps of a motion need no search.
const SKIN: f64 = 0.5;

/// The potentials of one or several checkpoints of `train potential`, with the neighbours of the last atoms.
///
/// ```no_run
/// use gradewise_cli::calculator::Calculator;
/// use gradewise_kernels::{DType, Device};
///
/// let mut water = Calculator::open(&["runs/potential-1/checkpoint.safetensors"], &Device::Cpu, DType::F64)?;
/// let (labels, _) = water.evaluate(&[8, 1, 1], &[[0.0, 0.0, 0.0], [0.96, 0.0, 0.0], [-0.24, 0.93, 0.0]], None)?;
/// println!("{} eV, {:?} eV/Å", labels.energy, labels.forces[0]);
/// # Ok::<(), gradewise_runner::error::Error>(())
/// ```
pub struct Calculator {
    models: Ensemble<Potential>,
    placement: Placement,
    neighbours: SkinList,
    cutoff: f64,
}

impl Calculator {
    /// Loads the models, in `f32` or `f64`.
    ///
    /// # Errors
    /// Checkpoints that are missing, damaged, or of another task; another dtype.
    pub fn open(checkpoints: &[impl AsRef<Path>], device: &Device, dtype: DType) -> Result<Self> {
        let placement = Placement::new(device, dtype);
        let mut models = Vec::new();
        for path in checkpoints {
            models.extend(task::load_models::<PotentialTask>(&Checkpoint::read(path)?, &placement)?);
        }
        let cutoff = models.iter().map(|model| model.config().cutoff).fold(0.0, f64::max);
        let models = Ensemble::new(models)?;
        Ok(Self { models, placement, neighbours: SkinList::new(cutoff, SKIN)?, cutoff })
    }

    /// The distance, in Å, beyond which atoms do not interact directly.
    pub fn cutoff(&self) -> f64 {
        self.cutoff
    }

    /// Energy (eV), forces (eV/Å) and, of a system that repeats in three directions, stress (eV/Å³) of atoms with these atomic numbers and
    /// positions (Å): the mean over the models, and their standard deviation if there are several.
    ///
    /// # Errors
    /// No atoms, species that were not in the training frames, atoms that coincide, numbers that are not finite; from the device.
    pub fn evaluate(
        &mut self,
        numbers: &[u8],
        positions: &[[f64; 3]],
        cell: Option<Cell>,
    ) -> Result<(Labels, Option<Deviations>)> {
        let frame =
            Frame { numbers: numbers.to_vec(), positions: positions.to_vec(), cell, ..Frame::default() };
        AtomSet::require_sound(std::slice::from_ref(&frame), false)?;
        let neighbours = self.neighbours.update(positions, cell.as_ref())?;
        let set = AtomSet::of_neighbourhoods(vec![Neighbourhood::of(frame, neighbours)], self.cutoff);
        let placement = &self.placement;
        let prediction = self.models.predict(|model| {
            let labels = model.predict(&set, placement)?;
            Ok::<_, gradewise_nn::Error>(labels.iter().flat_map(Labels::numbers).collect())
        })?;
        let frame = &set.frames()[0].frame;
        let deviations =
            prediction.deviation.as_deref().map(|mut rest| Deviations(Labels::take(frame, &mut rest)));
        Ok((Labels::take(frame, &mut &prediction.mean[..]), deviations))
    }
}
