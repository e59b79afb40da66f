//! Folders in the layout of model hubs, as `gradewise.torch` writes them, to checkpoints and back.

use super::{Account, Library, PublishedModel, Settings, export, import_with};
use gradewise_nn::{
    Error, Result,
    checkpoint::{Checkpoint, FolderConfig, ModelFolder},
    choice::Choice,
};
use serde_json::{Map, Value, json};

/// The classes of `gradewise.torch` that have a network here, and the names of these networks in checkpoints.
const CLASSES: [(&str, Library, PublishedModel, &str); 7] = [
    ("gradewise.torch.lgatr.LGATr", Library::Lgatr, PublishedModel::LGATr, "lgatr"),
    (
        "gradewise.torch.lgatr.ConditionalLGATr",
        Library::Lgatr,
        PublishedModel::Conditional,
        "lgatr-conditional",
    ),
    ("gradewise.torch.lgatr.LGATrSlim", Library::Lgatr, PublishedModel::Slim, "lgatr-slim"),
    (
        "gradewise.torch.lgatr.ConditionalLGATrSlim",
        Library::Lgatr,
        PublishedModel::ConditionalSlim,
        "lgatr-conditional-slim",
    ),
    ("gradewise.torch.gatr.GATr", Library::Gatr, PublishedModel::GATr, "gatr"),
    ("gradewise.torch.gatr.AxialGATr", Library::Gatr, PublishedModel::AxialGATr, "gatr-axial"),
    ("gradewise.torch.cgenn.NBodyCGGNN", Library::Cgenn, PublishedModel::NBody, "nbody"),
];

/// Arguments of networks that change no prediction and no weight: memory, compilers, precision under autocast, and the shape in which
/// attention masks come.
const WITHOUT_EFFECT: [&str; 7] = [
    "activation_memory_budget",
    "checkpoint",
    "checkpoint_blocks",
    "collapse_dims",
    "compile",
    "compile_kwargs",
    "naive_amp",
];

/// Options of their parts likewise, and those that the network sets itself, beside all numbers of channels.
const WITHOUT_EFFECT_IN_PARTS: [&str; 5] =
    ["checkpoint", "dropout_prob", "output_init", "sparse_gp", "sparse_linear"];

/// Settings whose null is not that of an argument left out.
const NULL_COUNTS: [&str; 2] = ["dropout_prob", "nonlinearity_v"];

/// The model of a folder as a checkpoint. `model` says as which one: a `tagger` or `nbody` of the tasks in place of the bare network, that of
/// the folder's class if `None`.
///
/// # Errors
/// [`Error::Published`] for a class that has no network here, for arguments that this network does not have, and as [`import_with`].
pub fn import_folder(folder: &ModelFolder, model: Option<PublishedModel>) -> Result<(Checkpoint, Account)> {
    let class = folder.config.class.as_str();
    let refused = |reason: String| refused("import", folder.tensors.path(), reason);
    let Some(&(_, library, own, _)) = CLASSES.iter().find(|(known, ..)| *known == class) else {
        let known: Vec<&str> = CLASSES.iter().map(|(known, ..)| *known).collect();
        return Err(refused(format!(
            "there is no network of {class} here, expected one of {}",
            known.join(", ")
        )));
    };
    let model = model.unwrap_or(own);
    if library == Library::Cgenn {
        let (checkpoint, account) = import_with(&folder.tensors, library, model, &Settings::default())?;
        require_nbody(&folder.config.arguments, &checkpoint.metadata.model_config).map_err(refused)?;
        return Ok((checkpoint, account));
    }
    import_with(&folder.tensors, library, model, &settings(&folder.config.arguments))
}

