//! Time-dependent fields: a fluid, and electromagnetic fields in space and on space-time.

mod charges;
mod figures;
mod maxwell;
mod smoke;

pub use charges::Charges;
pub use maxwell::Maxwell;
pub use smoke::NavierStokes;

use gradewise_core::OrderedMetric;
use gradewise_nn::{fields::GridIsometry, layers::Layer, symmetry::relative_distance};
use gradewise_runner::{
    prelude::*,
    task::{Compared, Comparison, Rollout, Whose, median},
};
use gradewise_zoo::{
    data::fields::{FieldLayout, FieldSet, FieldWindows, TimeAxis},
    models::{FieldModel, FieldModelConfig, FieldModelKind, FieldTask},
    train::fields::{Predictor, RolloutErrors, StepErrors, mean_of, persistence},
};
use rand::seq::IndexedRandom;
use std::{marker::PhantomData, sync::Arc};

/// Batch size of predictions, in windows.
const BATCH: usize = 8;
/// The number of windows for symmetry checks, and of motions.
const SYMMETRY_WINDOWS: usize = 2;
const MOTIONS: usize = 4;

gradewise_nn::choices! {
    /// The named sources of fields.
    pub enum Simulator {
        /// Simulated as published, from the published seeds where there are any
        Simulate = "simulate",
    }
}

/// An equation whose fields are predicted.
pub trait Equation: 'static {
    const NAME: &'static str;
    const ABOUT: &'static str;
    const DETAILS: &'static str;
    const EXAMPLES: &'static str;
    const TITLE: &'static str;
    const GROUP: &'static str;
    const PRESETS: &'static [Preset];
    const TIME: TimeAxis;
    type Source: DataSection;

    fn layout() -> &'static FieldLayout;
    /// The numbers of input and output frames.
    fn window(source: &Self::Source) -> (usize, usize);
    fn load(source: &Self::Source, split: Split) -> Result<FieldSet>;
    fn source() -> Self::Source;
    fn model() -> FieldModelConfig;
    fn train() -> Train;
    /// Checks settings of the model that are specific to the equation.
    fn check_model(_config: &FieldModelConfig) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// The task of an equation.
pub struct Fields<E>(PhantomData<E>);

impl<E: Equation> Fields<E> {
    fn windows(source: &E::Source, split: Split) -> Result<FieldWindows> {
        let windows = FieldWindows::new(Arc::new(E::load(source, split)?), E::window(source), E::TIME)?;
        // Training windows start at every frame. On space-time, evaluation windows start every `outputs` frames, so that they overlap only
        // where the inputs of one are outputs of the previous one.
        Ok(match (split, E::TIME) {
            (Split::Valid | Split::Test, TimeAxis::Grid) => windows.every(E::window(source).1),
            _ => windows,
        })
    }
}

impl<E: Equation> Task for Fields<E> {
    const NAME: &'static str = E::NAME;
    const ABOUT: &'static str = E::ABOUT;
    const DETAILS: &'static str = E::DETAILS;
    const EXAMPLES: &'static str = E::EXAMPLES;
    const TITLE: &'static str = E::TITLE;
    const LOSS: &'static str = "mean squared error of one step";
    const GROUP: &'static str = E::GROUP;
    const PRESETS: &'static [Preset] = E::PRESETS;
    type DataConfig = E::Source;
    type ModelConfig = FieldModelConfig;
    type Data = FieldWindows;
    type Model = FieldModel;

    fn defaults() -> TaskConfig<Self> {
        Config { data: E::source(), model: E::model(), train: E::train(), runtime: Runtime::default() }
    }

    fn check_model(config: &FieldModelConfig) -> Result<(), ConfigError> {
        at_least_one(&[
            ("model.hidden", config.hidden),
            ("model.blocks", config.blocks),
            ("model.taps", config.taps),
            ("model.modes", config.modes),
            ("model.kernel_hidden", config.kernel_hidden),
        ])?;
        if config.taps.is_multiple_of(2) {
            return refuse("model.taps", config.taps, "an odd number");
        }
        if config.kernel_layers < 2 {
            return refuse("model.kernel_layers", config.kernel_layers, "at least 2");
        }
        if config.conditioned && config.kind != FieldModelKind::Steerable {
            return refuse("model.conditioned", config.conditioned, "false, but for model.kind=steerable");
        }
        E::check_model(config)
    }

