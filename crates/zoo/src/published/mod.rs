//! Import and export of the weights of published models: conversion between the file of a `state_dict` and a checkpoint.
//!
//! Names are mapped and axes are permuted; no arithmetic is done, so a round trip is bit-exact. Every tensor is accounted for
//! ([`Account`]): all weights of the model must be present with the right shapes, tables of the algebra must have the right values, and any
//! other tensor is refused.
//!
//! ```no_run
//! use gradewise_nn::checkpoint::TensorFile;
//! use gradewise_zoo::published::{self, Library, PublishedModel};
//!
//! let file = TensorFile::read("state_dict.safetensors")?;
//! let (checkpoint, account) = published::import(&file, Library::Cgenn, PublishedModel::NBody)?;
//! println!("{} tensors were used", account.used.len());
//! checkpoint.write("checkpoint.safetensors")?;
//! # Ok::<(), gradewise_nn::Error>(())
//! ```

mod cgenn;
mod cliffordlayers;
mod flash;
mod folder;
mod settings;
mod transformers;

pub use folder::{export_folder, import_folder};
pub use settings::Settings;

use gradewise_nn::{
    Error, Result,
    checkpoint::{Checkpoint, CheckpointMetadata, FORMAT_VERSION, StoredTensor, TensorFile},
};
use std::collections::BTreeSet;

gradewise_nn::choices! {
    /// A library whose weights are known.
    pub enum Library {
        /// Clifford group equivariant networks in PyTorch (Ruhe et al. 2023)
        Cgenn = "cgenn",
        /// Flash Clifford, the fused layer for PyTorch and Triton
        FlashClifford = "flash-clifford",
        /// Clifford neural layers and geometric Clifford algebra networks for fields (Brandstetter et al. 2022, Ruhe et al. 2023)
        CliffordLayers = "cliffordlayers",
        /// The Lorentz-equivariant transformers of multivectors and of vectors (Spinner et al. 2024, Petitjean et al. 2025)
        Lgatr = "lgatr",
        /// The geometric algebra transformer of points (Brehmer et al. 2023)
        Gatr = "gatr",
    }
}

gradewise_nn::choices! {
    /// A published model.
    pub enum PublishedModel {
        /// NBodyCGGNN of cgenn: the task `nbody`; NBodyGATrWrapper of gatr: the task `gravity`
        NBody = "nbody",
        /// One or several layers of flash-clifford, under any names: nn::layers::CliffordLayer
        Layer = "layer",
        /// CliffordFluidNet2d of cliffordlayers, of residual or Fourier blocks: nn::fields::FieldNet
        Fluid = "fluid",
        /// CliffordMaxwellNet3d of cliffordlayers: nn::fields::FieldNet
        Maxwell = "maxwell",
        /// CliffordG3ResNet2d of cliffordlayers: nn::fields::G3ResNet
        G3ResNet = "g3-resnet",
        /// CliffordG3UNet2d of cliffordlayers: nn::fields::G3UNet
        G3UNet = "g3-unet",
        /// LGATr of lgatr: transformers::lgatr::LGATr
        LGATr = "lgatr",
        /// ConditionalLGATr of lgatr: transformers::lgatr::ConditionalLGATr
        Conditional = "lgatr-conditional",
        /// LGATrSlim of lgatr: transformers::slim::LGATrSlim
        Slim = "lgatr-slim",
        /// ConditionalLGATrSlim of lgatr: transformers::slim::ConditionalLGATrSlim
        ConditionalSlim = "lgatr-conditional-slim",
        /// LGATr or LGATrSlim of lgatr with the channels of the task `lorentz`
        Tagger = "tagger",
        /// GATr of gatr: transformers::gatr::GATr
        GATr = "gatr",
        /// AxialGATr of gatr: transformers::gatr::AxialGATr
        AxialGATr = "gatr-axial",
    }
}

/// A tensor, with its name and shape on both sides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The name in the published model.
    pub published: String,
    /// The name in the checkpoint.
    pub checkpoint: String,
    /// The shape in the published model.
    pub published_shape: Vec<usize>,
    /// The shape in the checkpoint.
    pub checkpoint_shape: Vec<usize>,
}

