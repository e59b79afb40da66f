//! Reference energies of species: what a sum over atoms explains of the energies of frames.

use super::{Frame, elements::ELEMENTS};

/// Entries of tables by atomic number; entry 0 is not used.
pub const SPECIES: usize = ELEMENTS + 1;

/// Energies of species, in eV, by atomic number: the least squares over the frames that have an energy, the shortest vector where frames do
/// not determine them, as where all have the same atoms. Species that no frame has get 0. Values are rounded to single precision, in which
/// models keep them.
pub fn reference_energies(frames: &[Frame]) -> Vec<f64> {
    let mut found = vec![0.0; SPECIES];
    let mut present: Vec<u8> = frames.iter().flat_map(|frame| frame.numbers.iter().copied()).collect();
    present.sort_unstable();
    present.dedup();
    let size = present.len();
    let (mut normal, mut right) = (vec![0.0; size * size], vec![0.0; size]);
    for (frame, energy) in frames.iter().filter_map(|frame| Some((frame, frame.energy?))) {
        let mut counts = vec![0.0; size];
        for number in &frame.numbers {
            if let Ok(at) = present.binary_search(number) {
                counts[at] += 1.0;
            }
        }
        for (row, a) in counts.iter().enumerate() {
            right[row] += a * energy;
            for (column, b) in counts.iter().enumerate() {
                normal[row * size + column] += a * b;
            }
        }
    }
    for (&number, energy) in present.iter().zip(solve_shortest(normal, right)) {
        found[usize::from(number)] = f64::from(energy as f32);
    }
    found
}

/// The shortest solution of a symmetric positive semidefinite system, by conjugate gradients from zero, whose iterates stay in the range
/// of the matrix; started again on what is left over, which takes the rounding away. What is left over of rounding has a part outside of the
/// range, along which steps would be without bound, so that residuals below 1e-13 of the right side are none.
fn solve_shortest(matrix: Vec<f64>, right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let times = |x: &[f64]| -> Vec<f64> { matrix.chunks_exact(size.max(1)).map(|row| dot(row, x)).collect() };
    let mut solution = vec![0.0; size];
    let floor = dot(&right, &right) * 1e-26;
    for _ in 0..3 {
        let mut rest: Vec<f64> = right.iter().zip(times(&solution)).map(|(b, a)| b - a).collect();
        let mut direction = rest.clone();
        let mut square = dot(&rest, &rest);
        let least = floor.max(square * 1e-28);
        for _ in 0..2 * size {
            let image = times(&direction);
            let along = dot(&direction, &image);
            if square <= least || along <= 0.0 {
                break;
            }
            let step = square / along;
            solution.iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
            rest.iter_mut().zip(&image).for_each(|(r, i)| *r -= step * i);
            let next = dot(&rest, &rest);
            direction.iter_mut().zip(&rest).for_each(|(d, r)| *d = r + next / square * *d);
            square = next;
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(numbers: &[u8], energy: f64) -> Frame {
        Frame { numbers: numbers.to_vec(), energy: Some(energy), ..Frame::default() }
    }

    #[test]
    fn energies_of_species_are_found_from_different_molecules() {
        let frames = [frame(&[8, 1, 1], -76.0), frame(&[6, 1, 1, 1, 1], -40.0), frame(&[6, 8, 8], -188.0)];
        let found = reference_energies(&frames);
        let of = |numbers: &[u8]| numbers.iter().map(|&z| found[usize::from(z)]).sum::<f64>();
        for frame in &frames {
            assert!((of(&frame.numbers) - frame.energy.unwrap()).abs() < 1e-5, "{found:?}");
        }
    }

    #[test]
    fn equal_molecules_have_the_shortest_vector_and_no_frames_have_zeros() {
        let found = reference_energies(&vec![frame(&[8, 1, 1], -50.0); 7]);
        assert!((found[8] + 10.0).abs() < 1e-5 && (found[1] + 20.0).abs() < 1e-5, "{found:?}");
        assert!(reference_energies(&[]).iter().all(|x| *x == 0.0));
    }

    #[test]
    fn frames_of_one_molecule_have_its_mean_energy_however_many_they_are() {
        let ethanol = [6, 6, 8, 1, 1, 1, 1, 1, 1];
        let energies = |count: usize| (0..count).map(|k| -310.4 + 0.3 * (k as f64 * 1.7).sin());
        for count in 1..200 {
            let frames: Vec<Frame> = energies(count).map(|energy| frame(&ethanol, energy)).collect();
            let found = reference_energies(&frames);
            let whole: f64 = ethanol.iter().map(|&z| found[usize::from(z)]).sum();
            let mean = energies(count).sum::<f64>() / count as f64;
            assert!((whole - mean).abs() < 1e-3, "{count} frames: {whole} and {mean}");
            // Of the shortest vector, in proportion to the numbers of atoms.
            assert!((found[1] - 3.0 * found[6]).abs() < 1e-3, "{count} frames: {found:?}");
        }
    }
}
