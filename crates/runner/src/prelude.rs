//! The imports that a task needs: `use gradewise_runner::prelude::*;`.

pub use crate::{
    config::{Config, ConfigError, DataSection, Runtime, Train, at_least_one, refuse},
    error::{Error, Result},
    run::RunFolder,
    task::{
        Argument, Batch, EVALUATION_BATCH, LONG_RUN, Measures, Predicted, Prediction, PredictionSize, Preset,
        SYMMETRY_SAMPLES, Source, Splits, Task, TaskConfig, TrainOption, has, mean_prediction, width,
    },
};
pub use gradewise_autograd::{Tensor, no_grad};
pub use gradewise_nn::{
    Placement,
    checkpoint::TensorFile,
    data::Split,
    train::{OptimizerKind, Samples, ScheduleKind, TrainerConfig, for_each_batch},
};
pub use rand_chacha::ChaCha8Rng;
