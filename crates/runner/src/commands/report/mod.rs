//! `report`: writes an archive with the information that an issue needs, and nothing else.

mod redact;

use crate::{
    Command, Program, doctor,
    error::{Error, Result},
    output,
    run::{RunFolder, Target, environment},
};
use clap::Args;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use gradewise_kernels::memory::Bytes;
use gradewise_nn::checkpoint::replace_file;
use redact::Redactor;
use std::{
    io::{BufRead, IsTerminal},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// The number of lines kept from the end of the record of a run, and of each log.
const LAST: usize = 200;

/// The folder of all files in the archive.
const FOLDER: &str = "gradewise-report";

/// The issue template, to be filled in.
const TEMPLATE: &str = include_str!("../../../issue-template.md");
/// Where issues are filed.
const ISSUES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/issues/new");

/// A file of the archive.
struct Entry {
    name: String,
    about: &'static str,
    text: String,
}

/// Make an archive for an issue: the machine, the doctor's report, and of a run its settings, last numbers and last error.
///
/// Secrets, names of the user and of the machine, addresses, and paths outside the run folder are left out. The contents are shown first,
/// and nothing is written before you confirm. The archive holds only text: no weights, no data.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise report runs/nbody-1                         shows what would go in, and asks
  gradewise report runs/nbody-1 --show environment.txt  the whole text of one of the files
  gradewise report runs/nbody-1 --yes --out issue.tar.gz
  gradewise report                                      of the machine alone")]
pub struct Report {
    /// The folder of a run.
    #[arg(value_name = "RUN")]
    pub run: Option<PathBuf>,
    /// The archive [default: gradewise-report-RUN.tar.gz]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write it without asking.
    #[arg(long)]
    pub yes: bool,
    /// Replace whatever file --out names, not only an earlier archive.
    #[arg(long)]
    pub overwrite: bool,
    /// Show the text of one of the files of the archive, and write nothing.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["yes", "out"])]
    pub show: Option<String>,
}

impl Command for Report {
    const NAME: &'static str = "report";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Report) -> Result<()> {
    let mut redactor = Redactor::new(arguments.run.as_deref());
    let mut entries = entries(arguments.run.as_deref())?;
    for entry in &mut entries {
        let json = entry.name.ends_with(".json") || entry.name.ends_with(".jsonl");
        entry.text = if json { redactor.json(&entry.text) } else { redactor.text(&entry.text) };
    }
    if let Some(name) = &arguments.show {
        return match entries.iter().find(|entry| entry.name == *name) {
            Some(entry) => output::print(&entry.text),
            None => {
                let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
                Err(Error::Usage(format!("--show {name}: there are {}", names.join(", "))))
            }
        };
    }
    let file = arguments.out.clone().unwrap_or_else(|| default_name(arguments.run.as_deref()));
    Target::new("--out", &file, arguments.overwrite).require_free(&[], is_archive)?;
    output::print(&listing(&entries, &redactor, arguments.run.as_deref()))?;
    if !arguments.yes && !confirmed(&file)? {
        return Err(Error::Usage(format!(
            "{} is not written; --yes writes it without asking",
            file.display()
        )));
    }
    let archive =
        archive(&entries).map_err(|error| Error::Output { path: file.clone(), reason: error.to_string() })?;
    replace_file(&file, |out| out.write_all(&archive))?;
    output::print(&format!(
        "{}: {}\nfile it at {ISSUES}: attach the archive, and say what you expected and what happened, as issue.md in it asks\n",
        file.display(),
        Bytes(archive.len())
    ))
}

fn default_name(run: Option<&Path>) -> PathBuf {
    let name = run
        .and_then(|run| run.canonicalize().ok())
        .and_then(|run| Some(run.file_name()?.to_string_lossy().into_owned()));
    PathBuf::from(name.map_or_else(
        || "gradewise-report.tar.gz".to_owned(),
        |name| format!("gradewise-report-{name}.tar.gz"),
    ))
}

/// The entries of the archive, not yet redacted.
fn entries(run: Option<&Path>) -> Result<Vec<Entry>> {
    let doctor = output::json(&doctor::examine(true))?;
    let entry = |name: &str, about, text| Entry { name: name.to_owned(), about, text };
    let mut entries = vec![
        entry(
            "environment.txt",
            "versions, system, variables of CUDA and of this program",
            environment::describe(),
        ),
        entry("doctor.json", "what gradewise doctor --quick --json finds", doctor),
        entry(
            "issue.md",
            "what the issue should say, to be filled in: expected against actual",
            TEMPLATE.to_owned(),
        ),
    ];
    let Some(run) = run else { return Ok(entries) };
    let folder = RunFolder::at(run);
    if !folder.config().is_file() && !folder.metrics().is_file() {
        return Err(Error::Usage(format!(
            "{} is not the folder of a run: it has no config.toml",
            run.display()
        )));
    }
    for (path, name, about) in [
        (folder.error(), "error.json", "the error that ended the run, with its causes and the command"),
        (folder.config(), "config.toml", "the settings, as resolved"),
        (folder.metrics(), "metrics.jsonl", "the last numbers of the run"),
    ] {
        if let Ok(text) = std::fs::read(&path) {
            entries.push(entry(name, about, last_lines(&String::from_utf8_lossy(&text))));
        }
    }
    let logs = std::fs::read_dir(run.join("logs")).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> =
        logs.map(|log| log.path()).filter(|log| log.extension().is_some_and(|e| e == "log")).collect();
    logs.sort();
    for log in logs {
        if let (Ok(text), Some(name)) = (std::fs::read(&log), log.file_name()) {
            let name = format!("logs/{}", name.to_string_lossy());
            entries.push(entry(
                &name,
                "the last words of a process",
                last_lines(&String::from_utf8_lossy(&text)),
            ));
        }
    }
    Ok(entries)
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST)..].join("\n") + "\n"
}

/// Lists the entries for the user to confirm.
fn listing(entries: &[Entry], redactor: &Redactor, run: Option<&Path>) -> String {
    let mut text = String::new();
    for Entry { name, about, text: content } in entries {
        text += &format!("{:>10}  {name:<18}{about}\n", Bytes(content.len()).to_string());
    }
    let run = run.map_or_else(String::new, |run| format!(" {}", run.display()));
    text += &format!(
        "\nleft out, {} times: secrets, names of user and machine, addresses, paths outside the run folder\n\
         to read one of them first: gradewise report{run} --show {}\n",
        redactor.replaced,
        entries.first().map_or("NAME", |entry| &entry.name)
    );
    text
}

/// Asks the user for confirmation; `false` without a terminal.
fn confirmed(file: &Path) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    output::print(&format!("write {}? [y/N] ", file.display()))?;
    let mut answer = String::new();
    // The end of input counts as a refusal.
    let _ = std::io::stdin().lock().read_line(&mut answer);
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

/// Whether a file is an archive of this command.
fn is_archive(path: &Path) -> bool {
    let Ok(file) = std::fs::File::open(path) else { return false };
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let first = archive.entries().ok().and_then(|mut entries| entries.next()?.ok());
    first.is_some_and(|entry| entry.path().is_ok_and(|path| path.starts_with(FOLDER)))
}

fn archive(entries: &[Entry]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for Entry { name, text, .. } in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(now);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()
}
