//! The command line.

mod hardware;
mod memory;
mod numerics;
mod report;

pub use hardware::HardwareList;
pub use memory::Memory;
pub use numerics::{Compare, Stability, Symmetry};
pub use report::Report;

use crate::{
    commands::Drill,
    config::{Hardware, Resolver},
    error::Result,
    output,
};
use clap::{Args, Parser, Subcommand};
use std::{ffi::OsString, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  gradewise train nbody                          a run of a few minutes, data included
  gradewise train hulls --curve 256,1024,4096    another experiment, its error over the number of samples
  gradewise train nbody train.steps=60           any setting can be overridden
  gradewise train nbody --resume runs/nbody-1    go on where a run stopped
  gradewise eval --checkpoint runs/nbody-1/checkpoint.safetensors
  gradewise inspect runs/nbody-1/checkpoint.safetensors
  gradewise doctor                               what works on this machine's GPU
  gradewise train nbody --hardware auto          settings for this machine
  gradewise debug -- train nbody --device cuda   what goes wrong there, and where

Exit codes: 0 done, 1 failed, 2 bad usage or input.";

/// Clifford (geometric) algebra neural networks: training, checks and tools.
#[derive(Debug, Parser)]
#[command(name = "gradewise", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    /// Say more about what is being done.
    #[arg(short, long, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Train(Train),
    Eval(Eval),
    Infer(Infer),
    Gradcheck(Gradcheck),
    Verify(Verify),
    Inspect(Inspect),
    Export(Export),
    Doctor(Doctor),
    Kernels(Kernels),
    Hardware(HardwareList),
    Memory(Memory),
    Sample(Sample),
    Bisect(Bisect),
    ComparePrecision(ComparePrecision),
    Compare(Compare),
    Stability(Stability),
    Symmetry(Symmetry),
    Report(Report),
    Bench(Bench),
    Debug(Debug),
    Profile(Profile),
}

/// Where and how to compute.
#[derive(Clone, Debug, Args)]
pub struct RuntimeOptions {
    /// cpu, cuda or cuda:N. A device that is not there is an error, never replaced by another.
    #[arg(long)]
    device: Option<String>,
    /// Storage of numbers: f64, f32, bf16 or f16 (the CPU serves f64 and f32).
    #[arg(long)]
    dtype: Option<String>,
    /// Arithmetic of matrix products: exact or tf32.
    #[arg(long)]
    compute: Option<String>,
    /// Mixed precision: bf16 or f16, with weights in f32; or full, as --dtype says.
    #[arg(long)]
    precision: Option<String>,
    /// Debug mode: launches are waited for and named, memory is poisoned, results are checked (runtime.debug_cuda).
    #[arg(long)]
    debug_cuda: bool,
}

impl RuntimeOptions {
    /// Whether debug mode is asked for.
    pub fn debugs(&self) -> bool {
        self.debug_cuda
    }

    /// Lays the options given over a configuration.
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        for (key, value) in [
            ("device", &self.device),
            ("dtype", &self.dtype),
            ("compute", &self.compute),
            ("precision", &self.precision),
        ] {
            if let Some(value) = value {
                resolver.assignment(&format!("runtime.{key}={value}"))?;
            }
        }
        if self.debug_cuda {
            resolver.assignment("runtime.debug_cuda=true")?;
        }
        Ok(resolver)
    }
}

/// The layers of a configuration that come from the command line.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// A TOML file of settings, such as the config.toml of an earlier run.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Settings for a kind of machine, under all others: a name that `gradewise hardware` lists, or auto for this machine's.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    #[command(flatten)]
    runtime: RuntimeOptions,
    /// Seed of the weights and of the order of batches (train.seed); data.seed chooses the simulated systems.
    #[arg(long)]
    seed: Option<u64>,
    /// Settings that take precedence, such as train.batch_size=4.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl Settings {
    /// Whether debug mode is asked for by an option or an override.
    pub fn debugs(&self) -> bool {
        self.runtime.debugs() || self.overrides.iter().any(|setting| setting == "runtime.debug_cuda=true")
    }

    /// Lays the settings of the machine, the file, the options and the overrides over a configuration, in that order.
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        if let Some(name) = &self.hardware {
            let found = Hardware::find(name)?;
            found.hardware.apply(resolver)?;
            output::note(&format!(
                "hardware: {} ({}): {}",
                found.hardware.name,
                found.reason,
                found.hardware.summary()
            ));
        }
        if let Some(path) = &self.config {
            resolver.file(path)?;
        }
        self.runtime.apply(resolver)?;
        if let Some(seed) = self.seed {
            resolver.assignment(&format!("train.seed={seed}"))?;
        }
        for assignment in &self.overrides {
            resolver.assignment(assignment)?;
        }
        Ok(resolver)
    }
}

