//! Atoms sorted into the bins of a grid along the cell's vectors, on the host.

use super::{
    FARTHEST, Search, Vector,
    cell::{dot, shift},
};
use crate::csrc::neighbours::BINS;

/// A grid of parallelepipeds. Along a vector that repeats it covers one period, along others the extent of the atoms.
pub(super) struct Bins<'a> {
    search: &'a Search,
    positions: &'a [Vector],
    /// Bins along each vector.
    counts: [usize; 3],
    /// How many bins away neighbours may be.
    reach: [i64; 3],
    places: Vec<Place>,
    /// For each bin, where its atoms begin in `members`; one more than there are bins.
    starts: Vec<u32>,
    /// Atoms, bin by bin, with their positions inside of the cell.
    members: Vec<(u32, Vector)>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    bin: [usize; 3],
    /// How often each vector was taken off.
    taken: [i32; 3],
    /// The position then.
    inside: Vector,
}

impl<'a> Bins<'a> {
    /// `None` if an atom is too many cells away from the origin.
    pub fn new(positions: &'a [Vector], search: &'a Search) -> Option<Self> {
        let frame = &search.frame;
        // Along vectors that do not repeat, the grid begins at the first atom and ends at the last.
        let (mut first, mut extents) = ([0.0; 3], [1.0; 3]);
        for axis in (0..3).filter(|&axis| !frame.periodic[axis] && !positions.is_empty()) {
            let along = positions.iter().map(|&x| frame.fractions(x)[axis]);
            let (low, high) = along.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
            first[axis] = low;
            extents[axis] = (high - low).max(1e-9) * (1.0 + 1e-9);
        }
        let heights: Vector = std::array::from_fn(|k| frame.heights[k] * extents[k]);
        let counts = counts(heights, search.width, positions.len());
        let reach = std::array::from_fn(|k| (search.width * counts[k] as f64 / heights[k]).ceil() as i64);
        let place = |&position: &Vector| {
            let fractions = frame.fractions(position);
            let mut place = Place { inside: position, ..Place::default() };
            for k in 0..3 {
                let mut along = fractions[k] - first[k];
                if frame.periodic[k] {
                    let turns = along.floor();
                    if turns.abs() >= f64::from(FARTHEST) {
                        return None;
                    }
                    along -= turns;
                    place.taken[k] = turns as i32;
                    for (x, vector) in place.inside.iter_mut().zip(frame.vectors[k]) {
                        *x -= turns * vector;
                    }
                }
                place.bin[k] = ((along * counts[k] as f64 / extents[k]) as usize).min(counts[k] - 1);
            }
            Some(place)
        };
        let places: Vec<Place> = positions.iter().map(place).collect::<Option<_>>()?;
        let mut starts = vec![0; counts.iter().product::<usize>() + 1];
        for place in &places {
            starts[flat(place.bin, counts) + 1] += 1;
        }
        for bin in 1..starts.len() {
            starts[bin] += starts[bin - 1];
        }
        let mut next = starts.clone();
        let mut members = vec![(0, [0.0; 3]); positions.len()];
        for (atom, place) in places.iter().enumerate() {
            let slot = &mut next[flat(place.bin, counts)];
            members[*slot as usize] = (atom as u32, place.inside);
            *slot += 1;
        }
        Some(Self { search, positions, counts, reach, places, starts, members })
    }

    /// Calls `each` with every atom and image nearer than the cutoff, the atom itself left out: the atom, how often each vector is added to
    /// its position, and the square of the distance.
    pub fn near(&self, atom: usize, mut each: impl FnMut(usize, [i32; 3], f64)) {
        let Search { frame, limit, loose, .. } = self.search;
        let home = self.places[atom];
        let range = |k: usize| {
            let (low, high) = (home.bin[k] as i64 - self.reach[k], home.bin[k] as i64 + self.reach[k]);
            if frame.periodic[k] { low..=high } else { low.max(0)..=high.min(self.counts[k] as i64 - 1) }
        };
        let wrapped = |k: usize, at: i64| {
            let count = self.counts[k] as i64;
            (at.rem_euclid(count) as usize, at.div_euclid(count) as i32)
        };
        for x in range(0) {
            let (x, turns_x) = wrapped(0, x);
            for y in range(1) {
                let (y, turns_y) = wrapped(1, y);
                for z in range(2) {
                    let (z, turns_z) = wrapped(2, z);
                    let turns = [turns_x, turns_y, turns_z];
                    let from = sub(shift(&frame.vectors, turns), home.inside);
                    let bin = flat([x, y, z], self.counts);
                    let members = self.starts[bin] as usize..self.starts[bin + 1] as usize;
                    for &(other, at) in &self.members[members] {
                        let rough: Vector = std::array::from_fn(|axis| at[axis] + from[axis]);
                        // Most candidates are too far.
                        if dot(rough, rough) >= *loose {
                            continue;
                        }
                        let other = other as usize;
                        let taken = self.places[other].taken;
                        let images = std::array::from_fn(|k| turns[k] - taken[k] + home.taken[k]);
                        let apart = sub(self.positions[other], self.positions[atom]);
                        let added = shift(&frame.vectors, images);
                        let difference: Vector = std::array::from_fn(|axis| apart[axis] + added[axis]);
                        let square = dot(difference, difference);
                        if square < *limit && !(other == atom && images == [0; 3]) {
                            each(other, images, square);
                        }
                    }
                }
            }
        }
    }
}

/// Bins along each vector, each at least as wide as `width`, and not many more than atoms: a few distant atoms would otherwise have a grid
/// of mostly empty bins.
fn counts(heights: Vector, width: f64, atoms: usize) -> [usize; 3] {
    let most = (atoms * BINS).max(1) as f64;
    let mut counts = heights.map(|height| (height / width).floor().clamp(1.0, most));
    while counts.iter().product::<f64>() > most {
        let greatest = counts.into_iter().fold(0.0, f64::max);
        if let Some(count) = counts.iter_mut().find(|count| **count == greatest) {
            *count = (*count / 2.0).floor();
        }
    }
    counts.map(|count| count as usize)
}

fn flat([x, y, z]: [usize; 3], counts: [usize; 3]) -> usize {
    (x * counts[1] + y) * counts[2] + z
}

fn sub(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|axis| a[axis] - b[axis])
}
