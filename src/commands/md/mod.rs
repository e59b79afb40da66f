//! `md`: molecular dynamics with a trained potential.

mod folder;
mod motion;
mod summary;

use crate::calculator::Calculator;
use clap::{Args, ValueEnum};
use folder::{MotionFolder, Saved};
use gradewise_runner::{
    Command, Program,
    error::{Error, Result},
    options::RuntimeOptions,
    output,
    run::{self, Interrupt, Progress},
};
use gradewise_zoo::{
    data::atoms::{Frame, Units, read},
    dynamics::{Dynamics, Simulation, Thermostat},
};
use motion::Motion;
use std::{path::PathBuf, time::Instant};
use summary::{Summary, figures};

/// What keeps the temperature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Constant energy: velocity Verlet.
    Nve,
    /// Friction and noise: BAOAB.
    Langevin,
}

/// Move atoms by a trained potential.
///
/// Starts from the last frame of a file with velocities of a temperature, and writes into a folder: trajectory.xyz (extended XYZ with energies
/// and forces), energies.jsonl, energies.svg, temperature.svg and state.json. Ctrl-C and SIGTERM save the state; --resume goes on from it with
/// the bits that an uninterrupted motion has. Prints the drift of the conserved energy (of Langevin dynamics less the heat that flowed in).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise md --checkpoint runs/potential-1/checkpoint.safetensors --input ethanol.xyz --steps 20000 --dtype f64
  gradewise md --checkpoint c.safetensors --input water.xyz --steps 100000 --dt 0.5 --thermostat langevin --temperature 300 --friction 5
  gradewise md --resume runs/md-1 --steps 200000")]
#[command(display_order = 1)] // In help, beside `eval`.
pub struct Md {
    /// The checkpoint; several times for the mean force of all.
    #[arg(long, value_name = "FILE", required_unless_present = "resume", conflicts_with = "resume")]
    pub checkpoint: Vec<PathBuf>,
    /// Frames, of which the last is the start (.xyz, .extxyz, .npz; Å).
    #[arg(long, value_name = "FILE", required_unless_present = "resume", conflicts_with = "resume")]
    pub input: Option<PathBuf>,
    /// Steps of the whole motion, with those before --resume.
    #[arg(long, value_name = "N")]
    pub steps: u64,
    /// Length of a step, in fs [default: 0.5]
    #[arg(long, value_name = "FS", conflicts_with = "resume", allow_negative_numbers = true)]
    pub dt: Option<f64>,
    /// What keeps the temperature [default: nve]
    #[arg(long, value_enum, conflicts_with = "resume")]
    pub thermostat: Option<Kind>,
    /// Temperature of the first velocities and of the thermostat, in K [default: 300]
    #[arg(long, value_name = "K", conflicts_with = "resume", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Friction of langevin, in 1/ps [default: 1]
    #[arg(long, value_name = "PER_PS", conflicts_with = "resume", allow_negative_numbers = true)]
    pub friction: Option<f64>,
    /// Seed of velocities and noise [default: 0]
    #[arg(long, conflicts_with = "resume")]
    pub seed: Option<u64>,
    /// Steps between frames and between records of energies [default: 10]
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    pub every: Option<u64>,
    /// How much farther than the cutoff neighbours are kept, in Å, so that most steps need no search [default: 0.5]
    #[arg(long, value_name = "A", conflicts_with = "resume", allow_negative_numbers = true)]
    pub skin: Option<f64>,
    /// Steps between saved states.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub save_every: u64,
    /// Folder of the files [default: runs/md-<number>]
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub out: Option<PathBuf>,
    /// Go on with the motion in a folder.
    #[arg(long, value_name = "FOLDER")]
    pub resume: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub runtime: RuntimeOptions,
}

impl Command for Md {
    const NAME: &'static str = "md";

    fn run(&self, _: &Program) -> Result<()> {
        if self.save_every == 0 || self.every == Some(0) {
            return Err(Error::Usage("--every and --save-every: write at least 1".to_owned()));
        }
        match &self.resume {
            Some(path) => {
                let (folder, saved) = MotionFolder::resume(path)?;
                self.go_on(folder, saved)
            }
            None => self.begin(),
        }
    }
}

impl Md {
    fn dynamics(&self, temperature: f64) -> Result<Dynamics> {
        let friction = self.friction.unwrap_or(1.0);
        let thermostat = match self.thermostat.unwrap_or(Kind::Nve) {
            Kind::Nve if self.friction.is_some() => {
                return Err(Error::Usage(
                    "--friction is of --thermostat langevin, and the motion has none".to_owned(),
                ));
            }
            Kind::Nve => Thermostat::Nve,
            Kind::Langevin => Thermostat::Langevin { temperature, friction },
        };
        let dynamics = Dynamics { dt: self.dt.unwrap_or(0.5), thermostat, seed: self.seed.unwrap_or(0) };
        dynamics.validate()?;
        Ok(dynamics)
    }