/// Train a model.
#[derive(Debug, Args)]
pub struct Train {
    #[command(subcommand)]
    pub task: TrainTask,
}

#[derive(Debug, Subcommand)]
pub enum TrainTask {
    /// Charged particles in space: predict positions from positions, velocities and charges.
    ///
    /// Simulates the data (or reads the published files), trains, and leaves a run folder: the resolved configuration,
    /// metrics.jsonl, checkpoint.safetensors, loss.svg and trajectories.svg. Ctrl-C leaves a checkpoint to resume from.
    #[command(after_help = "\
Examples:
  gradewise train nbody                                  a few minutes on two cores
  gradewise train nbody --preset paper --device cuda     the schedule of arXiv:2305.11141, best weights on the valid split
  gradewise train nbody train.steps=60 model.layers=1    smaller
  gradewise train nbody data.source=path/to/npy          the published data set
  gradewise train nbody --resume runs/nbody-1            go on where a run stopped
  gradewise train nbody --config runs/nbody-1/config.toml --seed 1
  gradewise train nbody --device cuda --seeds 4          four runs, mean and deviation of the test error
  gradewise train nbody --curve 300,1000,3000            test error over the number of training samples
  gradewise train nbody --device cuda --devices 2        two GPUs of this host (docs/scaling.md)
  torchrun --nproc-per-node 2 --no-python gradewise train nbody --device cuda")]
    Nbody(TrainRun),
    /// The signed volume of three vectors in space: a pseudoscalar of O(3).
    ///
    /// The first experiment of arXiv:2305.11141: fully connected geometric products in Cl(3,0).
    #[command(after_help = "\
Examples:
  gradewise train volumes
  gradewise train volumes --preset paper --device cuda
  gradewise train volumes --curve 1024,4096,16384,65536 --seeds 3
  gradewise train volumes data.source=path/to/npy        o3_train_input.npy and so on")]
    Volumes(TrainRun),
    /// The volume of the convex hull of 16 points in 5 dimensions: a scalar of O(5).
    ///
    /// The experiment of arXiv:2305.11141 in Cl(5,0), on exact volumes.
    #[command(after_help = "\
Examples:
  gradewise train hulls
  gradewise train hulls --preset paper --device cuda
  gradewise train hulls --curve 256,1024,4096,16384
  gradewise train hulls data.source=path/to/npy          hulls_train_input.npy and so on")]
    Hulls(TrainRun),
    /// An O(5)-invariant function of two vectors: sin|x| - |y|^3/2 + x.y/(|x||y|).
    ///
    /// The regression of arXiv:2104.09459 and arXiv:2305.11141 in Cl(5,0).
    #[command(after_help = "\
Examples:
  gradewise train o5
  gradewise train o5 --preset paper --device cuda
  gradewise train o5 --curve 100,1000,10000,50000 --seeds 3")]
    O5(TrainRun),
    /// Jets with three prongs against jets with one, in the space-time algebra Cl(1,3): invariant under boosts.
    ///
    /// Events come from a small generator of decay chains, which is no simulation of a collider: see docs/data.md. Measures are
    /// accuracy, AUC, and one over the background that passes at 50% and 30% signal efficiency.
    #[command(after_help = "\
Examples:
  gradewise train lorentz
  gradewise train lorentz --preset full --device cuda
  gradewise train lorentz data.source=path/to/npy        jets_train_momenta.npy and so on")]
    Lorentz(TrainRun),
    /// A force field: an energy learned from forces alone, whose dynamics conserves it.
    ///
    /// Charged particles bound by springs, a potential in closed form. The loss is on the slope of the energy, so its gradient takes second
    /// derivatives of the network. energy.svg shows the energies along the motion under the learned forces.
    #[command(after_help = "\
Examples:
  gradewise train forces
  gradewise train forces --preset full
  gradewise train forces data.particles=6 model.layers=1")]
    Forces(TrainRun),
    /// Text, byte after byte: a generative transformer.
    ///
    /// Bytes are the tokens, so any text will do. Leaves a run folder; `gradewise sample` writes text with its checkpoint.
    #[command(after_help = "\
Examples:
  gradewise train gpt                                    a few minutes on two cores
  gradewise train gpt --text book.txt
  gradewise train gpt --text book.txt --preset small --device cuda --dtype bf16
  gradewise train gpt model.dropout=0.1 train.capture=false    a captured step cannot draw new masks
  gradewise sample --checkpoint runs/gpt-1/checkpoint.safetensors")]
    Gpt(TrainGpt),
}

