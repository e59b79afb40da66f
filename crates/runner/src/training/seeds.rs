//! Several runs that differ in their seed, and their summary.

use super::{Outcome, Place, Runs, refuse_existing};
use crate::{
    error::{Error, Result},
    output, page,
    run::{RunFolder, Team},
    task::{self, Measures, Statistic, Task, TaskConfig, number},
};
use gradewise_kernels::Device;
use gradewise_nn::{Placement, checkpoint::Checkpoint};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// The seeds that `--seeds` names: a list such as `0,1,2`, or a number of seeds from `first` on.
///
/// # Errors
/// Text that is neither, no seeds, or a repeated seed.
pub fn parse(text: &str, first: u64) -> Result<Vec<u64>> {
    let refuse = |reason: &str| {
        Err(Error::Usage(format!(
            "--seeds {text}: {reason}; write a number of seeds, or a list such as 0,1,2"
        )))
    };
    let Ok(numbers) = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::parse)
        .collect::<Result<Vec<u64>, _>>()
    else {
        return refuse("not whole numbers");
    };
    let seeds: Vec<u64> = match numbers[..] {
        [count] if !text.contains(',') => {
            let Some(end) = first.checked_add(count) else { return refuse("past the largest seed") };
            if count > 10_000 {
                return refuse("too many");
            }
            (first..end).collect()
        }
        _ => numbers,
    };
    if seeds.is_empty() {
        return refuse("no seed");
    }
    if seeds.iter().enumerate().any(|(position, seed)| seeds[..position].contains(seed)) {
        return refuse("a seed is there twice");
    }
    Ok(seeds)
}

/// The file with the weights of all runs.
pub const ENSEMBLE: &str = "ensemble.safetensors";

/// The folder of one of the runs.
pub fn folder(parent: &Path, seed: u64) -> PathBuf {
    parent.join(format!("seed-{seed}"))
}

/// Trains the runs one after the other, or some concurrently, each as if started alone with `--seed`.
///
/// # Errors
/// Folders that exist already; those of the runs.
pub fn train<T: Task>(
    runs: &Runs<T>,
    config: &TaskConfig<T>,
    seeds: &[u64],
    parent: &Path,
) -> Result<Summary> {
    refuse_existing(seeds.iter().map(|&seed| folder(parent, seed)))?;
    let outcomes = match runs.at_once.min(seeds.len()) {
        0 | 1 => {
            let mut outcomes = Vec::new();
            for (position, &seed) in seeds.iter().enumerate() {
                output::note(&format!("\nseed {seed} ({} of {})", position + 1, seeds.len()));
                outcomes.extend(one(runs, config, parent, seed)?);
            }
            outcomes
        }
        threads => several(runs, config, seeds, parent, threads)?,
    };
    let together = together(runs, config, &outcomes, parent)?;
    Ok(Summary::new(&runs.placement, &outcomes, together.as_ref()))
}

/// The ensemble of several runs: `ensemble.safetensors` beside their folders, and the mean of their predictions measured on the test split.
fn together<T: Task>(
    runs: &Runs<T>,
    config: &TaskConfig<T>,
    outcomes: &[(u64, Outcome)],
    parent: &Path,
) -> Result<Option<Measures>> {
    if outcomes.len() < 2 {
        return Ok(None);
    }
    let read = |(seed, _): &(u64, Outcome)| {
        let run = RunFolder::at(&folder(parent, *seed));
        let path = run.kept_best(&config.train).unwrap_or_else(|| run.checkpoint());
        Ok((*seed, Checkpoint::read(path)?))
    };
    let ensemble = Checkpoint::ensemble(&outcomes.iter().map(read).collect::<Result<Vec<_>>>()?)?;
    // A model with predictions that are not finite would make the mean not finite, too.
    if outcomes.iter().all(|(_, outcome)| outcome.test.are_finite()) {
        ensemble.write(parent.join(ENSEMBLE))?;
    }
    let models = task::load_models::<T>(&ensemble, &runs.placement)?;
    let models: Vec<&T::Model> = models.iter().collect();
    Ok(Some(T::measure(&models, &runs.data.test, &runs.placement)?))
}

