//! Figures of reports, as SVG.

mod axes;
mod color;
mod heatmap;
mod roofline;

pub use axes::{linear_ticks, log_ticks, tick_labels, with_commas};
pub use heatmap::{Panel, Unit, heatmap, panels};
pub use roofline::roofline;

use crate::{Case, Error, Report, Result};
use gradewise_core::DType;
use gradewise_nn::checkpoint::replace_file;
use plotters::style::RGBColor;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    path::{Path, PathBuf},
};

const INK: RGBColor = RGBColor(40, 40, 40);
const GRAY: RGBColor = RGBColor(120, 120, 120);
const GRID: RGBColor = RGBColor(232, 232, 232);
const FONT: &str = "sans-serif";

/// Draws all figures of `report` into `folder`: a heat map for each operator, algebra and arithmetic that was measured over several batches
/// and features, and the roofline. With a `reference` the heat maps show how many times faster the report is than the reference, and how
/// many times more memory the reference takes; without one, milliseconds and megabytes. Returns the paths of the files.
///
/// # Errors
/// A report with nothing to draw; a file that cannot be written.
pub fn draw(report: &Report, reference: Option<&Report>, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for family in families(report) {
        let panels = panels(report, reference, &family);
        if panels.is_empty() {
            continue;
        }
        let signature = family.signature;
        let mut name =
            format!("heatmap-{}-{}_{}_{}-{}", family.op, signature.p, signature.q, signature.r, family.dtype);
        if has_choice(&family) {
            name += &format!("-{}", family.compute);
        }
        let path = folder.join(name + ".svg");
        save(&path, &heatmap(&path, &panels, &caption(report, reference, &family))?)?;
        written.push(path);
    }
    let path = folder.join("roofline.svg");
    if let Some(svg) = roofline(&path, report)? {
        save(&path, &svg)?;
        written.push(path);
    }
    if written.is_empty() {
        return Err(Error::Request(
            "nothing to draw: the report has neither a grid of batches and features nor operations and ceilings"
                .to_owned(),
        ));
    }
    Ok(written)
}

/// The cases that differ only in batch and features, one representative for each family. Families without at least two batches that share
/// two numbers of features are omitted, because they make no map.
fn families(report: &Report) -> Vec<Case> {
    let family = |case: &Case| Case { batch: 0, features: 0, ..*case };
    let mut members: Vec<(Case, BTreeMap<usize, BTreeSet<usize>>)> = Vec::new();
    for case in report.rows.iter().map(|row| row.case) {
        let known = members.iter().position(|(found, _)| *found == family(&case));
        let index = known.unwrap_or_else(|| {
            members.push((family(&case), BTreeMap::new()));
            members.len() - 1
        });
        members[index].1.entry(case.batch).or_default().insert(case.features);
    }
    let is_grid = |sizes: &BTreeMap<usize, BTreeSet<usize>>| {
        let rows: Vec<_> = sizes.values().collect();
        (1..rows.len()).any(|a| (0..a).any(|b| rows[a].intersection(rows[b]).count() > 1))
    };
    members.retain(|(_, sizes)| is_grid(sizes));
    members.into_iter().map(|(case, _)| case).collect()
}

/// Two lines: the contents, and the machine.
fn caption(report: &Report, reference: Option<&Report>, family: &Case) -> [String; 2] {
    let dtype = family.dtype;
    let arithmetic =
        if has_choice(family) { format!("{dtype}, products {}", family.compute) } else { dtype.to_string() };
    let against = reference.map(|other| format!(" against {}", other.library)).unwrap_or_default();
    [format!("{}{against}: {} {}, {arithmetic}", report.library, family.op, family.signature), origin(report)]
}

/// Whether the arithmetic of the products can be chosen.
fn has_choice(case: &Case) -> bool {
    case.dtype == DType::F32 && case.op.has_matrix_products()
}

/// Device, date and commit.
fn origin(report: &Report) -> String {
    let commit = report.commit.as_ref().map(|commit| format!(", commit {commit}")).unwrap_or_default();
    let day = report.date.split('T').next().unwrap_or_default();
    format!("{}, {day}{commit}", report.machine.device)
}

fn save(path: &Path, svg: &str) -> Result<()> {
    Ok(replace_file(path, |file| file.write_all(svg.as_bytes()))?)
}

fn failed<E: Display>(path: &Path) -> impl Fn(E) -> Error {
    |error| Error::Figure { path: path.to_owned(), reason: error.to_string() }
}
