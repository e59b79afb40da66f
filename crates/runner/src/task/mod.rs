//! What a task brings, so that one runner serves all.

mod bootstrap;
mod measures;
mod source;
mod splits;

pub use bootstrap::{Interval, median, trimmed_mean};
pub use measures::{Measure, Measures, Statistic, number};
pub use source::Source;
pub use splits::Splits;

use crate::{
    config::{Config, ConfigError, DataSection, Resolver, Section},
    error::{Error, Result},
    options::Settings,
    run::RunFolder,
};
use gradewise_autograd::Tensor;
use gradewise_nn::{
    Module, Placement,
    checkpoint::{Checkpoint, TensorFile},
    data::Split,
    optim::MovingAverage,
    train::Samples,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::path::{Path, PathBuf};

/// Samples evaluated at once.
pub const EVALUATION_BATCH: usize = 500;
/// Samples whose predictions are compared before and after a motion.
pub const SYMMETRY_SAMPLES: usize = 64;

/// Follows a model on its own predictions for so many steps, writes figures into a folder, and returns a table.
pub type Rollout<T> = fn(&<T as Task>::Model, &TaskConfig<T>, usize, &Path) -> Result<String>;

/// An experiment: its data, its model, its loss, and what is measured.
pub trait Task: Sized + 'static {
    /// Name on the command line, of run folders, and of the model in checkpoints.
    const NAME: &'static str;
    /// What it is, in one line of help without a full stop.
    const ABOUT: &'static str;
    /// More of it, in the help of `train NAME`.
    const DETAILS: &'static str = "";
    /// Command lines that the help of `train NAME` shows, one a line.
    const EXAMPLES: &'static str = "";
    /// What it is, in figures.
    const TITLE: &'static str = Self::NAME;
    /// The loss, in figures.
    const LOSS: &'static str = "loss";
    /// The key of the measure that decides: that of the first of [`measure`](Self::measure).
    const DECIDES: &'static str = "mse";
    /// The group the model is equivariant or invariant under, in words; empty if there is none, and then [`asymmetry`](Self::asymmetry)
    /// is not asked for.
    const GROUP: &'static str = "";
    /// Sets of settings under a name; the first is the default, and without settings.
    const PRESETS: &'static [Preset] = &[Preset::QUICK];
    /// Options of `train NAME` that stand for settings of this task.
    const OPTIONS: &'static [TrainOption] = &[];
    /// Settings of the model that a run may change when it goes on: they are no part of what the weights are.
    const CHANGEABLE: &'static [&'static str] = &[];
    /// What `eval --rollout` does, if models of this task go on from their own predictions.
    const ROLLOUT: Option<Rollout<Self>> = None;

    /// `[data]`
    type DataConfig: DataSection;
    /// `[model]`
    type ModelConfig: Section;
    /// The samples of a split.
    type Data: Samples;
    /// The network.
    type Model: Module;

    /// The settings of the first preset. They are the list of valid settings, too, and the types of their values.
    fn defaults() -> TaskConfig<Self>;

    /// Checks settings of the model beyond their types.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the key, its value and what is accepted; `config::{refuse, at_least_one}` make them.
    fn check_model(_config: &Self::ModelConfig) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The samples of a split.
    ///
    /// # Errors
    /// Files that are missing or unusable.
    fn load(config: &Self::DataConfig, split: Split) -> Result<Self::Data>;

    /// A model with fresh weights.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    fn init(
        config: &Self::ModelConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<Self::Model>;

    /// Whether a file holds weights of these sizes: asked before memory is allocated for them, because the sizes come from the file,
    /// too. Without it, only loading compares the shapes.
    fn fits(_config: &Self::ModelConfig, _weights: &TensorFile) -> bool {
        true
    }

    /// The loss of a batch, a scalar.
    ///
    /// # Errors
    /// From the operators.
    fn loss(model: &Self::Model, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor>;

    /// How good a model is on samples or, of several, the mean of what they predict (of classes: of their logarithmic odds). The
    /// first measure is the one that decides; smaller is better. [`mean_prediction`] serves several models.
    ///
    /// # Errors
    /// From the operators.
    fn measure(
        models: &[&Self::Model],
        data: &Self::Data,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures>;

    /// The largest relative difference, over some random elements u of the group, between the prediction for u·x and what the
    /// prediction for x becomes under u. `data` are a few samples. Only asked for where [`GROUP`](Self::GROUP) is not empty.
    ///
    /// # Errors
    /// From the operators.
    fn asymmetry(
        _model: &Self::Model,
        _data: &Self::Data,
        _placement: &Placement,
        _rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        Ok(0.0)
    }

    /// The model that recomputes its activations in the backward pass (`model.recompute=true`), if this one can and does not yet.
    fn recomputing(_config: &Self::ModelConfig) -> Option<Self::ModelConfig> {
        None
    }

    /// What others have reached beside `measures`, as text; empty if nothing comparable is published: for the task, or for runs of such
    /// settings.
    fn comparison(_measures: &Measures, _config: &TaskConfig<Self>) -> String {
        String::new()
    }

    /// Draws figures of the trained model into the run folder, and returns their file names.
    ///
    /// # Errors
    /// From the operators or from writing.
    fn figures(
        _model: &Self::Model,
        _config: &TaskConfig<Self>,
        _placement: &Placement,
        _folder: &RunFolder,
    ) -> Result<Vec<&'static str>> {
        Ok(Vec::new())
    }
}

