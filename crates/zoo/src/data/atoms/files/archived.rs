//! Trajectories of one molecule in `.npz` files: those of rMD17 (`nuclear_charges`, `coords`, `energies`, `forces`) and those of MD17 and
//! MD22 (`z`, `R`, `E`, `F`).

use super::archive::arrays;
use crate::data::{
    atoms::{Frame, Units, Vector},
    npy::NpyArray,
};
use std::path::Path;

/// The names of species, positions, energies and forces in the two kinds.
const KINDS: [[&str; 4]; 2] = [["nuclear_charges", "coords", "energies", "forces"], ["z", "R", "E", "F"]];

/// Reads all frames of an archive, in eV and Å.
///
/// # Errors
/// What is wrong with it.
pub fn parse(bytes: &[u8], path: &Path, units: &Units) -> Result<Vec<Frame>, String> {
    let arrays = arrays(bytes, path)?;
    let find = |name: &str| arrays.iter().find(|(known, _)| known == name).map(|(_, array)| array);
    let Some(kind) = KINDS.iter().find(|kind| kind[..2].iter().all(|name| find(name).is_some())) else {
        let names: Vec<&str> = arrays.iter().map(|(name, _)| name.as_str()).collect();
        let expected = KINDS.map(|kind| kind.join(", "));
        return Err(format!("it has the arrays {}; expected {}", names.join(", "), expected.join(", or ")));
    };
    let [species, positions, energies, forces] = kind.map(find);
    let (Some(species), Some(positions)) = (species, positions) else {
        return Err("species or positions are missing".to_owned());
    };
    let atoms = species.values.len();
    let &[frames, of_positions, 3] = positions.shape.as_slice() else {
        return Err(format!("{} has shape {:?}, expected [frames, {atoms}, 3]", kind[1], positions.shape));
    };
    if of_positions != atoms {
        return Err(format!("{} has {of_positions} atoms, {} has {atoms}", kind[1], kind[0]));
    }
    let fits = |array: Option<&NpyArray>, name: &str, each: usize| match array {
        Some(array) if array.values.len() != frames * each => {
            Err(format!("{name} has shape {:?}, expected {frames} × {each} numbers", array.shape))
        }
        _ => Ok(()),
    };
    fits(energies, kind[2], 1)?;
    fits(forces, kind[3], 3 * atoms)?;
    let numbers: Vec<u8> = species
        .values
        .iter()
        .map(|&number| match number {
            number if number.fract() == 0.0 && (1.0..=118.0).contains(&number) => Ok(number as u8),
            number => Err(format!("{} has {number}, which is no atomic number", kind[0])),
        })
        .collect::<Result<_, _>>()?;
    let vectors = |array: &NpyArray, frame: usize, scale: f64| -> Vec<Vector> {
        let values = &array.values[frame * 3 * atoms..][..3 * atoms];
        values.chunks_exact(3).map(|v| [v[0] * scale, v[1] * scale, v[2] * scale]).collect()
    };
    let read = |frame: usize| {
        let read = Frame {
            numbers: numbers.clone(),
            positions: vectors(positions, frame, units.length.angstroms()),
            energy: energies.map(|array| array.values[frame] * units.energy.electron_volts()),
            forces: forces.map(|array| vectors(array, frame, units.force())),
            ..Frame::default()
        };
        match read.fault() {
            Some(fault) => Err(format!("frame {frame}: {fault}")),
            None => Ok(read),
        }
    };
    (0..frames).map(read).collect()
}
