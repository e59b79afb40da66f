//! Networks of the program's own tasks, and the checkpoints of all.

use super::{
    super::{Layout, Library},
    AXIAL_GATR, CONDITIONAL, CONDITIONAL_SLIM, GATR, LGATR, Network, SLIM, Settings, gatr, lgatr, slim,
    written,
};
use crate::models::{GravityConfig, GravityKind, JetKind, JetTaggerConfig, Reference};
use gradewise_nn::{
    checkpoint::{Checkpoint, TensorFile},
    choice::Choice,
};
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
        reference: Reference::None,
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

/// The layout of a checkpoint, if the library has its network.
pub(in super::super) fn of_checkpoint(checkpoint: &Checkpoint, library: Library) -> Result<Layout, String> {
    let (network, model, prefixes) = found(checkpoint, library)?;
    network.layout(model, &checkpoint.tensors, prefixes)
}

/// The name and the settings of a checkpoint's network, if the library has it: of a task's network those of the network itself.
pub(in super::super) fn network_of_checkpoint(
    checkpoint: &Checkpoint,
    library: Library,
) -> Result<(&'static str, Value), String> {
    let (network, ..) = found(checkpoint, library)?;
    Ok((network.name(), network.config()?))
}

/// The network of a checkpoint, the name of its model, and what stands before published names and names in the checkpoint.
fn found(
    checkpoint: &Checkpoint,
    library: Library,
) -> Result<(Network, &'static str, [&'static str; 2]), String> {
    let config = &checkpoint.metadata.model_config;
    let is_gatr = library == Library::Gatr;
    let bare = |network, model| Ok((network, model, ["", ""]));
    match checkpoint.metadata.model.as_str() {
        LGATR if !is_gatr => bare(Network::LGATr(read(config)?), LGATR),
        CONDITIONAL if !is_gatr => bare(Network::Conditional(read(config)?), CONDITIONAL),
        SLIM if !is_gatr => bare(Network::Slim(read(config)?), SLIM),
        CONDITIONAL_SLIM if !is_gatr => bare(Network::ConditionalSlim(read(config)?), CONDITIONAL_SLIM),
        LORENTZ if !is_gatr => {
            let config: JetTaggerConfig = read(config)?;
            let network = match config.kind {
                JetKind::LGATr => Network::LGATr(config.lgatr()),
                JetKind::Slim => Network::Slim(config.slim()),
                kind @ (JetKind::Messages | JetKind::Pairs) => {
                    return Err(format!("its model.kind is {kind}, expected lgatr or slim"));
                }
            };
            Ok((network, LORENTZ, ["", NET]))
        }
        GATR if is_gatr => bare(Network::GATr(read(config)?), GATR),
        AXIAL_GATR if is_gatr => bare(Network::AxialGATr(read(config)?), AXIAL_GATR),
        GRAVITY if is_gatr => {
            let config: GravityConfig = read(config)?;
            if config.kind != GravityKind::Transformer {
                return Err(format!("its model.kind is {}, expected transformer", config.kind));
            }
            Ok((Network::GATr(config.gatr()), GRAVITY, [NET, NET]))
        }
        other => {
            let known: &[&str] = if is_gatr {
                &[GATR, AXIAL_GATR, GRAVITY]
            } else {
                &[LGATR, CONDITIONAL, SLIM, CONDITIONAL_SLIM, LORENTZ]
            };
            Err(format!(
                "it is a checkpoint of `{other}`, and {}'s models here are `{}`",
                library.name(),
                known.join("`, `")
            ))
        }
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