    fn load(source: &E::Source, split: Split) -> Result<FieldWindows> {
        Self::windows(source, split)
    }

    /// `data.train` counts trajectories, of which each has many windows.
    fn training_samples(data: &FieldWindows, source: &E::Source) -> usize {
        data.len().min(source.train() * data.starts())
    }

    fn init(
        config: &FieldModelConfig,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<FieldModel> {
        // If frames are channels, their number depends only on the equation, not on settings.
        let (inputs, outputs) = E::window(&E::source());
        let task = FieldTask { layout: E::layout(), time: E::TIME, inputs, outputs };
        FieldModel::init(config, &task, placement, rng)
    }

    fn fits(config: &FieldModelConfig, weights: &TensorFile) -> bool {
        let last = config.blocks - 1;
        match config.kind {
            FieldModelKind::Steerable => has(weights, &format!("CSBasicBlock_{last}.")),
            FieldModelKind::Clifford | FieldModelKind::Plain => has(weights, &format!("layers.{last}.")),
            FieldModelKind::Fourier => has(weights, &format!("layers.0.{last}.")),
        }
    }

    fn loss(model: &FieldModel, (inputs, targets): &Batch<Self>) -> gradewise_nn::Result<Tensor> {
        model.loss(inputs, targets)
    }

    fn measure(
        models: &[&FieldModel],
        data: &FieldWindows,
        placement: &Placement,
    ) -> gradewise_nn::Result<Measures> {
        measure(&|x| mean_of(models, x), data, placement)
    }

    fn asymmetry(
        model: &FieldModel,
        data: &FieldWindows,
        placement: &Placement,
        rng: &mut ChaCha8Rng,
    ) -> gradewise_nn::Result<f64> {
        let windows: Vec<usize> = (0..SYMMETRY_WINDOWS.min(data.len())).collect();
        let (inputs, _) = data.batch(&windows, placement)?;
        let first = E::layout().first_blade;
        let all = GridIsometry::all(&OrderedMetric::new(E::layout().metric)?);
        let plain = no_grad(|| model.forward(&inputs))?;
        let mut worst = 0f64;
        // A change is added to the last frame, which is the first one if time runs backwards.
        let directed = E::TIME == TimeAxis::Grid && model.predicts_change();
        let motions: Vec<_> = all[1..].iter().filter(|motion| !(directed && motion.reverses(0))).collect();
        for isometry in motions.sample(rng, MOTIONS) {
            // Skips isometries that exchange axes of different lengths.
            let Ok(moved) = isometry.apply(&inputs, first) else { continue };
            let after = no_grad(|| model.forward(&moved))?.array().to_f64_vec()?;
            let expected = isometry.apply(&plain, first)?.array().to_f64_vec()?;
            worst = worst.max(relative_distance(&after, &expected));
        }
        Ok(worst)
    }

    const ROLLOUT: Option<Rollout<Self>> = Some(|model, config, placement, steps, folder| {
        let data = Self::windows(&config.data, Split::Test)?;
        figures::follow(&|x| mean_of(&[model], x), &data, E::TITLE, steps, placement, folder)
    });

    fn comparison(measures: &Measures, config: &TaskConfig<Self>) -> Option<Comparison> {
        let data = Self::windows(&config.data, Split::Test).ok()?;
        let host = Placement::from(&gradewise_kernels::Device::Cpu);
        let stay = measure(&|x| persistence(&data, x), &data, &host).ok()?;
        let row = |name: &str, whose, measures: &Measures| {
            Compared::new(name, whose, measures.iter().map(|measure| measure.value).collect())
        };
        Some(Comparison {
            title: "test".to_owned(),
            columns: measures.iter().map(|measure| measure.key.to_owned()).collect(),
            rows: vec![
                row("the last frame again", Whose::Guess, &stay),
                row("this run", Whose::Ours, measures),
            ],
            instead: None,
        })
    }

    fn figures(
        model: &FieldModel,
        _: &Measures,
        config: &TaskConfig<Self>,
        placement: &Placement,
        folder: &RunFolder,
    ) -> Result<Vec<&'static str>> {
        let data = Self::windows(&config.data, Split::Test)?;
        figures::draw(&|x| mean_of(&[model], x), &data, E::TITLE, placement, folder)
    }
}

