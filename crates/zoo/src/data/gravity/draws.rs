//! The initial states of the published sets, reproduced from their seed.

use super::Bodies;
use crate::data::numpy::RandomState;

const STAR_MASS: (f64, f64) = (1.0, 10.0);
const PLANET_MASS: (f64, f64) = (0.01, 0.1);
/// Distances of planets from the star.
const RADII: (f64, f64) = (0.1, 1.0);
/// Standard deviation of the noise added to the velocity of a circular orbit.
const VELOCITY_NOISE: f64 = 0.01;
/// Standard deviation of the position of a system.
const PLACE: f64 = 20.0;

/// Initial states as drawn, including outliers.
pub(super) struct Candidates(pub Vec<Bodies>);

impl Candidates {
    /// Draws in the order of the publication's generator: orbits, then the position and rotation of each system.
    pub fn draw(random: &mut RandomState, count: usize, planets: usize, shift: f64) -> Self {
        let mut candidates = Self::orbits(random, count, planets);
        candidates.place(random, shift);
        candidates
    }

    /// A star at rest at the origin and planets around it, nearly on circles in the plane z = 0.
    fn orbits(random: &mut RandomState, count: usize, planets: usize) -> Self {
        let logarithmic = |random: &mut RandomState, (low, high): (f64, f64), number: usize| -> Vec<f64> {
            (0..number).map(|_| (random.uniform() * (high.ln() - low.ln()) + low.ln()).exp()).collect()
        };
        let stars = logarithmic(random, STAR_MASS, count);
        let masses = logarithmic(random, PLANET_MASS, count * planets);
        let places = in_ring(random, count * planets);
        let turns: Vec<f64> = (0..count * planets).map(|_| [-1.0, 1.0][random.choice(&[0.5, 0.5])]).collect();
        let mut system = |index: usize| {
            let mut bodies = Bodies { masses: vec![stars[index]], loc: vec![[0.0; 3]], vel: vec![[0.0; 3]] };
            for planet in index * planets..(index + 1) * planets {
                let [x, y] = places[planet];
                let speed = turns[planet] * stars[index].sqrt() / (x * x + y * y).sqrt().powf(1.5);
                let noise: [f64; 3] = std::array::from_fn(|_| VELOCITY_NOISE * random.normal());
                bodies.masses.push(masses[planet]);
                bodies.loc.push([x, y, 0.0]);
                bodies.vel.push([-speed * y + noise[0], speed * x + noise[1], noise[2]]);
            }
            bodies
        };
        Self((0..count).map(&mut system).collect())
    }

    /// Shuffles the bodies of each system, then rotates and translates the system.
    fn place(&mut self, random: &mut RandomState, shift: f64) {
        for bodies in &mut self.0 {
            let order = random.permutation(bodies.masses.len());
            bodies.masses = order.iter().map(|&body| bodies.masses[body]).collect();
            bodies.loc = order.iter().map(|&body| bodies.loc[body]).collect();
            bodies.vel = order.iter().map(|&body| bodies.vel[body]).collect();
        }
        let rotations = random.rotations(self.0.len());
        for (bodies, rotation) in self.0.iter_mut().zip(&rotations) {
            for point in bodies.loc.iter_mut().chain(&mut bodies.vel) {
                *point = rotation.map(|row| row.iter().zip(&*point).map(|(r, x)| r * x).sum());
            }
        }
        for bodies in &mut self.0 {
            let place: [f64; 3] = std::array::from_fn(|_| PLACE * random.normal());
            for point in &mut bodies.loc {
                point.iter_mut().zip(place).for_each(|(x, place)| *x += place);
                point[0] += shift;
            }
        }
    }
}

/// Points that are uniform on a ring, by rejection. As in the published generator, every round draws for all points, and each point keeps
/// its first draw inside the ring.
fn in_ring(random: &mut RandomState, count: usize) -> Vec<[f64; 2]> {
    let (inner, outer) = RADII;
    let inside = |[x, y]: [f64; 2]| (inner * inner..=outer * outer).contains(&(x * x + y * y));
    let mut points = vec![[0.0; 2]; count];
    while !points.iter().all(|&point| inside(point)) {
        for point in &mut points {
            let drawn: [f64; 2] = std::array::from_fn(|_| -1.0 + 2.0 * random.uniform());
            if !inside(*point) {
                *point = drawn;
            }
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the publication's own generator, with its seed.
    #[test]
    fn the_first_system_is_the_published_one() {
        let orbits = Candidates::orbits(&mut RandomState::new(42), 110_000, 3);
        let first = &orbits.0[0];
        let close = |actual: &[f64], expected: &[f64]| {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-8)
        };
        assert!(close(&first.masses, &[2.36886395, 0.01093012, 0.01285042, 0.02707051]), "{first:?}");
        assert!(close(&first.loc[1], &[-0.78902793, 0.23550128, 0.0]), "{first:?}");
        assert_eq!((first.loc[0], first.vel[0]), ([0.0; 3], [0.0; 3]));
    }

    #[test]
    fn orbits_are_nearly_circles_and_places_move_them_as_a_whole() {
        let mut random = RandomState::new(5);
        let before = Candidates::orbits(&mut random, 200, 3);
        let mut after = Candidates(before.0.clone());
        after.place(&mut random, 200.0);
        let norm = |x: &[f64; 3]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let apart = |a: &[f64; 3], b: &[f64; 3]| norm(&std::array::from_fn(|axis| a[axis] - b[axis]));
        let mut mean = 0.0;
        for (before, after) in before.0.iter().zip(&after.0) {
            let star = before.masses[0];
            for (loc, vel) in before.loc.iter().zip(&before.vel).skip(1) {
                assert!((0.1..=1.0).contains(&norm(loc)));
                assert!((norm(vel) - (star / norm(loc)).sqrt()).abs() < 0.1);
            }
            // The same distances and speeds, in another order.
            let sorted = |bodies: &Bodies| {
                let star = bodies.masses.iter().position(|mass| *mass >= 1.0).unwrap();
                let of = |body: usize| {
                    (
                        bodies.masses[body],
                        apart(&bodies.loc[body], &bodies.loc[star]),
                        norm(&bodies.vel[body]),
                    )
                };
                let mut all: Vec<_> = (0..4).map(of).collect();
                all.sort_by(|a, b| a.0.total_cmp(&b.0));
                all
            };
            for (a, b) in sorted(before).iter().zip(sorted(after)) {
                assert!((a.1 - b.1).abs() < 1e-12 && (a.2 - b.2).abs() < 1e-12 && a.0 == b.0);
            }
            mean += after.loc[0][0] / 200.0;
        }
        // 200 ± 20/√200.
        assert!((mean - 200.0).abs() < 7.0, "{mean}");
    }
}
