//! Whether energies, forces and positions can have the units that are claimed for them.
//!
//! Two tests need no knowledge of the system. Along a short way the energy changes by minus the integral of the forces, for which the
//! trapezoidal rule is exact where the energy is quadratic; a wrong unit of one of the two makes their ratio wrong by its factor. And atoms
//! that are bound are about as far apart as the sum of their covalent radii. What no such test can see is a wrong unit that energies and
//! forces share.

use super::{
    Cell, EnergyUnit, ForceUnit, Frame, LengthUnit, Neighbours, Units, Vector, elements::radius, frame::dot,
};
use gradewise_nn::choice::Choice;

/// Frames that are compared with one another.
const FRAMES: usize = 250;
/// Fewest pairs of frames from which anything is concluded.
const PAIRS: usize = 8;
/// Correlation of energies and integrals below which nothing is concluded: frames are too far apart.
const CORRELATION: f64 = 0.6;
/// Ratios of energies to integrals that are accepted: 1 within this factor of their bounds.
const FACTOR: f64 = 1.3;
/// Median of the nearest distance of an atom over the sum of radii: what is accepted, and what is usual.
const DISTANCES: [f64; 2] = [0.65, 1.6];
const USUAL: [f64; 2] = [0.8, 1.35];

/// What the tests found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Consistency {
    /// Bounds of the change of the energy over minus the line integral of the forces; they enclose 1 if units fit. `None` if there are too
    /// few frames, or frames too far apart. The bounds are the least squares of either by the other: errors of the integral, which come from
    /// what is not quadratic in the energy, make the first too small and the second too large.
    pub ratio: Option<[f64; 2]>,
    /// The median over atoms of the distance of the nearest neighbour over the sum of covalent radii; about 1 between bound atoms.
    pub distance: Option<f64>,
}

impl Consistency {
    /// Measures frames, whose numbers were converted to eV and Å.
    pub fn of(frames: &[Frame]) -> Self {
        let step = frames.len().div_ceil(FRAMES).max(1);
        let some: Vec<&Frame> = frames.iter().step_by(step).collect();
        Self { ratio: ratio(&some), distance: distance(&some) }
    }

    /// Refuses units that cannot be right.
    ///
    /// # Errors
    /// What contradicts them, and the units that would fit.
    pub fn require(&self, units: &Units) -> Result<(), String> {
        if let Some(found) = self.distance.filter(|x| !(DISTANCES[0]..=DISTANCES[1]).contains(x)) {
            let fit = LengthUnit::ALL.iter().find(|other| {
                let scaled = found * other.angstroms() / units.length.angstroms();
                (USUAL[0]..=USUAL[1]).contains(&scaled)
            });
            // Without a unit that fits, the system may be unusual.
            if let Some(fit) = fit {
                return Err(format!(
                    "atoms are {found:.2} times as far from their nearest neighbours as bound atoms are, if lengths are in {}; in {} \
                     it would be {:.2}: set data.length_unit={}",
                    units.length.name(),
                    fit.name(),
                    found * fit.angstroms() / units.length.angstroms(),
                    fit.name()
                ));
            }
        }
        let encloses_one = |[low, high]: [f64; 2]| low <= FACTOR && high >= 1.0 / FACTOR;
        let Some(ratio) = self.ratio.filter(|ratio| !encloses_one(*ratio)) else { return Ok(()) };
        let claimed = units.energy.electron_volts() / units.force();
        let mut fits = Vec::new();
        for &energy in EnergyUnit::ALL.iter().filter(|unit| **unit != EnergyUnit::Format) {
            for &force in ForceUnit::ALL {
                let other = Units { energy, force, ..*units };
                let scale = energy.electron_volts() / other.force() / claimed;
                if encloses_one(ratio.map(|bound| scale * bound)) && force != ForceUnit::Derived {
                    fits.push(format!("energies in {} with forces in {}", energy.name(), other.force_name()));
                }
            }
        }
        let fits = match fits.as_slice() {
            [] => "no pair of known units fits: are forces gradients, or the names of columns others?"
                .to_owned(),
            some => format!("what fits: {}; set data.energy_unit and data.force_unit", some.join("; ")),
        };
        Err(format!(
            "between near frames energies change by {:.3} times minus the line integral of the forces, if energies are in {} \
             and forces in {}; {fits}",
            (ratio[0] * ratio[1]).sqrt(),
            units.energy.name(),
            units.force_name()
        ))
    }
}