/// The use of every tensor. A file with a tensor that fits nowhere is refused, so the lists are complete.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Weights, in the order of their names in the checkpoint.
    pub used: Vec<Mapped>,
    /// Tensors of the published file that hold no weights: those that follow from the algebra, and those without elements. They were
    /// compared with the expected values (import), or written (export).
    pub derived: Vec<String>,
    /// Sections of the checkpoint that are not weights and have no place in a published file, such as those of an optimiser (export).
    pub left_out: Vec<String>,
    /// What stood before every name in the file, such as `module.` of `DistributedDataParallel` (import).
    pub prefix: Option<String>,
}

/// The name and layout of one weight in either library.
struct Weight {
    mapped: Mapped,
    /// Axis `axes[k]` of the published tensor is the k-th one here.
    axes: Vec<usize>,
}

impl Weight {
    fn new(published: String, checkpoint: String, shape: &[usize], axes: &[usize], here: &[usize]) -> Self {
        let mapped = Mapped {
            published,
            checkpoint,
            published_shape: shape.to_vec(),
            checkpoint_shape: here.to_vec(),
        };
        Self { mapped, axes: axes.to_vec() }
    }

    fn imported(&self, tensor: &StoredTensor) -> Option<StoredTensor> {
        tensor.permuted(&self.axes)?.reshaped(&self.mapped.checkpoint_shape)
    }

    fn exported(&self, tensor: &StoredTensor) -> Option<StoredTensor> {
        let turned: Vec<usize> = self.axes.iter().map(|&axis| self.mapped.published_shape[axis]).collect();
        let back: Vec<usize> =
            (0..self.axes.len()).filter_map(|k| self.axes.iter().position(|&axis| axis == k)).collect();
        tensor.reshaped(&turned)?.permuted(&back)
    }
}

/// All tensors of a model.
struct Layout {
    /// [`CheckpointMetadata::model`]
    model: &'static str,
    config: serde_json::Value,
    weights: Vec<Weight>,
    /// Published tensors that follow from the algebra, with their expected values.
    derived: Vec<(String, StoredTensor)>,
    /// Aliases of published weights, as (alias, name): a file may have either or both.
    copies: Vec<(String, String)>,
}

impl Layout {
    /// Finds a published weight by its name or an alias.
    fn find<'a>(&self, file: &'a TensorFile, name: &str) -> Option<&'a StoredTensor> {
        let second = || self.copies.iter().find(|(_, weight)| weight == name);
        file.get(name).or_else(|| file.get(&second()?.0))
    }
}

/// The weights of a published model as a checkpoint.
///
/// # Errors
/// [`Error::Published`] for a model that the library does not have, and for a file that lacks a weight, has tensors that do not belong to
/// the model, or has tables of another algebra; [`Error::Tensor`] for a weight of another shape, and for one that is not finite.
///
/// Names that all begin with the prefix of a wrapper ([`TensorFile::wrapping`]) are read without it.
pub fn import(file: &TensorFile, from: Library, model: PublishedModel) -> Result<(Checkpoint, Account)> {
    import_with(file, from, model, &Settings::default())
}

/// As [`import`], with settings of the published constructor that do not show in the weights.
///
/// # Errors
/// As [`import`]; [`Error::Published`] for settings that the model does not have, that are missing, or that do not fit the weights.
pub fn import_with(
    file: &TensorFile,
    from: Library,
    model: PublishedModel,
    settings: &Settings,
) -> Result<(Checkpoint, Account)> {
    // Layers have names of the user's own.
    let wrapping = file.wrapping().filter(|_| model != PublishedModel::Layer);
    let Some(prefix) = wrapping else { return import_named(file, from, model, settings) };
    let (checkpoint, account) = import_named(&file.without_prefix(&prefix), from, model, settings)?;
    Ok((checkpoint, Account { prefix: Some(prefix), ..account }))
}

