//! The arguments of `train`.

use super::Settings;
use crate::{config::Resolver, error::Result};
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
  gradewise train nbody --device cuda --seeds 4 --at-once 4
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
  gradewise train lorentz data.source=path/to/top-tagging data.train=1211000 data.particles=32    train.h5, val.h5, test.h5")]
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
    /// Several runs, one after another or some --at-once, into folders seed-N of the run folder: a list such as 0,1,2, or a number of seeds
    /// from train.seed on. summary.json has each test error, mean and standard deviation, and the error of the mean of all predictions.
    #[arg(long, value_name = "LIST|COUNT", conflicts_with = "resume")]
    pub seeds: Option<String>,
    /// As many of the runs of --seeds as this at the same time, on a GPU each in a stream of its own: what keeps a GPU from being busy
    /// with a small model is that each of its kernels waits for the one before.
    #[arg(long, value_name = "N", requires = "seeds", default_value_t = 1)]
    pub at_once: usize,
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
    /// Write what layers compute for the first samples, before the first step, into dump/LAYER.npy of the run folder: names such as
    /// layers.1.edge.0, separated by commas.
    #[arg(long, value_name = "LAYERS", conflicts_with_all = ["seeds", "curve"])]
    pub dump: Option<String>,
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