/// A text for [`TrainTask::Gpt`].
#[derive(Debug, Args)]
pub struct TrainGpt {
    /// The text [default: one about geometric algebra that comes with the program]
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    #[command(flatten)]
    run: TrainRun,
}

impl TrainGpt {
    /// The run, with the text among its settings; what is set by `data.text` takes precedence.
    pub fn run(&self) -> TrainRun {
        let mut run = self.run.clone();
        if let Some(text) = &self.text {
            run.settings.overrides.insert(0, format!("data.text={}", text.display()));
        }
        run
    }
}

/// How a model is trained.
#[derive(Clone, Debug, Args)]
pub struct TrainRun {
    /// Folder of the run [default: runs/TASK-N with the first free N]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with the run in this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    pub resume: Option<PathBuf>,
    /// Settings under a name: quick (the default), or paper, the schedule of the publication; full where there is none.
    #[arg(long, value_name = "NAME", conflicts_with = "resume")]
    pub preset: Option<String>,
    /// Several runs, one after another, into folders seed-N of the run folder: a list such as 0,1,2, or a number of seeds
    /// from train.seed on. summary.json has each test error, mean and standard deviation.
    #[arg(long, value_name = "LIST|COUNT", conflicts_with = "resume")]
    pub seeds: Option<String>,
    /// A learning curve: runs with these numbers of training samples, into folders train-N/seed-S of the run folder.
    /// curve.json, curve.svg and a table have the test errors.
    #[arg(long, value_name = "LIST", conflicts_with = "resume")]
    pub curve: Option<String>,
    /// Several processes on this host, one for each device: a number, or auto for all GPUs. Batches are divided among them, so
    /// results are those of one device to rounding. What ranks other than 0 say is in logs/ of the run folder. (runtime.devices)
    #[arg(long, value_name = "N|auto", conflicts_with_all = ["seeds", "curve"])]
    devices: Option<String>,
    /// How few GPUs will do if there are not as many as --devices.
    #[arg(long, value_name = "N")]
    min_devices: Option<usize>,
    /// What will do if there are fewer GPUs still: cpu, in one process.
    #[arg(long, value_name = "cpu")]
    fallback: Option<String>,
    /// Divide batches into as many parts as the free memory needs; a step stays on the same samples. (runtime.fit_memory)
    #[arg(long)]
    fit_memory: bool,
    #[command(flatten)]
    settings: Settings,
}

impl TrainRun {
    /// Lays all that was said over a configuration; what is set by `key=value` takes precedence.
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        let minimum = self.min_devices.map(|count| count.to_string());
        let fit = self.fit_memory.then(|| "true".to_owned());
        let options = [
            ("devices", &self.devices),
            ("min_devices", &minimum),
            ("fallback", &self.fallback),
            ("fit_memory", &fit),
        ];
        let said =
            options.iter().filter_map(|(key, value)| Some(format!("runtime.{key}={}", value.as_ref()?)));
        let mut settings = self.settings.clone();
        settings.overrides.splice(0..0, said);
        settings.apply(resolver)?;
        Ok(resolver)
    }
}

