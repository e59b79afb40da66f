//! A dot plot of results beside each other, on a logarithmic axis, as HTML that wraps on narrow screens.

use super::html::Html;
use crate::task::{Comparison, Whose};
use gradewise_bench::plots::{log_ticks, tick_labels};

/// The dot plot of the primary measure, the largest error first; nothing without two positive values.
pub fn plot(comparison: &Comparison) -> Html {
    let positive = |value: &f64| value.is_finite() && *value > 0.0;
    let mut rows: Vec<_> = comparison
        .rows
        .iter()
        .filter_map(|row| Some((row, row.values.first().copied().filter(positive)?)))
        .collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    if rows.len() < 2 {
        return Html::new();
    }
    let (low, high) = (rows[rows.len() - 1].1 / 1.25, rows[0].1 * 1.25);
    // Percent of the axis, which a stylesheet can place.
    let place = |value: f64| format!("{:.2}%", 100.0 * (value / low).ln() / (high / low).ln());
    let mut plot = Html::new();
    for (row, value) in &rows {
        let (class, kind) = match row.whose {
            Whose::Ours => ("row ours", "this run"),
            Whose::Published => ("row", "published"),
            Whose::Guess => ("row guess", "without learning"),
        };
        let mut track = Html::new();
        if let Some(deviation) = row.deviation {
            let (from, to) = ((value - deviation).max(low), (value + deviation).min(high));
            let width = format!("{:.2}%", 100.0 * (to / from).ln() / (high / low).ln());
            let style = format!("left:{};width:{width}", place(from));
            track.put("i", &[("class", &"spread"), ("style", &style)], Html::new());
        }
        track.put("i", &[("class", &"dot"), ("style", &format_args!("left:{}", place(*value)))], Html::new());
        let mut line = Html::new();
        line.put("span", &[("class", &"name"), ("title", &kind)], Html::of(&row.name));
        line.put("span", &[("class", &"track")], track);
        let mut shown = Html::of(row.text(*value));
        shown.put("small", &[], Html::of(row.spread()));
        line.put("span", &[("class", &"value")], shown);
        plot.put("div", &[("class", &class)], line).markup("\n");
    }
    let ticks = log_ticks(low, high, 5);
    let label = tick_labels(&ticks);
    let mut axis = Html::new();
    for tick in &ticks {
        axis.put("span", &[("style", &format_args!("left:{}", place(*tick)))], Html::of(label(tick)));
    }
    let mut line = Html::new();
    let name = comparison.columns.first().map_or_else(String::new, |column| format!(", {column}"));
    line.put("span", &[("class", &"name")], Html::of(format_args!("{}{name}", comparison.title)));
    line.put("span", &[("class", &"track axis")], axis).put("span", &[("class", &"value")], Html::new());
    plot.put("div", &[("class", &"row")], line);
    let mut whole = Html::new();
    whole.put("div", &[("class", &"dots")], plot).markup("\n");
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Compared;

    #[test]
    fn rows_are_ordered_by_error_and_marked() {
        let published =
            Compared { deviation: Some(0.001), ..Compared::new("<other>", Whose::Published, vec![0.02]) };
        let rows = vec![published, Compared::new("this run", Whose::Ours, vec![0.2])];
        let mut comparison =
            Comparison { title: "test MSE".to_owned(), columns: Vec::new(), rows, instead: None };
        let text = plot(&comparison).into_text();
        let (ours, other) =
            (text.find("this run</span>").unwrap(), text.find("&lt;other&gt;</span>").unwrap());
        assert!(
            ours < other && text.contains("row ours") && text.contains("0.0200<small> ± 0.0010"),
            "{text}"
        );
        assert_eq!((text.matches("class=\"dot\"").count(), text.matches("spread").count()), (2, 1));
        comparison.rows[1].values[0] = f64::NAN;
        assert_eq!(plot(&comparison).into_text(), "");
    }
}
