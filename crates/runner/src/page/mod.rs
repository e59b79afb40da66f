//! `report.html`: one page about a run, or about several, that needs nothing beside itself.

mod about;
mod dots;
mod frame;
mod html;
mod one;
mod record;
mod series;
mod several;

pub use about::{About, Measured, Setting, Sitting};
use record::Record;
pub(crate) use record::figures;

use crate::{
    error::Result,
    output, plots,
    run::{Contents, RunFolder},
};
use gradewise_nn::checkpoint::replace_file;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Draws `loss.svg` and `report.html` of a run from what its folder holds, whether or not the run has ended. Returns the page.
///
/// # Errors
/// Files of the folder that cannot be read or written.
pub fn write(folder: &RunFolder) -> Result<PathBuf> {
    let mut record = Record::read(folder)?;
    draw_loss(folder, &record)?;
    record.read_figures(folder)?;
    save(&folder.page(), one::page(&record))
}

/// Draws the figures of a folder that its records alone give: `loss.svg` of a run, `seeds.svg` of others.
///
/// # Errors
/// As [`write_of`].
pub(crate) fn draw_figures(path: &Path) -> Result<()> {
    match Contents::of(path)? {
        Contents::Run => {
            let folder = RunFolder::at(path);
            draw_loss(&folder, &Record::read(&folder)?)
        }
        contents => {
            let folder = RunFolder::at(path);
            draw_seeds(path, &records(&contents.runs(path), &folder.page())?)
        }
    }
}

fn draw_loss(folder: &RunFolder, record: &Record) -> Result<()> {
    let (title, axis) = match &record.about {
        Some(about) => (format!("{}: loss", about.title), about.loss.as_str()),
        None => (format!("{}: loss", record.name), "loss"),
    };
    plots::loss(&folder.loss(), &record.history(), &title, axis)
}

fn draw_seeds(path: &Path, records: &[Record]) -> Result<()> {
    let (bands, measure) = several::bands(records);
    plots::seeds(&RunFolder::at(path).file(SEEDS), &bands, &record::name(path), &measure)
}

/// As [`write_of`] at the end of runs and between their steps: a run does not end because a page cannot be drawn.
pub fn refresh(path: &Path) {
    if let Err(error) = write_of(path) {
        output::note(&format!("warning: {} is not drawn: {error}", RunFolder::at(path).page().display()));
    }
}

/// Draws the page of a run that goes on, in at most a hundredth of its time: records grow, and a fast run evaluates every second.
#[derive(Debug)]
pub struct Pace {
    due: Instant,
}

impl Pace {
    /// Between two drawings, whatever they cost.
    const LEAST: Duration = Duration::from_secs(5);
    /// The time between two drawings, in that of the last one.
    const SHARE: u32 = 100;

    /// The first drawing is due at once.
    pub fn new() -> Self {
        Self { due: Instant::now() }
    }

    /// As [`refresh`], if the last time was long enough ago.
    pub fn refresh(&mut self, path: &Path) {
        let start = Instant::now();
        if start >= self.due {
            refresh(path);
            self.due = Instant::now() + (start.elapsed() * Self::SHARE).max(Self::LEAST);
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes the page of several runs side by side, whose names are their folders, seen from that of the page.
///
/// # Errors
/// Files of the runs that cannot be read; a page that cannot be written.
pub fn write_several(title: &str, folders: &[PathBuf], path: &Path) -> Result<PathBuf> {
    save(path, several::page(title, &records(folders, path)?, None))
}

/// The figure of runs that differ in their seed alone.
pub(crate) const SEEDS: &str = "seeds.svg";

/// Writes the page of the runs of a folder into it, and of several seeds the figure `seeds.svg`.
///
/// # Errors
/// As [`write()`] and [`write_several`]; a folder that holds no run.
pub fn write_of(path: &Path) -> Result<PathBuf> {
    let contents = Contents::of(path)?;
    let folder = RunFolder::at(path);
    if contents == Contents::Run {
        return write(&folder);
    }
    // Only the folder of a learning curve has the figure.
    let curve = std::fs::read_to_string(folder.file("curve.svg")).ok();
    let curve = curve.map(|svg| plots::Figure::strip(&svg));
    let records = records(&contents.runs(path), &folder.page())?;
    draw_seeds(path, &records)?;
    save(&folder.page(), several::page(&record::name(path), &records, curve.as_deref()))
}

fn records(folders: &[PathBuf], page: &Path) -> Result<Vec<Record>> {
    let read = |folder: &PathBuf| -> Result<Record> {
        let below = page.parent().and_then(|parent| folder.strip_prefix(parent).ok()).unwrap_or(folder);
        // Folders of different parents often have the same name.
        Ok(Record { name: below.display().to_string(), ..Record::read(&RunFolder::at(folder))? })
    };
    folders.iter().map(read).collect()
}

/// Whether a file is a page of this program.
pub fn is_page(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.contains(frame::GENERATOR))
}

fn save(path: &Path, page: html::Html) -> Result<PathBuf> {
    let text = page.into_text();
    replace_file(path, |file| file.write_all(text.as_bytes()))?;
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests;