/// The errors of a predictor: for one step, and summed over the steps of a rollout.
fn measure(
    predict: Predictor<'_>,
    data: &FieldWindows,
    placement: &Placement,
) -> gradewise_nn::Result<Measures> {
    let errors = StepErrors::of(predict, data, BATCH, placement)?;
    let mut measures = Measures::new("mse", "MSE", errors.total());
    for (key, label, components) in data.set().layout().quantities {
        measures = measures.and(key, label, errors.mean(components.clone()));
    }
    let rollouts = RolloutErrors::of(predict, data, BATCH, placement)?.each();
    Ok(measures
        .and("smse", "SMSE (summed over components)", errors.summed())
        .and(
            "rollout",
            "rollout MSE (summed over steps)",
            rollouts.iter().sum::<f64>() / rollouts.len() as f64,
        )
        .and("rollout_median", "median over rollouts of the same", median(&rollouts))
        .of_samples(errors.each()))
}

/// The optimiser of the publications: AdamW with a cosine decay of the learning rate, and gradients clipped to norm 1.
pub fn adamw(steps: u64, lr: f64, batch_size: usize) -> Train {
    Train {
        trainer: TrainerConfig {
            steps,
            optimizer: OptimizerKind::AdamW,
            lr,
            weight_decay: 1e-5,
            schedule: ScheduleKind::Cosine,
            warmup_steps: steps / 20,
            decay_steps: steps - steps / 20,
            final_lr: 1e-6,
            clip_norm: Some(1.0),
            ..TrainerConfig::default()
        },
        batch_size,
        log_every: (steps / 40).max(1),
        eval_every: steps / 4,
        checkpoint_every: steps / 2,
        ..Train::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_runner::{config::Resolver, task::resolve};

    #[test]
    fn the_table_has_what_staying_gives_beside_this_run() {
        let mut resolver = Resolver::new(&Fields::<NavierStokes>::defaults()).unwrap();
        for setting in ["data.test=1", "data.cells=16", "data.factor=1"] {
            resolver.assignment(setting).unwrap();
        }
        let config = resolve::<Fields<NavierStokes>>(&resolver).unwrap();
        let measures = Measures::new("mse", "MSE", 0.25).and("smoke", "", 0.5);
        let table = Fields::<NavierStokes>::comparison(&measures, &config).unwrap().to_string();
        assert!(table.contains("the last frame again") && table.contains("> this run"), "{table}");
        assert!(table.lines().last().unwrap().contains("0.2500    0.5000"), "{table}");
    }

    #[test]
    fn training_draws_from_all_windows_of_the_trajectories_that_are_asked_for() {
        let source = |train: &str| {
            let mut resolver = Resolver::new(&Fields::<NavierStokes>::defaults()).unwrap();
            for setting in ["data.cells=16", "data.factor=1", "train.batch_size=1", train] {
                resolver.assignment(setting).unwrap();
            }
            resolve::<Fields<NavierStokes>>(&resolver).unwrap().data
        };
        let (two, three) = (source("data.train=2"), source("data.train=3"));
        let data = Fields::<NavierStokes>::load(&three, Split::Train).unwrap();
        let windows = |source| Fields::<NavierStokes>::training_samples(&data, source);
        // 14 frames have 10 windows of 4 and 1. The runs of a learning curve share the largest set.
        assert_eq!((data.len(), windows(&three), windows(&two)), (30, 30, 20));
    }

    #[test]
    fn what_a_model_cannot_be_is_refused_by_name() {
        let refused = |settings: &[&str]| {
            let mut resolver = Resolver::new(&Fields::<Charges>::defaults()).unwrap();
            for setting in settings {
                resolver.assignment(setting).unwrap();
            }
            resolve::<Fields<Charges>>(&resolver).unwrap_err().to_string()
        };
        assert!(refused(&["model.taps=4"]).contains("odd"));
        assert!(refused(&["model.kernel_layers=1"]).contains("at least 2"));
        assert!(refused(&["model.kind=fourier"]).contains("pseudoscalar"));
        assert!(refused(&["data.frames=7"]).contains("data.frames"));
        assert!(refused(&["data.factor=5"]).contains("data.factor"));
    }
}
