//! Atoms sorted into the bins of a grid along the cell vectors.

use super::super::frame::{Cell, Vector, cross, dot};

/// Most bins for an atom; a few distant atoms would otherwise have a grid of mostly empty bins.
const BINS_FOR_AN_ATOM: usize = 2;

/// A grid of parallelepipeds. Along a vector that repeats it covers one period, along others the extent of the atoms.
pub struct Bins {
    vectors: [Vector; 3],
    periodic: [bool; 3],
    /// Bins along each vector.
    counts: [usize; 3],
    /// How many bins away neighbours may be.
    reach: [i64; 3],
    /// The bin of each atom, and how often each vector was taken off to get there.
    places: Vec<([usize; 3], [i32; 3])>,
    /// For each bin, where its atoms begin in `members`; one more than there are bins.
    starts: Vec<u32>,
    /// Atoms, bin by bin, with their positions inside of the cell.
    members: Vec<(u32, Vector)>,
    /// For each atom, its place in `members`.
    slots: Vec<u32>,
}

impl Bins {
    /// For distances below `cutoff`. The cell, if there is one, has a volume.
    pub fn new(positions: &[Vector], cell: Option<&Cell>, cutoff: f64) -> Self {
        let periodic = cell.map_or([false; 3], |cell| cell.periodic);
        let mut vectors = frame_of(cell);
        let mut inverse = inverse(&vectors);
        let fractions = |inverse: &[Vector; 3], x: Vector| [0, 1, 2].map(|k| dot(inverse[k], x));
        // Along vectors that do not repeat, the grid begins at the first atom and ends at the last.
        let mut first = [0.0; 3];
        for axis in (0..3).filter(|&axis| !periodic[axis]) {
            let along = positions.iter().map(|&x| fractions(&inverse, x)[axis]);
            let (low, high) = along.fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(x), b.max(x)));
            let extent = if low <= high { (high - low).max(1e-9) * (1.0 + 1e-9) } else { 1.0 };
            vectors[axis] = vectors[axis].map(|x| x * extent);
            inverse[axis] = inverse[axis].map(|x| x / extent);
            first[axis] = if low <= high { low / extent } else { 0.0 };
        }
        let volume = dot(cross(vectors[0], vectors[1]), vectors[2]).abs();
        let heights: [f64; 3] = std::array::from_fn(|k| {
            let normal = cross(vectors[(k + 1) % 3], vectors[(k + 2) % 3]);
            volume / dot(normal, normal).sqrt()
        });
        let counts = counts(heights, cutoff, positions.len());
        let reach = std::array::from_fn(|k| (cutoff * counts[k] as f64 / heights[k]).ceil() as i64);
        let mut inside = Vec::with_capacity(positions.len());
        let places: Vec<_> = positions
            .iter()
            .map(|&position| {
                let fraction = fractions(&inverse, position);
                let mut place = ([0; 3], [0; 3]);
                let mut moved = position;
                for k in 0..3 {
                    let mut along = fraction[k] - first[k];
                    if periodic[k] {
                        let turns = along.floor();
                        along -= turns;
                        place.1[k] = turns as i32;
                        moved = std::array::from_fn(|axis| moved[axis] - turns * vectors[k][axis]);
                    }
                    place.0[k] = ((along * counts[k] as f64) as usize).min(counts[k] - 1);
                }
                inside.push(moved);
                place
            })
            .collect();
        let mut bins = Self {
            vectors,
            periodic,
            counts,
            reach,
            places,
            starts: vec![0; counts.iter().product::<usize>() + 1],
            members: vec![(0, [0.0; 3]); positions.len()],
            slots: vec![0; positions.len()],
        };
        bins.sort(&inside);
        bins
    }

    /// Sorts the atoms by bin, in their order within each.
    fn sort(&mut self, inside: &[Vector]) {
        for (place, _) in &self.places {
            self.starts[flat(*place, self.counts) + 1] += 1;
        }
        for bin in 1..self.starts.len() {
            self.starts[bin] += self.starts[bin - 1];
        }
        let mut next = self.starts.clone();
        for (atom, (place, _)) in self.places.iter().enumerate() {
            let slot = &mut next[flat(*place, self.counts)];
            self.members[*slot as usize] = (atom as u32, inside[atom]);
            self.slots[atom] = *slot;
            *slot += 1;
        }
    }

    /// Calls `each` with every atom and image nearer than the root of `limit`, the atom itself included: the atom, how often each cell vector
    /// is added to its position, and the square of the distance.
    pub fn near(&self, atom: usize, limit: f64, mut each: impl FnMut(usize, [i32; 3], f64)) {
        let (home, own) = self.places[atom];
        let position = self.members[self.slots[atom] as usize].1;
        let range = |k: usize| {
            let (low, high) = (home[k] as i64 - self.reach[k], home[k] as i64 + self.reach[k]);
            if self.periodic[k] { low..=high } else { low.max(0)..=high.min(self.counts[k] as i64 - 1) }
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
                    let shift: Vector = match turns {
                        [0, 0, 0] => [0.0; 3],
                        turns => std::array::from_fn(|axis| {
                            (0..3).map(|k| f64::from(turns[k]) * self.vectors[k][axis]).sum::<f64>()
                        }),
                    };
                    let bin = flat([x, y, z], self.counts);
                    let members = self.starts[bin] as usize..self.starts[bin + 1] as usize;
                    for &(other, at) in &self.members[members] {
                        let difference: Vector =
                            std::array::from_fn(|axis| at[axis] + shift[axis] - position[axis]);
                        let square = dot(difference, difference);
                        // Most candidates are too far.
                        if square >= limit {
                            continue;
                        }
                        let taken = self.places[other as usize].1;
                        let images = std::array::from_fn(|k| turns[k] - taken[k] + own[k]);
                        each(other as usize, images, square);
                    }
                }
            }
        }
    }
}

