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

/// What a [`Calculator`] finds.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// Energy (eV), forces (eV/Å) and, of a system that repeats in three directions, stress (eV/Å³).
    pub labels: Labels,
    /// Minus the derivative of the energy by the strain of positions and cell, in eV: Σ over pairs of distance times force.
    pub virial: [[f64; 3]; 3],
    /// The standard deviation over the models, if there are several.
    pub deviations: Option<Deviations>,
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

    /// Keeps neighbours this much farther than the cutoff, in Å: 0.5 unless set.
    ///
    /// # Errors
    /// A skin that is negative or not finite.
    pub fn with_skin(self, skin: f64) -> Result<Self> {
        Ok(Self { neighbours: SkinList::new(self.cutoff, skin)?, ..self })
    }

    /// The models.
    pub fn models(&self) -> &[Potential] {
        self.models.models()
    }

    /// Device and dtype of the models.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The neighbours that are kept.
    pub fn neighbours(&self) -> &SkinList {
        &self.neighbours
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
        let found = self.evaluate_with_virial(numbers, positions, cell)?;
        Ok((found.labels, found.deviations))
    }

    /// As [`evaluate`](Self::evaluate), with the virial, which systems that do not repeat have, too.
    ///
    /// # Errors
    /// As [`evaluate`](Self::evaluate).
    pub fn evaluate_with_virial(
        &mut self,
        numbers: &[u8],
        positions: &[[f64; 3]],
        cell: Option<Cell>,
    ) -> Result<Evaluated> {
        let frame =
            Frame { numbers: numbers.to_vec(), positions: positions.to_vec(), cell, ..Frame::default() };
        AtomSet::require_sound(std::slice::from_ref(&frame), false)?;
        let neighbours = self.neighbours.update(positions, cell.as_ref())?;
        let set = AtomSet::of_neighbourhoods(vec![Neighbourhood::of(frame, neighbours)], self.cutoff);
        let placement = &self.placement;
        let prediction = self.models.predict(|model| {
            let predicted = model.predict_with_strain(&set, placement)?;
            let numbers = predicted.iter().flat_map(|(labels, strain)| {
                labels.numbers().into_iter().chain(strain.as_flattened().iter().copied())
            });
            Ok::<_, gradewise_nn::Error>(numbers.collect())
        })?;
        let frame = &set.frames()[0].frame;
        let deviations =
            prediction.deviation.as_deref().map(|mut rest| Deviations(Labels::take(frame, &mut rest)));
        let mut rest = &prediction.mean[..];
        let labels = Labels::take(frame, &mut rest);
        let strain = |a: usize, b: usize| rest.get(3 * a + b).copied().unwrap_or(f64::NAN);
        let virial = std::array::from_fn(|a| std::array::from_fn(|b| -strain(a, b)));
        Ok(Evaluated { labels, virial, deviations })
    }
}
