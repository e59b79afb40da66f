//! `export`: the record of a run for other programs and for people.

mod figures;
mod program;
mod tensorboard;

use super::import::said;
use crate::{
    TaskCommand,
    error::{Error, Result},
    options::one_of,
    output, page,
    run::{Contents, RunFolder, Target},
    task::Task,
};
use clap::Args;
use gradewise_core::DType;
use gradewise_nn::{
    checkpoint::{Checkpoint, SHARD_BYTES, TensorFile, replace_file},
    choice::Choice,
    train::MetricsLog,
};
use gradewise_zoo::published::{self, Library};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The numbers of a record by display name; names of nested objects are joined by `/`.
fn scalars(record: &Value) -> Vec<(String, f64)> {
    fn collect(prefix: &str, value: &Value, found: &mut Vec<(String, f64)>) {
        match value {
            Value::Number(number) => found.extend(number.as_f64().map(|value| (prefix.to_owned(), value))),
            Value::Bool(flag) => found.push((prefix.to_owned(), f64::from(u8::from(*flag)))),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
                    collect(&name, value, found);
                }
            }
            Value::Null | Value::String(_) | Value::Array(_) => {}
        }
    }
    let mut found = Vec::new();
    collect("", record, &mut found);
    found.retain(|(name, _)| name != "step");
    found
}

/// The start time of the run: the modification time of the file, when the last record was written, minus the seconds of that record.
fn beginning(path: &Path, records: &[Value]) -> f64 {
    let changed = std::fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(UNIX_EPOCH);
    let last = records.iter().filter_map(|record| record["seconds"].as_f64()).fold(0.0, f64::max);
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64();
    (since(changed) - last).max(0.0)
}

/// What `--to` writes for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Destination {
    /// A program in C.
    C,
    /// A model of ONNX.
    Onnx,
    /// The weights for a library.
    Library(Library),
}

impl Choice for Destination {
    const ALL: &'static [Self] = &[
        Self::C,
        Self::Onnx,
        Self::Library(Library::Cgenn),
        Self::Library(Library::FlashClifford),
        Self::Library(Library::CliffordLayers),
        Self::Library(Library::Lgatr),
        Self::Library(Library::Gatr),
    ];

    fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Onnx => "onnx",
            Self::Library(library) => library.name(),
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::C => {
                "One self-contained C99 file without heap: the prediction for one sample of fixed size"
            }
            Self::Onnx => {
                "A model of ONNX in standard operators (opset 18): the prediction for batches of samples of fixed size"
            }
            Self::Library(library) => library.about(),
        }
    }
}

/// Write the record of runs for TensorBoard and as one page with their figures, the figures for a paper, the weights of a run for another
/// library, or its prediction as C or ONNX.
///
/// Writes into the folder of each run: events.out.tfevents.… with every number of metrics.jsonl, and report.html, which is self-contained;
/// both unless one or --figures is selected. A second export replaces the first. An unfinished run can be exported at any time. The folder of --seeds or
/// --curve gets a page with all its runs. Several folders are put side by side on one page, which --out names.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise export runs/nbody-1
  gradewise export runs/nbody-1 --tensorboard && tensorboard --logdir runs
  gradewise export runs/nbody-1 --figures pdf,csv
  gradewise export runs/nbody-1 runs/nbody-2 --out comparison.html
  gradewise export runs/nbody-1 --to cgenn --out state_dict.safetensors
  gradewise export runs/lorentz-1 --to lgatr --pretrained my-tagger
  gradewise export runs/lorentz-1 --to c --out tagger.c --name tagger --particles 20
  gradewise export runs/lorentz-1 --to onnx --out tagger.onnx")]
