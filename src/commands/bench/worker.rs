//! The work of each process of `bench scaling`.

use super::arguments::Scaling;
use gradewise_core::{DType, Signature};
use gradewise_distributed::Launch;
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Module, Placement,
    layers::{CliffordLayer, Layer, Sequential},
    optim::{Method, Schedule},
    train::{self, Batch, Capture, Part, Trainer, TrainerConfig},
};
use gradewise_runner::{
    Result, output,
    run::{self, Team},
};
use gradewise_zoo::{
    models::{NBody, NBodyBatch, NBodyConfig},
    train::nbody::Example,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::{path::Path, time::Instant};

/// Warm-up steps before the timed ones: the first runs eagerly, the second is captured.
const WARM_UP: usize = 5;

/// The measurements of rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub world: usize,
    pub communicator: String,
    pub steps: Vec<Step>,
    pub sums: Vec<Sum>,
}

/// The step time of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    pub model: String,
    pub parameters: usize,
    /// `weak`: a fixed number of samples per process; `strong`: a fixed total.
    pub mode: String,
    /// Samples of each process.
    pub local_batch: usize,
    /// The median time of a step.
    pub milliseconds: f64,
    /// The peak memory of the process's device.
    pub peak_bytes: usize,
}

/// A sum over all processes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sum {
    pub bytes: usize,
    pub microseconds: f64,
    /// 2(N − 1)/N of the bytes, the minimum that each device sends and receives, over the time; comparable with the bandwidth of the link.
    pub bus_bytes_per_second: f64,
}

/// Model sizes that fill a device of this kind.
struct Sizes {
    stack: (usize, usize, usize),
    nbody: (usize, usize, usize),
    largest_sum: usize,
}

impl Sizes {
    fn of(device: &Device, quick: bool) -> Self {
        match device {
            _ if quick => Self { stack: (2, 8, 12), nbody: (1, 4, 4), largest_sum: 1 << 16 },
            Device::Cpu => Self { stack: (4, 32, 256), nbody: (2, 16, 32), largest_sum: 1 << 24 },
            Device::Cuda(_) => Self { stack: (8, 512, 4096), nbody: (4, 96, 1024), largest_sum: 1 << 30 },
        }
    }
}

pub fn run(arguments: &Scaling, path: &Path) -> Result<()> {
    let launch = Launch::from_env()?;
    let placement = run::placement_of(&arguments.place.runtime(), launch.as_ref())?;
    let team = Team::join(launch.as_ref(), &placement.device)?;
    let measured = measure(arguments, &placement, &team);
    let measured = team.leave(measured)?;
    if launch.is_none_or(|launch| launch.rank == 0) {
        output::write_json(path, &measured)?;
    }
    Ok(())
}

fn measure(arguments: &Scaling, placement: &Placement, team: &Team) -> Result<Measured> {
    let sizes = Sizes::of(&placement.device, arguments.quick);
    let mut steps = Vec::new();
    for mode in ["weak", "strong"] {
        if mode == "strong" && team.world() == 1 {
            continue;
        }
        let local = |whole: usize| if mode == "strong" { (whole / team.world()).max(1) } else { whole };
        let (layers, features, samples) = sizes.stack;
        let samples = local(samples);
        let stack = || Stack::new(layers, features, placement);
        let input = Input::new(samples, features, placement)?;
        steps.push(time(
            arguments,
            placement,
            team,
            (mode, samples),
            "layer stack",
            stack,
            &input,
            |model, input| Ok(model.0.forward(&input.0)?.square()?.mean_all()?),
        )?);
        let (layers, hidden, systems) = sizes.nbody;
        let systems = local(systems);
        let config = NBodyConfig { hidden, layers, ..NBodyConfig::default() };
        let nbody = || NBody::init(&config, placement, &mut ChaCha8Rng::seed_from_u64(1));
        let example = systems_of(systems, placement)?;
        steps.push(time(
            arguments,
            placement,
            team,
            (mode, systems),
            "n-body",
            nbody,
            &example,
            |model, e: &Example| model.loss(&e.batch, &e.targets),
        )?);
    }
    let sums = sums(&sizes, placement, team)?;
    Ok(Measured { world: team.world(), communicator: team.communicator(), steps, sums })
}