/// The network of a checkpoint as a folder that `from_pretrained` of its PyTorch class reads. What [`export`] says of weights holds here too.
///
/// # Errors
/// As [`export`]; [`Error::Published`] for a library whose folders are not known.
pub fn export_folder(checkpoint: &Checkpoint, to: Library) -> Result<(ModelFolder, Account)> {
    let (tensors, account) = export(checkpoint, to)?;
    let path = checkpoint.tensors.path();
    let config = &checkpoint.metadata.model_config;
    let (name, config) = match (to, checkpoint.metadata.model.as_str()) {
        (Library::Cgenn, name) => (name, arguments_of_nbody(config)),
        (Library::Lgatr | Library::Gatr, _) => {
            let (name, config) = super::transformers::network_of_checkpoint(checkpoint, to)
                .map_err(|reason| refused("export", path, reason))?;
            (name, arguments(config, to))
        }
        _ => ("", None),
    };
    let class = CLASSES.iter().find(|(_, library, _, known)| *library == to && *known == name);
    let (Some((class, ..)), Some(arguments)) = (class, config) else {
        let reason = format!(
            "folders are written for cgenn, lgatr and gatr, not for {}; leave out --pretrained",
            to.name()
        );
        return Err(refused("export", path, reason));
    };
    // The published wrapper of the task `gravity` names its network `net`; the folder is of the network.
    let tensors = if tensors.iter().all(|(name, _)| name.starts_with("net.")) {
        tensors.without_prefix("net.")
    } else {
        tensors
    };
    Ok((ModelFolder { config: FolderConfig::new(*class, arguments), tensors }, account))
}

/// The arguments that show in predictions, as settings.
fn settings(arguments: &Map<String, Value>) -> Settings {
    let mut kept = Map::new();
    for (key, value) in arguments {
        let is_left_out = value.is_null() && !NULL_COUNTS.contains(&key.as_str());
        if is_left_out || WITHOUT_EFFECT.contains(&key.as_str()) {
            continue;
        }
        let part = |options: &Map<String, Value>| {
            let is_kept = |(key, value): &(&String, &Value)| {
                // GATr's `increase_hidden_channels` is a ratio.
                let is_size = key.ends_with("_channels") && *key != "increase_hidden_channels";
                !(is_size || value.is_null() || WITHOUT_EFFECT_IN_PARTS.contains(&key.as_str()))
            };
            let options = options.iter().filter(is_kept);
            Value::Object(options.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        kept.insert(key.clone(), value.as_object().map_or_else(|| value.clone(), part));
    }
    Settings(kept)
}

/// Settings as arguments of the published constructor, which takes no list for no reinsertion; that of GATr no number for no scalars.
fn arguments(config: Value, to: Library) -> Option<Map<String, Value>> {
    let Value::Object(mut arguments) = config else { return None };
    for key in ["in_s_channels", "out_s_channels"] {
        if to == Library::Gatr && arguments.get(key) == Some(&json!(0)) {
            arguments.insert(key.to_owned(), Value::Null);
        }
    }
    for key in ["reinsert_mv_channels", "reinsert_s_channels"] {
        if arguments.get(key).is_some_and(|list| list.as_array().is_some_and(Vec::is_empty)) {
            arguments.insert(key.to_owned(), Value::Null);
        }
    }
    Some(arguments)
}

/// Refuses an n-body network that the task does not have.
fn require_nbody(arguments: &Map<String, Value>, config: &Value) -> Result<(), String> {
    let expected = [
        ("in_features", json!(3)),
        ("hidden_features", config["hidden"].clone()),
        ("out_features", json!(1)),
        ("edge_features_in", json!(1)),
        ("n_layers", config["layers"].clone()),
        ("residual", json!(true)),
    ];
    for (key, expected) in expected {
        let Some(found) = arguments.get(key).filter(|found| **found != expected) else { continue };
        return Err(format!("its {key} is {found}, and the network here has {expected}"));
    }
    // None leaves the normalization out, for which there are no weights either.
    Ok(())
}

fn arguments_of_nbody(config: &Value) -> Option<Map<String, Value>> {
    let arguments = json!({
        "in_features": 3, "hidden_features": config["hidden"], "out_features": 1, "edge_features_in": 1,
        "n_layers": config["layers"], "normalization_init": 0, "residual": true,
    });
    arguments.as_object().cloned()
}

fn refused(operation: &'static str, path: &std::path::Path, reason: String) -> Error {
    Error::Published { operation, path: path.to_owned(), reason, missing: Vec::new(), unused: Vec::new() }
}