/// Measure the error of a checkpoint.
///
/// The data are those of the config.toml beside the checkpoint, if there is one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise eval --checkpoint runs/nbody-1/checkpoint.safetensors
  gradewise eval --checkpoint c.safetensors --split valid data.source=path/to/npy
  gradewise eval --checkpoint runs/nbody-2/checkpoint.safetensors --rollout motion --rollout-steps 30")]
pub struct Eval {
    /// The checkpoint.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: PathBuf,
    /// train, valid or test.
    #[arg(long, default_value = "test")]
    pub split: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Follow the test systems of an n-body model that predicts velocities (model.velocities=true) on its own predictions, beside the
    /// simulator, and write an animation, the error over time, and a table into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    pub rollout: Option<PathBuf>,
    /// Steps of the model, each of 10 frames or one unit of time.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "rollout")]
    pub rollout_steps: usize,
    #[command(flatten)]
    pub settings: Settings,
}

/// Predict with a checkpoint.
///
/// Input: a safetensors file with `loc` and `vel` [systems, 3, particles] and `charges` [systems, particles]; or a .npy
/// file [systems, 7, particles] with the rows x y z vx vy vz charge. Output: predicted positions
/// [systems, 3, particles], as tensor `prediction` or .npy by the name's ending.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise infer --checkpoint runs/nbody-1/checkpoint.safetensors --input systems.npy --output predicted.npy")]
pub struct Infer {
    /// The checkpoint.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: PathBuf,
    /// The systems.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// Where the predictions go.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
}

/// Check gradients against central differences, in double precision.
///
/// Every operator, element by element; also second derivatives with --second. Exits with 1 if one disagrees.
/// Norms of algebras with an indefinite metric are nearly singular where a square crosses zero: inputs drawn there
/// can fail without a fault in the operator; try another seed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise gradcheck
  gradewise gradcheck --signature 3,0,1 --second
  gradewise gradcheck --only sgp --samples 500")]
