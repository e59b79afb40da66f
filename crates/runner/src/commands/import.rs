//! `import`: converts the weights of a published model to a checkpoint.

use crate::{
    Command, Program,
    error::{Error, Result},
    options::one_of,
    output,
    run::Target,
};
use clap::Args;
use gradewise_nn::{
    checkpoint::{Checkpoint, ModelFolder, TensorFile},
    choice::Choice,
};
use gradewise_zoo::published::{self, Account, Library, PublishedModel, Settings};
use std::path::{Path, PathBuf};

/// Make a checkpoint of the weights of a published model.
///
/// The file is the `state_dict` of the PyTorch model, written by `safetensors.torch.save_file` or `save_model`, or the folder that
/// `save_pretrained` of a model of gradewise.torch wrote, which says library, model and arguments itself. Names are mapped and axes are
/// permuted, and no number changes. Every tensor is accounted for: a file that lacks a weight, or has one that the model does not have, is
/// refused. `export --to` is the inverse.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise import state_dict.safetensors --from cgenn --out checkpoint.safetensors
  gradewise eval --checkpoint checkpoint.safetensors
  gradewise import layers.safetensors --from flash-clifford --model layer --out layers-here.safetensors
  gradewise import lgatr.safetensors --from lgatr --model lgatr --out lgatr-here.safetensors attention.num_heads=8
  gradewise import my-tagger/ --out checkpoint.safetensors")]
pub struct Import {
    /// The published weights, or the folder of a model.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The library that the weights come from; a folder says it itself.
    #[arg(long, value_name = "LIBRARY", value_parser = one_of::<Library>())]
    pub from: Option<Library>,
    /// The model that the weights belong to [default: nbody, that of a folder its own].
    #[arg(long, value_parser = one_of::<PublishedModel>())]
    pub model: Option<PublishedModel>,
    /// The checkpoint to write. An earlier import of the same model is replaced, any other file only with --overwrite.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace whatever file --out names.
    #[arg(long)]
    pub overwrite: bool,
    /// Arguments of the published constructor that do not show in the weights (lgatr, gatr): the error says which are missing.
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
}

/// A checkpoint with the account of its tensors, and what it is of.
type Imported = ((Checkpoint, Account), String);

impl Import {
    /// The weights of a file.
    fn weights(&self) -> Result<Imported> {
        let Some(from) = self.from else {
            let path = self.file.display();
            return Err(Error::Usage(format!(
                "import {path}: a file does not say which library it is of; name it by --from"
            )));
        };
        let model = self.model.unwrap_or(PublishedModel::NBody);
        let settings = Settings::parse(&self.settings)?;
        let file = TensorFile::read(&self.file)?;
        let imported = published::import_with(&file, from, model, &settings)?;
        Ok((imported, format!("`{}` of {}", model.name(), from.name())))
    }

    /// The model of a folder.
    fn folder(&self) -> Result<Imported> {
        if self.from.is_some() || !self.settings.is_empty() {
            let path = self.file.display();
            return Err(Error::Usage(format!(
                "import {path}: a folder says itself which library it is of, and with which arguments; leave out --from and KEY=VALUE"
            )));
        }
        let folder = ModelFolder::read(&self.file)?;
        let imported = published::import_folder(&folder, self.model)?;
        Ok((imported, format!("a {}", folder.config.class)))
    }
}

impl Command for Import {
    const NAME: &'static str = "import";

    fn run(&self, _: &Program) -> Result<()> {
        let ((checkpoint, account), of) = if self.file.is_dir() { self.folder()? } else { self.weights()? };
        Target::new("--out", &self.out, self.overwrite)
            .require_free(&[&self.file], |path| is_import_of(path, &checkpoint.metadata.model))?;
        checkpoint.write(&self.out)?;
        output::print(&format!("{}: {of}; {}\n", self.out.display(), said(&account)))
    }
}

/// Whether a file holds imported weights of a model: they have no training state.
fn is_import_of(path: &Path, model: &str) -> bool {
    Checkpoint::read(path).is_ok_and(|Checkpoint { metadata, .. }| {
        metadata.model == model
            && metadata.step == 0
            && metadata.training.is_null()
            && metadata.members.is_empty()
    })
}

/// Describes the use of the tensors.
pub(super) fn said(account: &Account) -> String {
    let mut text = format!("{} tensors of weights", account.used.len());
    if !account.derived.is_empty() {
        text += &format!(", {} tables or empty tensors", account.derived.len());
    }
    if let Some(prefix) = &account.prefix {
        text += &format!(", named without `{prefix}`");
    }
    if !account.left_out.is_empty() {
        text += &format!(", without {}", account.left_out.join(", "));
    }
    text + "; none unused, none missing"
}
