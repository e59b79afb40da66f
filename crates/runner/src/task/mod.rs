//! The interface of a task, which the runner turns into commands.

mod bootstrap;
mod comparison;
mod measures;
mod prediction;
mod source;
mod splits;

pub use bootstrap::{Interval, median, trimmed_mean};
pub use comparison::{Compared, Comparison, Whose};
pub use measures::{Measure, Measures, Statistic, number};
pub use prediction::{Argument, Prediction, PredictionSize};
pub use source::Source;
pub use splits::Splits;

use crate::{
    config::{Config, ConfigError, DataSection, Resolver, Section},
    error::{Error, Result},
    options::Settings,
    output,
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

/// Batch size of evaluations.
pub const EVALUATION_BATCH: usize = 500;
/// Number of samples for symmetry checks.
pub const SYMMETRY_SAMPLES: usize = 64;

/// The files that a [`Rollout`] writes: an animation, the errors over time as a figure, and as a table with the entries `frames_per_step`
/// and `steps`.
pub const ROLLOUT_FILES: [&str; 3] = ["rollout.svg", "rollout-error.svg", "rollout.json"];

/// An autoregressive rollout of a model, whose weights are where the placement says, for a number of steps: writes figures into a
/// folder, and returns a table.
pub type Rollout<T> = fn(&<T as Task>::Model, &TaskConfig<T>, &Placement, usize, &Path) -> Result<String>;

/// An experiment: its data, model, loss and measures.
pub trait Task: Sized + 'static {
    /// Name on the command line, of run folders, and of the model in checkpoints.
    const NAME: &'static str;
    /// A description, in one line of help without a full stop.
    const ABOUT: &'static str;
    /// A longer description, in the help of `train NAME`.
    const DETAILS: &'static str = "";
    /// Example command lines in the help of `train NAME`, one per line.
    const EXAMPLES: &'static str = "";
    /// The description in titles of figures.
    const TITLE: &'static str = Self::NAME;
    /// The name of the loss in figures.
    const LOSS: &'static str = "loss";
    /// The key of the primary measure, the first of [`measure`](Self::measure).
    const DECIDES: &'static str = "mse";
    /// The group under which the model is equivariant or invariant, as text; empty if there is none, in which case
    /// [`asymmetry`](Self::asymmetry) is not called.
    const GROUP: &'static str = "";
    /// Named sets of settings. The first is the default and must be empty.
    const PRESETS: &'static [Preset] = &[Preset::QUICK];
    /// Options of `train NAME` that stand for settings of this task.
    const OPTIONS: &'static [TrainOption] = &[];
    /// Settings of the model that a resumed run may change, because the weights do not depend on them.
    const CHANGEABLE: &'static [&'static str] = &[];
    /// The implementation of `eval --rollout`, if models of this task can continue from their own predictions.
    const ROLLOUT: Option<Rollout<Self>> = None;

    /// `[data]`
    type DataConfig: DataSection;
    /// `[model]`
    type ModelConfig: Section;
    /// The samples of a split.
    type Data: Samples;
    /// The network.
    type Model: Module;

    /// The settings of the first preset. They also define the valid settings and their types.
    fn defaults() -> TaskConfig<Self>;

    /// Checks constraints on the settings of the model beyond types.
    ///
    /// # Errors
    /// [`ConfigError::Value`] naming the key, its value and what is accepted; `config::{refuse, at_least_one}` construct it.
    fn check_model(_config: &Self::ModelConfig) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The samples of a split.
    ///
    /// # Errors
    /// Files that are missing or unusable.
    fn load(config: &Self::DataConfig, split: Split) -> Result<Self::Data>;

    /// The number of samples that training draws from: the first ones of `data`, which several runs may share, so that it can hold more
    /// than this one's settings ask for. A task whose samples are parts of what `data.train` counts says how many these are.
    fn training_samples(data: &Self::Data, config: &Self::DataConfig) -> usize {
        data.len().min(config.fitted())
    }

    /// A model with fresh weights.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    fn init(
        config: &Self::ModelConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<Self::Model>;

    /// Takes over from the training samples what a new model needs to know of them and training does not change, such as means. What a
    /// checkpoint holds replaces it.
    ///
    /// # Errors
    /// From the device.
    fn calibrate(_model: &Self::Model, _training: &Self::Data) -> gradewise_nn::Result<()> {
        Ok(())
    }

    /// Whether a file holds weights of these sizes. Called before memory is allocated, because the sizes come from an untrusted file, too.
    /// By default, shapes are compared only on loading.
    fn fits(_config: &Self::ModelConfig, _weights: &TensorFile) -> bool {
        true
    }

    /// The loss of a batch, a scalar.
    ///
    /// # Errors
    /// From the operators.
    fn loss(model: &Self::Model, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor>;

    /// Measures a model on samples. For several models, measures their mean prediction (for classes, their mean probabilities). The first
    /// measure is the primary one; smaller is better. [`mean_prediction`] helps with several models.
    ///
    /// # Errors
    /// From the operators.
    fn measure(
        models: &[&Self::Model],
        data: &Self::Data,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures>;

    /// The samples of a file for `infer`, in this task's format, with the settings of the checkpoint's run. What predictions do not use, such
    /// as targets, may be anything.
    ///
    /// # Errors
    /// [`Error::Usage`] unless it is implemented; a file that cannot be used.
    fn read(_path: &Path, _config: &TaskConfig<Self>) -> Result<Self::Data> {
        Err(without_inference::<Self>("read"))
    }

    /// The predictions of a model for all samples, which `infer` writes.
    ///
    /// # Errors
    /// [`Error::Usage`] unless it is implemented; from the operators.
    fn predict(_model: &Self::Model, _data: &Self::Data, _placement: &Placement) -> Result<Predicted> {
        Err(without_inference::<Self>("predict"))
    }

    /// The largest relative difference, over some random elements u of the group, between the prediction for u·x and the prediction for x
    /// transformed by u. `data` are a few samples. Called only if [`GROUP`](Self::GROUP) is not empty.
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

    /// The prediction for one sample, as a function of tensors of fixed sizes, for programs in other languages (`export --to c`); `None` if the
    /// models of this task have none. Normalisation of the input belongs to it, so that a program takes what comes from a detector or a file.
    ///
    /// # Errors
    /// A size that the task or the model does not have.
    fn program<'a>(
        _model: &'a Self::Model,
        _config: &TaskConfig<Self>,
        _size: PredictionSize<'_>,
    ) -> Result<Option<Prediction<'a>>> {
        Ok(None)
    }

    /// The configuration with recomputation of activations in the backward pass (`model.recompute=true`), if the model supports it and it
    /// is not enabled yet.
    fn recomputing(_config: &Self::ModelConfig) -> Option<Self::ModelConfig> {
        None
    }

    /// A comparison of `measures` with published results; `None` if no comparable results are published for the task or these settings.
    fn comparison(_measures: &Measures, _config: &TaskConfig<Self>) -> Option<Comparison> {
        None
    }

    /// Draws figures of the trained model, whose measures on the test split these are, into the run folder, and returns their file names.
    ///
    /// # Errors
    /// From the operators or from writing.
    fn figures(
        _model: &Self::Model,
        _measures: &Measures,
        _config: &TaskConfig<Self>,
        _placement: &Placement,
        _folder: &RunFolder,
    ) -> Result<Vec<&'static str>> {
        Ok(Vec::new())
    }
}