/// An option of `train NAME` that stands for a setting.
#[derive(Clone, Copy, Debug)]
pub struct TrainOption {
    /// `text` for `--text`
    pub name: &'static str,
    /// What it takes, in help: `FILE`.
    pub value: &'static str,
    /// The setting: `data.text`.
    pub setting: &'static str,
    /// A sentence of help.
    pub help: &'static str,
}

/// The settings of a task.
pub type TaskConfig<T> = Config<<T as Task>::DataConfig, <T as Task>::ModelConfig>;
/// The batches of a task.
pub type Batch<T> = <<T as Task>::Data as Samples>::Batch;

/// Settings under a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// What `--preset` takes.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// What differs from the defaults, as overrides, in groups: a later one takes precedence.
    pub settings: &'static [&'static [&'static str]],
}

/// How often a run of some hours records, evaluates and keeps its state, for [`Preset::settings`].
pub const LONG_RUN: &[&str] =
    &["train.select=best", "train.log_every=64", "train.eval_every=1024", "train.checkpoint_every=4096"];

impl Preset {
    /// The first preset of a task: its defaults.
    pub const QUICK: Self = Self { name: "quick", about: "a few minutes on two cores", settings: &[] };
}

/// The settings of a task, with a preset laid over them.
///
/// # Errors
/// A preset that the task does not have.
pub fn resolver<T: Task>(preset: Option<&str>) -> Result<Resolver> {
    let mut resolver = Resolver::new(&T::defaults())?;
    if let Some(name) = preset {
        let Some(preset) = T::PRESETS.iter().find(|preset| preset.name == name) else {
            let known: Vec<String> =
                T::PRESETS.iter().map(|preset| format!("{} ({})", preset.name, preset.about)).collect();
            return Err(Error::Usage(format!("--preset {name}: {} has {}", T::NAME, known.join(", "))));
        };
        for assignment in preset.settings.iter().copied().flatten() {
            resolver.assignment(assignment)?;
        }
    }
    Ok(resolver)
}

/// The settings that layers leave, checked.
///
/// # Errors
/// [`ConfigError`] naming the key, its value and what is accepted.
pub fn resolve<T: Task>(resolver: &Resolver) -> Result<TaskConfig<T>, ConfigError> {
    TaskConfig::<T>::resolve(resolver, T::check_model)
}

/// The settings of a command: those of a preset, under those given.
///
/// # Errors
/// As [`resolver`]; settings that are no settings of the task.
pub fn configure<T: Task>(preset: Option<&str>, given: &Settings) -> Result<TaskConfig<T>> {
    Ok(resolve::<T>(given.apply(&mut resolver::<T>(preset)?)?)?)
}

/// The settings of the run that the checkpoint came from, if they are beside it (of an ensemble: of the run of its first seed), with those of
/// the command line.
///
/// # Errors
/// As [`configure`].
pub fn settings<T: Task>(checkpoint: &Path, given: &Settings) -> Result<TaskConfig<T>> {
    let mut resolver = resolver::<T>(None)?;
    if let Some(beside) = beside(checkpoint) {
        resolver.file(&beside)?;
    }
    Ok(resolve::<T>(given.apply(&mut resolver)?)?)
}

/// The settings beside a checkpoint, or beside those that an ensemble was made of.
fn beside(checkpoint: &Path) -> Option<PathBuf> {
    let beside = checkpoint.with_file_name("config.toml");
    if beside.is_file() {
        return Some(beside);
    }
    let seed = Checkpoint::read(checkpoint).ok()?.metadata.members.first()?.seed;
    Some(checkpoint.with_file_name(format!("seed-{seed}")).join("config.toml")).filter(|path| path.is_file())
}

/// The weights of checkpoints, for readers of a verdict.
pub fn weights_of(checkpoints: &[Checkpoint]) -> String {
    match checkpoints {
        [one] => format!("the weights in {} (step {})", one.tensors.path().display(), one.metadata.step),
        several => format!("weights of the {} checkpoints", several.len()),
    }
}

/// What identifies the model of a run that goes on.
pub fn identity<T: Task>(config: &T::ModelConfig) -> serde_json::Value {
    let mut value = serde_json::to_value(config).unwrap_or_default();
    if let Some(settings) = value.as_object_mut() {
        settings.retain(|key, _| !T::CHANGEABLE.contains(&key.as_str()));
    }
    value
}

