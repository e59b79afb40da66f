//! Sweeps: runs that differ in some settings, one for each point of a grid.

use super::{
    Outcome, Place, Runs, Splits,
    seeds::{precise, spread},
};
use crate::{
    config::Resolver,
    error::{Error, Result},
    output,
    run::RunFolder,
    task::{self, Statistic, Task, TaskConfig},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

/// The file that records a sweep, in its folder.
const RECORD: &str = "sweep.json";

/// The settings of `--sweep`, each a name and its values, in the order given.
pub struct Grid(Vec<(String, Vec<String>)>);

/// One point of a grid.
struct Point<T: Task> {
    /// `train.lr=1e-3,model.hidden=8`, which is its folder, too.
    name: String,
    settings: BTreeMap<String, String>,
    config: TaskConfig<T>,
}

/// The contents of sweep.json.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    task: String,
    /// The settings that all runs share; those of the machine are left out, as a sweep may go on elsewhere.
    settings: Value,
    runs: Vec<Run>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Done,
    /// Done, and the weights give no finite predictions.
    Diverged,
    /// Ended by an error; it is tried again.
    Failed,
}

/// A run that ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    folder: String,
    settings: BTreeMap<String, String>,
    seed: u64,
    status: Status,
    /// Why it failed.
    error: Option<String>,
    /// The primary measure on the test split; `None` where there is no finite one.
    test: Option<f64>,
    /// The primary measure on the valid split, if the best weights there are kept.
    valid: Option<f64>,
    /// `test_mse` and others.
    measures: Map<String, Value>,
    seconds: f64,
}

impl Grid {
    /// The grid of texts such as `train.lr=1e-3,1e-2`.
    ///
    /// # Errors
    /// Text without a name or values, and a name or a value that is there twice.
    pub fn parse(texts: &[String]) -> Result<Self> {
        let mut axes: Vec<(String, Vec<String>)> = Vec::new();
        for text in texts {
            let refuse = |reason: &str| {
                Err(Error::Usage(format!(
                    "--sweep {text}: {reason}; write a setting and its values, such as train.lr=1e-3,1e-2"
                )))
            };
            let Some((key, list)) = text.split_once('=') else { return refuse("there is no =") };
            let (key, values) = (key.trim(), values(list));
            if key.is_empty() || values.iter().any(String::is_empty) {
                return refuse("a name or a value is missing");
            }
            if key.starts_with("runtime.") {
                return refuse("runs of a sweep share device and process; sweep over data, model and train");
            }
            if axes.iter().any(|(other, _)| other == key) {
                return refuse("this setting is swept twice");
            }
            if values.iter().enumerate().any(|(at, value)| values[..at].contains(value)) {
                return refuse("a value is there twice");
            }
            axes.push((key.to_owned(), values));
        }
        Ok(Self(axes))
    }

    /// Whether it sweeps over a setting.
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(other, _)| other == key)
    }

    /// All combinations, the last setting varying fastest.
    fn combinations(&self) -> Vec<Vec<(&str, &str)>> {
        self.0.iter().fold(vec![Vec::new()], |all, (key, values)| {
            let longer = |one: Vec<_>| {
                values.iter().map(move |value| [one.clone(), vec![(key.as_str(), value.as_str())]].concat())
            };
            all.into_iter().flat_map(longer).collect()
        })
    }

    /// The settings of every point, resolved and checked before anything runs.
    fn points<T: Task>(&self, resolver: &Resolver) -> Result<Vec<Point<T>>> {
        let point = |combination: Vec<(&str, &str)>| -> Result<Point<T>> {
            let mut resolver = resolver.clone();
            let assignments: Vec<String> =
                combination.iter().map(|(key, value)| format!("{key}={value}")).collect();
            for assignment in &assignments {
                resolver.assignment(assignment)?;
            }
            let settings = combination.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
            Ok(Point {
                name: folder_name(&assignments.join(",")),
                settings: settings.collect(),
                config: task::resolve::<T>(&resolver)?,
            })
        };
        let points: Vec<Point<T>> = self.combinations().into_iter().map(point).collect::<Result<_>>()?;
        let mut names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(points),
            Some(pair) => Err(Error::Usage(format!("--sweep: two runs would have the folder {}", pair[0]))),
        }
    }
}