/// The predictions of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Predicted {
    /// Their shape, with the samples along some axis.
    pub shape: Vec<usize>,
    /// The numbers in row-major order.
    pub values: Vec<f64>,
}

fn without_inference<T: Task>(method: &str) -> Error {
    Error::Usage(format!(
        "the task `{}` has no infer: implement Task::{method} for it (Task::read makes samples of a file, Task::predict predicts for them); \
         eval measures checkpoints of every task",
        T::NAME
    ))
}

/// An option of `train NAME` that stands for a setting.
#[derive(Clone, Copy, Debug)]
pub struct TrainOption {
    /// `text` for `--text`
    pub name: &'static str,
    /// The name of its value in help: `FILE`.
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

/// A named set of settings.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name for `--preset`.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// The differences from the defaults, as groups of overrides; later ones take precedence.
    pub settings: &'static [&'static [&'static str]],
}

/// Intervals of records, evaluations and checkpoints for runs of some hours, for [`Preset::settings`].
pub const LONG_RUN: &[&str] =
    &["train.select=best", "train.log_every=64", "train.eval_every=1024", "train.checkpoint_every=4096"];

impl Preset {
    /// The first preset of a task: its defaults.
    pub const QUICK: Self = Self { name: "quick", about: "a few minutes on two cores", settings: &[] };
}

/// The defaults of a task, with a preset applied.
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

/// Resolves and checks the settings.
///
/// # Errors
/// [`ConfigError`] naming the key, its value and what is accepted.
pub fn resolve<T: Task>(resolver: &Resolver) -> Result<TaskConfig<T>, ConfigError> {
    TaskConfig::<T>::resolve(resolver, T::check_model)
}

/// The settings of a command: a preset, overridden by the given settings.
///
/// # Errors
/// As [`resolver`]; unknown settings.
pub fn configure<T: Task>(preset: Option<&str>, given: &Settings) -> Result<TaskConfig<T>> {
    Ok(resolve::<T>(given.apply(&mut resolver::<T>(preset)?)?)?)
}

/// The settings of the run that wrote the checkpoint, if they are beside it (for an ensemble, those of the run of its first seed),
/// overridden by the command line.
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

/// The settings of the run that wrote the checkpoint, if they are beside it; the defaults otherwise.
///
/// # Errors
/// As [`configure`].
pub fn settings_beside<T: Task>(checkpoint: &Path) -> Result<TaskConfig<T>> {
    let mut resolver = resolver::<T>(None)?;
    if let Some(beside) = beside(checkpoint) {
        resolver.file(&beside)?;
    }
    Ok(resolve::<T>(&resolver)?)
}

/// The file of settings beside a checkpoint, or beside the members of an ensemble.
fn beside(checkpoint: &Path) -> Option<PathBuf> {
    let beside = checkpoint.with_file_name("config.toml");
    if beside.is_file() {
        return Some(beside);
    }
    let seed = Checkpoint::read(checkpoint).ok()?.metadata.members.first()?.seed;
    Some(checkpoint.with_file_name(format!("seed-{seed}")).join("config.toml")).filter(|path| path.is_file())
}

/// Describes the weights of checkpoints, for a verdict.
pub fn weights_of(checkpoints: &[Checkpoint]) -> String {
    match checkpoints {
        [one] => format!("the weights in {} (step {})", one.tensors.path().display(), one.metadata.step),
        several => format!("weights of the {} checkpoints", several.len()),
    }
}

/// The settings that identify the model of a resumed run.
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

/// The model of a checkpoint; without a path, one with fresh weights that is [calibrated](Task::calibrate) on the training samples, as training
/// starts.
///
/// # Errors
/// As [`load_model`]; settings of the model that do not fit together.
pub fn model_of<T: Task>(
    checkpoint: Option<&Path>,
    config: &TaskConfig<T>,
    training: &T::Data,
    placement: &Placement,
) -> Result<T::Model> {
    if let Some(path) = checkpoint {
        return load_model::<T>(&Checkpoint::read(path)?, placement);
    }
    let model = new_model::<T>(&config.model, placement, config.train.seed)?;
    T::calibrate(&model, training)?;
    Ok(model)
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
            "{path} is an ensemble of {models} models, for {}; expected a single one, such as those in the folders of \
             its runs",
            output::takers_of_ensembles("`")
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

/// Loads the weights of a file, or their moving average if there is one, into a model.
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

/// The mean over models of the numbers that each predicts; empty without models.
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

/// [`Task::asymmetry`] on the first samples of a split, with a fixed seed of the motions; `None` for a task without a symmetry.
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

/// Formats the result of [`asymmetry`]; empty for a task without a symmetry.
pub fn symmetry_line<T: Task>(label: &str, asymmetry: Option<f64>) -> String {
    asymmetry.map_or_else(String::new, |change| {
        format!("{label} {change:.1e} relative change under {}\n", T::GROUP)
    })
}

/// The size of the last axis of a tensor, for [`Task::fits`].
pub fn width(weights: &TensorFile, name: &str) -> Option<usize> {
    weights.get(name).and_then(|tensor| tensor.shape().last().copied())
}

/// Whether the name of a tensor begins with `prefix`, for [`Task::fits`].
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