pub struct Gradcheck {
    /// Signature of the algebra: p,q,r.
    #[arg(long, default_value = "3,0,0", value_name = "P,Q,R")]
    pub signature: String,
    /// Only operators whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Second derivatives too.
    #[arg(long)]
    pub second: bool,
    /// Elements checked per input.
    #[arg(long, default_value_t = 64)]
    pub samples: usize,
    /// cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// Check operators and their gradients against golden vectors.
///
/// Runs every .safetensors file under a folder and compares the output and every gradient. Files that cannot be run
/// count as failures. Exits with 1 if anything is past its tolerance.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise verify golden/clifford
  gradewise verify golden/clifford --dtype f64")]
pub struct Verify {
    /// The folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub runtime: RuntimeOptions,
}

/// Show what a file holds: names, shapes and statistics of its tensors.
///
/// Reads checkpoints, any safetensors file, and NumPy .npy files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise inspect runs/nbody-1/checkpoint.safetensors
  gradewise inspect data/loc_train_charged5_initvel1small.npy
  gradewise inspect weights.safetensors --json")]
pub struct Inspect {
    /// The file.
    pub file: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Write the record of a run for TensorBoard, and as one page with its figures.
///
/// Into the run's folder: events.out.tfevents.… with every number of metrics.jsonl, and report.html, which needs nothing beside
/// itself; both unless one is asked for. A second export replaces the first. A run that goes on can be exported at any time.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise export runs/nbody-1
  gradewise export runs/nbody-1 --tensorboard && tensorboard --logdir runs")]
pub struct Export {
    /// The folder of the run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Write events for TensorBoard.
    #[arg(long)]
    pub tensorboard: bool,
    /// Write the page.
    #[arg(long)]
    pub html: bool,
}

/// Check the GPU, its driver and this build, and say what to do.
///
/// One line for each check: ok, info, warn, or FAIL followed by what to do about it. On each device, every operator runs
/// once, forward and backward, and is compared with the CPU. Processes of others are listed and left alone. Exits with 1 if
/// a check fails, as without a driver or in a build without CUDA kernels.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise doctor
  gradewise doctor --quick           without the self-test
  gradewise doctor --warn            exit code 0 whatever was found
  gradewise doctor --json            for scripts and bug reports")]
pub struct Doctor {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Exit with 0 even if a check fails.
    #[arg(long)]
    pub warn: bool,
    /// Leave out the self-test.
    #[arg(long)]
    pub quick: bool,
}

/// List the GPU kernels of this build: what each needs, and how many blocks of it a multiprocessor holds.
///
/// Registers, shared memory, stack and spills are the compiler's; occupancy follows from them and from the threads and the dynamic
/// shared memory of a block. Tiles of matrix products say these themselves. Needs no GPU, but a build with kernels.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise kernels                                     all, on every architecture
  gradewise kernels sgp_bwd --target 90a                those whose name has this text, on one architecture
  gradewise kernels matmul_hopper                       tiles of matrix products
  gradewise kernels sgp_fwd --threads 128 --shared 65536    for blocks of another size
  gradewise kernels --json")]
pub struct Kernels {
    /// Text that the name has.
    pub name: Option<String>,
    /// An architecture, such as 90a.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Threads of a block.
    #[arg(long, default_value_t = 256)]
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub shared: u32,
    /// Print a JSON array.
    #[arg(long)]
    pub json: bool,
}

/// Write text with a trained transformer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise sample --checkpoint runs/gpt-1/checkpoint.safetensors
  gradewise sample --checkpoint c.safetensors --prompt \"The product of\" --bytes 1000 --temperature 0.5
  gradewise sample --checkpoint c.safetensors --temperature 0          the likeliest byte each time")]
pub struct Sample {
    /// The checkpoint.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: PathBuf,
    /// What the text begins with.
    #[arg(long, default_value = "\n")]
    pub prompt: String,
    /// How many bytes to write.
    #[arg(long, default_value_t = 500)]
    pub bytes: usize,
    /// Below 1 prefers what is likely; 0 takes the likeliest byte each time.
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f64,
    /// Choose among so many of the likeliest bytes; 0 for all.
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Seed of the choices.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub runtime: RuntimeOptions,
}

/// Find the operation that is wrong: the first whose result or gradient leaves the tolerance.
///
/// Runs the loss of a task on a batch, forward and backward. Every operation is compared with the CPU in double precision, on the same
/// inputs; the first that is too far off is named, and written with its inputs to a file that --replay runs again. Exits with 1 if
/// one is found.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bisect nbody --device cuda
  gradewise bisect gpt --device cuda --dtype bf16 --checkpoint runs/gpt-1/checkpoint.safetensors
  gradewise bisect nbody --device cuda --precision bf16 train.batch_size=4
  gradewise bisect --replay bisect.safetensors --device cuda")]
pub struct Bisect {
    /// nbody, volumes, hulls, o5, forces, lorentz or gpt.
    #[arg(required_unless_present = "replay")]
    pub task: Option<String>,
    /// Run the operation of such a file again instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["task", "checkpoint"])]
    pub replay: Option<PathBuf>,
    /// Weights other than fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Where the operation that is found is written.
    #[arg(long, value_name = "FILE", default_value = "bisect.safetensors")]
    pub out: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
}

/// Run a model in two precisions and name the layers that diverge.
///
/// The loss of a task on a batch, forward and backward, with the same weights. Lists operations in the order in which they ran, with the
/// relative error of their results against the first precision, and the parameters they read; then the gradients. A precision is f64
/// or f32 (storage), or bf16 or f16 (mixed precision).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise compare-precision nbody
  gradewise compare-precision gpt --precisions f32,f16 --threshold 0.01 --samples 2
  gradewise compare-precision nbody --checkpoint runs/nbody-1/checkpoint.safetensors --json")]
pub struct ComparePrecision {
    /// nbody, volumes, hulls, o5, forces, lorentz or gpt.
    pub task: String,
    /// The precision that is taken to be right, and the one that is compared with it.
    #[arg(long, value_name = "A,B", default_value = "f32,bf16")]
    pub precisions: String,
    /// The relative error from which on a result counts as diverged.
    #[arg(long, default_value_t = 0.02)]
    pub threshold: f64,
    /// Samples of the batch.
    #[arg(long, default_value_t = 8)]
    pub samples: usize,
    /// Weights other than fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// All operations instead of those with parameters and those that diverge.
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Run another command in debug mode, after the information block and the initialisation test.
///
/// Launches on a GPU are waited for and named, and the last of every thread are listed with an error; new memory is poisoned; the first
/// operation, forward or backward, that makes a NaN or an infinity, or leaves elements unwritten, ends the command and is named with
/// its inputs. Steps are not captured. On the CPU, memory and results are checked the same way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise debug -- train nbody --device cuda
  gradewise debug -- eval --checkpoint runs/nbody-1/checkpoint.safetensors --device cuda
  gradewise debug -- verify golden/clifford --device cuda
  gradewise debug --drill illegal-address                     what such an error looks like")]
pub struct Debug {
    /// Make this error on a GPU instead, to see how it is reported. The device is of no use to this process afterwards, and of as much
    /// as ever to others.
    #[arg(long, value_name = "ERROR", conflicts_with = "command")]
    pub drill: Option<Drill>,
    /// Where a drill takes place: cuda or cuda:N.
    #[arg(long, value_name = "DEVICE", default_value = "cuda", requires = "drill")]
    pub device: String,
    /// The command, as it would follow `gradewise`.
    #[arg(
        required_unless_present = "drill",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// See where the time of a training step goes: operation by operation, beside what the device can do.
///
/// Takes steps as `train` would and prints for each operation and pass: calls, time, share of the step, bytes that it cannot avoid, the rates
/// reached, and how much of the roofline that is (measured copies and matrix products of the same device). Times are by CUDA events,
/// with the device kept busy so that it never waits for the host; on the CPU by its clock. Then the parts of a step with their memory,
/// what launches cost, and whether capture or larger batches would help.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise profile nbody
  gradewise profile nbody --preset paper --device cuda --trace trace.json
  gradewise profile gpt --device cuda --precision bf16 --by-operation --limit 10
  gradewise profile hulls --checkpoint runs/hulls-1/checkpoint.safetensors --json")]
pub struct Profile {
    /// nbody, volumes, hulls, o5, forces, lorentz or gpt.
    pub task: String,
    /// Settings under a name.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Weights other than fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Steps that are measured.
    #[arg(long, default_value_t = 5)]
    pub steps: u32,
    /// Steps before them.
    #[arg(long, default_value_t = 2)]
    pub warm_up: u32,
    /// Rows of the table; the others are added up in one.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// One row for each operation, whatever its shapes.
    #[arg(long)]
    pub by_operation: bool,
    /// Write the recorded steps for https://ui.perfetto.dev or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Measure whole programs.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    pub task: BenchTask,
}

#[derive(Debug, Subcommand)]
pub enum BenchTask {
    Scaling(Scaling),
}

/// Training steps on more and more devices of this host, and the bandwidth of sums over them.
///
/// Weak scaling keeps the samples of each device, strong scaling those of all. Models: a stack of Clifford layers, and a large n-body
/// model. scaling.json has every number, scaling.svg the efficiency.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bench scaling --device cuda --dtype f32 --compute tf32
  gradewise bench scaling --counts 1,2,4 --quick")]
pub struct Scaling {
    /// cpu or cuda.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Storage of numbers: f64, f32, bf16 or f16.
    #[arg(long, default_value = "f32")]
    pub dtype: String,
    /// Arithmetic of matrix products: exact or tf32.
    #[arg(long, default_value = "exact")]
    pub compute: String,
    /// Numbers of processes [default: powers of two, up to the number of devices]
    #[arg(long, value_name = "LIST")]
    pub counts: Option<String>,
    /// Timed steps of each model.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Small models: to see whether it works.
    #[arg(long)]
    pub quick: bool,
    /// Mebibytes of a bucket of gradients [default: 25]
    #[arg(long, value_name = "MIB")]
    pub bucket_mib: Option<usize>,
    /// Let NCCL add in one way only, as training does.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub deterministic: bool,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "scaling")]
    pub out: PathBuf,
    /// Set in the processes that measure: where rank 0 writes.
    #[arg(long, value_name = "FILE", hide = true)]
    pub worker: Option<PathBuf>,
}
