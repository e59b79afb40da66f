//! The motion of `md`, on the host or on a GPU.

use crate::calculator::{Calculator, Labels};
use gradewise_kernels::Device;
use gradewise_runner::error::{Error, Result};
use gradewise_zoo::{
    data::atoms::{Cell, Vector},
    dynamics::{DeviceSimulation, Interaction, Simulation},
};

/// Atoms in motion under the potential of a [`Calculator`].
pub enum Motion<'a> {
    /// Steps on the host, forces from the calculator.
    Host(Box<HostMotion<'a>>),
    /// Steps and forces on a GPU, captured.
    Device(Box<DeviceSimulation<'a>>),
}

/// What moves on the host.
pub struct HostMotion<'a> {
    simulation: Simulation,
    calculator: &'a mut Calculator,
    numbers: Vec<u8>,
    cell: Option<Cell>,
    /// Of the last step.
    labels: Option<Labels>,
}

impl<'a> Motion<'a> {
    /// Takes the motion to the device of the calculator, which has neighbours already. `room` is that of an earlier motion on a GPU, or 0.
    ///
    /// # Errors
    /// As [`DeviceSimulation::new`].
    pub fn new(
        simulation: Simulation,
        numbers: &[u8],
        cell: Option<Cell>,
        calculator: &'a mut Calculator,
        room: usize,
    ) -> Result<Self> {
        if calculator.placement().device == Device::Cpu {
            let numbers = numbers.to_vec();
            return Ok(Self::Host(Box::new(HostMotion {
                simulation,
                calculator,
                numbers,
                cell,
                labels: None,
            })));
        }
        let calculator: &'a Calculator = calculator;
        let interaction = Interaction {
            models: calculator.models(),
            placement: calculator.placement().clone(),
            neighbours: calculator.neighbours().clone(),
            room,
        };
        Ok(Self::Device(Box::new(DeviceSimulation::new(simulation, numbers, cell, interaction)?)))
    }

    /// Takes a step.
    ///
    /// # Errors
    /// As [`Simulation::step`] and [`DeviceSimulation::step`]. The state is then that before the step.
    pub fn step(&mut self) -> gradewise_nn::Result<()> {
        let host = match self {
            Self::Device(device) => return device.step(),
            Self::Host(host) => host.as_mut(),
        };
        let HostMotion { simulation, calculator, numbers, cell, labels } = host;
        simulation.step(|positions| {
            let found = evaluated(calculator, numbers, positions, *cell)?;
            *labels = Some(found.clone());
            Ok(found)
        })
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        match self {
            Self::Host(host) => host.simulation.state().step,
            Self::Device(device) => device.steps(),
        }
    }

    /// The motion as it is now, on the host.
    ///
    /// # Errors
    /// From the device.
    pub fn simulation(&self) -> Result<Simulation> {
        Ok(match self {
            Self::Host(host) => host.simulation.clone(),
            Self::Device(device) => device.simulation()?,
        })
    }

    /// Energy, forces and stress after the last step.
    ///
    /// # Errors
    /// From the device.
    pub fn labels(&self) -> Result<Option<Labels>> {
        Ok(match self {
            Self::Host(host) => host.labels.clone(),
            Self::Device(device) => device.labels()?,
        })
    }

    /// Where neighbours were sought last.
    ///
    /// # Errors
    /// From the device.
    pub fn searched_at(&self) -> Result<Vec<Vector>> {
        Ok(match self {
            Self::Host(host) => host.calculator.neighbours().searched_at().to_vec(),
            Self::Device(device) => device.searched_at()?,
        })
    }

    /// How often neighbours were sought.
    pub fn searches(&self) -> usize {
        match self {
            Self::Host(host) => host.calculator.neighbours().searches(),
            Self::Device(device) => device.searches(),
        }
    }

    /// Pairs for which there is room on a GPU; 0 on the host.
    pub fn room(&self) -> usize {
        match self {
            Self::Host(_) => 0,
            Self::Device(device) => device.room(),
        }
    }
}

/// Energies and forces, with errors of the kind that a simulation passes on.
fn evaluated(
    calculator: &mut Calculator,
    numbers: &[u8],
    positions: &[Vector],
    cell: Option<Cell>,
) -> gradewise_nn::Result<Labels> {
    match calculator.evaluate(numbers, positions, cell) {
        Ok((labels, _)) => Ok(labels),
        Err(Error::Nn(error)) => Err(*error),
        Err(other) => Err(gradewise_nn::Error::Argument {
            operation: "molecular dynamics",
            argument: "potential",
            actual: other.to_string(),
            expected: "a potential that can be evaluated".to_owned(),
        }),
    }
}
