//! Several runs that differ in their seed, and what they have in common.

use super::Outcome;
use crate::{
    error::{Error, Result},
    output,
};
use gradewise_nn::checkpoint::replace_file;
use serde::Serialize;
use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

/// The seeds that `--seeds` names: a list such as `0,1,2`, or a number of seeds from `first` on.
///
/// # Errors
/// Text that is neither, no seed at all, or one named twice.
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

/// The folder of one of the runs.
pub fn folder(parent: &Path, seed: u64) -> PathBuf {
    parent.join(format!("seed-{seed}"))
}

/// What summary.json holds.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Where and in what the runs computed.
    pub device: String,
    pub dtype: String,
    pub seeds: Vec<Seed>,
    /// Of the test errors.
    pub mean: f64,
    /// Sample standard deviation; none of a single value.
    pub standard_deviation: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct Seed {
    pub seed: u64,
    pub folder: String,
    pub test_mse: f64,
    pub steps: u64,
    pub seconds: f64,
}

impl Summary {
    pub fn new(device: String, dtype: String, outcomes: &[(u64, Outcome)]) -> Self {
        let seed = |(seed, outcome): &(u64, Outcome)| Seed {
            seed: *seed,
            folder: format!("seed-{seed}"),
            test_mse: outcome.test_mse,
            steps: outcome.steps,
            seconds: outcome.seconds,
        };
        let count = outcomes.len() as f64;
        let mean = outcomes.iter().map(|(_, outcome)| outcome.test_mse).sum::<f64>() / count;
        let squares: f64 = outcomes.iter().map(|(_, outcome)| (outcome.test_mse - mean).powi(2)).sum();
        let standard_deviation = (outcomes.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Self { device, dtype, seeds: outcomes.iter().map(seed).collect(), mean, standard_deviation }
    }

    /// A line for each seed, and the mean.
    pub fn table(&self) -> String {
        let mut text = String::from("\n  seed  test MSE  seconds\n");
        for Seed { seed, test_mse, seconds, .. } in &self.seeds {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{seed:>6}  {test_mse:8.5}  {seconds:7.1}");
        }
        let count = self.seeds.len();
        let _ = match self.standard_deviation {
            Some(deviation) => {
                writeln!(text, "\ntest MSE {:.5} ± {deviation:.5} over {count} seeds", self.mean)
            }
            None => writeln!(text, "\ntest MSE {:.5}, one seed", self.mean),
        };
        text
    }

    /// Writes summary.json and says what came out.
    ///
    /// # Errors
    /// From writing.
    pub fn report(&self, parent: &Path) -> Result<()> {
        let path = parent.join("summary.json");
        let json = serde_json::to_string_pretty(self).unwrap_or_default() + "\n";
        replace_file(&path, |file| file.write_all(json.as_bytes()))?;
        output::print(&format!(
            "{}\nruns    {}\nsummary {}\n",
            self.table(),
            parent.display(),
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let outcome = |test_mse| Outcome { test_mse, steps: 10, seconds: 1.5 };
        let several = [(0, outcome(1.0)), (1, outcome(2.0)), (5, outcome(4.0))];
        let summary = Summary::new("cpu".to_owned(), "f32".to_owned(), &several);
        assert!((summary.mean - 7.0 / 3.0).abs() < 1e-15);
        assert!((summary.standard_deviation.unwrap() - (7f64 / 3.0).sqrt()).abs() < 1e-15);
        assert!(summary.table().contains("test MSE 2.33333 ± 1.52753 over 3 seeds"), "{}", summary.table());
        let one = Summary::new("cpu".to_owned(), "f32".to_owned(), &several[..1]);
        assert_eq!((one.mean, one.standard_deviation), (1.0, None));
    }
}
