//! The two parts of a step on a device, and what they read and write.

use super::{
    super::{ACCELERATION, BOLTZMANN, Dynamics, Simulation, State, Thermostat},
    pairs::Pairs,
    slot::{Slot, by_atom, by_axis},
};
use crate::{
    data::atoms::{COINCIDENT, Vector},
    models::Potential,
};
use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::{Array, DType, Device, ops::neighbours::SearchReport};
use gradewise_nn::Result;

/// Numbers of the report on neighbours, with which a status begins.
const SEARCH: usize = SearchReport::NUMBERS;

/// What does not change during a motion.
pub struct Constants {
    /// `[1, atoms, 1]`: what a force of 1 eV/Å adds to a velocity in half a step, in Å/fs.
    kick: Tensor,
    /// `[1, atoms, 1]`: the kinetic energy for the square of a velocity, in eV/(Å/fs)².
    inertia: Tensor,
    /// In fs.
    dt: f64,
    /// The share of a velocity that friction leaves in a step; `None` without a thermostat.
    kept: Option<f64>,
    /// The standard deviation of the noise of each atom, in Å/fs.
    pub noise: Vec<f64>,
    /// The mean over the models of the sum of the reference energies, in eV.
    reference: f64,
}

impl Constants {
    pub fn new(motion: &Simulation, references: &[f64], device: &Device) -> Result<Self> {
        let Dynamics { dt, thermostat, .. } = motion.dynamics;
        let of_atoms = |of: &dyn Fn(&f64) -> f64| -> Result<Tensor> {
            let values: Vec<f64> = motion.masses.iter().map(of).collect();
            Ok(Tensor::new(Array::from_f64(&values, [1, values.len(), 1], DType::F64, device)?))
        };
        let (kept, noise) = match thermostat {
            Thermostat::Nve => (None, Vec::new()),
            Thermostat::Langevin { temperature, friction } => {
                // The friction is in 1/ps, the step in fs.
                let kept = (-1e-3 * friction * dt).exp();
                let of =
                    |mass: &f64| (BOLTZMANN * temperature * ACCELERATION / mass * (1.0 - kept * kept)).sqrt();
                (Some(kept), motion.masses.iter().map(of).collect())
            }
        };
        Ok(Self {
            kick: of_atoms(&|mass| 0.5 * dt * ACCELERATION / mass)?,
            inertia: of_atoms(&|mass| 0.5 * mass / ACCELERATION)?,
            dt,
            kept,
            noise,
            reference: references.iter().sum::<f64>() / references.len().max(1) as f64,
        })
    }

    fn kinetic(&self, velocities: &Tensor) -> Result<Tensor> {
        Ok(velocities.square()?.mul(&self.inertia)?.sum_all()?.reshape([1])?)
    }
}

/// The state on the device, in f64. All vectors are `[3, atoms, 1]`.
pub struct StepArrays {
    pub positions: Slot,
    velocities: Slot,
    forces: Slot,
    heat: Slot,
    /// Positions, velocities, forces and heat before the step.
    before: [Slot; 4],
    /// Velocities between the two kicks of a step.
    half: Slot,
    /// What the thermostat adds to the velocities.
    pub noise: Slot,
    status: Slot,
}

/// What the host looks at after each step.
pub struct Status {
    /// What came of the last search for neighbours, in Å².
    pub search: SearchReport,
    /// In eV.
    pub energy: f64,
    /// Their sum, in eV²/Å²: not finite if any of them is.
    pub squared_forces: f64,
    /// The derivative of the energy by the strain, row by row, in eV; not symmetrised.
    pub virial: [f64; 9],
}

impl Status {
    /// Whether the host has to look after the neighbours: there are too many of them, atoms coincide, or a position is not finite.
    pub fn needs_host(&self) -> bool {
        self.search.fault.is_some() || self.search.closest < COINCIDENT * COINCIDENT
    }

    pub fn is_finite(&self) -> bool {
        self.energy.is_finite() && self.squared_forces.is_finite()
    }
}

impl StepArrays {
    pub fn new(state: &State, device: &Device) -> Result<Self> {
        let slot = |vectors: &[Vector]| Slot::new(&by_axis(vectors)?, device);
        let number = |value: f64| Slot::new(&Array::from_slice(&[value], [1], &Device::Cpu)?, device);
        let [x, v, f] = [&state.positions, &state.velocities, &state.forces];
        Ok(Self {
            positions: slot(x)?,
            velocities: slot(v)?,
            forces: slot(f)?,
            heat: number(state.heat)?,
            before: [slot(x)?, slot(v)?, slot(f)?, number(state.heat)?],
            half: slot(v)?,
            noise: slot(&vec![[0.0; 3]; x.len()])?,
            status: Slot::new(&Array::zeros([SEARCH + 11], DType::F64, &Device::Cpu)?, device)?,
        })
    }