/// The cell's vectors, with those that do not repeat replaced by unit vectors normal to the others.
fn frame_of(cell: Option<&Cell>) -> [Vector; 3] {
    let unit = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let Some(cell) = cell else { return unit };
    let normalised = |v: Vector| {
        let length = dot(v, v).sqrt();
        v.map(|x| x / length)
    };
    let mut vectors = cell.vectors;
    let repeating: Vec<usize> = (0..3).filter(|&k| cell.periodic[k]).collect();
    match *repeating.as_slice() {
        [a] => {
            // The axis along which the vector is shortest is far from parallel to it.
            let vector = vectors[a];
            let least = (0..3).min_by(|&i, &j| vector[i].abs().total_cmp(&vector[j].abs())).unwrap_or(0);
            let side = normalised(cross(vector, unit[least]));
            vectors[(a + 1) % 3] = side;
            vectors[(a + 2) % 3] = normalised(cross(vector, side));
        }
        [a, b] => vectors[3 - a - b] = normalised(cross(vectors[a], vectors[b])),
        _ => {}
    }
    vectors
}

/// The rows r_k with r_k·v_l = δ_kl.
fn inverse(vectors: &[Vector; 3]) -> [Vector; 3] {
    let [a, b, c] = *vectors;
    let volume = dot(cross(a, b), c);
    [cross(b, c), cross(c, a), cross(a, b)].map(|row| row.map(|x| x / volume))
}

/// Bins along each vector, each at least as wide as the cutoff.
fn counts(heights: [f64; 3], cutoff: f64, atoms: usize) -> [usize; 3] {
    // Rounding may put an atom into the bin beside its own; what is lost then is nearer to the cutoff than rounding, where models are 0.
    let most = (atoms * BINS_FOR_AN_ATOM).max(1) as f64;
    let mut counts = heights.map(|height| (height / cutoff).floor().clamp(1.0, most));
    let bins: f64 = counts.iter().product();
    if bins > most {
        let factor = (most / bins).cbrt();
        counts = counts.map(|count| (count * factor).floor().max(1.0));
    }
    counts.map(|count| count as usize)
}

fn flat([x, y, z]: [usize; 3], counts: [usize; 3]) -> usize {
    (x * counts[1] + y) * counts[2] + z
}
