//! The figures of a folder for papers: as PDF, and their points as CSV.

use crate::{
    error::{Error, Result},
    output, page,
    plots::{Figure, Paper},
    run::RunFolder,
};
use gradewise_nn::{checkpoint::replace_file, choice::Choice};
use std::path::{Path, PathBuf};

/// What `--figures` writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A page of print.
    Pdf,
    /// The points.
    Csv,
}

impl Choice for Format {
    const ALL: &'static [Self] = &[Self::Pdf, Self::Csv];

    fn name(self) -> &'static str {
        match self {
            Self::Pdf => "pdf",
            Self::Csv => "csv",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Pdf => {
                "for a column of 3.4 inches, letters of 7 to 8 points; panels side by side for a page of 7 inches"
            }
            Self::Csv => "the points of curves and bars",
        }
    }
}

/// The width of a column and of a page of two, in points of 1/72 inch.
const COLUMN: f32 = 3.4 * 72.0;
const PAGE: f32 = 7.0 * 72.0;

/// Writes the figures of a folder beside them, drawn anew where its records alone give them. Returns the files.
pub(super) fn write(folder: &Path, formats: &[Format]) -> Result<Vec<PathBuf>> {
    page::draw_figures(folder)?;
    let mut written = Vec::new();
    let figures = page::figures(&RunFolder::at(folder))?;
    if figures.is_empty() {
        output::note(&format!("{} holds no figure", folder.display()));
    }
    for (name, svg) in figures {
        for format in formats {
            let path = folder.join(&name).with_extension(format.name());
            let bytes = match format {
                Format::Pdf => print(&path, &svg)?,
                Format::Csv => match Figure::read(&svg) {
                    Some(figure) => figure.csv().into_bytes(),
                    None => {
                        output::note(&format!(
                            "{name}.svg: no points in it: maps and pictures of motion have none, nor have figures of earlier versions"
                        ));
                        continue;
                    }
                },
            };
            replace_file(&path, |file| file.write_all(&bytes))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// A figure as PDF: curves and bars are drawn anew for a column.
#[cfg(feature = "pdf")]
fn print(path: &Path, svg: &str) -> Result<Vec<u8>> {
    let failed = |error: &dyn std::fmt::Display| Error::Output {
        path: path.to_owned(),
        reason: format!("the figure cannot be drawn: {error}"),
    };
    match Figure::read(svg).map(|figure| figure.draw(Paper::Column)) {
        Some(Ok(Some(svg))) => crate::plots::pdf(path, &svg, COLUMN),
        Some(Err(error)) => Err(failed(&error)),
        Some(Ok(None)) | None => crate::plots::pdf(path, svg, PAGE),
    }
}

#[cfg(not(feature = "pdf"))]
fn print(_: &Path, _: &str) -> Result<Vec<u8>> {
    let _ = (Paper::Column, COLUMN, PAGE);
    Err(Error::Usage("--figures pdf: this program was built without the feature pdf".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::{self, LossHistory, Panel, Particle};

    #[test]
    fn curves_are_drawn_for_a_column_and_panels_for_a_page() {
        let here = tempfile::tempdir().unwrap();
        std::fs::write(here.path().join("metrics.jsonl"), "{\"step\": 1, \"train_loss\": 0.5}\n").unwrap();
        let particle = Particle { charge: 1.0, path: vec![[0.0; 3], [1.0; 3]], predicted: [f64::NAN; 3] };
        let panel = Panel { title: "a".to_owned(), error: 0.1, particles: vec![particle] };
        plots::trajectories(&here.path().join("trajectories.svg"), &[panel], "b").unwrap();
        let written = write(here.path(), &[Format::Pdf, Format::Csv]).unwrap();
        let names: Vec<_> = written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["loss.pdf", "loss.csv", "trajectories.pdf"]);
        let width = |name: &str| -> f32 {
            let file = std::fs::read(here.path().join(name)).unwrap();
            let text = String::from_utf8_lossy(&file).into_owned();
            let page = text.split("/MediaBox [").nth(1).unwrap().split(']').next().unwrap();
            page.split_whitespace().nth(2).unwrap().parse().unwrap()
        };
        assert!((width("loss.pdf") - COLUMN).abs() < 0.01 && (width("trajectories.pdf") - PAGE).abs() < 0.01);
        let csv = std::fs::read_to_string(here.path().join("loss.csv")).unwrap();
        assert_eq!(csv, "series,step,value\ntrain loss,1,0.5\n");
    }

    /// What a figure carries is what it shows, and hostile text stays text.
    #[test]
    fn figures_come_back_from_their_files() {
        let here = tempfile::tempdir().unwrap();
        let path = here.path().join("loss.svg");
        let title = "a </metadata> & \"b\", <c>";
        let history = LossHistory {
            train: vec![(1, 0.1 + 0.2), (2, f64::NAN), (3, 0.25)],
            valid: vec![(3, 0.5)],
            test: Some(0.125),
            lr: Vec::new(),
        };
        plots::loss(&path, &history, title, "MSE, \"mean\"").unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        let Some(Figure::Loss { history: found, title: named, .. }) = Figure::read(&svg) else {
            panic!("{svg}")
        };
        assert_eq!((named.as_str(), &found.valid, found.test), (title, &history.valid, history.test));
        assert_eq!(found.train, [(1, 0.1 + 0.2), (3, 0.25)], "all digits");
        let csv = Figure::read(&svg).unwrap().csv();
        assert!(
            csv.contains("\"test MSE, \"\"mean\"\"\",3,0.125\n") && csv.contains(",1,0.30000000000000004\n")
        );
        let bare = Figure::strip(&svg);
        assert!(!bare.contains("<metadata") && bare.contains("<polyline") && Figure::read(&bare).is_none());
    }
}