    /// The first part of a step: half a kick by the forces, the way of a step with what the thermostat does in its middle, and a search for
    /// neighbours if one is due.
    pub fn move_atoms(&mut self, constants: &Constants, pairs: &mut Pairs) -> Result<()> {
        let Constants { dt, kept, .. } = *constants;
        let (x, v) = (self.positions.0.clone(), self.velocities.0.clone());
        let now = [&self.positions, &self.velocities, &self.forces, &self.heat];
        for (before, now) in self.before.iter_mut().zip(now) {
            before.set(now.array())?;
        }
        let mut v = v.add(&self.forces.0.mul(&constants.kick)?)?;
        let x = match kept {
            None => x.add(&v.mul_scalar(dt)?)?,
            Some(kept) => {
                let x = x.add(&v.mul_scalar(0.5 * dt)?)?;
                let kinetic = constants.kinetic(&v)?;
                v = v.mul_scalar(kept)?.add(&self.noise.0)?;
                let heat = self.heat.0.add(&constants.kinetic(&v)?.sub(&kinetic)?)?;
                self.heat.set(heat.array())?;
                x.add(&v.mul_scalar(0.5 * dt)?)?
            }
        };
        self.half.set(v.array())?;
        self.positions.set(x.array())?;
        pairs.follow(&self.positions.0)
    }

    /// The second part: energy and forces, the mean over the models, at the positions, and half a kick by them. `dtype` is that of the models.
    pub fn evaluate(
        &mut self,
        constants: &Constants,
        pairs: &Pairs,
        models: &[Potential],
        dtype: DType,
    ) -> Result<()> {
        let vectors = pairs.vectors(&self.positions.0)?.cast(dtype)?;
        let mut sums: Option<[Tensor; 3]> = None;
        for model in models {
            let of = model.outputs(&vectors, pairs.batch(), false)?;
            let whole = |tensor: &Tensor| tensor.detach().cast(DType::F64);
            let [d, e, f] = [whole(&of.energy)?, whole(&of.forces)?, whole(&of.virial)?];
            sums = Some(match sums {
                None => [d, e, f],
                Some([a, b, c]) => [a.add(&d)?, b.add(&e)?, c.add(&f)?],
            });
        }
        let Some(sums) = sums else { return Ok(()) };
        let [energy, forces, virial] = match (models.len(), sums) {
            (1, own) => own,
            (count, [a, b, c]) => {
                let share = 1.0 / count as f64;
                [a.mul_scalar(share)?, b.mul_scalar(share)?, c.mul_scalar(share)?]
            }
        };
        let energy = energy.add_scalar(constants.reference)?.reshape([1])?;
        let squared = forces.square()?.sum_all()?.reshape([1])?;
        let search = Tensor::new(pairs.list().numbers().clone());
        let status = concat(&[&search, &energy, &squared, &virial.reshape([9])?], 0)?;
        let v = self.half.0.add(&forces.mul(&constants.kick)?)?;
        self.velocities.set(v.array())?;
        self.forces.set(forces.array())?;
        self.status.set(status.array())
    }

    /// Waits for the step.
    pub fn status(&self) -> Result<Status> {
        let all = self.status.array().to_f64_vec()?;
        let of = |k: usize| all.get(k).copied().unwrap_or(f64::NAN);
        let virial = std::array::from_fn(|k| of(SEARCH + 2 + k));
        let search = SearchReport::of(&all);
        Ok(Status { search, energy: of(SEARCH), squared_forces: of(SEARCH + 1), virial })
    }

    /// The state of before the last [`move_atoms`](Self::move_atoms).
    pub fn rewind(&mut self) -> Result<()> {
        let now = [&mut self.positions, &mut self.velocities, &mut self.forces, &mut self.heat];
        now.into_iter().zip(&self.before).try_for_each(|(now, before)| now.set(before.array()))
    }

    /// The state on the host.
    pub fn state(&self, step: u64, potential: f64) -> Result<State> {
        let read = |slot: &Slot| -> Result<Vec<Vector>> { Ok(by_atom(&slot.array().to_f64_vec()?)) };
        Ok(State {
            step,
            positions: read(&self.positions)?,
            velocities: read(&self.velocities)?,
            forces: read(&self.forces)?,
            potential,
            heat: self.heat.array().item()?,
        })
    }
}
