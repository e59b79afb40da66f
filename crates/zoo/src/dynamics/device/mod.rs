//! Motion on a device: positions, velocities and forces stay there, and a step is one captured graph.

mod pairs;
mod parts;
mod slot;

use super::{Simulation, State, Thermostat};
use crate::{
    data::atoms::{Cell, Frame, Labels, SkinList, Vector},
    models::Potential,
};
use gradewise_kernels::{CapturedGraph, CudaDevice, Device, Fusion};
use gradewise_nn::{Error, Placement, Result, train::Capture};
use pairs::Pairs;
use parts::{Constants, Status, StepArrays};
use rand::RngExt;
use rand_distr::StandardNormal;
use slot::{by_atom, by_axis};

/// The potential of a [`DeviceSimulation`], and how it finds neighbours.
pub struct Interaction<'a> {
    /// The mean of their energies is the potential; their parameters are at `placement`.
    pub models: &'a [Potential],
    /// Device and dtype of the models.
    pub placement: Placement,
    /// Neighbours up to the greatest cutoff of the models. A motion that goes on had [searched](SkinList::search) at the same positions as
    /// before.
    pub neighbours: SkinList,
    /// [Room for pairs](DeviceSimulation::room) of a motion that goes on; 0 for as much as the first search needs.
    pub room: usize,
}

/// Atoms in motion under [`Potential`]s on a device.
///
/// The steps are those of [`Simulation`] (velocity Verlet, or BAOAB with a thermostat), with positions, velocities and forces in f64 on the
/// device, whatever the dtype of the potential. On a CUDA device the first step is computed operator by operator and then recorded as a
/// CUDA graph, which every further step replays: one launch, and one read of sixteen numbers. The graph also seeks neighbours, where an
/// atom has moved by half the skin. Lists of pairs are filled up by pairs beyond the cutoff, which have no effect, to a
/// [room](Self::room): graphs have fixed sizes. Where there are more pairs, the host makes a larger list, and the step is recorded again.
///
/// On the CPU the same operators run one by one; [`Simulation::step`] is faster there.
pub struct DeviceSimulation<'a> {
    /// The settings; its state is that of the start.
    motion: Simulation,
    interaction: Interaction<'a>,
    /// Species and cell.
    system: Frame,
    constants: Constants,
    arrays: StepArrays,
    pairs: Pairs,
    /// Searches ahead of those that the present list counts.
    earlier: usize,
    /// A whole step.
    graph: Option<CapturedGraph>,
    capture: Capture,
    step: u64,
    status: Option<Status>,
}

impl<'a> DeviceSimulation<'a> {
    /// Takes a motion to the device: `numbers` are the atomic numbers of its atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of atoms, or for species that were not in the training frames; as [`SkinList::search`]; from
    /// the device.
    pub fn new(
        motion: Simulation,
        numbers: &[u8],
        cell: Option<Cell>,
        mut interaction: Interaction<'a>,
    ) -> Result<Self> {
        let state = motion.state();
        if numbers.len() != state.positions.len() {
            return Err(super::refused(
                "numbers",
                format!("{} atomic numbers of {} atoms", numbers.len(), state.positions.len()),
                "one for each atom",
            ));
        }
        interaction.models.iter().try_for_each(|model| model.require_species(numbers))?;
        let system = Frame { numbers: numbers.to_vec(), cell, ..Frame::default() };
        if interaction.neighbours.searched_at().len() != numbers.len() {
            interaction.neighbours.search(&state.positions, cell.as_ref())?;
        }
        let device = &interaction.placement.device;
        let constants = Constants::new(&motion, &interaction.models_reference(numbers)?, device)?;
        let arrays = StepArrays::new(state, device)?;
        let pairs = Pairs::new(&system, &interaction.neighbours, &interaction.placement, interaction.room)?;
        // The list begins with the last of these.
        let earlier = interaction.neighbours.searches().saturating_sub(1);
        let step = state.step;
        Ok(Self {
            motion,
            interaction,
            system,
            constants,
            arrays,
            pairs,
            earlier,
            graph: None,
            capture: Capture::default(),
            step,
            status: None,
        })
    }

    /// Whether steps are recorded as CUDA graphs; [`Capture::WhenPossible`] by default. Does nothing on the CPU.
    #[must_use]
    pub fn capture(mut self, capture: Capture) -> Self {
        self.capture = capture;
        self
    }

    /// Takes a step.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for energies or forces that are not finite; as [`SkinList::search`]; from the device. The state is then that
    /// before the step. With [`Capture::Required`], steps that cannot be captured.
    pub fn step(&mut self) -> Result<()> {
        self.draw_noise()?;
        match &self.graph {
            Some(graph) => graph.replay()?,
            None => {
                self.arrays.move_atoms(&self.constants, &mut self.pairs)?;
                self.evaluate()?;
            }
        }
        let mut status = self.arrays.status()?;
        if status.needs_host() {
            if let Err(error) = self.make_room() {
                self.arrays.rewind()?;
                return Err(error);
            }
            self.evaluate()?;
            status = self.arrays.status()?;
        }
        if !status.is_finite() {
            let found = self.arrays.state(self.step + 1, status.energy)?.require_finite();
            self.arrays.rewind()?;
            return found.and(Err(Error::NotFinite {
                operation: super::OPERATION,
                argument: "squared forces".to_owned(),
                index: Vec::new(),
                value: status.squared_forces,
            }));
        }
        self.step += 1;
        self.status = Some(status);
        match &self.interaction.placement.device {
            Device::Cuda(cuda) if self.graph.is_none() && self.capture != Capture::Off => {
                self.record(&cuda.clone())
            }
            _ => Ok(()),
        }
    }

