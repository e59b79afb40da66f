//! Extended XYZ, as ase writes it.
//!
//! Each frame: the number of atoms; a line of `key=value` pairs with `Lattice`, `pbc`, `Properties` and numbers of the whole; a line for each
//! atom with the columns that `Properties` names.

use super::comment::{numbers, pairs};
use crate::data::atoms::{
    Cell, Deviations, Frame, Units, Vector,
    elements::{self, symbol},
};
use std::fmt::Write;

/// Names of the energy, the first that a frame has; reference values before those of a calculator.
const ENERGY: &[&str] = &["REF_energy", "ref_energy", "energy", "Energy", "total_energy", "dft_energy"];
/// Names of the forces.
const FORCES: &[&str] = &["REF_forces", "ref_forces", "forces", "force", "Forces", "dft_forces"];
/// Names of the stress, in energy over volume.
const STRESS: &[&str] = &["REF_stress", "ref_stress", "stress", "dft_stress"];
/// Names of the virial, which is −volume × stress.
const VIRIAL: &[&str] = &["REF_virial", "REF_virials", "virial", "virials", "dft_virial"];

/// The columns of one property.
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    count: usize,
}

/// Where the properties of an atom stand in its line.
struct Layout {
    species: Option<Columns>,
    numbers: Option<Columns>,
    positions: Columns,
    forces: Option<Columns>,
    total: usize,
}

/// Reads all frames of a text, in eV and Å.
///
/// # Errors
/// The line and what is wrong with it.
pub fn parse(text: &str, units: &Units) -> Result<Vec<Frame>, String> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let mut frames = Vec::new();
    while let Some((at, line)) = lines.next() {
        if line.trim().is_empty() {
            // Blank lines are accepted at the end alone.
            match lines.by_ref().find(|(_, line)| !line.trim().is_empty()) {
                None => break,
                Some((at, _)) => return Err(format!("line {at}: a frame after a blank line")),
            }
        }
        let atoms: usize = line.trim().parse().map_err(|_| {
            format!("line {at}: `{}` is no number of atoms, with which a frame begins", shortened(line))
        })?;
        let frame = frames.len();
        let ends = |there: usize| {
            format!(
                "it is truncated: frame {frame} (line {at}) has {atoms} atoms, and the file ends after {there} of them; copy it \
                 again, or delete the frame"
            )
        };
        let Some((at, comment)) = lines.next() else { return Err(ends(0)) };
        let here = |reason: String| format!("line {at}: {reason}");
        let mut found = header(comment, units).map_err(here)?;
        for atom in 0..atoms {
            let Some((at, line)) = lines.next() else { return Err(ends(atom)) };
            found.atom(line, units).map_err(|reason| format!("line {at}: {reason}"))?;
        }
        if let Some(fault) = found.frame.fault() {
            return Err(format!("frame {frame} (line {at}): {fault}"));
        }
        frames.push(found.frame);
    }
    Ok(frames)
}

/// A frame whose atoms are still to be read.
struct Reading {
    frame: Frame,
    layout: Layout,
}

fn header(comment: &str, units: &Units) -> Result<Reading, String> {
    let pairs = pairs(comment)?;
    let value = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let first = |names: &[&'static str]| names.iter().find_map(|name| Some((*name, value(name)?)));
    let properties = value("Properties").unwrap_or("species:S:1:pos:R:3");
    let layout = layout(properties)?;
    let mut frame = Frame { forces: layout.forces.map(|_| Vec::new()), ..Frame::default() };
    let vectors = value("Lattice").or_else(|| value("cell")).map(|text| {
        let rows = matrix("Lattice", text)?;
        Ok::<_, String>(rows.map(|row| row.map(|x| x * units.length.angstroms())))
    });
    let vectors = vectors.transpose()?;
    let periodic = match (value("pbc"), vectors) {
        (Some(text), _) => truths(text)?,
        (None, vectors) => [vectors.is_some(); 3],
    };
    if periodic.contains(&true) && vectors.is_none() {
        return Err("pbc says that the system repeats, but there is no Lattice".to_owned());
    }
    frame.cell = vectors.map(|vectors| Cell { vectors, periodic });
    if let Some((name, text)) = first(ENERGY) {
        let energy: f64 = text.trim().parse().map_err(|_| format!("{name} is `{text}`, no number"))?;
        frame.energy = Some(energy * units.energy.electron_volts());
    }
    let volume = frame.cell.map(|cell| cell.volume());
    frame.stress = match (first(STRESS), first(VIRIAL), volume) {
        (Some((name, text)), ..) => Some(matrix(name, text)?.map(|row| row.map(|x| x * units.stress()))),
        (None, Some((name, text)), Some(volume)) => {
            let scale = -units.energy.electron_volts() / volume;
            Some(matrix(name, text)?.map(|row| row.map(|x| x * scale)))
        }
        _ => None,
    };
    Ok(Reading { frame, layout })
}

impl Reading {
    fn atom(&mut self, line: &str, units: &Units) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let layout = &self.layout;
        if words.len() != layout.total {
            return Err(format!(
                "{} columns, where Properties of the frame names {}; the line is `{}`",
                words.len(),
                layout.total,
                shortened(line)
            ));
        }
        let number = match (layout.species, layout.numbers) {
            (Some(columns), _) => species(words[columns.first])?,
            (None, Some(columns)) => words[columns.first]
                .parse()
                .map_err(|_| format!("`{}` is no atomic number", words[columns.first]))?,
            (None, None) => return Err("Properties has neither species nor Z".to_owned()),
        };
        let vector = |columns: Columns, scale: f64| -> Result<Vector, String> {
            let mut vector = [0.0; 3];
            for (x, word) in vector.iter_mut().zip(&words[columns.first..]) {
                *x = scale * word.parse::<f64>().map_err(|_| format!("`{word}` is no number"))?;
            }
            Ok(vector)
        };
        let position = vector(layout.positions, units.length.angstroms())?;
        let force = layout.forces.map(|columns| vector(columns, units.force())).transpose()?;
        self.frame.numbers.push(number);
        self.frame.positions.push(position);
        if let (Some(forces), Some(force)) = (&mut self.frame.forces, force) {
            forces.push(force);
        }
        Ok(())
    }
}