/// As [`import_with`], of a file whose names are those of the model.
fn import_named(
    file: &TensorFile,
    from: Library,
    model: PublishedModel,
    settings: &Settings,
) -> Result<(Checkpoint, Account)> {
    const OPERATION: &str = "import";
    let refused = |reason: String, missing: Vec<String>, unused: Vec<String>| Error::Published {
        operation: OPERATION,
        path: file.path().to_owned(),
        reason,
        missing,
        unused,
    };
    let takes_settings = matches!(from, Library::Lgatr | Library::Gatr);
    if let Some(key) = settings.first_key().filter(|_| !takes_settings) {
        let reason = format!("models of {} take no settings, and `{key}` is given", name(from));
        return Err(refused(reason, Vec::new(), Vec::new()));
    }
    let layout = match (from, model) {
        (Library::Cgenn, PublishedModel::NBody) => cgenn::published(file),
        (Library::FlashClifford, PublishedModel::Layer) => flash::published(file),
        (
            Library::CliffordLayers,
            PublishedModel::Fluid
            | PublishedModel::Maxwell
            | PublishedModel::G3ResNet
            | PublishedModel::G3UNet,
        ) => cliffordlayers::published(file, model),
        (
            Library::Lgatr,
            PublishedModel::LGATr
            | PublishedModel::Conditional
            | PublishedModel::Slim
            | PublishedModel::ConditionalSlim
            | PublishedModel::Tagger,
        )
        | (Library::Gatr, PublishedModel::GATr | PublishedModel::AxialGATr | PublishedModel::NBody) => {
            transformers::published(file, model, settings)
        }
        _ => {
            let reason = format!("{} has no model `{}`", name(from), name(model));
            return Err(refused(reason, Vec::new(), Vec::new()));
        }
    };
    let layout = layout.map_err(|reason| refused(reason, Vec::new(), Vec::new()))?;
    let known: BTreeSet<&str> = layout
        .weights
        .iter()
        .map(|weight| weight.mapped.published.as_str())
        .chain(layout.derived.iter().map(|(name, _)| name.as_str()))
        .chain(layout.copies.iter().map(|(name, _)| name.as_str()))
        .collect();
    let missing: Vec<String> = layout
        .weights
        .iter()
        .map(|weight| &weight.mapped.published)
        .filter(|name| layout.find(file, name).is_none())
        .cloned()
        .collect();
    let unused: Vec<String> =
        file.iter().map(|(name, _)| name.to_owned()).filter(|name| !known.contains(name.as_str())).collect();
    if !missing.is_empty() || !unused.is_empty() {
        let reason = format!("it does not hold `{}` of {}", name(model), name(from));
        return Err(refused(reason, missing, unused));
    }
    let mut account = Account::default();
    for (name, expected) in &layout.derived {
        let Some(found) = file.get(name) else { continue };
        if found.shape() != expected.shape() || found.to_f64_vec() != expected.to_f64_vec() {
            let reason = "it is a table of the algebra, and not that of the model's algebra".to_owned();
            return Err(Error::Tensor { path: file.path().to_owned(), name: name.clone(), reason });
        }
        account.derived.push(name.clone());
    }
    for (copy, name) in &layout.copies {
        let Some(second) = file.get(copy) else { continue };
        if file.get(name).is_some_and(|first| first != second) {
            let reason = format!("it is a second name of `{name}`, and the two differ");
            return Err(Error::Tensor { path: file.path().to_owned(), name: copy.clone(), reason });
        }
        account.derived.push(copy.clone());
    }
    let mut tensors = TensorFile::new();
    for weight in &layout.weights {
        let mapped = &weight.mapped;
        let Some(tensor) = layout.find(file, &mapped.published) else { continue };
        let wrong = |expected: &[usize]| Error::Tensor {
            path: file.path().to_owned(),
            name: mapped.published.clone(),
            reason: format!(
                "it has dtype {} and shape {:?}, expected real numbers of shape {expected:?}",
                tensor.dtype_name(),
                tensor.shape()
            ),
        };
        if tensor.shape() != mapped.published_shape || tensor.dtype().is_none() {
            return Err(wrong(&mapped.published_shape));
        }
        require_finite(file, &mapped.published, tensor)?;
        let turned = weight.imported(tensor).ok_or_else(|| wrong(&mapped.published_shape))?;
        tensors.insert(mapped.checkpoint.clone(), turned);
        account.used.push(weight.mapped.clone());
    }
    let metadata = CheckpointMetadata {
        format_version: FORMAT_VERSION,
        model: layout.model.to_owned(),
        model_config: layout.config,
        step: 0,
        training: serde_json::Value::Null,
        members: Vec::new(),
    };
    Ok((Checkpoint { metadata, tensors }, account))
}