pub struct Export {
    /// The folder of a run, of --seeds or of --curve; with --to, a checkpoint may be named instead.
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Write events for TensorBoard.
    #[arg(long)]
    pub tensorboard: bool,
    /// Write the page.
    #[arg(long)]
    pub html: bool,
    /// Write each figure of the folder also as PDF, or its points as CSV, or both: pdf,csv.
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<figures::Format>(), value_delimiter = ',')]
    pub figures: Vec<figures::Format>,
    /// Write the weights in the layout of the published model of this library, for its load_state_dict (`import` is the inverse), or, for c and
    /// onnx, the prediction.
    #[arg(long, value_name = "LIBRARY", value_parser = one_of::<Destination>(),
        conflicts_with_all = ["tensorboard", "html", "figures"])]
    pub to: Option<Destination>,
    /// With --to c: the first part of all names in the file; with --to onnx the name of the graph [default: the task's].
    #[arg(long, value_name = "NAME", requires = "to")]
    pub name: Option<String>,
    /// With --to c or onnx: float (f32) or double (f64) [default: f32].
    #[arg(long, value_parser = one_of::<DType>(), ignore_case = true, hide_possible_values = true, requires = "to")]
    pub dtype: Option<DType>,
    /// With --to c or onnx: the most particles of a sample [default: those of the run].
    #[arg(long, value_name = "N", requires = "to")]
    pub particles: Option<usize>,
    /// With --to: the folder for these weights, with config.json beside them, which from_pretrained of gradewise.torch reads. The weights of
    /// an earlier model there are replaced only with --overwrite.
    #[arg(long, value_name = "FOLDER", requires = "to", conflicts_with = "out")]
    pub pretrained: Option<PathBuf>,
    /// The file for these weights, or for the page of several runs [default of the page: comparison.html]. An earlier export is replaced,
    /// any other file only with --overwrite.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace whatever file --out names.
    #[arg(long)]
    pub overwrite: bool,
}

impl Export {
    /// What a prediction is written as, the file, and the checkpoint that it is made of, if that is what is asked for.
    fn program(&self) -> Result<Option<(Destination, &Path, PathBuf)>> {
        let Some(to @ (Destination::C | Destination::Onnx)) = self.to else {
            return match (&self.name, self.dtype, self.particles) {
                (None, None, None) => Ok(None),
                _ => Err(Error::Usage(
                    "--name, --dtype and --particles are for --to c and --to onnx".to_owned(),
                )),
            };
        };
        let language = to.name();
        match (&self.out, &self.runs[..]) {
            (Some(out), [run]) if self.pretrained.is_none() => Ok(Some((to, out, checkpoint_of(run)))),
            (_, [_]) => Err(Error::Usage(format!("--to {language} asks for --out, the file"))),
            _ => Err(Error::Usage(format!("--to {language} takes one run or checkpoint"))),
        }
    }

    /// All but programs.
    fn plain(&self) -> Result<()> {
        let library = match self.to {
            Some(Destination::Library(library)) => Some(library),
            Some(Destination::C | Destination::Onnx) | None => None,
        };
        match (library, &self.out, &self.runs[..]) {
            (None, None, _) if self.overwrite => Err(Error::Usage(
                "--overwrite is for the file of --out, or the folder of --pretrained".to_owned(),
            )),
            (Some(library), Some(out), [run]) => {
                weights(run, library, Target::new("--out", out, self.overwrite), out)
            }
            (Some(library), None, [run]) => match &self.pretrained {
                Some(out) => model_folder(run, library, out, self.overwrite),
                None => Err(Error::Usage(
                    "--to asks for --out, the file of the weights, or for --pretrained, their folder"
                        .to_owned(),
                )),
            },
            (Some(_), ..) => Err(Error::Usage(
                "--to takes the weights of one run; name one folder or checkpoint".to_owned(),
            )),
            (None, Some(_), [_]) => Err(Error::Usage(
                "--out is for --to, or for the page of several runs; the page of one run is in its folder"
                    .to_owned(),
            )),
            _ => run(self),
        }
    }
}

impl TaskCommand for Export {
    const NAME: &'static str = "export";
    type Input = Checkpoint;

    fn start(&self) -> Result<Option<(String, Checkpoint)>> {
        let Some((_, _, path)) = self.program()? else {
            self.plain()?;
            return Ok(None);
        };
        let checkpoint = Checkpoint::read(path)?;
        Ok(Some((checkpoint.metadata.model.clone(), checkpoint)))
    }

    fn run<T: Task>(&self, checkpoint: Checkpoint) -> Result<()> {
        match self.program()? {
            Some((to, out, _)) => program::write::<T>(self, &checkpoint, to, out),
            None => Ok(()),
        }
    }
}

