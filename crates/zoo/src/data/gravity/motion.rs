//! Newton's law with the time step of the published data.

use crate::data::nbody::NBodyData;

/// Length of a time step.
pub const TIME_STEP: f64 = 1e-3;
/// Time steps from input to target.
pub const STEPS: usize = 100;

/// Bodies that attract each other; the constant of gravitation is 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Bodies {
    /// Mass of each body.
    pub masses: Vec<f64>,
    /// Its position.
    pub loc: Vec<[f64; 3]>,
    /// Its velocity.
    pub vel: Vec<[f64; 3]>,
}

impl Bodies {
    /// The bodies of a sample, whose charges are masses.
    pub(super) fn of(data: &NBodyData, sample: usize) -> Self {
        let bodies = data.particles();
        let points = |values: &[f64]| -> Vec<[f64; 3]> {
            let at = |body: usize, axis: usize| values[(sample * 3 + axis) * bodies + body];
            (0..bodies).map(|body| std::array::from_fn(|axis| at(body, axis))).collect()
        };
        let masses = data.charges()[sample * bodies..][..bodies].to_vec();
        Self { masses, loc: points(data.loc()), vel: points(data.vel()) }
    }

    /// The largest distance between a body here and the same body in `other`.
    pub(super) fn farthest(&self, other: &Self) -> f64 {
        let apart = |(a, b): (&[f64; 3], &[f64; 3])| squared(&difference(b, a)).sqrt();
        self.loc.iter().zip(&other.loc).map(apart).fold(0.0, f64::max)
    }

    /// Sets the mass of all bodies but the heaviest to 0; the heaviest still attracts them.
    pub(super) fn keep_heaviest(&mut self) {
        let heaviest = self.masses.iter().copied().fold(0.0, f64::max);
        self.masses.iter_mut().filter(|mass| **mass < heaviest).for_each(|mass| *mass = 0.0);
    }

    /// `Σⱼ mⱼ (xⱼ − xᵢ) / |xⱼ − xᵢ|³`; bodies at the same position exert no force on each other.
    fn acceleration(&self, body: usize) -> [f64; 3] {
        let mut sum = [0.0; 3];
        for (other, &mass) in self.masses.iter().enumerate() {
            let apart = difference(&self.loc[other], &self.loc[body]);
            let distance = squared(&apart).sqrt();
            if distance > 0.0 {
                let strength = mass / distance.powi(3);
                sum.iter_mut().zip(apart).for_each(|(sum, x)| *sum += strength * x);
            }
        }
        sum
    }
}

/// The state after `steps` steps of symplectic Euler, which updates first all velocities, then all positions. The step length is part of
/// the data set's definition: it does not resolve close encounters.
pub fn advance(start: &Bodies, steps: usize, time_step: f64) -> Bodies {
    let mut bodies = start.clone();
    for _ in 0..steps {
        let accelerations: Vec<_> = (0..bodies.masses.len()).map(|body| bodies.acceleration(body)).collect();
        for ((loc, vel), acceleration) in bodies.loc.iter_mut().zip(&mut bodies.vel).zip(accelerations) {
            for axis in 0..3 {
                vel[axis] += time_step * acceleration[axis];
                loc[axis] += time_step * vel[axis];
            }
        }
    }
    bodies
}

/// Kinetic and potential energy, `½ Σ m v² − Σ m m'/r`.
pub fn energy(bodies: &Bodies) -> f64 {
    let Bodies { masses, loc, vel } = bodies;
    let kinetic: f64 = masses.iter().zip(vel).map(|(mass, vel)| mass * squared(vel) / 2.0).sum();
    let pairs = (0..masses.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
    let potential: f64 =
        pairs.map(|(i, j)| masses[i] * masses[j] / squared(&difference(&loc[i], &loc[j])).sqrt()).sum();
    kinetic - potential
}

fn difference(a: &[f64; 3], b: &[f64; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| a[axis] - b[axis])
}

fn squared(x: &[f64; 3]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(actual: &[f64], expected: &[f64], digits: i32) -> bool {
        actual.iter().zip(expected).all(|(a, b)| (a - b).abs() < 10f64.powi(-digits) * b.abs().max(1e-3))
    }

    /// Values from the publication's own simulator.
    #[test]
    fn four_bodies_move_as_the_published_ones_do() {
        let start = Bodies {
            masses: vec![4.0, 0.05, 0.02, 0.08],
            loc: vec![[0.0; 3], [0.5, 0.0, 0.0], [0.0, -0.3, 0.0], [0.1, 0.6, 0.2]],
            vel: vec![[0.0; 3], [0.0, 2.8, 0.0], [3.6, 0.0, 0.01], [-2.4, 0.4, 0.0]],
        };
        assert!(close(&start.acceleration(1), &[-16.1268011, 0.0842760760, 0.0381801774], 8));
        let end = advance(&start, STEPS, TIME_STEP);
        assert!(close(&end.loc[0], &[1.44229434e-3, 1.16315321e-4, 3.05674036e-4], 8), "{:?}", end.loc[0]);
        assert!(close(&end.loc[1], &[0.420274545, 0.265444302, 2.12192073e-4], 8), "{:?}", end.loc[1]);
        assert!(close(&end.loc[3], &[-0.141200997, 0.592820494, 0.184609802], 8), "{:?}", end.loc[3]);
        assert!(close(&[energy(&start), energy(&end)], &[-0.612807, -0.612918], 5));
        for bodies in [&start, &end] {
            let momentum: [f64; 3] = std::array::from_fn(|axis| {
                bodies.masses.iter().zip(&bodies.vel).map(|(mass, vel)| mass * vel[axis]).sum()
            });
            assert!(close(&momentum, &[-0.12, 0.172, 0.0002], 10), "{momentum:?}");
        }
    }

    #[test]
    fn a_circle_closes() {
        // One period, 2π, of an orbit of radius 1 about a mass of 1.
        let bodies = Bodies {
            masses: vec![1.0, 0.0],
            loc: vec![[0.0; 3], [1.0, 0.0, 0.0]],
            vel: vec![[0.0; 3], [0.0, 1.0, 0.0]],
        };
        let end = advance(&bodies, 100_000, std::f64::consts::TAU / 100_000.0);
        assert!(close(&end.loc[1], &[1.0, 0.0, 0.0], 3) && end.loc[0] == [0.0; 3], "{:?}", end.loc);
    }
}