/// A new model with weights drawn from a seed.
///
/// # Errors
/// As [`Task::init`].
pub fn new_model<T: Task>(
    config: &T::ModelConfig,
    placement: &Placement,
    seed: u64,
) -> gradewise_nn::Result<T::Model> {
    T::init(config, placement, &mut ChaCha8Rng::seed_from_u64(seed))
}

/// The model of a checkpoint, with the moving average of its weights if one was kept.
///
/// # Errors
/// A checkpoint of another model, or weights that do not fit.
pub fn load_model<T: Task>(checkpoint: &Checkpoint, placement: &Placement) -> Result<T::Model> {
    let path = checkpoint.tensors.path().display();
    let metadata = &checkpoint.metadata;
    if metadata.model != T::NAME {
        let (actual, expected) = (&metadata.model, T::NAME);
        return Err(Error::Usage(format!("{path} is a checkpoint of `{actual}`, expected `{expected}`")));
    }
    let config: T::ModelConfig = serde_json::from_value(metadata.model_config.clone())
        .map_err(|error| Error::Usage(format!("{path}: the model configuration is malformed: {error}")))?;
    T::check_model(&config)?;
    if !metadata.members.is_empty() {
        let models = metadata.members.len();
        return Err(Error::Usage(format!(
            "{path} is an ensemble of {models} models, for `eval` and `infer`; expected a single one, such as \
             those in the folders of its runs"
        )));
    }
    if !T::fits(&config, &checkpoint.tensors) {
        return Err(Error::Usage(format!(
            "{path}: the model configuration {config:?} does not fit the weights in the file"
        )));
    }
    let model = new_model::<T>(&config, placement, 0)?;
    load_weights(&model, &checkpoint.tensors, placement)?;
    Ok(model)
}

/// All models of a checkpoint: one, or those of an ensemble.
///
/// # Errors
/// As [`load_model`].
pub fn load_models<T: Task>(checkpoint: &Checkpoint, placement: &Placement) -> Result<Vec<T::Model>> {
    checkpoint.models()?.iter().map(|model| load_model::<T>(model, placement)).collect()
}

/// Puts the weights of a file, or their moving average if it holds one, into a model.
///
/// # Errors
/// Weights that are missing or of another shape.
pub fn load_weights(model: &impl Module, tensors: &TensorFile, placement: &Placement) -> Result<()> {
    let averaged = MovingAverage::is_in(tensors);
    Ok(model.load(&|name| {
        let name = if averaged { format!("ema::{name}") } else { name.to_owned() };
        tensors.find_array(&name, placement.dtype, &placement.device)
    })?)
}

/// The mean over models of the numbers that each predicts; none of no models.
///
/// # Errors
/// From `predict`.
pub fn mean_prediction<M>(
    models: &[&M],
    predict: impl Fn(&M) -> gradewise_nn::Result<Vec<f64>>,
) -> gradewise_nn::Result<Vec<f64>> {
    let Some((first, others)) = models.split_first() else { return Ok(Vec::new()) };
    let mut mean = predict(first)?;
    for other in others {
        mean.iter_mut().zip(predict(other)?).for_each(|(sum, value)| *sum += value);
    }
    if !others.is_empty() {
        mean.iter_mut().for_each(|sum| *sum /= models.len() as f64);
    }
    Ok(mean)
}

/// [`Task::asymmetry`] on the first samples of a split, with motions that do not depend on anything; `None` for a task without a symmetry.
///
/// # Errors
/// As [`Task::asymmetry`].
pub fn asymmetry<T: Task>(
    model: &T::Model,
    data: &T::Data,
    placement: &Placement,
) -> gradewise_nn::Result<Option<f64>> {
    if T::GROUP.is_empty() {
        return Ok(None);
    }
    T::asymmetry(model, data, placement, &mut ChaCha8Rng::seed_from_u64(0x5eed)).map(Some)
}

/// A line about what [`asymmetry`] found; empty for a task without a symmetry.
pub fn symmetry_line<T: Task>(label: &str, asymmetry: Option<f64>) -> String {
    asymmetry.map_or_else(String::new, |change| {
        format!("{label} {change:.1e} relative change under {}\n", T::GROUP)
    })
}

/// The size of the last axis of a tensor, for [`Task::fits`].
pub fn width(weights: &TensorFile, name: &str) -> Option<usize> {
    weights.get(name).and_then(|tensor| tensor.shape().last().copied())
}

/// Whether a tensor's name starts so, for [`Task::fits`].
pub fn has(weights: &TensorFile, prefix: &str) -> bool {
    weights.iter().any(|(name, _)| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_without_numbers_is_named_and_not_called_missing() {
        let header = r#"{"weight":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}"#;
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
        let file = TensorFile::from_bytes(&bytes, "complex").unwrap();
        let placement = Placement::from(&gradewise_kernels::Device::Cpu);
        let linear = gradewise_nn::layers::Linear::new(1, 1).bias(false);
        let linear = linear.init(&placement, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let error = load_weights(&linear, &file, &placement).unwrap_err().to_string();
        assert!(error.contains("`weight`") && error.contains("c64") && !error.contains("lacks"), "{error}");
    }
}