/// Trains the run of a seed; no outcome if another process leads.
fn one<T: Task>(
    runs: &Runs<T>,
    config: &TaskConfig<T>,
    parent: &Path,
    seed: u64,
) -> Result<Option<(u64, Outcome)>> {
    let mut config = config.clone();
    config.train.seed = seed;
    let outcome = runs.train(&config, Place::New(Some(folder(parent, seed))))?;
    Ok(outcome.map(|outcome| (seed, outcome)))
}

/// Trains the runs in several threads, each of which takes the next seed when it finishes one. After an error, running runs continue, and
/// no new one starts.
fn several<T: Task>(
    runs: &Runs<T>,
    config: &TaskConfig<T>,
    seeds: &[u64],
    parent: &Path,
    threads: usize,
) -> Result<Vec<(u64, Outcome)>> {
    let Runs { placement, data, interrupt, at_once, preset, .. } = runs;
    let preset = *preset;
    let at_once = *at_once;
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, (u64, Outcome))>> {
        let team = Team::alone();
        let placement = Placement::new(&placement.device.beside()?, placement.dtype);
        // The memory of a device is divided among the runs; the limit on the host already applies to all of them together.
        if let Device::Cuda(cuda) = &placement.device {
            cuda.set_limit(config.runtime.memory_mib.saturating_mul(1 << 20) / threads);
        }
        let (data, interrupt) = (data.clone(), interrupt.clone());
        let runs = Runs { placement, data, interrupt, team: &team, at_once, dump: None, preset };
        let mut outcomes = Vec::new();
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(&seed) = seeds.get(position) else {
                if let Device::Cuda(cuda) = &runs.placement.device {
                    cuda.forget_constants();
                }
                return Ok(outcomes);
            };
            let outcome = output::named(&format!("seed {seed}"), || {
                one(&runs, config, parent, seed).inspect_err(|error| {
                    next.store(seeds.len(), Ordering::Relaxed);
                    // An interrupt stops all runs; advice on resuming is printed for each.
                    output::note(&match error {
                        Error::Interrupted(how) => how.clone(),
                        _ => {
                            "ended by an error; runs that are under way go on, and no other begins".to_owned()
                        }
                    });
                })
            });
            outcomes.extend(outcome?.map(|outcome| (position, outcome)));
        }
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut outcomes: Vec<_> =
        results.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    outcomes.sort_by_key(|&(position, _)| position);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// The contents of summary.json.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Device and dtype of the runs.
    pub device: String,
    pub dtype: String,
    pub seeds: Vec<Seed>,
    /// The statistic of the primary measure.
    #[serde(flatten)]
    pub statistic: Statistic,
    /// The statistic of the same measure on the valid split, for the best weights there.
    pub valid: Option<Statistic>,
    /// The statistics of every measure.
    pub measures: BTreeMap<String, Statistic>,
    /// The measures of the mean prediction of all runs, if there are several: `test_mse` and others.
    pub mean_prediction: Option<Map<String, Value>>,
    #[serde(skip)]
    together: Option<f64>,
    #[serde(skip)]
    label: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Seed {
    pub seed: u64,
    pub folder: String,
    /// `test_mse` and others.
    #[serde(flatten)]
    pub measures: Map<String, Value>,
    /// The primary measure on the valid split, if the best weights are kept.
    pub valid: Option<f64>,
    pub asymmetry: Option<f64>,
    pub steps: u64,
    pub seconds: f64,
    pub joules: Option<f64>,
    #[serde(skip)]
    error: f64,
}

