//! A task of one's own: y = 3x − 1 from examples.

use gradewise_nn::{
    layers::{Layer, Linear},
    loss::mean_squared_error,
};
use gradewise_runner::{Program, prelude::*};
use gradewise_zoo::data::npy::NpyArray;
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Losses computed so far.
pub static LOSSES: AtomicUsize = AtomicUsize::new(0);
/// The loss at which this process is sent Ctrl-C; none at 0.
pub static INTERRUPT_AT: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Data {
    /// The slope.
    slope: f64,
    #[serde(flatten)]
    splits: Splits,
}

impl DataSection for Data {
    fn validate(&self) -> Result<(), ConfigError> {
        self.splits.validate()
    }

    fn train(&self) -> usize {
        self.splits.train
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Model {
    /// Outputs, of which the mean is the prediction.
    outputs: usize,
    /// Whether the first loss panics.
    panics: bool,
}

pub struct Points(Vec<(f64, f64)>);

impl Samples for Points {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn batch(&self, indices: &[usize], place: &Placement) -> gradewise_nn::Result<Self::Batch> {
        let (x, y): (Vec<f64>, Vec<f64>) = indices.iter().map(|&index| self.0[index]).unzip();
        Ok((place.tensor(&x, [x.len(), 1])?, place.tensor(&y, [y.len(), 1])?))
    }
}

#[derive(gradewise_nn::Module)]
pub struct Net {
    #[module(flatten)]
    linear: Linear,
    #[module(skip)]
    panics: bool,
}

macro_rules! task {
    ($name:ident, $word:literal, {$($inference:tt)*}) => {
        pub struct $name;

        impl Task for $name {
            const NAME: &'static str = $word;
            const ABOUT: &'static str = "A line";
            type DataConfig = Data;
            type ModelConfig = Model;
            type Data = Points;
            type Model = Net;

            fn defaults() -> TaskConfig<Self> {
                let splits = Splits { train: 16, valid: 8, test: 8 };
                let trainer = TrainerConfig { steps: 6, lr: 0.1, ..TrainerConfig::default() };
                let train = Train { trainer, batch_size: 8, ..Train::default() };
                let model = Model { outputs: 1, panics: false };
                Config { data: Data { slope: 3.0, splits }, model, train, runtime: Runtime::default() }
            }

            fn load(config: &Data, split: Split) -> Result<Points> {
                let x = |index: usize| (index as f64 * 0.37 + split as u64 as f64).sin();
                let count = config.splits.of(split);
                Ok(Points((0..count).map(|index| (x(index), config.slope * x(index) - 1.0)).collect()))
            }

            fn init(model: &Model, place: &Placement, rng: &mut ChaCha8Rng) -> gradewise_nn::Result<Net> {
                Ok(Net { linear: Linear::new(1, model.outputs).init(place, rng)?, panics: model.panics })
            }

            fn loss(model: &Net, (x, y): &(Tensor, Tensor)) -> gradewise_nn::Result<Tensor> {
                assert!(!model.panics, "a loss that panics");
                if LOSSES.fetch_add(1, Ordering::SeqCst) + 1 == INTERRUPT_AT.load(Ordering::SeqCst) {
                    let process = std::process::id().to_string();
                    let sent = std::process::Command::new("kill").args(["-INT", &process]).status();
                    assert!(sent.is_ok_and(|status| status.success()));
                    // The signal is handled by a thread of its own.
                    std::thread::sleep(std::time::Duration::from_millis(300));
                }
                mean_squared_error(&model.linear.forward(x)?.mean(&[1], true)?, y)
            }

            fn measure(models: &[&Net], data: &Points, place: &Placement) -> gradewise_nn::Result<Measures> {
                let found = mean_prediction(models, |model| predictions(model, data, place))?;
                let squares: f64 = found.iter().zip(&data.0).map(|(a, (_, b))| (a - b).powi(2)).sum();
                Ok(Measures::new("mse", "MSE", squares / data.0.len() as f64))
            }

            $($inference)*
        }
    };
}

fn predictions(model: &Net, data: &Points, place: &Placement) -> gradewise_nn::Result<Vec<f64>> {
    let mut values = Vec::new();
    for_each_batch(data, EVALUATION_BATCH, place, |(x, _)| {
        values.extend(no_grad(|| model.linear.forward(x))?.mean(&[1], false)?.array().to_f64_vec()?);
        Ok(())
    })?;
    Ok(values)
}

task!(Line, "line", {
    fn read(path: &Path, config: &TaskConfig<Self>) -> Result<Points> {
        let array = NpyArray::read(path)?;
        array.expect_shape(path, &[None], "one x for each sample")?;
        Ok(Points(array.values.iter().map(|&x| (x, config.data.slope)).collect()))
    }

    fn predict(model: &Net, data: &Points, place: &Placement) -> Result<Predicted> {
        Ok(Predicted { shape: vec![data.len()], values: predictions(model, data, place)? })
    }
});

task!(Silent, "silent", {});

/// The exit status of a command line of the program with both tasks.
pub fn run(line: &str) -> u8 {
    let words = std::iter::once("lines").chain(line.split_whitespace()).map(OsString::from);
    Program::new().name("lines").task::<Line>().task::<Silent>().run(words.collect())
}
