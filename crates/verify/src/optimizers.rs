//! Golden files of optimisers: a parameter, a sequence of gradients, and the trajectory.

use super::{Golden, TensorReport};
use gradewise_kernels::{
    Array,
    ops::optim::{self, Adam, Sgd, WeightDecay},
};

pub(super) fn run(golden: &Golden<'_>) -> Result<Vec<TensorReport>, String> {
    let options = golden.options;
    let text = |error: gradewise_kernels::Error| error.to_string();
    let read = |name: &str| {
        golden.file.array(name, options.dtype, &options.device).map_err(|error| error.to_string())
    };
    let mut parameter = read("in.p")?;
    let gradients = read("in.grads")?;
    let steps = gradients.shape().first().copied().unwrap_or(0);
    let (mut first, mut second) =
        (parameter.zeros_like().map_err(text)?, parameter.zeros_like().map_err(text)?);
    let mut trajectory = Vec::new();
    for step in 0..steps {
        let gradient: Array = gradients
            .slice(0, step..step + 1)
            .and_then(|row| row.reshape(parameter.shape()))
            .map_err(text)?;
        let step = step as u64 + 1;
        match golden.operation {
            "sgd" => {
                let constants = Sgd {
                    lr: golden.option("lr", 1e-3)?,
                    momentum: golden.option("momentum", 0.0)?,
                    weight_decay: golden.option("weight_decay", 0.0)?,
                    step,
                };
                optim::sgd(&constants, &mut parameter, &gradient, &mut first).map_err(text)?;
            }
            name => {
                let decoupled = name == "adamw";
                let constants = Adam {
                    lr: golden.option("lr", 1e-3)?,
                    betas: (0.9, 0.999),
                    eps: 1e-8,
                    weight_decay: golden.option("weight_decay", if decoupled { 1e-2 } else { 0.0 })?,
                    decay: if decoupled { WeightDecay::Decoupled } else { WeightDecay::L2 },
                    step,
                };
                optim::adam(&constants, &mut parameter, &gradient, &mut first, &mut second).map_err(text)?;
            }
        }
        trajectory.extend(parameter.to_f64_vec().map_err(text)?);
    }
    Ok(vec![golden.compare("trajectory", "out.trajectory", &trajectory)?])
}
