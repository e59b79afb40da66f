//! What came out of a motion, in words and as figures.

use gradewise_runner::{
    error::Result,
    plots::{Line, lines},
};
use gradewise_zoo::dynamics::{Mean, Record, drift, mean};
use serde_json::json;
use std::path::Path;

/// Points of a figure at most.
const POINTS: usize = 2000;

/// Statistics of all records.
pub struct Summary {
    atoms: usize,
    records: usize,
    last: Record,
    temperature: Mean,
    /// In meV/ps an atom.
    drift: f64,
    /// The root mean square of the conserved energy about its line, in meV an atom.
    spread: f64,
}

impl Summary {
    /// Of a motion of so many atoms, which has come to `last`, of which there need not be a record.
    pub fn of(records: &[Record], atoms: usize, last: Record) -> Self {
        let per_atom = 1000.0 / atoms.max(1) as f64;
        let of = |record: &Record| (1e-3 * record.time, per_atom * record.conserved);
        let points: Vec<(f64, f64)> = records.iter().map(of).collect();
        let slope = drift(&points);
        let count = points.len().max(1) as f64;
        let (t0, e0) = points.iter().fold((0.0, 0.0), |(a, b), (t, e)| (a + t / count, b + e / count));
        let square = points.iter().map(|(t, e)| (e - e0 - slope * (t - t0)).powi(2)).sum::<f64>() / count;
        // The second half, after the temperature of the start.
        let late: Vec<f64> = records[records.len() / 2..].iter().map(|record| record.temperature).collect();
        Self {
            atoms,
            records: records.len(),
            last,
            temperature: mean(&late),
            drift: slope,
            spread: square.sqrt(),
        }
    }

    /// In words.
    pub fn text(&self, searches: usize, step_ms: f64) -> String {
        let Mean { value, error } = self.temperature;
        format!(
            "{} atoms, {} steps, {:.4} ps; {step_ms:.2} ms a step, {searches} searches of neighbours\n\
             temperature of the second half: {value:.1} ± {error:.1} K\n\
             conserved energy: drift {:+.3e} meV/ps an atom, about which it stays within {:.3e} meV an atom (rms)\n",
            self.atoms,
            self.last.step,
            1e-3 * self.last.time,
            self.drift,
            self.spread
        )
    }

    /// As JSON.
    pub fn json(&self, searches: usize, step_ms: f64) -> String {
        let record = json!({
            "atoms": self.atoms, "records": self.records, "last": self.last, "searches": searches, "step_ms": step_ms,
            "temperature": self.temperature.value, "temperature_error": self.temperature.error,
            "drift_mev_ps_atom": self.drift, "rms_mev_atom": self.spread,
        });
        format!("{record}\n")
    }
}

/// Draws energies and temperatures over time into a folder.
///
/// # Errors
/// The figures cannot be drawn or written.
pub fn figures(folder: &Path, records: &[Record]) -> Result<()> {
    let Some(first) = records.first() else { return Ok(()) };
    let step = records.len().div_ceil(POINTS).max(1);
    let line = |label: &str, of: &dyn Fn(&Record) -> f64| Line {
        label: label.to_owned(),
        points: records.iter().step_by(step).map(|record| (1e-3 * record.time, of(record))).collect(),
    };
    let energies = [
        line("potential", &|record| record.potential - first.potential),
        line("kinetic", &|record| record.kinetic),
        line("conserved, less its start", &|record| record.conserved - first.conserved),
    ];
    lines(&folder.join("energies.svg"), &energies, "energies", ("time (ps)", "energy (eV)"))?;
    let temperature = [line("temperature", &|record| record.temperature)];
    lines(&folder.join("temperature.svg"), &temperature, "temperature", ("time (ps)", "temperature (K)"))
}
