//! The page of several runs side by side.

use super::{
    Record,
    frame::{chart, duration, maybe, page as frame, section, table},
    html::Html,
    series::{Curves, band, columns_of},
};
use crate::{
    config::differences,
    plots::Band,
    task::{Statistic, number},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The page of several runs: of seeds, of a learning curve, or of any that are to be compared. `curve` is the drawing of a learning curve.
pub fn page(title: &str, records: &[Record], curve: Option<&str>) -> Html {
    let mut content = Html::new();
    let about = records.iter().find_map(|record| record.about.as_ref());
    content.put("h1", &[], Html::of(about.map_or(title, |about| about.title.as_str()))).markup("\n");
    let what = about.map_or_else(String::new, |about| format!("{}. ", about.about));
    content.put(
        "p",
        &[("class", &"about")],
        Html::of(format_args!("{what}{} runs of {title}.", records.len())),
    );
    let label =
        about.and_then(|about| about.measures.first()).map_or("error", |measure| measure.label.as_str());
    let tests: Vec<f64> = records.iter().filter_map(Record::test).collect();
    let groups = groups(records);
    if groups.len() == 1 && tests.len() > 1 {
        let Statistic { mean, standard_deviation } = Statistic::of(&tests);
        let deviation = standard_deviation.map_or_else(String::new, |s| format!(" ± {}", number(s)));
        let sentence = format!(
            "test {label} {}{deviation}, mean and standard deviation of {} seeds",
            number(mean),
            tests.len()
        );
        content.put("p", &[("class", &"result")], Html::of(sentence));
    }
    if let Some(curve) = curve {
        let mut figure = Html::new();
        figure.drawing(curve, "Test error over the number of training samples");
        content.put("figure", &[], figure);
    }
    if groups.len() > 1 && groups.iter().any(|group| group.runs.len() > 1) {
        content.add(section("Seeds together", together(&groups, records, label)));
    }
    content.add(section("Results", results(records, label)));
    let mut curves = Html::new();
    curves.markup("<p class=\"controls\" id=\"controls\"></p>\n");
    let caption = "The valid measure of each run; of runs that differ in their seed alone, mean and standard deviation as a band.";
    curves.add(chart("loss", caption, None));
    content.add(section("Curves", curves));
    let rows: Vec<Vec<String>> = differing(records)
        .into_iter()
        .map(|(key, values)| std::iter::once(key).chain(values).collect())
        .collect();
    if !rows.is_empty() {
        let head: Vec<&str> =
            std::iter::once("setting").chain(records.iter().map(|r| r.name.as_str())).collect();
        content.add(section("Settings that differ", table(&head, rows)));
    }
    let data = json!({
        "runs": records.iter().map(Curves::of).collect::<Vec<_>>(),
        "loss": valid_measure(records),
        "groups": groups.iter().map(|group| group.data(records)).collect::<Vec<_>>(),
    });
    frame(title, content, &data)
}

/// Runs that differ in their seed alone.
struct Group {
    /// What their names begin with; empty if all runs are of this group.
    name: String,
    /// Their positions among all runs.
    runs: Vec<usize>,
}

impl Group {
    /// What the chart draws.
    fn data(&self, records: &[Record]) -> Value {
        let members: Vec<&Record> = self.runs.iter().map(|&run| &records[run]).collect();
        json!({
            "name": self.name,
            "runs": self.runs,
            "band": (members.len() > 1).then(|| columns_of(&band(&self.name, &members))),
        })
    }
}

/// What the valid measure of the runs is called.
fn valid_measure(records: &[Record]) -> &str {
    let about = records.iter().find_map(|record| record.about.as_ref());
    about.map_or("valid error", |about| about.loss.as_str())
}

/// The valid measure of runs that differ in their seed alone, and what it is called; none of single runs.
pub fn bands(records: &[Record]) -> (Vec<Band>, String) {
    let several = groups(records).into_iter().filter(|group| group.runs.len() > 1);
    let of = |group: Group| {
        let members: Vec<&Record> = group.runs.iter().map(|&run| &records[run]).collect();
        band(&group.name, &members)
    };
    (several.map(of).collect(), valid_measure(records).to_owned())
}

/// The runs, together with those whose settings are the same but for the seed.
fn groups(records: &[Record]) -> Vec<Group> {
    let mut differing = differing(records);
    differing.remove("train.seed");
    let settings = |run: usize| -> Vec<&String> { differing.values().map(|values| &values[run]).collect() };
    let mut groups: Vec<Group> = Vec::new();
    for run in 0..records.len() {
        match groups.iter_mut().find(|group| settings(group.runs[0]) == settings(run)) {
            Some(group) => group.runs.push(run),
            None => groups.push(Group { name: String::new(), runs: vec![run] }),
        }
    }
    if groups.len() > 1 {
        for group in &mut groups {
            let name = records[group.runs[0]].name.as_str();
            let above = name.rsplit_once('/').map_or(name, |(above, _)| above);
            group.name = if group.runs.len() > 1 { above } else { name }.to_owned();
        }
    }
    groups
}

/// A row for each group: mean and standard deviation.
fn together(groups: &[Group], records: &[Record], label: &str) -> Html {
    let rows = groups.iter().map(|group| {
        let tests: Vec<f64> = group.runs.iter().filter_map(|&run| records[run].test()).collect();
        let Statistic { mean, standard_deviation } = Statistic::of(&tests);
        vec![
            group.name.clone(),
            if tests.is_empty() { maybe(None) } else { number(mean) },
            maybe(standard_deviation),
            tests.len().to_string(),
        ]
    });
    table(&["runs", &format!("test {label}, mean"), "standard deviation", "seeds"], rows)
}

/// A row for each run.
fn results(records: &[Record], label: &str) -> Html {
    let rows = records.iter().map(|record| {
        let seconds = record.rows.iter().filter_map(|row| row.seconds).fold(0.0, f64::max);
        let last = record.rows.iter().rev().find_map(|row| row.valid);
        let state = match (&record.error, record.end.is_null()) {
            (Some(_), _) => "error",
            (None, true) => "not finished",
            (None, false) => "",
        };
        vec![
            record.name.clone(),
            maybe(record.test()),
            maybe(last),
            record.end["asymmetry"].as_f64().map_or_else(|| "–".to_owned(), |change| format!("{change:.1e}")),
            record.last_step().to_string(),
            duration(seconds),
            state.to_owned(),
        ]
    });
    let test = format!("test {label}");
    table(&["run", &test, "last valid", "change under symmetry", "steps", "training", ""], rows)
}

/// The settings that are not the same in all runs, with the value of each.
fn differing(records: &[Record]) -> BTreeMap<String, Vec<String>> {
    let tables: Vec<toml::Table> =
        records.iter().map(|record| record.config.parse().unwrap_or_default()).collect();
    let Some((first, others)) = tables.split_first() else { return BTreeMap::new() };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (position, other) in others.iter().enumerate() {
        for (key, a, b) in differences(first, other) {
            found.entry(key).or_insert_with(|| vec![a; records.len()])[position + 1] = b;
        }
    }
    found
}