impl Summary {
    fn new(placement: &Placement, outcomes: &[(u64, Outcome)], together: Option<&Measures>) -> Self {
        let seed = |(seed, outcome): &(u64, Outcome)| Seed {
            seed: *seed,
            folder: format!("seed-{seed}"),
            measures: outcome.test.json("test_"),
            valid: outcome.valid,
            asymmetry: outcome.asymmetry,
            steps: outcome.steps,
            seconds: outcome.seconds,
            joules: outcome.joules,
            error: outcome.test.first().value,
        };
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for measure in outcomes.iter().flat_map(|(_, outcome)| outcome.test.iter()) {
            values.entry(format!("test_{}", measure.key)).or_default().push(measure.value);
        }
        let errors: Vec<f64> = outcomes.iter().map(|(_, outcome)| outcome.test.first().value).collect();
        let valid: Vec<f64> = outcomes.iter().filter_map(|(_, outcome)| outcome.valid).collect();
        Self {
            device: placement.device.to_string(),
            dtype: placement.dtype.to_string(),
            seeds: outcomes.iter().map(seed).collect(),
            statistic: Statistic::of(&errors),
            valid: (!valid.is_empty()).then(|| Statistic::of(&valid)),
            measures: values.into_iter().map(|(key, values)| (key, Statistic::of(&values))).collect(),
            mean_prediction: together.map(|measures| measures.json("test_")),
            together: together.map(|measures| measures.first().value),
            label: outcomes.first().map_or("error", |(_, outcome)| outcome.test.first().label),
        }
    }

    /// Checks that no run has diverged.
    ///
    /// # Errors
    /// [`Error::Diverged`], which lists the diverged seeds.
    pub fn verdict(&self) -> Result<()> {
        let diverged: Vec<&Seed> = self.seeds.iter().filter(|seed| !seed.error.is_finite()).collect();
        let Some(first) = diverged.first() else { return Ok(()) };
        let seeds: Vec<String> = diverged.iter().map(|seed| seed.seed.to_string()).collect();
        let (count, all) = (diverged.len(), self.seeds.len());
        Err(Error::Diverged {
            measured: format!("the test {} of {count} of {all} seeds is {}", self.label, first.error),
            weights: format!("the weights of seed {}", seeds.join(", ")),
        })
    }

    /// The primary measure of each run.
    pub fn errors(&self) -> Vec<f64> {
        self.seeds.iter().map(|seed| seed.error).collect()
    }

    /// A table with a line for each seed, and the mean.
    fn table(&self) -> String {
        let mut text = format!("\n  seed  test {:<10}  seconds\n", self.label);
        for Seed { seed, error, seconds, .. } in &self.seeds {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{seed:>6}  {:>15}  {seconds:7.1}", precise(*error));
        }
        let (count, Statistic { mean, standard_deviation }) = (self.seeds.len(), self.statistic);
        let (label, mean) = (self.label, precise(mean));
        let _ = match standard_deviation {
            Some(deviation) => {
                writeln!(text, "\ntest {label} {mean} ± {} over {count} seeds", precise(deviation))
            }
            None => writeln!(text, "\ntest {label} {mean}, one seed"),
        };
        if let Some(valid) = self.valid {
            let valid = spread(valid);
            let _ = writeln!(text, "valid {label} {valid} of the same weights, the best there");
        }
        if let Some(together) = self.together {
            let _ = writeln!(text, "test {label} {} of the mean of their predictions", precise(together));
        }
        text
    }

    /// Writes summary.json and prints the results.
    ///
    /// # Errors
    /// From writing; as [`verdict`](Self::verdict), after everything is written.
    pub fn report(&self, parent: &Path) -> Result<()> {
        let path = parent.join("summary.json");
        output::write_json(&path, self)?;
        page::refresh(parent);
        let mut text = format!(
            "{}\nruns     {}\nsummary  {}\npage     {}\n",
            self.table(),
            parent.display(),
            path.display(),
            RunFolder::at(parent).page().display()
        );
        let figure = parent.join(page::SEEDS);
        if figure.exists() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "figure   {}", figure.display());
        }
        if self.together.is_some_and(f64::is_finite) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "ensemble {}, for {}",
                parent.join(ENSEMBLE).display(),
                output::takers_of_ensembles("")
            );
        }
        output::print(&text)?;
        self.verdict()
    }
}