/// The values of a list, divided at commas outside of brackets and quotation marks.
fn values(list: &str) -> Vec<String> {
    let (mut all, mut depth, mut quote) = (vec![String::new()], 0usize, None);
    for letter in list.chars() {
        match (letter, quote) {
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            ('"' | '\'', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (',', None) if depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = all.last_mut() {
            last.push(letter);
        }
    }
    all.into_iter().map(|value| value.trim().to_owned()).collect()
}

/// The name of a folder: what shells and file systems take otherwise becomes `_`.
fn folder_name(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-+=,".contains(letter);
    text.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect()
}

/// Trains a run for each point of the grid and each seed, one after another, into folders named by the settings. A run that fails is
/// recorded, and the others go on. `out` may be the folder of an earlier sweep with the same other settings: runs that are done stay as
/// they are, others go on from their checkpoints.
///
/// # Errors
/// Settings that cannot be used, before any run; a folder of something else; [`Error::Interrupted`], and [`Error::Failed`] if a run
/// failed or diverged, after the table.
pub fn train<T: Task>(
    runs: &Runs<'_, T>,
    grid: &Grid,
    (resolver, config): (&Resolver, &TaskConfig<T>),
    seeds: Option<&[u64]>,
    out: Option<&Path>,
) -> Result<()> {
    let points = grid.points::<T>(resolver)?;
    let mut record =
        Record { task: T::NAME.to_owned(), settings: shared::<T>(config, grid)?, runs: Vec::new() };
    let parent = match out.filter(|out| out.join(RECORD).exists()) {
        Some(out) => {
            let folder = RunFolder::at(out).locked()?;
            record.runs = earlier(&folder.file(RECORD), &record)?;
            folder
        }
        None => RunFolder::create(out, T::NAME)?,
    };
    output::write_json(&parent.file(RECORD), &record)?;
    let loaded = serde_json::to_value(&config.data).unwrap_or_default();
    let count = points.len() * seeds.map_or(1, <[u64]>::len);
    let mut number = 0;
    let mut interrupted = false;
    'all: for point in &points {
        // Runs whose settings of the data are their own read these.
        let own = match serde_json::to_value(&point.config.data).unwrap_or_default() == loaded {
            true => None,
            false => Some(Splits::<T>::load(&point.config, true)),
        };
        for &seed in seeds.unwrap_or(&[point.config.train.seed]) {
            number += 1;
            let folder = match seeds {
                Some(_) => format!("{}/seed-{seed}", point.name),
                None => point.name.clone(),
            };
            let known = record.runs.iter().position(|run| run.folder == folder);
            if let Some(done) = known.filter(|&at| record.runs[at].status != Status::Failed) {
                output::note(&format!("\n{folder} ({number} of {count}): {}", record.runs[done].result()));
                continue;
            }
            if runs.interrupt.requested() {
                interrupted = true;
                break 'all;
            }
            output::note(&format!("\n{folder} ({number} of {count})"));
            let mut config = point.config.clone();
            config.train.seed = seed;
            let result = match &own {
                None => one(runs, &config, &parent.path().join(&folder)),
                Some(Ok(data)) => {
                    let runs = Runs {
                        placement: runs.placement.clone(),
                        data: data.clone(),
                        interrupt: runs.interrupt.clone(),
                        ..*runs
                    };
                    one(&runs, &config, &parent.path().join(&folder))
                }
                Some(Err(error)) => Err(Error::Failed(error.to_string())),
            };
            if let Err(Error::Interrupted(_)) = &result {
                interrupted = true;
                break 'all;
            }
            if let Err(error) = &result {
                output::note(&format!("{folder} failed: {error}"));
            }
            let run = Run::of(&folder, &point.settings, seed, result);
            match known {
                Some(at) => record.runs[at] = run,
                None => record.runs.push(run),
            }
            output::write_json(&parent.file(RECORD), &record)?;
        }
    }
    let path = parent.path().display();
    output::print(&format!(
        "{}\nruns     {path}\nsummary  {}\n",
        record.table(T::DECIDES),
        parent.file(RECORD).display()
    ))?;
    if interrupted {
        return Err(Error::Interrupted(format!(
            "interrupted with {} of {count} runs done; the same command with --out {path} goes on",
            record.runs.iter().filter(|run| run.status != Status::Failed).count()
        )));
    }
    record.verdict(&path.to_string())
}

/// One run, from its beginning or from where an earlier process left it.
fn one<T: Task>(runs: &Runs<'_, T>, config: &TaskConfig<T>, folder: &Path) -> Result<Option<Outcome>> {
    let place = match RunFolder::at(folder).config().is_file() {
        true => Place::Resumed(RunFolder::open(folder)?.locked()?),
        false => Place::New(Some(PathBuf::from(folder))),
    };
    // A run that panics is one that fails.
    catch_unwind(AssertUnwindSafe(|| runs.train(config, place))).unwrap_or_else(|_| {
        Err(Error::Failed("it panicked: error.json in its folder has the message".to_owned()))
    })
}

/// The settings that are the same for all runs: without those swept over, the seed and the machine.
fn shared<T: Task>(config: &TaskConfig<T>, grid: &Grid) -> Result<Value> {
    let mut settings = serde_json::to_value(config)
        .map_err(|error| Error::Failed(format!("the settings cannot be recorded: {error}")))?;
    if let Some(sections) = settings.as_object_mut() {
        sections.remove("runtime");
    }
    for key in grid.0.iter().map(|(key, _)| key.as_str()).chain(["train.seed"]) {
        let (sections, last) = key.rsplit_once('.').unwrap_or(("", key));
        let section = sections
            .split('.')
            .filter(|name| !name.is_empty())
            .try_fold(&mut settings, |at, name| at.get_mut(name));
        if let Some(section) = section.and_then(Value::as_object_mut) {
            section.remove(last);
        }
    }
    Ok(settings)
}

/// The runs of an earlier sweep with the same other settings.
fn earlier(path: &Path, record: &Record) -> Result<Vec<Run>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| gradewise_nn::Error::io("read a sweep", path, error))?;
    let found: Record = serde_json::from_str(&text)
        .map_err(|error| Error::Usage(format!("{} is no record of a sweep: {error}", path.display())))?;
    if (&found.task, &found.settings) != (&record.task, &record.settings) {
        return Err(Error::Usage(format!(
            "{} records a sweep with other settings than these; choose another folder by --out, or sweep over the same settings \
             with the same others",
            path.display()
        )));
    }
    Ok(found.runs)
}