#[expect(clippy::too_many_arguments, reason = "what varies between four calls in one place")]
fn time<M: Module, B: Batch + Clone + Send + 'static>(
    arguments: &Scaling,
    placement: &Placement,
    team: &Team,
    (mode, local_batch): (&str, usize),
    name: &str,
    model: impl FnOnce() -> gradewise_nn::Result<M>,
    batch: &B,
    loss: impl Fn(&M, &B) -> gradewise_nn::Result<gradewise_autograd::Tensor>,
) -> Result<Step> {
    let memory = run::Memory::start(&placement.device);
    let mut trainer = trainer(model()?)?;
    team.attach_with(&mut trainer, arguments.bucket_mib.map(|mib| mib << 20))?;
    let weight = 1.0 / team.world() as f64;
    let mut batches = std::iter::repeat_with(|| Ok(Part { batch: batch.clone(), weight }));
    let loss = |model: &M, part: &Part<B>| part.share(loss(model, &part.batch)?);
    let milliseconds = median(&mut trainer, &mut batches, loss, true, arguments.steps, || team.barrier())?;
    Ok(Step {
        model: name.to_owned(),
        parameters: trainer.model().parameter_count(),
        mode: mode.to_owned(),
        local_batch,
        milliseconds,
        peak_bytes: memory.usage()?.peak,
    })
}

/// A trainer whose steps are timed: Adam at a constant rate.
pub fn trainer<M: Module>(model: M) -> gradewise_nn::Result<Trainer<M>> {
    let schedule = Schedule::Constant { lr: 1e-4, warmup: 0 };
    let method = Method::adam(0.0);
    Trainer::new(model, TrainerConfig::new(method, schedule))
}

/// The median time in milliseconds of training steps, after warm-up steps and a call of `ready`. On a GPU, steps are replayed as a graph if
/// `captured`, else launched eagerly.
pub fn median<M: Module, B: Batch + Send + 'static>(
    trainer: &mut Trainer<M>,
    batches: &mut impl Iterator<Item = gradewise_nn::Result<B>>,
    loss: impl Fn(&M, &B) -> gradewise_nn::Result<gradewise_autograd::Tensor>,
    captured: bool,
    steps: u32,
    ready: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    trainer.set_capture(if captured { Capture::Required } else { Capture::Off });
    let mut step = || trainer.step(batches, &loss);
    for _ in 0..WARM_UP {
        step()?;
    }
    ready()?;
    let mut times = Vec::new();
    for _ in 0..steps {
        let start = Instant::now();
        step()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Times sums of arrays of increasing size.
fn sums(sizes: &Sizes, placement: &Placement, team: &Team) -> Result<Vec<Sum>> {
    const ROUNDS: usize = 10;
    let mut sums = Vec::new();
    let Some(communicator) = team.sums_by() else { return Ok(sums) };
    let mut bytes = 1 << 12;
    while bytes <= sizes.largest_sum {
        let elements = bytes / DType::F32.size();
        let mut values = Array::zeros([elements], DType::F32, &placement.device)?;
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            placement.device.synchronize()?;
            team.barrier()?;
            let start = Instant::now();
            for _ in 0..ROUNDS {
                values = communicator.all_reduce(values)?.wait()?;
            }
            placement.device.synchronize()?;
            best = best.min(start.elapsed().as_secs_f64() / ROUNDS as f64);
        }
        let share = 2.0 * (team.world() - 1) as f64 / team.world() as f64;
        let bus_bytes_per_second = share * bytes as f64 / best;
        sums.push(Sum { bytes, microseconds: best * 1e6, bus_bytes_per_second });
        bytes *= 8;
    }
    Ok(sums)
}

struct Stack(Sequential);

impl Stack {
    fn new(layers: usize, features: usize, placement: &Placement) -> gradewise_nn::Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut stack = Sequential::new();
        for _ in 0..layers {
            stack = stack.then(CliffordLayer::new(features, Signature::CL3).init(placement, &mut rng)?);
        }
        Ok(Self(stack))
    }
}

impl Module for Stack {
    fn visit(&self, visitor: &mut gradewise_nn::Visitor<'_>) {
        self.0.visit(visitor);
    }
}

#[derive(Clone)]
struct Input(gradewise_autograd::Tensor);

impl Input {
    fn new(samples: usize, features: usize, placement: &Placement) -> gradewise_nn::Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let shape = [Signature::CL3.blade_count(), samples, features];
        Ok(Self(gradewise_autograd::Tensor::randn(shape, placement.dtype, &placement.device, &mut rng)?))
    }
}

impl Batch for Input {
    fn to_device(&self, device: &Device) -> gradewise_nn::Result<Self> {
        Ok(Self(train::to_device(&self.0, device)?))
    }

    fn overwrite(&self, source: &Self) -> gradewise_nn::Result<bool> {
        train::overwrite(&[(&self.0, &source.0)])
    }
}

/// Random systems of five particles.
pub fn systems_of(systems: usize, placement: &Placement) -> gradewise_nn::Result<Example> {
    const PARTICLES: usize = 5;
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut random =
        |count: usize| -> Vec<f64> { (0..count * PARTICLES).map(|_| rng.random_range(-1.0..1.0)).collect() };
    let (positions, velocities, charges) = (random(3 * systems), random(3 * systems), random(systems));
    let batch = NBodyBatch::new((&positions, &velocities, &charges), PARTICLES, placement)?;
    let targets = batch.targets(&positions)?;
    Ok(Example { batch, targets })
}
