//! `import`: converts the weights of a published model to a checkpoint.

use crate::{Command, Program, error::Result, options::one_of, output, run::Target};
use clap::Args;
use gradewise_nn::{
    checkpoint::{Checkpoint, TensorFile},
    choice::Choice,
};
use gradewise_zoo::published::{self, Account, Library, PublishedModel, Settings};
use std::path::{Path, PathBuf};

/// Make a checkpoint of the weights of a published model.
///
/// The file is the `state_dict` of the PyTorch model, written by `safetensors.torch.save_file` or `save_model`. Names are mapped and axes
/// are permuted, and no number changes. Every tensor is accounted for: a file that lacks a weight, or has one that the model does not have,
/// is refused. `export --to` is the inverse.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise import state_dict.safetensors --from cgenn --out checkpoint.safetensors
  gradewise eval --checkpoint checkpoint.safetensors
  gradewise import layers.safetensors --from flash-clifford --model layer --out layers-here.safetensors
  gradewise import lgatr.safetensors --from lgatr --model lgatr --out lgatr-here.safetensors attention.num_heads=8")]
pub struct Import {
    /// The published weights.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The library that the weights come from.
    #[arg(long, value_name = "LIBRARY", value_parser = one_of::<Library>())]
    pub from: Library,
    /// The model that the weights belong to.
    #[arg(long, default_value = "nbody", value_parser = one_of::<PublishedModel>())]
    pub model: PublishedModel,
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

impl Command for Import {
    const NAME: &'static str = "import";

    fn run(&self, _: &Program) -> Result<()> {
        let settings = Settings::parse(&self.settings)?;
        let file = TensorFile::read(&self.file)?;
        let (checkpoint, account) = published::import_with(&file, self.from, self.model, &settings)?;
        Target::new("--out", &self.out, self.overwrite)
            .require_free(&[&self.file], |path| is_import_of(path, &checkpoint.metadata.model))?;
        checkpoint.write(&self.out)?;
        let of = format!("`{}` of {}", self.model.name(), self.from.name());
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
