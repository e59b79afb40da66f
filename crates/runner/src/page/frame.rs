//! What all pages have: head, style, scripts, and parts that several use.

use super::html::Html;
use crate::task::number;
use serde::Serialize;

/// uPlot 1.6.32 by Leon Sorokin, under the MIT licence beside it.
const UPLOT: [&str; 2] =
    [include_str!("../../assets/uplot/uPlot.min.css"), include_str!("../../assets/uplot/uPlot.iife.min.js")];
const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPTS: [&str; 3] = [
    include_str!("../../assets/charts.js"),
    include_str!("../../assets/systems.js"),
    include_str!("../../assets/page.js"),
];

/// The name by which a page is known as one of this program.
pub const GENERATOR: &str = "gradewise report";

/// Nothing is loaded from anywhere: drawings are inline, and browsers refuse all else.
const POLICY: &str =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// A whole page: title, content, and the data that the scripts draw.
pub fn page(title: &str, content: Html, data: &impl Serialize) -> Html {
    let mut page = Html::new();
    page.markup("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.markup("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.markup("<meta name=\"color-scheme\" content=\"light dark\">\n");
    page.open("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
    page.open("meta", &[("name", &"generator"), ("content", &GENERATOR)]);
    page.put("title", &[], Html::of(title));
    page.markup("\n<style>\n").markup(UPLOT[0]).markup(STYLE).markup("</style>\n</head>\n<body>\n<main>\n");
    page.add(content);
    page.markup("</main>\n").data("data", data);
    page.markup("<script>\n").markup(UPLOT[1]).markup("\n");
    for script in SCRIPTS {
        page.markup(script);
    }
    page.markup("</script>\n</body>\n</html>\n");
    page
}

/// A section under a heading.
pub fn section(heading: &'static str, content: Html) -> Html {
    let mut inner = Html::new();
    inner.put("h2", &[], Html::of(heading)).markup("\n").add(content);
    let mut section = Html::new();
    section.put("section", &[], inner).markup("\n");
    section
}

/// A figure that a script draws into the element `id`, and that without scripts is a drawing. The caption may be empty.
pub fn chart(id: &'static str, caption: &str, still: Option<&str>) -> Html {
    let mut inner = Html::new();
    inner.put("div", &[("id", &id), ("class", &"chart")], Html::new());
    if let Some(still) = still {
        let mut image = Html::new();
        image.drawing(still, caption);
        inner.put("noscript", &[], image);
    }
    if !caption.is_empty() {
        inner.put("figcaption", &[], Html::of(caption));
    }
    let mut figure = Html::new();
    figure.put("figure", &[], inner).markup("\n");
    figure
}

/// A table whose cells are text; columns from the second on are numbers.
pub fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Html {
    let cells = |tag: &'static str, texts: &mut dyn Iterator<Item = &str>| {
        let mut row = Html::new();
        for (position, text) in texts.enumerate() {
            let class = if position > 0 { "n" } else { "" };
            row.put(tag, &[("class", &class)], Html::of(text));
        }
        row
    };
    let mut inner = Html::new();
    inner.put("tr", &[], cells("th", &mut head.iter().copied()));
    for row in rows {
        inner.markup("\n").put("tr", &[], cells("td", &mut row.iter().map(String::as_str)));
    }
    let (mut table, mut wide) = (Html::new(), Html::new());
    table.put("table", &[], inner);
    wide.put("div", &[("class", &"wide")], table).markup("\n");
    wide
}

/// A list of names with what they are.
pub fn facts(facts: &[(&'static str, String)]) -> Html {
    let mut inner = Html::new();
    for (name, text) in facts.iter().filter(|(_, text)| !text.is_empty()) {
        inner.put("dt", &[], Html::of(name)).put("dd", &[], Html::of(text)).markup("\n");
    }
    let mut list = Html::new();
    list.put("dl", &[], inner);
    list
}

/// Text that is shown on request.
pub fn folded(summary: &str, content: Html) -> Html {
    let (mut inner, mut details) = (Html::new(), Html::new());
    inner.put("summary", &[], Html::of(summary)).add(content);
    details.put("details", &[], inner).markup("\n");
    details
}

/// Text as it is.
pub fn verbatim(text: &str) -> Html {
    let mut html = Html::new();
    html.put("pre", &[], Html::of(text));
    html
}

/// Seconds, as people say them.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 600.0 => format!("{s:.0} s"),
        s if s < 36_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A measure that may be missing.
pub fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}