impl Run {
    fn of(
        folder: &str,
        settings: &BTreeMap<String, String>,
        seed: u64,
        result: Result<Option<Outcome>>,
    ) -> Self {
        let run = Self {
            folder: folder.to_owned(),
            settings: settings.clone(),
            seed,
            status: Status::Failed,
            error: None,
            test: None,
            valid: None,
            measures: Map::new(),
            seconds: 0.0,
        };
        match result {
            Err(error) => Self { error: Some(error.to_string()), ..run },
            // Sweeps run in one process, which leads.
            Ok(None) => Self { error: Some("another process leads".to_owned()), ..run },
            Ok(Some(outcome)) => {
                let status = if outcome.test.are_finite() { Status::Done } else { Status::Diverged };
                let test = Some(outcome.test.first().value).filter(|value| value.is_finite());
                let (measures, seconds) = (outcome.test.json("test_"), outcome.seconds);
                Self { status, test, valid: outcome.valid, measures, seconds, ..run }
            }
        }
    }

    fn result(&self) -> String {
        match self.status {
            Status::Done => format!("done, test {}", self.test.map_or_else(String::new, precise)),
            Status::Diverged => "done, diverged".to_owned(),
            Status::Failed => "failed".to_owned(),
        }
    }
}

impl Record {
    /// A table with a line for each setting: mean and deviation over the seeds, and what failed.
    fn table(&self, measure: &str) -> String {
        let mut points: Vec<(&BTreeMap<String, String>, Vec<&Run>)> = Vec::new();
        for run in &self.runs {
            match points.iter_mut().find(|(settings, _)| *settings == &run.settings) {
                Some((_, runs)) => runs.push(run),
                None => points.push((&run.settings, vec![run])),
            }
        }
        let Some((first, _)) = points.first() else { return "no run is done\n".to_owned() };
        let keys: Vec<&String> = first.keys().collect();
        let value = |settings: &BTreeMap<String, String>, key: &String| {
            settings.get(key).cloned().unwrap_or_default()
        };
        let widths: Vec<usize> = keys
            .iter()
            .map(|key| {
                points
                    .iter()
                    .map(|(settings, _)| value(settings, key).len())
                    .max()
                    .unwrap_or(0)
                    .max(key.len())
            })
            .collect();
        let mut text = String::from("\n");
        for (key, width) in keys.iter().zip(&widths) {
            let _ = write!(text, "{key:>width$}  ");
        }
        let _ = writeln!(text, "{:<21}  {:<21}  seconds", format!("test {measure}"), "valid");
        for (settings, runs) in &points {
            for (key, width) in keys.iter().zip(&widths) {
                // Writing to a string cannot fail.
                let _ = write!(text, "{:>width$}  ", value(settings, key));
            }
            let all = |values: Vec<f64>| match &values[..] {
                [] => "-".to_owned(),
                values => spread(Statistic::of(values)),
            };
            let test = all(runs.iter().filter_map(|run| run.test).collect());
            let valid = all(runs.iter().filter_map(|run| run.valid).collect());
            let seconds = runs.iter().map(|run| run.seconds).sum::<f64>();
            let count = |status: Status| runs.iter().filter(|run| run.status == status).count();
            let _ = write!(text, "{test:<21}  {valid:<21}  {seconds:7.1}");
            for (status, word) in [(Status::Diverged, "diverged"), (Status::Failed, "failed")] {
                match count(status) {
                    0 => {}
                    _ if runs.len() == 1 => _ = write!(text, "  {word}"),
                    some => _ = write!(text, "  {some} of {} {word}", runs.len()),
                }
            }
            text.push('\n');
        }
        text
    }

