//! What a folder holds: a run, runs of several seeds, or a learning curve.

use super::RunFolder;
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The runs of a folder.
#[derive(Clone, PartialEq, Debug)]
pub enum Contents {
    /// One run.
    Run,
    /// The runs of `--seeds`, by seed.
    Seeds(Vec<(u64, PathBuf)>),
    /// The runs of `--curve`, by number of training samples, then by seed.
    Curve(Vec<(u64, Vec<(u64, PathBuf)>)>),
}

impl Contents {
    /// The runs of a folder.
    ///
    /// # Errors
    /// A folder that is missing or holds no run, with the runs in the folders below it.
    pub fn of(path: &Path) -> Result<Self> {
        Self::found(path).ok_or_else(|| Error::Usage(none(path)))
    }

    fn found(path: &Path) -> Option<Self> {
        if is_run(path) {
            return Some(Self::Run);
        }
        let seeds = seeds(path);
        if !seeds.is_empty() {
            return Some(Self::Seeds(seeds));
        }
        let points =
            numbered(path, "train-").into_iter().map(|(samples, folder)| (samples, self::seeds(&folder)));
        let curve: Vec<_> = points.filter(|(_, runs)| !runs.is_empty()).collect();
        (!curve.is_empty()).then_some(Self::Curve(curve))
    }

    /// All folders of runs; `path` is the folder itself.
    pub fn runs(&self, path: &Path) -> Vec<PathBuf> {
        match self {
            Self::Run => vec![path.to_owned()],
            Self::Seeds(runs) => runs.iter().map(|(_, run)| run.clone()).collect(),
            Self::Curve(points) => {
                points.iter().flat_map(|(_, runs)| runs).map(|(_, run)| run.clone()).collect()
            }
        }
    }
}

fn is_run(path: &Path) -> bool {
    let folder = RunFolder::at(path);
    folder.metrics().is_file() || folder.config().is_file()
}

fn seeds(path: &Path) -> Vec<(u64, PathBuf)> {
    numbered(path, "seed-").into_iter().filter(|(_, folder)| is_run(folder)).collect()
}

/// The folders `<prefix>N`, in the order of N.
fn numbered(path: &Path, prefix: &str) -> Vec<(u64, PathBuf)> {
    let number = |folder: &PathBuf| folder.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok();
    let mut found: Vec<(u64, PathBuf)> =
        folders(path).into_iter().filter_map(|folder| Some((number(&folder)?, folder))).collect();
    found.sort();
    found
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// The message about a folder without a run.
fn none(path: &Path) -> String {
    let shown = path.display();
    if !path.is_dir() {
        let what = if path.exists() { "is a file" } else { "does not exist" };
        return format!("{shown} {what}; name the folder of a run, of --seeds or of --curve");
    }
    let mut below: Vec<String> = folders(path)
        .iter()
        .filter(|folder| Contents::found(folder).is_some())
        .map(|run| run.display().to_string())
        .collect();
    below.sort();
    match below.len() {
        0 => format!("{shown} holds no run: it has neither metrics.jsonl nor folders seed-N or train-N"),
        1..=6 => format!("{shown} is not the folder of a run; name one of {}", below.join(", ")),
        more => format!(
            "{shown} is not the folder of a run; name one of {} and {} more",
            below[..6].join(", "),
            more - 6
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_told_apart_and_advice_names_what_is_below() {
        let here = tempfile::tempdir().unwrap();
        let run = |name: &str| {
            let folder = here.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("metrics.jsonl"), "").unwrap();
            folder
        };
        let (ten, two) = (run("seeds/seed-10"), run("seeds/seed-2"));
        let seeds = here.path().join("seeds");
        assert_eq!(Contents::of(&ten).unwrap(), Contents::Run);
        assert_eq!(Contents::of(&seeds).unwrap(), Contents::Seeds(vec![(2, two.clone()), (10, ten.clone())]));
        assert_eq!(Contents::of(&seeds).unwrap().runs(&seeds), [two, ten]);
        let (few, many) = (run("curve/train-64/seed-0"), run("curve/train-256/seed-0"));
        let curve = here.path().join("curve");
        let expected = Contents::Curve(vec![(64, vec![(0, few)]), (256, vec![(0, many)])]);
        assert_eq!(Contents::of(&curve).unwrap(), expected);
        let message = |path: &Path| Contents::of(path).unwrap_err().to_string();
        let above = message(here.path());
        assert!(
            above.contains("name one of") && above.contains("curve") && above.contains("seeds"),
            "{above}"
        );
        assert!(message(&here.path().join("nowhere")).contains("does not exist"));
    }
}
