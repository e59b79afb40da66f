//! The page of one run.

use super::{
    About, Record, Sitting, dots,
    frame::{chart, duration, facts, folded, maybe, page as frame, section, table, verbatim},
    html::Html,
    series::{Curves, gradient_map},
};
use crate::task::number;
use gradewise_bench::plots::with_commas;
use serde_json::json;

/// Figures that scripts draw, too, so that they are shown without scripts alone.
const DRAWN: [&str; 2] = ["loss", "trajectories"];

/// The page of a run, whether or not it has ended.
pub fn page(record: &Record) -> Html {
    let mut content = headline(record);
    content.add(curves(record));
    let still =
        |name: &str| record.figures.iter().find(|(other, _)| other == name).map(|(_, svg)| svg.as_str());
    if !record.systems.is_empty() {
        let caption = "Test samples from the worst prediction to the best. Drag to turn, or use the arrow keys; the slider moves along the true path.";
        content.add(section("Predictions", chart("systems", caption, still("trajectories"))));
    }
    let others = record.figures.iter().filter(|(name, _)| !DRAWN.contains(&name.as_str()));
    let mut figures = Html::new();
    for (name, svg) in others {
        let mut figure = Html::new();
        figure.drawing(svg, name).put("figcaption", &[], Html::of(name));
        figures.put("figure", &[], figure).markup("\n");
    }
    if !figures.is_empty() {
        content.add(section("Figures", figures));
    }
    if !record.norms.rows.is_empty() {
        let caption = "The norm of the gradient of each parameter at recorded steps, as powers of ten.";
        let map = chart("gradients", caption, None);
        content.add(section("Gradients", folded("Gradient norms by parameter", map)));
    }
    content.add(section("Settings", settings(record)));
    if let Some(about) = &record.about {
        content.add(section("How it was made", origin(about)));
    }
    content.add(section("Numbers", numbers(record)));
    let title = match (&record.about, record.test()) {
        (Some(about), Some(test)) => {
            format!("{}: {} {} ({})", about.title, label(about), number(test), record.name)
        }
        (Some(about), None) => format!("{} ({})", about.title, record.name),
        (None, _) => record.name.clone(),
    };
    let axis = record.about.as_ref().map_or("loss", |about| about.loss.as_str());
    let data = json!({
        "runs": [Curves::of(record)],
        "loss": axis,
        "gradients": gradient_map(&record.norms),
        "systems": record.systems,
    });
    frame(&title, content, &data)
}

/// The name of the primary measure on the test split.
fn label(about: &About) -> String {
    about
        .measures
        .first()
        .map_or_else(|| "test error".to_owned(), |measure| format!("test {}", measure.label))
}

/// A number with what it is.
fn card(what: &str, value: &str, more: &str) -> Html {
    let (mut inner, mut card) = (Html::new(), Html::new());
    inner.put("span", &[], Html::of(what)).put("b", &[], Html::of(value)).put("small", &[], Html::of(more));
    card.put("div", &[("class", &"card")], inner).markup("\n");
    card
}

/// How the run stands: `None` if it has ended well.
fn state(record: &Record) -> Option<String> {
    if let Some(error) = &record.error {
        return Some(format!("Ended by an error after step {}: {error}", record.last_step()));
    }
    if !record.end.is_null() {
        return None;
    }
    let last = record.last_step();
    Some(match record.about.as_ref().map(|about| about.steps) {
        Some(steps) => format!("Not finished: records up to step {last} of {steps}."),
        None => format!("Not finished: records up to step {last}."),
    })
}

/// What the run is and what it was worth.
fn headline(record: &Record) -> Html {
    let mut html = Html::new();
    let title = record.about.as_ref().map_or(record.name.as_str(), |about| about.title.as_str());
    html.put("h1", &[], Html::of(title)).markup("\n");
    if let Some(about) = &record.about {
        html.put(
            "p",
            &[("class", &"about")],
            Html::of(format_args!("{}. Run {}.", about.about, record.name)),
        );
    }
    if let Some(state) = state(record) {
        html.put("p", &[("class", &"state")], Html::of(state)).markup("\n");
    }
    let mut cards = Html::new();
    if let Some(about) = &record.about {
        if let Some(first) = about.measures.first() {
            let samples =
                about.test_samples.map_or_else(String::new, |samples| format!("{samples} test samples"));
            cards.add(card(
                &label(about),
                &first.value.map_or_else(|| "diverged".to_owned(), number),
                &samples,
            ));
        }
        let seconds = record.rows.iter().filter_map(|row| row.seconds).fold(0.0, f64::max);
        let steps = format!("{} of {} steps", record.last_step(), about.steps);
        cards.add(card("training", &duration(seconds), &steps));
        if let Some(joules) = record.end["joules"].as_f64() {
            cards.add(card("energy", &format!("{:.1} kJ", joules / 1e3), "of the device"));
        }
        cards.add(card(
            "model",
            &with_commas(&about.parameters.to_string()),
            &format!("parameters, {}", about.dtype),
        ));
        if let Some(Sitting { device, processes, .. }) = about.sittings.last() {
            let (device, model) = device.split_once(" (").unwrap_or((device, ""));
            let many = if *processes > 1 { format!("{processes} processes, ") } else { String::new() };
            cards.add(card("device", device, &format!("{many}{}", model.trim_end_matches(')'))));
        }
    }
    html.put("div", &[("class", &"cards")], cards).markup("\n");
    if let Some(sentence) = symmetry(record) {
        html.put("p", &[], Html::of(sentence)).markup("\n");
    }
    let comparison = record.about.as_ref().and_then(|about| about.comparison.as_ref());
    if let Some(comparison) = comparison {
        html.add(section("Beside other results", dots::plot(comparison)));
    }
    html
}