/// The weights of a checkpoint in the layout of the published model, with the tables of the algebra that its `load_state_dict` requires. If
/// the checkpoint has a moving average of the weights, the average is written, as `eval` and `infer` use it.
///
/// # Errors
/// [`Error::Published`] for a model that the library does not have, for settings that the published model does not support, and for a
/// checkpoint that lacks a weight or has others; [`Error::Tensor`] for a weight of another shape.
pub fn export(checkpoint: &Checkpoint, to: Library) -> Result<(TensorFile, Account)> {
    const OPERATION: &str = "export";
    let path = checkpoint.tensors.path();
    let refused = |reason: String, missing: Vec<String>, unused: Vec<String>| Error::Published {
        operation: OPERATION,
        path: path.to_owned(),
        reason,
        missing,
        unused,
    };
    let members = checkpoint.metadata.members.len();
    if members > 0 {
        let reason = format!("it is an ensemble of {members} models, and a state_dict is of one");
        return Err(refused(reason, Vec::new(), Vec::new()));
    }
    let layout = match to {
        Library::Cgenn => cgenn::of_checkpoint(checkpoint),
        Library::FlashClifford => flash::of_checkpoint(checkpoint),
        Library::CliffordLayers => cliffordlayers::of_checkpoint(checkpoint),
        Library::Lgatr | Library::Gatr => transformers::of_checkpoint(checkpoint, to),
    };
    let layout = layout.map_err(|reason| refused(reason, Vec::new(), Vec::new()))?;
    let averaged = checkpoint.tensors.section("ema").next().is_some();
    let source = |name: &str| if averaged { format!("ema::{name}") } else { name.to_owned() };
    let known: BTreeSet<&str> =
        layout.weights.iter().map(|weight| weight.mapped.checkpoint.as_str()).collect();
    let (mut missing, mut sections) = (Vec::new(), BTreeSet::new());
    for weight in &layout.weights {
        let name = source(&weight.mapped.checkpoint);
        if checkpoint.tensors.get(&name).is_none() {
            missing.push(name);
        }
    }
    let mut unused = Vec::new();
    for (name, _) in checkpoint.tensors.iter() {
        match name.split_once("::") {
            Some((section, _)) if averaged && section == "ema" => {}
            Some((section, _)) => _ = sections.insert(section.to_owned()),
            None if !known.contains(name) => unused.push(name.to_owned()),
            None => {}
        }
    }
    if !missing.is_empty() || !unused.is_empty() {
        let reason = format!("its weights are not those of `{}` in {}", layout.model, name(to));
        return Err(refused(reason, missing, unused));
    }
    let mut account = Account { left_out: sections.into_iter().collect(), ..Account::default() };
    let mut file = TensorFile::new();
    for weight in layout.weights {
        let mapped = &weight.mapped;
        let name = source(&mapped.checkpoint);
        let Some(tensor) = checkpoint.tensors.get(&name) else { continue };
        let turned = weight.exported(tensor).filter(|_| tensor.shape() == mapped.checkpoint_shape);
        let turned = turned.ok_or_else(|| Error::Tensor {
            path: path.to_owned(),
            name: name.clone(),
            reason: format!("its shape is {:?}, expected {:?}", tensor.shape(), mapped.checkpoint_shape),
        })?;
        file.insert(mapped.published.clone(), turned);
        account.used.push(weight.mapped);
    }
    for (copy, name) in layout.copies {
        let Some(tensor) = file.get(&name).cloned() else { continue };
        file.insert(copy.clone(), tensor);
        account.derived.push(copy);
    }
    for (name, table) in layout.derived {
        file.insert(name.clone(), table);
        account.derived.push(name);
    }
    Ok((file, account))
}

/// Refuses a weight that holds NaN or infinity: every prediction of the model would be NaN.
fn require_finite(file: &TensorFile, name: &str, tensor: &StoredTensor) -> Result<()> {
    let values = tensor.to_f64_vec().unwrap_or_default();
    let bad = values.iter().filter(|value| !value.is_finite()).count();
    let Some(first) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    Err(Error::Tensor {
        path: file.path().to_owned(),
        name: name.to_owned(),
        reason: format!(
            "{bad} of its {} elements are NaN or infinite, the first is {} at position {first}: the training that wrote it diverged; \
             import an earlier state_dict",
            values.len(),
            values[first]
        ),
    })
}

fn name(choice: impl gradewise_nn::choice::Choice) -> &'static str {
    choice.name()
}
