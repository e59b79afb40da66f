//! The numbers that the charts of a page show, reduced to what a screen can.

use super::{
    Record,
    record::{Norms, Row},
};
use crate::{
    plots::{Band, BandPoint, running_median},
    task::Statistic,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The most rows of a chart.
const ROWS: usize = 1500;
/// The most columns of the map of gradient norms.
const COLUMNS: usize = 120;

/// A number of four significant digits: more cannot be seen, and take space.
fn rounded(value: Option<f64>) -> Value {
    let Some(value) = value.filter(|value| value.is_finite()) else { return Value::Null };
    format!("{value:.3e}").parse::<f64>().map_or(Value::Null, Value::from)
}

fn column(values: impl IntoIterator<Item = Option<f64>>) -> Vec<Value> {
    values.into_iter().map(rounded).collect()
}

/// The rows to show: all evaluations, and of others those with the least and the greatest loss among their neighbours, so that spikes stay.
fn thinned(rows: &[Row]) -> Vec<Row> {
    if rows.len() <= ROWS {
        return rows.to_vec();
    }
    let apart = rows.len().div_ceil(ROWS / 2);
    let mut kept = Vec::new();
    for chunk in rows.chunks(apart) {
        let train = |row: &&Row| row.train.unwrap_or(f64::NAN);
        let extreme = |which: fn(&f64, &f64) -> std::cmp::Ordering| {
            chunk.iter().filter(|row| row.train.is_some()).min_by(|a, b| which(&train(a), &train(b)))
        };
        let shown = [extreme(f64::total_cmp), extreme(|a, b| b.total_cmp(a))];
        let shown = shown.into_iter().flatten().map(|row| row.step).collect::<Vec<_>>();
        kept.extend(chunk.iter().filter(|row| row.valid.is_some() || shown.contains(&row.step)));
    }
    kept
}

/// The curves of one run, by column.
#[derive(Debug, Serialize)]
pub struct Curves {
    name: String,
    /// The number of rows in metrics.jsonl, if not all are here.
    of: Option<usize>,
    step: Vec<u64>,
    train: Vec<Value>,
    /// The running median of `train`, where it varies by more than it falls.
    median: Vec<Value>,
    valid: Vec<Value>,
    lr: Vec<Value>,
    gradient_norm: Vec<Value>,
    seconds: Vec<Value>,
    test: Option<f64>,
}

impl Curves {
    pub fn of(record: &Record) -> Self {
        let rows = thinned(&record.rows);
        let losses = record.rows.iter().filter_map(|row| Some((row.step as f64, row.train?)));
        let losses: Vec<(f64, f64)> = losses.filter(|(_, loss)| loss.is_finite()).collect();
        let medians: BTreeMap<u64, f64> = match losses.len() {
            0..=40 => BTreeMap::new(),
            _ => running_median(&losses).into_iter().map(|(step, loss)| (step as u64, loss)).collect(),
        };
        Self {
            name: record.name.clone(),
            of: (rows.len() < record.rows.len()).then_some(record.rows.len()),
            step: rows.iter().map(|row| row.step).collect(),
            train: column(rows.iter().map(|row| row.train)),
            median: column(rows.iter().map(|row| medians.get(&row.step).copied())),
            valid: column(rows.iter().map(|row| row.valid)),
            lr: column(rows.iter().map(|row| row.lr)),
            gradient_norm: column(rows.iter().map(|row| row.gradient_norm)),
            seconds: column(rows.iter().map(|row| row.seconds)),
            test: record.test(),
        }
    }
}

/// Norms by parameter, as powers of ten: a row for each parameter, a column for each of some steps.
pub fn gradient_map(norms: &Norms) -> Value {
    let apart = norms.rows.len().div_ceil(COLUMNS).max(1);
    let shown: Vec<_> = norms.rows.iter().step_by(apart).collect();
    let power = |norm: Option<f64>| {
        norm.filter(|norm| *norm > 0.0).map(|norm| (norm.log10() * 100.0).round() / 100.0)
    };
    let row = |parameter: usize| -> Vec<Option<f64>> {
        shown.iter().map(|(_, values)| power(values[parameter])).collect()
    };
    json!({
        "names": norms.names,
        "steps": shown.iter().map(|(step, _)| step).collect::<Vec<_>>(),
        "powers": (0..norms.names.len()).map(row).collect::<Vec<_>>(),
    })
}

/// Mean and deviation of the valid measure of several runs, at the steps that all have evaluated.
pub fn band(name: &str, records: &[&Record]) -> Band {
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (step, valid) in
        records.iter().flat_map(|record| &record.rows).filter_map(|row| Some((row.step, row.valid?)))
    {
        at.entry(step).or_default().push(valid);
    }
    at.retain(|_, values| values.len() == records.len() && values.iter().all(|value| value.is_finite()));
    let point = |(step, values): (u64, Vec<f64>)| {
        let Statistic { mean, standard_deviation } = Statistic::of(&values);
        let deviation = standard_deviation.unwrap_or(0.0);
        // A logarithmic axis has no place for a band that reaches zero.
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        BandPoint { step, mean, low: (mean - deviation).max(least), high: mean + deviation }
    };
    let points = at.into_iter().map(point).collect();
    Band { name: name.to_owned(), seeds: records.len(), points }
}

/// What the chart draws of a band.
pub fn columns_of(band: &Band) -> Value {
    let of = |value: fn(&BandPoint) -> f64| column(band.points.iter().map(|point| Some(value(point))));
    json!({
        "step": band.points.iter().map(|point| point.step).collect::<Vec<_>>(),
        "mean": of(|point| point.mean),
        "low": of(|point| point.low),
        "high": of(|point| point.high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: u64, train: f64, valid: Option<f64>) -> Row {
        Row { step, train: Some(train), valid, ..Row::default() }
    }

    #[test]
    fn long_records_keep_spikes_and_evaluations() {
        let rows: Vec<Row> = (0..20_000)
            .map(|step| row(step, if step == 777 { 50.0 } else { 1.0 }, (step % 1000 == 0).then_some(2.0)))
            .collect();
        let kept = thinned(&rows);
        assert!(kept.len() <= ROWS + 20, "{}", kept.len());
        assert!(kept.iter().any(|row| row.train == Some(50.0)));
        assert_eq!(kept.iter().filter(|row| row.valid.is_some()).count(), 20);
        assert!(kept.windows(2).all(|pair| pair[0].step < pair[1].step));
        assert_eq!(thinned(&rows[..100]).len(), 100);
    }

    #[test]
    fn numbers_are_short_and_what_is_none_is_null() {
        assert_eq!(
            column([Some(0.123_456_789), Some(f64::NAN), None]),
            [json!(0.1235), Value::Null, Value::Null]
        );
        let norms =
            Norms { names: vec!["w".to_owned()], rows: vec![(1, vec![Some(0.01)]), (2, vec![Some(0.0)])] };
        assert_eq!(gradient_map(&norms), json!({"names": ["w"], "steps": [1, 2], "powers": [[-2.0, null]]}));
    }
}