/// How exactly the model keeps its symmetry, in a sentence.
fn symmetry(record: &Record) -> Option<String> {
    /// Below, a change is rounding of the dtype, over some layers.
    const ROUNDING: [(&str, f64); 4] = [("f64", 1e-10), ("f32", 1e-5), ("f16", 2e-2), ("bf16", 1e-1)];
    let (about, change) = (record.about.as_ref()?, record.end["asymmetry"].as_f64()?);
    let rounding = ROUNDING.iter().find(|(dtype, _)| *dtype == about.dtype).map_or(0.0, |(_, bound)| *bound);
    let verdict = match change {
        change if change <= rounding => format!(": exact up to rounding of {}", about.dtype),
        change if change > 1e-2 => "; this network does not have that symmetry".to_owned(),
        _ => String::new(),
    };
    Some(format!("Under {}, predictions change by {change:.1e} of their size{verdict}.", about.group))
}

/// The curves of the run.
fn curves(record: &Record) -> Html {
    let still = record.figures.iter().find(|(name, _)| name == "loss").map(|(_, svg)| svg.as_str());
    if record.rows.is_empty() {
        return section("Curves", Html::of("No step has been recorded yet."));
    }
    let mut html = Html::new();
    html.markup("<p class=\"controls\" id=\"controls\"></p>\n");
    html.add(chart("loss", "", still)).add(chart("lr", "", None)).add(chart("norm", "", None));
    section("Curves", html)
}

/// The settings that differ from the preset, then all.
fn settings(record: &Record) -> Html {
    let mut html = Html::new();
    if let Some(about) = &record.about {
        if about.changed.is_empty() {
            html.put("p", &[], Html::of(format_args!("Those of the preset {}.", about.preset)));
        } else {
            let rows = about
                .changed
                .iter()
                .map(|setting| vec![setting.key.clone(), setting.value.clone(), setting.preset.clone()]);
            html.add(table(&["differs from the preset", "this run", &about.preset], rows));
        }
    }
    if !record.config.is_empty() {
        html.add(folded("All settings (config.toml)", verbatim(&record.config)));
    }
    html
}

/// Commands, versions and machines.
fn origin(about: &About) -> Html {
    let mut html = Html::new();
    for sitting in &about.sittings {
        let threads = if sitting.device.starts_with("cpu") {
            format!("{} threads", sitting.threads)
        } else {
            String::new()
        };
        html.add(facts(&[
            ("command", sitting.command.join(" ")),
            ("begun", format!("{}, from step {}", sitting.begun, sitting.from_step)),
            ("gradewise", sitting.version.clone()),
            ("commit", sitting.commit.clone().unwrap_or_default()),
            ("machine", sitting.host.clone().unwrap_or_default()),
            ("device", sitting.device.clone()),
            ("", threads),
        ]));
    }
    let again = format!("gradewise train {} --config config.toml", about.task);
    html.put("p", &[], Html::of("Again, with the settings of this folder:")).add(verbatim(&again));
    html
}

/// The measures of the end, and the recorded numbers to take along.
fn numbers(record: &Record) -> Html {
    let mut html = Html::new();
    if let Some(about) = record.about.as_ref().filter(|about| !about.measures.is_empty()) {
        let rows = about.measures.iter().map(|measure| {
            vec![
                format!("test {}", measure.label),
                maybe(measure.value),
                measure.error.map_or_else(String::new, number),
            ]
        });
        let known = about.measures.iter().any(|measure| measure.error.is_some());
        let columns = if known { 3 } else { 2 };
        let rows = rows.map(|mut row| {
            row.truncate(columns);
            row
        });
        html.add(table(&["measure", "value", "standard error"][..columns], rows));
    }
    html.markup("<p id=\"numbers\"></p>\n");
    html.put("p", &[("class", &"quiet")], Html::of("metrics.jsonl of the folder has every recorded number."));
    html
}