/// The file of a checkpoint, or of a run's.
fn checkpoint_of(run: &Path) -> PathBuf {
    if run.is_dir() { RunFolder::at(run).checkpoint() } else { run.to_owned() }
}

/// Writes the weights of a checkpoint, or of a run, as the folder of a model.
fn model_folder(run: &Path, library: Library, out: &Path, overwrite: bool) -> Result<()> {
    let (folder, account) = published::export_folder(&Checkpoint::read(checkpoint_of(run))?, library)?;
    if !overwrite && std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::Usage(format!(
            "--pretrained {}: the folder is not empty; name another one, or replace the model in it by --overwrite",
            out.display()
        )));
    }
    folder.write(out, SHARD_BYTES)?;
    output::print(&format!("{}: a {}; {}\n", out.display(), folder.config.class, said(&account)))
}

/// Writes the weights of a checkpoint, or of a run, for another library.
fn weights(run: &Path, library: Library, target: Target<'_>, out: &Path) -> Result<()> {
    let path = checkpoint_of(run);
    let (file, account) = published::export(&Checkpoint::read(&path)?, library)?;
    let names = |file: &TensorFile| file.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    target.require_free(&[&path], |earlier| {
        TensorFile::read(earlier)
            .is_ok_and(|found| found.metadata == file.metadata && names(&found) == names(&file))
    })?;
    file.write(out)?;
    output::print(&format!("{}: for {}; {}\n", out.display(), library.name(), said(&account)))
}

fn run(arguments: &Export) -> Result<()> {
    let with_all = !(arguments.tensorboard || arguments.html) && arguments.figures.is_empty();
    let (with_events, with_page) = (arguments.tensorboard || with_all, arguments.html || with_all);
    let mut written: Vec<PathBuf> = Vec::new();
    let mut all: Vec<PathBuf> = Vec::new();
    for path in &arguments.runs {
        let contents = Contents::of(path)?;
        let runs = contents.runs(path);
        for run in &runs {
            let folder = RunFolder::at(run);
            if with_events {
                written.push(events(&folder)?);
            }
            if with_page {
                written.push(page::write(&folder)?);
            }
            if !arguments.figures.is_empty() {
                written.extend(figures::write(run, &arguments.figures)?);
            }
        }
        if with_page && contents != Contents::Run {
            written.push(page::write_of(path)?);
        }
        if !arguments.figures.is_empty() && contents != Contents::Run {
            written.extend(figures::write(path, &arguments.figures)?);
        }
        all.extend(runs);
    }
    if with_page && arguments.runs.len() > 1 {
        let path = arguments.out.clone().unwrap_or_else(|| PathBuf::from("comparison.html"));
        Target::new("--out", &path, arguments.overwrite).require_free(&[], page::is_page)?;
        let names: Vec<String> = arguments.runs.iter().map(|run| run.display().to_string()).collect();
        written.push(page::write_several(&names.join(", "), &all, &path)?);
    }
    let lines: Vec<String> = written.iter().map(|path| format!("{}\n", path.display())).collect();
    output::print(&lines.concat())
}

/// Writes the events of a run for TensorBoard.
fn events(folder: &RunFolder) -> Result<PathBuf> {
    let records = match folder.metrics().exists() {
        true => MetricsLog::read(folder.metrics())?,
        false => Vec::new(),
    };
    if records.is_empty() {
        return Err(Error::Usage(format!(
            "{} holds no records; name the folder of a run that has taken steps",
            folder.metrics().display()
        )));
    }
    let start = beginning(&folder.metrics(), &records);
    let bytes = tensorboard::events(&records, start);
    // TensorBoard recognises this name. It is the same for every export of a run, so that a second export replaces the first.
    let path = folder.file(&format!("events.out.tfevents.{:010}.gradewise", start as u64));
    replace_file(&path, |file| file.write_all(&bytes))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::scalars;
    use serde_json::json;

    #[test]
    fn numbers_are_found_in_depth() {
        let record = json!({"step": 3, "train_loss": 0.5, "clipped": true, "memory": {"peak": 10, "note": "text"}, "list": [1]});
        let mut found = scalars(&record);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [("clipped", 1.0), ("memory/peak", 10.0), ("train_loss", 0.5)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
    }
}
