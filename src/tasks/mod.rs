//! The experiments: what each brings, so that one runner serves all.

mod forces;
mod gpt;
mod lorentz;
mod measures;
pub mod nbody;
mod points;
mod rollout;

pub use forces::Forces;
pub use gpt::GptTask;
pub use lorentz::Lorentz;
pub use measures::{Measures, number};
pub use nbody::NBodyTask;
pub use points::{Hulls, O5, Volumes};
pub use rollout::rollout;

use crate::{
    cli::Settings,
    config::{Config, DataSection, Resolver, Section},
    error::{Error, Result},
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

/// Samples evaluated at once.
pub const EVALUATION_BATCH: usize = 500;
/// Samples whose predictions are compared before and after a motion.
const SYMMETRY_SAMPLES: usize = 64;

/// Evaluates an expression for the task of a name, as the type `$T`; an error of usage if there is none.
macro_rules! with_task {
    ($name:expr, $T:ident => $value:expr) => {
        $crate::tasks::with_task!(@match $name, $T => $value, NBodyTask, Volumes, Hulls, O5, Lorentz, Forces, GptTask)
    };
    (@match $name:expr, $T:ident => $value:expr, $($task:ident),+) => {
        match AsRef::<str>::as_ref($name) {
            $(<$crate::tasks::$task as $crate::tasks::Task>::NAME => {
                type $T = $crate::tasks::$task;
                $value
            })+
            other => Err($crate::error::Error::Usage(format!(
                "there is no task `{other}`; there are nbody, volumes, hulls, o5, forces, lorentz and gpt"
            ))),
        }
    };
}
pub(crate) use with_task;

/// An experiment: its data, its model, its loss, and what is measured.
pub trait Task: Sized + 'static {
    /// Name of the command, of run folders, and of the model in checkpoints.
    const NAME: &'static str;
    /// What it is, in figures.
    const TITLE: &'static str;
    /// The loss, in figures.
    const LOSS: &'static str;
    /// The key of the measure that decides.
    const DECIDES: &'static str = "mse";
    /// The group the model is equivariant or invariant under, in words.
    const GROUP: &'static str;
    /// Sets of settings under a name; the first is the default.
    const PRESETS: &'static [Preset];

    /// `[data]`
    type DataConfig: DataSection;
    /// `[model]`
    type ModelConfig: Section;
    /// The samples of a split.
    type Data: Samples;
    /// The network.
    type Model: Module;

    /// The settings of the first preset.
    fn defaults() -> TaskConfig<Self>;

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

    /// Whether a file holds weights of these sizes: asked before memory is, because the sizes come from a file too.
    fn fits(config: &Self::ModelConfig, weights: &TensorFile) -> bool;

    /// The loss of a batch, a scalar.
    ///
    /// # Errors
    /// From the operators.
    fn loss(model: &Self::Model, batch: &Batch<Self>) -> gradewise_nn::Result<Tensor>;

    /// Settings of the model that a run may change when it goes on: they are no part of what the weights are.
    const CHANGEABLE: &'static [&'static str] = &[];

    /// How good a model is on samples or, of several, the mean of what they predict (of classes: of their logarithmic odds). The
    /// first measure is the one that decides; smaller is better.
    ///
    /// # Errors
    /// From the operators.
    fn measure(
        models: &[&Self::Model],
        data: &Self::Data,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures>;

    /// The largest relative difference, over some random elements u of the group, between the prediction for u·x and what the
    /// prediction for x becomes under u. `data` are a few samples.
    ///
    /// # Errors
    /// From the operators.
    fn asymmetry(
        model: &Self::Model,
        data: &Self::Data,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64>;

    /// The model that computes what it did again in the backward pass (`model.recompute=true`), if this one can and does not yet.
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

/// The settings of a task.
pub type TaskConfig<T> = Config<<T as Task>::DataConfig, <T as Task>::ModelConfig>;
/// The batches of a task.
pub type Batch<T> = <<T as Task>::Data as Samples>::Batch;

/// Settings under a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    pub name: &'static str,
    pub about: &'static str,
    /// What differs from the defaults, as overrides.
    pub settings: &'static [&'static str],
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
        for assignment in preset.settings {
            resolver.assignment(assignment)?;
        }
    }
    Ok(resolver)
}

/// The settings of a command: those of a preset, under those given.
///
/// # Errors
/// As [`resolver`]; settings that are no settings of the task.
pub fn configure<T: Task>(preset: Option<&str>, given: &Settings) -> Result<TaskConfig<T>> {
    Ok(TaskConfig::<T>::resolve(given.apply(&mut resolver::<T>(preset)?)?)?)
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
    config.validate()?;
    if !T::fits(&config, &checkpoint.tensors) {
        return Err(Error::Usage(format!(
            "{path}: the model configuration {config:?} does not fit the weights in the file"
        )));
    }
    let model = new_model::<T>(&config, placement, 0)?;
    load_weights(&model, &checkpoint.tensors, placement)?;
    Ok(model)
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

/// [`Task::asymmetry`] on the first samples of a split, with motions that do not depend on anything.
///
/// # Errors
/// As [`Task::load`] and [`Task::asymmetry`].
pub fn asymmetry<T: Task>(
    model: &T::Model,
    data: &T::Data,
    placement: &Placement,
) -> gradewise_nn::Result<f64> {
    T::asymmetry(model, data, placement, &mut ChaCha8Rng::seed_from_u64(0x5eed))
}

/// The size of the last axis of a tensor.
fn width(weights: &TensorFile, name: &str) -> Option<usize> {
    weights.get(name).and_then(|tensor| tensor.shape().last().copied())
}

/// Whether a tensor's name starts so.
fn has(weights: &TensorFile, prefix: &str) -> bool {
    weights.iter().any(|(name, _)| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Task>() {
        assert_eq!(T::PRESETS[0].name, "quick");
        assert!(T::PRESETS[0].settings.is_empty(), "the first preset is what there is without one");
        for preset in T::PRESETS {
            let config = TaskConfig::<T>::resolve(&resolver::<T>(Some(preset.name)).unwrap()).unwrap();
            let text = toml::to_string_pretty(&config).unwrap();
            assert_eq!(
                toml::from_str::<TaskConfig<T>>(&text).unwrap(),
                config,
                "{} {}",
                T::NAME,
                preset.name
            );
        }
        let message = resolver::<T>(Some("none")).unwrap_err().to_string();
        assert!(message.contains("quick") && message.contains(T::NAME), "{message}");
    }

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

    #[test]
    fn what_a_run_may_change_is_no_part_of_its_model() {
        let value = identity::<GptTask>(&gradewise_nn::models::GptConfig::default());
        assert!(value.get("width").is_some() && value.get("dropout").is_none(), "{value}");
    }

    #[test]
    fn presets_are_valid_and_survive_toml() {
        check::<NBodyTask>();
        check::<Volumes>();
        check::<Hulls>();
        check::<O5>();
        check::<Lorentz>();
        check::<Forces>();
        check::<GptTask>();
    }
}