/// Energies against line integrals between each frame and the one nearest to it.
fn ratio(frames: &[&Frame]) -> Option<[f64; 2]> {
    let (mut changes, mut integrals) = (Vec::new(), Vec::new());
    for (at, one) in frames.iter().enumerate() {
        let others =
            frames[at + 1..].iter().filter(|other| other.numbers == one.numbers && other.cell == one.cell);
        let ways = others.map(|other| (Way::new(one, other), other));
        let nearest = ways.min_by(|(a, _), (b, _)| a.square.total_cmp(&b.square));
        let Some((way, other)) = nearest else { continue };
        let (Some(e0), Some(e1), Some(f0), Some(f1)) = (one.energy, other.energy, &one.forces, &other.forces)
        else {
            continue;
        };
        let work = way.steps.iter().zip(f0.iter().zip(f1)).map(|(&step, (&a, &b))| {
            let b = turned(&way.rotation, b);
            dot(step, std::array::from_fn(|axis| a[axis] + b[axis])) / 2.0
        });
        changes.push(e1 - e0);
        integrals.push(-work.sum::<f64>());
    }
    if changes.len() < PAIRS {
        return None;
    }
    let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (both, own, other) =
        (sum(&changes, &integrals), sum(&integrals, &integrals), sum(&changes, &changes));
    (both > CORRELATION * (own * other).sqrt()).then(|| [both / own, other / both])
}

/// The way from one frame to another: by the nearest image in a cell, after the best rotation and shift of a molecule.
struct Way {
    steps: Vec<Vector>,
    /// Applied to the other frame.
    rotation: [Vector; 3],
    square: f64,
}