/// An element by its symbol, or by its atomic number.
fn species(word: &str) -> Result<u8, String> {
    let found =
        elements::number(word).or_else(|| word.parse().ok().filter(|&number| symbol(number).is_some()));
    found.ok_or_else(|| {
        format!(
            "the species `{word}` is no chemical element; species are symbols, such as C, or atomic numbers"
        )
    })
}

fn layout(properties: &str) -> Result<Layout, String> {
    let words: Vec<&str> = properties.split(':').collect();
    if !words.len().is_multiple_of(3) {
        return Err(format!("Properties is `{properties}`, expected triples NAME:TYPE:COLUMNS"));
    }
    let mut named = Vec::new();
    let mut total = 0usize;
    for triple in words.chunks_exact(3) {
        let count: usize =
            triple[2].parse().map_err(|_| format!("Properties: `{}` is no number of columns", triple[2]))?;
        named.push((triple[0], Columns { first: total, count }));
        total = total.saturating_add(count);
    }
    let first = |names: &[&str], count: usize| {
        let found = names.iter().find_map(|name| named.iter().find(|(known, _)| known == name));
        match found {
            Some((name, columns)) if columns.count != count => {
                Err(format!("Properties: {name} has {} columns, expected {count}", columns.count))
            }
            found => Ok(found.map(|(_, columns)| *columns)),
        }
    };
    let positions = first(&["pos", "positions"], 3)?;
    Ok(Layout {
        species: first(&["species", "element", "symbols"], 1)?,
        numbers: first(&["Z", "numbers", "atomic_numbers"], 1)?,
        positions: positions.ok_or_else(|| format!("Properties `{properties}` names no pos"))?,
        forces: first(FORCES, 3)?,
        total,
    })
}

/// A 3 × 3 matrix: 9 numbers row by row, or the 6 xx, yy, zz, yz, xz, xy of a symmetric one.
fn matrix(name: &str, text: &str) -> Result<[Vector; 3], String> {
    let values = numbers(text).map_err(|reason| format!("{name}: {reason}"))?;
    match *values.as_slice() {
        [a, b, c, d, e, f, g, h, i] => Ok([[a, b, c], [d, e, f], [g, h, i]]),
        [xx, yy, zz, yz, xz, xy] => Ok([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]),
        _ => Err(format!("{name} has {} numbers, expected 9, or the 6 xx yy zz yz xz xy", values.len())),
    }
}

fn truths(text: &str) -> Result<[bool; 3], String> {
    let words: Vec<bool> = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .filter(|word| !word.is_empty())
        .map(|word| match word {
            "T" | "True" | "true" | "1" => Ok(true),
            "F" | "False" | "false" | "0" => Ok(false),
            _ => Err(format!("pbc has `{word}`, expected T or F")),
        })
        .collect::<Result<_, _>>()?;
    match *words.as_slice() {
        [a, b, c] => Ok([a, b, c]),
        [all] => Ok([all; 3]),
        _ => Err(format!("pbc has {} values, expected 3", words.len())),
    }
}

fn shortened(line: &str) -> String {
    line.trim().chars().take(60).collect()
}

/// The text of a frame in eV and Å, with the energies, forces and stress that it has, as ase reads it. `deviations` over several models are
/// `energy_deviation` and columns `forces_deviation`; `pairs` are further `key=value` pairs.
pub fn write(frame: &Frame, deviations: Option<&Deviations>, pairs: &str, out: &mut String) {
    let forces = frame.forces.as_ref();
    let _ = writeln!(out, "{}", frame.len());
    if let Some(cell) = &frame.cell {
        let _ = write!(out, "Lattice=\"{}\" ", joined(cell.vectors.as_flattened()));
    }
    out.push_str("Properties=species:S:1:pos:R:3");
    if forces.is_some() {
        out.push_str(":forces:R:3");
    }
    if deviations.is_some() {
        out.push_str(":forces_deviation:R:3");
    }
    if let Some(energy) = frame.energy {
        let _ = write!(out, " energy={energy}");
    }
    if let Some(Deviations(of)) = deviations {
        let _ = write!(out, " energy_deviation={}", of.energy);
    }
    if let Some(stress) = &frame.stress {
        let _ = write!(out, " stress=\"{}\"", joined(stress.as_flattened()));
    }
    let periodic = frame.cell.map_or([false; 3], |cell| cell.periodic);
    let letters = periodic.map(|periodic| if periodic { "T" } else { "F" });
    let gap = if pairs.is_empty() { "" } else { " " };
    let _ = writeln!(out, " pbc=\"{}\"{gap}{pairs}", letters.join(" "));
    for (atom, (&number, position)) in frame.numbers.iter().zip(&frame.positions).enumerate() {
        let _ = write!(out, "{:<2} {}", symbol(number).unwrap_or("X"), joined(position));
        let deviations = deviations.map(|Deviations(of)| &of.forces);
        for vectors in [forces, deviations].into_iter().flatten() {
            let _ = write!(out, " {}", joined(vectors.get(atom).unwrap_or(&[f64::NAN; 3])));
        }
        out.push('\n');
    }
}

/// Numbers with the digits that identify them.
fn joined(values: &[f64]) -> String {
    values.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
}
