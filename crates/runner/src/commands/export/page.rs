//! A self-contained HTML page about a run.

use crate::{
    error::{Error, Result},
    plots::escaped,
    run::RunFolder,
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write, path::PathBuf};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd}\
td.n{text-align:right;font-variant-numeric:tabular-nums}pre{background:#f6f6f6;padding:1em;overflow:auto}\
figure{margin:1.5em 0}figcaption{color:#666}svg{max-width:100%;height:auto}";

/// Formats a number, rounded to a readable number of digits.
fn shown(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value}");
    }
    if (1e-3..1e5).contains(&value.abs()) { format!("{value:.5}") } else { format!("{value:.4e}") }
}

/// The SVG element of a file, without the XML declaration.
fn drawing(text: &str) -> Option<&str> {
    text.find("<svg").map(|start| &text[start..])
}

/// The figures of the folder, by name.
fn figures(folder: &RunFolder) -> Result<Vec<(String, String)>> {
    let failed =
        |path: PathBuf, error: std::io::Error| Error::Usage(format!("read {}: {error}", path.display()));
    let entries =
        std::fs::read_dir(folder.path()).map_err(|error| failed(folder.path().to_owned(), error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "svg"));
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| failed(path.clone(), error))?;
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        found.extend(drawing(&text).map(|drawing| (name, drawing.to_owned())));
    }
    Ok(found)
}

/// First, last, smallest and largest value of every recorded number.
fn table(records: &[Value]) -> String {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for record in records {
        for (name, value) in super::scalars(record) {
            all.entry(name).or_default().push(value);
        }
    }
    // Norms of single parameters are omitted: they are in the record.
    all.retain(|name, _| !name.starts_with("gradient_norms/"));
    let mut text = String::from(
        "<table><tr><th>what</th><th>first</th><th>last</th><th>least</th><th>greatest</th><th>records</th></tr>\n",
    );
    for (name, values) in &all {
        let fold = |pick: fn(f64, f64) -> f64| values.iter().copied().fold(f64::NAN, pick);
        let (first, last) = (values[0], values[values.len() - 1]);
        let numbers = [first, last, fold(f64::min), fold(f64::max)]
            .map(|value| format!("<td class=n>{}</td>", shown(value)));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<tr><td>{}</td>{}<td class=n>{}</td></tr>",
            escaped(name),
            numbers.concat(),
            values.len()
        );
    }
    text + "</table>\n"
}

/// The page of a run.
///
/// # Errors
/// Files of the folder that cannot be read.
pub fn page(folder: &RunFolder, records: &[Value]) -> Result<String> {
    let path = std::path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let title = escaped(&name);
    let last = records.iter().filter_map(|record| record["step"].as_u64()).max().unwrap_or(0);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{} records, up to step {last}; gradewise {}.</p>\n<h2>Figures</h2>\n",
        records.len(),
        env!("CARGO_PKG_VERSION"),
    );
    for (name, drawing) in figures(folder)? {
        let _ = writeln!(text, "<figure>{drawing}<figcaption>{}</figcaption></figure>", escaped(&name));
    }
    let _ = writeln!(text, "<h2>Numbers</h2>\n{}", table(records));
    if let Ok(config) = std::fs::read_to_string(folder.config()) {
        let _ = writeln!(text, "<h2>Configuration</h2>\n<pre>{}</pre>", escaped(&config));
    }
    Ok(text + "</body></html>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_holds_all_of_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run <1>");
        std::fs::create_dir(&run).unwrap();
        std::fs::write(run.join("loss.svg"), "<?xml version=\"1.0\"?>\n<svg width=\"3\"><g/></svg>\n")
            .unwrap();
        std::fs::write(run.join("config.toml"), "[train]\nsteps = 5 # a < b\n").unwrap();
        let records =
            [json!({"step": 1, "train_loss": 0.5}), json!({"step": 5, "train_loss": 0.25, "test_mse": 1e-7})];
        let page = page(&RunFolder::at(&run), &records).unwrap();
        for part in [
            "<h1>run &lt;1&gt;</h1>",
            "<svg width=\"3\"><g/></svg>",
            "<figcaption>loss</figcaption>",
            "a &lt; b",
            "up to step 5",
            "<tr><td>train_loss</td><td class=n>0.50000</td><td class=n>0.25000</td><td class=n>0.25000</td><td class=n>0.50000</td><td class=n>2</td></tr>",
            "1.0000e-7",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
        assert!(!page.contains("<?xml"));
    }
}
