//! Networks of the program's own tasks, and the checkpoints of all.

use super::{
    super::Layout, CONDITIONAL, CONDITIONAL_SLIM, GATR, LGATR, Network, SLIM, Settings, gatr, lgatr, slim,
    written,
};
use crate::models::{GravityConfig, GravityKind, JetKind, JetTaggerConfig};
use gradewise_nn::checkpoint::{Checkpoint, TensorFile};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

const GRAVITY: &str = "gravity";
const LORENTZ: &str = "lorentz";
/// What stands before the names of the network's parameters in checkpoints of tasks, and in the published wrapper of GATr.
const NET: &str = "net.";

/// The network of `NBodyGATrWrapper`, or its `net` alone, as a checkpoint of the task `gravity`.
pub(super) fn gravity(file: &TensorFile, settings: &Settings) -> Result<Layout, String> {
    let is_wrapped = file.iter().all(|(name, _)| name.starts_with(NET));
    let found = gatr::config(&if is_wrapped { file.without_prefix(NET) } else { file.clone() }, settings)?;
    let config = GravityConfig {
        kind: GravityKind::Transformer,
        hidden: found.hidden_mv_channels,
        layers: found.num_blocks,
        scalars: found.hidden_s_channels,
        heads: found.attention.num_heads,
        substeps: 1,
        kicks: 1,
        softening: 0.0,
        corrections: false,
        robust: 0.0,
    };
    require_equal(&found, &config.gatr(), "gravity")?;
    let prefix = if is_wrapped { NET } else { "" };
    let layout = Network::GATr(found).layout(GRAVITY, file, [prefix, NET])?;
    Ok(Layout { config: written(&config)?, ..layout })
}

/// An LGATr or an LGATrSlim with the channels of the task `lorentz`, as a checkpoint of it.
pub(super) fn lorentz(file: &TensorFile, settings: &Settings) -> Result<Layout, String> {
    let config = |kind, hidden, layers, scalars, heads| JetTaggerConfig {
        kind,
        hidden,
        layers,
        units: 1,
        scalars,
        heads,
    };
    let (network, config) = if file.get("linear_in.weight_v").is_some() {
        let found = slim::config(file, settings)?;
        let sizes = (found.hidden_v_channels, found.num_blocks, found.hidden_s_channels, found.num_heads);
        let config = config(JetKind::Slim, sizes.0, sizes.1, sizes.2, sizes.3);
        require_equal(&found, &config.slim(), LORENTZ)?;
        (Network::Slim(found), config)
    } else {
        let found = lgatr::config(file, settings)?;
        let heads = found.attention.num_heads;
        let sizes = (found.hidden_mv_channels, found.num_blocks, found.hidden_s_channels);
        let config = config(JetKind::LGATr, sizes.0, sizes.1, sizes.2, heads);
        require_equal(&found, &config.lgatr(), LORENTZ)?;
        (Network::LGATr(found), config)
    };
    let layout = network.layout(LORENTZ, file, ["", NET])?;
    Ok(Layout { config: written(&config)?, ..layout })
}

/// The layout of a checkpoint, if lgatr has its network.
pub(in super::super) fn lgatr_of_checkpoint(checkpoint: &Checkpoint) -> Result<Layout, String> {
    let (tensors, metadata) = (&checkpoint.tensors, &checkpoint.metadata);
    let config = &metadata.model_config;
    match metadata.model.as_str() {
        LGATR => Network::LGATr(read(config)?).layout(LGATR, tensors, ["", ""]),
        CONDITIONAL => Network::Conditional(read(config)?).layout(CONDITIONAL, tensors, ["", ""]),
        SLIM => Network::Slim(read(config)?).layout(SLIM, tensors, ["", ""]),
        CONDITIONAL_SLIM => {
            Network::ConditionalSlim(read(config)?).layout(CONDITIONAL_SLIM, tensors, ["", ""])
        }
        LORENTZ => {
            let config: JetTaggerConfig = read(config)?;
            let network = match config.kind {
                JetKind::LGATr => Network::LGATr(config.lgatr()),
                JetKind::Slim => Network::Slim(config.slim()),
                JetKind::Messages => {
                    return Err("its model.kind is messages, expected lgatr or slim".to_owned());
                }
            };
            network.layout(LORENTZ, tensors, ["", NET])
        }
        other => Err(format!(
            "it is a checkpoint of `{other}`, and lgatr's models here are `{LGATR}`, `{CONDITIONAL}`, `{SLIM}`, `{CONDITIONAL_SLIM}` and `{LORENTZ}`"
        )),
    }
}

/// The layout of a checkpoint, if gatr has its network.
pub(in super::super) fn gatr_of_checkpoint(checkpoint: &Checkpoint) -> Result<Layout, String> {
    let (tensors, metadata) = (&checkpoint.tensors, &checkpoint.metadata);
    match metadata.model.as_str() {
        GATR => Network::GATr(read(&metadata.model_config)?).layout(GATR, tensors, ["", ""]),
        GRAVITY => {
            let config: GravityConfig = read(&metadata.model_config)?;
            if config.kind != GravityKind::Transformer {
                return Err(format!("its model.kind is {}, expected transformer", config.kind));
            }
            Network::GATr(config.gatr()).layout(GRAVITY, tensors, [NET, NET])
        }
        other => Err(format!(
            "it is a checkpoint of `{other}`, and gatr's models here are `{GATR}` and `{GRAVITY}`"
        )),
    }
}

fn read<T: DeserializeOwned>(config: &Value) -> Result<T, String> {
    serde_json::from_value(config.clone())
        .map_err(|error| format!("its model configuration is malformed: {error}"))
}

/// Refuses a published network whose settings are not those that a task gives it.
fn require_equal(found: &impl Serialize, expected: &impl Serialize, task: &str) -> Result<(), String> {
    let (found, expected) = (written(found)?, written(expected)?);
    let differs = |(key, value): (&String, &Value)| {
        let ours = &expected[key];
        (ours != value).then(|| format!("{key}={value} where the task has {ours}"))
    };
    let differing: Vec<String> = found.as_object().into_iter().flatten().filter_map(differs).collect();
    match differing.as_slice() {
        [] => Ok(()),
        _ => Err(format!("the task {task} has no such network: {}", differing.join(", "))),
    }
}