    fn begin(&self) -> Result<()> {
        let temperature = self.temperature.unwrap_or(300.0);
        let dynamics = self.dynamics(temperature)?;
        let runtime = self.runtime.alone()?;
        let input = self.input.as_ref().ok_or_else(|| Error::Usage("--input is missing".to_owned()))?;
        let frame = read(input, &Units::EV_ANGSTROM)?
            .pop()
            .ok_or_else(|| Error::Usage(format!("--input {}: there are no frames", input.display())))?;
        let skin = self.skin.unwrap_or(0.5);
        run::once(&runtime, |placement| {
            let calculator = Calculator::open(&self.checkpoint, &placement.device, placement.dtype)?;
            let mut calculator = calculator.with_skin(skin)?;
            let (labels, _) = calculator.evaluate(&frame.numbers, &frame.positions, frame.cell)?;
            let positions = frame.positions.clone();
            let simulation =
                Simulation::start(dynamics, &frame.numbers, positions, labels.clone(), temperature)?;
            let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let saved = Saved {
                checkpoints: self.checkpoint.iter().map(absolute).collect(),
                dtype: placement.dtype.name().to_owned(),
                numbers: frame.numbers.clone(),
                cell: frame.cell.map(|cell| (cell.vectors, cell.periodic)),
                dynamics,
                every: self.every.unwrap_or(10),
                skin,
                searched: calculator.neighbours().searched_at().to_vec(),
                room: 0,
                state: simulation.state().clone(),
                written: [0; 2],
            };
            // After everything that can be refused.
            let mut folder = MotionFolder::create(self.out.as_deref())?;
            output::note(&format!("folder: {}", folder.path().display()));
            let start = frame.labelled(labels);
            folder.add(&start, &simulation.record())?;
            folder.save(saved.clone())?;
            self.advance(folder, saved, simulation, calculator)
        })
    }

    fn go_on(&self, folder: MotionFolder, saved: Saved) -> Result<()> {
        let mut runtime = self.runtime.alone()?;
        runtime.dtype = saved.dtype()?;
        run::once(&runtime, |placement| {
            let calculator = Calculator::open(&saved.checkpoints, &placement.device, placement.dtype)?;
            let mut calculator = calculator.with_skin(saved.skin)?;
            // The list of neighbours as it was, so that sums have their order.
            calculator.evaluate(&saved.numbers, &saved.searched, saved.cell())?;
            let simulation = Simulation::resume(saved.dynamics, &saved.numbers, saved.state.clone())?;
            self.advance(folder, saved, simulation, calculator)
        })
    }

    fn advance(
        &self,
        mut folder: MotionFolder,
        mut saved: Saved,
        simulation: Simulation,
        mut calculator: Calculator,
    ) -> Result<()> {
        let interrupt = Interrupt::listen();
        let (numbers, cell) = (saved.numbers.clone(), saved.cell());
        let mut motion = Motion::new(simulation, &numbers, cell, &mut calculator, saved.room)?;
        let first = motion.steps();
        let progress = Progress::new(self.steps, first);
        let started = Instant::now();
        let mut ended = Ok(());
        let mut about = String::new();
        while motion.steps() < self.steps && !interrupt.requested() {
            if let Err(error) = motion.step() {
                ended = Err(error);
                break;
            }
            let step = motion.steps();
            if step.is_multiple_of(saved.every) {
                let simulation = motion.simulation()?;
                let (record, positions) = (simulation.record(), simulation.state().positions.clone());
                let frame = Frame { numbers: numbers.clone(), positions, cell, ..Frame::default() };
                folder
                    .add(&motion.labels()?.map_or(frame.clone(), |labels| frame.labelled(labels)), &record)?;
                about = format!("{:.0} K, {:+.6} eV", record.temperature, record.conserved);
            }
            if step.is_multiple_of(self.save_every) {
                save(&mut folder, &mut saved, &motion)?;
            }
            progress.step(|| about.clone());
        }
        drop(progress);
        save(&mut folder, &mut saved, &motion)?;
        let done = motion.steps();
        let records = folder.records()?;
        figures(folder.path(), &records)?;
        let path = folder.path().display();
        if let Err(source) = ended {
            let next = format!(
                "step {} failed; {path} keeps the motion up to step {done}; is the step too long, or the start far from the training frames?",
                done + 1
            );
            return Err(Error::Stopped { source: Box::new(source.into()), next });
        }
        let summary = Summary::of(&records, saved.numbers.len(), motion.simulation()?.record());
        let step_ms = 1e3 * started.elapsed().as_secs_f64() / (done - first).max(1) as f64;
        let searches = motion.searches();
        output::print(&match self.json {
            true => summary.json(searches, step_ms),
            false => summary.text(searches, step_ms),
        })?;
        if done < self.steps {
            return Err(Error::Interrupted(format!(
                "stopped after step {done}; go on by gradewise md --resume {path} --steps {}",
                self.steps
            )));
        }
        Ok(())
    }
}

fn save(folder: &mut MotionFolder, saved: &mut Saved, motion: &Motion<'_>) -> Result<()> {
    saved.searched = motion.searched_at()?;
    saved.room = motion.room();
    saved.state = motion.simulation()?.state().clone();
    folder.save(saved.clone())
}