impl Way {
    fn new(one: &Frame, other: &Frame) -> Self {
        const NONE: [Vector; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let (steps, rotation): (Vec<Vector>, _) = match one.repeating() {
            Some(cell) => (steps(one, other, cell), NONE),
            None => {
                let centred = |frame: &Frame| -> Vec<Vector> {
                    let count = frame.len() as f64;
                    let mean: Vector = std::array::from_fn(|axis| {
                        frame.positions.iter().map(|x| x[axis]).sum::<f64>() / count
                    });
                    frame.positions.iter().map(|x| std::array::from_fn(|axis| x[axis] - mean[axis])).collect()
                };
                let (a, b) = (centred(one), centred(other));
                let rotation = best_rotation(&b, &a);
                let difference = |(a, &b): (&Vector, &Vector)| {
                    let b = turned(&rotation, b);
                    std::array::from_fn(|axis| b[axis] - a[axis])
                };
                (a.iter().zip(&b).map(difference).collect(), rotation)
            }
        };
        let square = steps.iter().map(|&step| dot(step, step)).sum();
        Self { steps, rotation, square }
    }
}

/// The step of each atom from one frame to another, by the nearest image.
fn steps(one: &Frame, other: &Frame, cell: &Cell) -> Vec<Vector> {
    let nearest = |(a, b): (&Vector, &Vector)| {
        let mut step: Vector = std::array::from_fn(|axis| b[axis] - a[axis]);
        for k in (0..3).filter(|&k| cell.periodic[k]) {
            let vector = cell.vectors[k];
            let turns = (dot(step, vector) / dot(vector, vector)).round();
            step = std::array::from_fn(|axis| step[axis] - turns * vector[axis]);
        }
        step
    };
    one.positions.iter().zip(&other.positions).map(nearest).collect()
}

fn turned(rotation: &[Vector; 3], vector: Vector) -> Vector {
    rotation.map(|row| dot(row, vector))
}

/// A rotation that brings points near others, by Horn's quaternion (1987, doi:10.1364/JOSAA.4.000629). Power iteration finds it; where it has
/// not converged the rotation is another one, which leaves a longer way and nothing wrong.
fn best_rotation(from: &[Vector], to: &[Vector]) -> [Vector; 3] {
    const ITERATIONS: usize = 30;
    let mut s = [[0.0; 3]; 3];
    for (a, b) in from.iter().zip(to) {
        for i in 0..3 {
            for j in 0..3 {
                s[i][j] += a[i] * b[j];
            }
        }
    }
    let [[xx, xy, xz], [yx, yy, yz], [zx, zy, zz]] = s;
    let matrix = [
        [xx + yy + zz, yz - zy, zx - xz, xy - yx],
        [yz - zy, xx - yy - zz, xy + yx, zx + xz],
        [zx - xz, xy + yx, yy - xx - zz, yz + zy],
        [xy - yx, zx + xz, yz + zy, zz - xx - yy],
    ];
    // The shift makes the largest eigenvalue the one of largest magnitude.
    let shift = matrix.as_flattened().iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut q = [1.0, 0.1, 0.1, 0.1];
    for _ in 0..ITERATIONS {
        let image: [f64; 4] =
            std::array::from_fn(|i| shift * q[i] + (0..4).map(|j| matrix[i][j] * q[j]).sum::<f64>());
        let size = image.iter().map(|x| x * x).sum::<f64>().sqrt();
        if size == 0.0 {
            break;
        }
        q = image.map(|x| x / size);
    }
    let size = q.iter().map(|x| x * x).sum::<f64>().sqrt();
    let [w, x, y, z] = q.map(|x| x / size);
    [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
        [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
    ]
}

/// The median of the nearest distances over the sums of covalent radii.
fn distance(frames: &[&Frame]) -> Option<f64> {
    const SEEN: usize = 20;
    let mut ratios = Vec::new();
    for frame in frames.iter().step_by(frames.len().div_ceil(SEEN).max(1)) {
        let Ok(found) = Neighbours::find(&frame.positions, frame.cell.as_ref(), 6.0) else { continue };
        let mut nearest = vec![f64::INFINITY; frame.len()];
        for k in 0..found.len() {
            let (i, j) = (found.receivers[k] as usize, found.senders[k] as usize);
            let (Some(a), Some(b)) = (radius(frame.numbers[i]), radius(frame.numbers[j])) else { continue };
            let d = found.difference(k, &frame.positions, frame.cell.as_ref());
            nearest[i] = nearest[i].min(dot(d, d).sqrt() / (a + b));
        }
        ratios.extend(nearest.into_iter().filter(|ratio| ratio.is_finite()));
    }
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{
        atoms::{ETHANOL, files},
        potential::Potential,
    };
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::path::Path;

    const UNITS: Units =
        Units { energy: EnergyUnit::ElectronVolt, length: LengthUnit::Angstrom, force: ForceUnit::Derived };

    /// Frames of silicon atoms, with the energies and forces of Stillinger and Weber's potential in units of their own.
    fn frames(energy: f64, force: f64, length: f64) -> Vec<Frame> {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let draw = |_| {
            let mut loc = vec![0.0; 24];
            for atom in 0..8 {
                for axis in 0..3 {
                    loc[axis * 8 + atom] =
                        1.1 * f64::from((atom >> axis) as u8 & 1) + 0.02 * rng.random_range(-1.0..1.0);
                }
            }
            let (e, f) = Potential::StillingerWeber.evaluate(8, &loc, &[0.0; 8]);
            let rows = |values: &[f64], scale: f64| {
                (0..8).map(|atom| [0, 1, 2].map(|axis| scale * values[axis * 8 + atom])).collect::<Vec<_>>()
            };
            Frame {
                numbers: vec![14; 8],
                positions: rows(&loc, 2.1 * length),
                energy: Some(energy * e[0]),
                forces: Some(rows(&f, force / 2.1)),
                ..Frame::default()
            }
        };
        (0..60).map(draw).collect()
    }

    #[test]
    fn right_units_pass_and_wrong_ones_are_named() {
        let found = Consistency::of(&frames(1.0, 1.0, 1.0));
        let [low, high] = found.ratio.unwrap();
        assert!(0.97 < low && high < 1.03 && low <= high && found.require(&UNITS).is_ok(), "{found:?}");
        // Energies in hartree with forces in hartree/bohr, both read as eV and eV/Å.
        let (hartree, bohr) = (27.211, 0.529_18);
        let message =
            Consistency::of(&frames(1.0 / hartree, bohr / hartree, 1.0)).require(&UNITS).unwrap_err();
        assert!(message.contains("energies in hartree with forces in hartree/bohr"), "{message}");
        let message = Consistency::of(&frames(1.0, 23.06, 1.0)).require(&UNITS).unwrap_err();
        assert!(message.contains("energies in eV with forces in kcal/mol/angstrom"), "{message}");
        // Positions in bohr.
        let message = Consistency::of(&frames(1.0, bohr, 1.0 / bohr)).require(&UNITS).unwrap_err();
        assert!(message.contains("set data.length_unit=bohr"), "{message}");
    }

    /// A molecule that turns, moves and is not near to quadratic.
    #[test]
    fn the_motion_of_ethanol_has_its_units() {
        let frames = files::from_bytes(ETHANOL, Path::new("ethanol.npz"), &UNITS).unwrap();
        for frames in [&frames[..], &frames[..100]] {
            let found = Consistency::of(frames);
            assert!(found.ratio.is_some() && found.require(&UNITS).is_ok(), "{found:?}");
            let mut hartree = frames.to_vec();
            hartree.iter_mut().for_each(|frame| frame.energy = frame.energy.map(|energy| energy / 27.2114));
            let message = Consistency::of(&hartree).require(&UNITS).unwrap_err();
            assert!(message.contains("energies in hartree with forces in eV/angstrom"), "{message}");
        }
    }

    #[test]
    fn a_rotation_is_found() {
        let points = [[1.0, 0.0, 0.2], [0.0, 2.0, 0.0], [0.5, -0.3, 1.5], [-1.0, 0.4, 0.1]];
        let (c, s) = (0.6, 0.8);
        let turn = [[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]];
        let moved = points.map(|point| turned(&turn, point));
        let found = best_rotation(&points, &moved);
        for (a, b) in found.as_flattened().iter().zip(turn.as_flattened()) {
            assert!((a - b).abs() < 1e-3, "{found:?}");
        }
    }

    #[test]
    fn what_cannot_be_judged_is_not_refused() {
        let few = Consistency::of(&frames(1.0, 7.0, 1.0)[..4]);
        assert!(few.ratio.is_none() && few.require(&UNITS).is_ok(), "{few:?}");
        let atom = Frame { numbers: vec![18], positions: vec![[0.0; 3]], ..Frame::default() };
        assert_eq!(Consistency::of(&vec![atom; 20]), Consistency { ratio: None, distance: None });
    }
}