/// A mean, and ± the deviation if there are several values.
pub fn spread(Statistic { mean, standard_deviation }: Statistic) -> String {
    let deviation = standard_deviation.map_or_else(String::new, |s| format!(" ± {}", precise(s)));
    precise(mean) + &deviation
}

/// As [`number`], with one more decimal.
pub fn precise(value: f64) -> String {
    if value.abs() < 1e-3 { number(value) } else { format!("{value:.5}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Measures;
    use gradewise_kernels::Device;

    #[test]
    fn seeds_are_a_list_or_a_number() {
        assert_eq!(parse("0,1,2", 7).unwrap(), [0, 1, 2]);
        assert_eq!(parse("3", 7).unwrap(), [7, 8, 9]);
        assert_eq!(parse("5,", 7).unwrap(), [5], "a list of one");
        assert_eq!(parse(" 4 , 2", 0).unwrap(), [4, 2]);
        for (text, part) in [
            ("0", "no seed"),
            ("", "no seed"),
            ("1,1", "twice"),
            ("a", "whole numbers"),
            ("-1", "whole numbers"),
            ("1.5,2", "whole numbers"),
            ("99999999999", "too many"),
        ] {
            let message = parse(text, 0).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("0,1,2"), "{message}");
        }
        assert!(parse("2", u64::MAX).unwrap_err().to_string().contains("largest"));
    }

    #[test]
    fn mean_and_deviation_are_those_of_the_sample() {
        let outcome = |error| Outcome {
            test: Measures::new("mse", "MSE", error).and("mae", "MAE", 2.0 * error),
            valid: Some(error / 2.0),
            asymmetry: Some(1e-7),
            steps: 10,
            skipped: 0,
            seconds: 1.5,
            joules: None,
        };
        let placement = Placement::from(&Device::Cpu);
        let several = [(0, outcome(1.0)), (1, outcome(2.0)), (5, outcome(4.0))];
        let together = Measures::new("mse", "MSE", 0.25);
        let summary = Summary::new(&placement, &several, Some(&together));
        assert!((summary.statistic.mean - 7.0 / 3.0).abs() < 1e-15);
        assert!((summary.statistic.standard_deviation.unwrap() - (7f64 / 3.0).sqrt()).abs() < 1e-15);
        assert!((summary.valid.unwrap().mean - 3.5 / 3.0).abs() < 1e-15);
        assert!(
            summary.table().contains("valid MSE 1.16667 ± 0.76376 of the same weights"),
            "{}",
            summary.table()
        );
        assert!((summary.measures["test_mae"].mean - 14.0 / 3.0).abs() < 1e-15);
        assert!(summary.table().contains("test MSE 2.33333 ± 1.52753 over 3 seeds"), "{}", summary.table());
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!((&json["seeds"][2]["test_mse"], &json["device"]), (&4.0.into(), &"cpu".into()));
        assert!(json["mean"].is_number() && json["standard_deviation"].is_number());
        assert!(summary.table().contains("test MSE 0.25000 of the mean of their predictions"));
        assert_eq!(json["mean_prediction"]["test_mse"], 0.25);
        assert!(summary.verdict().is_ok());
        let some = [(0, outcome(1.0)), (4, outcome(f64::NAN)), (5, outcome(f64::INFINITY))];
        let message = Summary::new(&placement, &some, None).verdict().unwrap_err().to_string();
        assert!(message.contains("2 of 3 seeds") && message.contains("of seed 4, 5"), "{message}");
        let one = Summary::new(&placement, &several[..1], None).statistic;
        assert_eq!((one.mean, one.standard_deviation), (1.0, None));
    }
}