    /// The motion as it is now, on the host.
    ///
    /// # Errors
    /// From the device.
    pub fn simulation(&self) -> Result<Simulation> {
        let before = self.motion.state().potential;
        let state =
            self.arrays.state(self.step, self.status.as_ref().map_or(before, |status| status.energy))?;
        Ok(Simulation { state, masses: self.motion.masses.clone(), dynamics: self.motion.dynamics })
    }

    /// Energy, forces and, of a system that repeats in three directions, the stress after the last step; `None` before the first.
    ///
    /// # Errors
    /// From the device.
    pub fn labels(&self) -> Result<Option<Labels>> {
        let Some(status) = &self.status else { return Ok(None) };
        let State { forces, .. } = self.arrays.state(self.step, status.energy)?;
        let of = |volume: f64| {
            let entry =
                |a: usize, b: usize| (status.virial[3 * a + b] + status.virial[3 * b + a]) / 2.0 / volume;
            std::array::from_fn(|a| std::array::from_fn(|b| entry(a, b)))
        };
        let stress: Option<[Vector; 3]> =
            self.system.cell.filter(|_| self.system.repeats_in_space()).map(|cell| of(cell.volume()));
        Ok(Some(Labels { energy: status.energy, forces, stress }))
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Where neighbours were sought last, in Å.
    ///
    /// # Errors
    /// From the device.
    pub fn searched_at(&self) -> Result<Vec<Vector>> {
        Ok(by_atom(&self.pairs.list().searched_at().to_f64_vec()?))
    }

    /// How often neighbours were sought.
    pub fn searches(&self) -> usize {
        self.earlier + self.status.as_ref().map_or(1, |status| status.search.searches)
    }

    /// Pairs for which there is room. A motion that goes on with as much has the bits of one that never stopped.
    pub fn room(&self) -> usize {
        self.pairs.list().room()
    }

    /// Kernels, copies and fills of a captured step; `None` before one is captured.
    ///
    /// # Errors
    /// From the device.
    pub fn node_count(&self) -> Result<Option<usize>> {
        Ok(self.graph.as_ref().map(CapturedGraph::node_count).transpose()?)
    }

    fn evaluate(&mut self) -> Result<()> {
        let Interaction { models, placement, .. } = &self.interaction;
        self.arrays.evaluate(&self.constants, &self.pairs, models, placement.dtype)
    }

    /// The noise of the next step, from random numbers of the seed and the step alone.
    fn draw_noise(&mut self) -> Result<()> {
        let Thermostat::Langevin { .. } = self.motion.dynamics.thermostat else { return Ok(()) };
        let mut random = self.motion.random(self.step + 1);
        let draw = |deviation: &f64| [(); 3].map(|()| deviation * random.sample::<f64, _>(StandardNormal));
        let noise: Vec<Vector> = self.constants.noise.iter().map(draw).collect();
        self.arrays.noise.set(&by_axis(&noise)?)
    }

    /// Seeks neighbours at the present positions by the host, which says what is wrong with them, or makes a list with more room.
    fn make_room(&mut self) -> Result<()> {
        let positions = by_atom(&self.arrays.positions.array().to_f64_vec()?);
        let searches = self.searches();
        let Interaction { neighbours, placement, .. } = &mut self.interaction;
        neighbours.search(&positions, self.system.cell.as_ref())?;
        self.pairs = Pairs::new(&self.system, neighbours, placement, self.pairs.list().room())?;
        self.earlier = searches;
        // It reads the list of before.
        self.graph = None;
        Ok(())
    }

    fn record(&mut self, cuda: &CudaDevice) -> Result<()> {
        let Self { arrays, constants, pairs, interaction, .. } = self;
        let dtype = interaction.placement.dtype;
        let recorded = captured(cuda, || {
            arrays.move_atoms(constants, pairs)?;
            arrays.evaluate(constants, pairs, interaction.models, dtype)
        });
        match recorded {
            Ok(graph) => self.graph = Some(graph),
            Err(error) if self.capture == Capture::WhenPossible => {
                tracing::warn!("steps of the motion are not captured, and take longer: {error}");
                self.capture = Capture::Off;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Interaction<'_> {
    /// The sum of the reference energies of atoms in each model, in eV.
    fn models_reference(&self, numbers: &[u8]) -> Result<Vec<f64>> {
        let frame = Frame { numbers: numbers.to_vec(), ..Frame::default() };
        self.models.iter().map(|model| model.reference_energy(&frame)).collect()
    }
}

/// Records work, which has run before.
fn captured(cuda: &CudaDevice, mut work: impl FnMut() -> Result<()>) -> Result<CapturedGraph> {
    // The capture can only return the kernels' error type, so this crate's error is passed in a variable.
    let mut done = Ok(());
    let captured = cuda.capture_with(Fusion::On, || {
        done = work();
        Ok(())
    });
    // Discards the capture error: that of `work` is the root cause.
    done?;
    Ok(captured?.1)
}