    /// Whether every run is done with finite predictions.
    fn verdict(&self, path: &str) -> Result<()> {
        let bad: Vec<&Run> = self.runs.iter().filter(|run| run.status != Status::Done).collect();
        let Some(first) = bad.first() else { return Ok(()) };
        let why = first.error.as_deref().unwrap_or("its weights give no finite predictions");
        Err(Error::Failed(format!(
            "{} of {} runs of the sweep did not end well, the first {}: {why}\nthe same command with --out {path} tries those again that failed",
            bad.len(),
            self.runs.len(),
            first.folder
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(texts: &[&str]) -> Result<Grid> {
        Grid::parse(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn grids_are_all_combinations_of_their_values() {
        let grid = grid(&["train.lr=1e-3, 1e-2", "model.sizes=[1,2],[3]"]).unwrap();
        assert!(grid.has("train.lr") && !grid.has("train.seed"));
        let all: Vec<String> = grid
            .combinations()
            .iter()
            .map(|one| one.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(all, ["1e-3 [1,2]", "1e-3 [3]", "1e-2 [1,2]", "1e-2 [3]"]);
        assert_eq!(values("\"a,b\",'c,d',e"), ["\"a,b\"", "'c,d'", "e"]);
        assert_eq!(folder_name("data.source=/tmp/x y"), "data.source=_tmp_x_y");
    }

    #[test]
    fn what_is_no_grid_is_refused_with_an_example() {
        for (texts, part) in [
            (&["train.lr"][..], "no ="),
            (&["=1,2"], "missing"),
            (&["train.lr=1,,2"], "missing"),
            (&["train.lr=1,1"], "twice"),
            (&["train.lr=1", "train.lr=2"], "swept twice"),
            (&["runtime.device=cpu,cuda"], "share device"),
        ] {
            let message = grid(texts).err().unwrap().to_string();
            assert!(message.contains(part) && message.contains("train.lr=1e-3,1e-2"), "{message}");
        }
    }

    #[test]
    fn tables_have_means_over_seeds_and_say_what_failed() {
        let run = |lr: &str, seed, status, test| Run {
            folder: format!("train.lr={lr}/seed-{seed}"),
            settings: BTreeMap::from([("train.lr".to_owned(), lr.to_owned())]),
            seed,
            status,
            error: (status == Status::Failed).then(|| "out of memory".to_owned()),
            test,
            valid: None,
            measures: Map::new(),
            seconds: 2.0,
        };
        let runs = vec![
            run("1e-3", 0, Status::Done, Some(1.0)),
            run("1e-3", 1, Status::Done, Some(3.0)),
            run("1e-2", 0, Status::Diverged, None),
            run("1e-2", 1, Status::Failed, None),
        ];
        let record = Record { task: "area".to_owned(), settings: Value::Null, runs };
        let table = record.table("mse");
        assert!(table.contains("1e-3  2.00000 ± 1.41421"), "{table}");
        assert!(table.contains("1 of 2 diverged  1 of 2 failed"), "{table}");
        let message = record.verdict("runs/x").unwrap_err().to_string();
        assert!(message.contains("2 of 4 runs") && message.contains("train.lr=1e-2/seed-0"), "{message}");
        assert!(Record { runs: record.runs[..2].to_vec(), ..record }.verdict("x").is_ok());
    }
}
