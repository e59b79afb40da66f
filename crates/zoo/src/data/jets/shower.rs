//! Decay chains. Units are GeV, four-momenta (E, px, py, pz), the metric +−−−.

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use std::f64::consts::{PI, TAU};

/// Mass of the final particles: that of a pion.
const FINAL_MASS: f64 = 0.14;
/// Partons of a smaller virtuality do not radiate.
const CUTOFF: f64 = 1.0;
/// Smallest energy share of a daughter in a splitting.
const SOFTEST: f64 = 0.02;
/// Transverse momentum of a jet.
const TRANSVERSE: (f64, f64) = (500.0, 600.0);
/// Largest pseudorapidity of a jet.
const PSEUDORAPIDITY: f64 = 1.5;
/// Relative error of measured momenta.
const RESOLUTION: f64 = 0.04;
/// Mass and width of the heavy particle and of the boson it decays into.
const TOP: (f64, f64) = (172.7, 1.4);
const W: (f64, f64) = (80.4, 2.1);
/// Virtualities of the radiating parton.
const ONE_PRONG: (f64, f64) = (40.0, 250.0);

/// Energy and momentum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FourMomentum(pub [f64; 4]);

impl FourMomentum {
    fn of_mass(mass: f64, momentum: [f64; 3]) -> Self {
        let [x, y, z] = momentum;
        Self([(mass * mass + x * x + y * y + z * z).sqrt(), x, y, z])
    }

    fn momentum(&self) -> [f64; 3] {
        [self.0[1], self.0[2], self.0[3]]
    }

    /// The Lorentz product.
    pub fn dot(&self, other: &Self) -> f64 {
        let [e, x, y, z] = self.0;
        let [f, u, v, w] = other.0;
        e * f - x * u - y * v - z * w
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|axis| self.0[axis] + other.0[axis]))
    }

    /// The squared mass.
    pub fn square(&self) -> f64 {
        self.dot(self)
    }

    /// This momentum in the rest frame of `total`, of mass `mass` > 0. Of a `total` of negative energy, both are turned round in space and
    /// time before.
    #[must_use]
    pub fn at_rest_with(&self, total: &Self, mass: f64) -> Self {
        let sign = 1f64.copysign(total.0[0]);
        let (total, own) = (total.0.map(|number| sign * number), self.0.map(|number| sign * number));
        let along: f64 = (1..4).map(|axis| total[axis] * own[axis]).sum();
        let energy = (total[0] * own[0] - along) / mass;
        let factor = (own[0] + energy) / (total[0] + mass);
        Self([energy, own[1] - factor * total[1], own[2] - factor * total[2], own[3] - factor * total[3]])
    }

    /// Momentum across the beam, which is the z axis.
    pub fn transverse(&self) -> f64 {
        self.0[1].hypot(self.0[2])
    }

    /// Boosts from the rest frame of `parent`, of mass `mass`, to the laboratory frame.
    fn boosted(&self, parent: &Self, mass: f64) -> Self {
        let (direction, own) = (parent.momentum(), self.momentum());
        let along: f64 = direction.iter().zip(own).map(|(a, b)| a * b).sum();
        let energy = (parent.0[0] * self.0[0] + along) / mass;
        let factor = (self.0[0] + energy) / (parent.0[0] + mass);
        Self([
            energy,
            own[0] + factor * direction[0],
            own[1] + factor * direction[1],
            own[2] + factor * direction[2],
        ])
    }
}

/// The two daughters of `parent`, of mass `mass`, with these masses, the first flying at `cosine` to the parent's direction in its rest
/// frame.
fn decay<R: Rng + ?Sized>(
    (parent, mass): (&FourMomentum, f64),
    masses: (f64, f64),
    cosine: f64,
    rng: &mut R,
) -> [FourMomentum; 2] {
    let (a, b) = (masses.0 * masses.0, masses.1 * masses.1);
    let square = mass * mass;
    // Källén's function gives the momentum in the rest frame.
    let momentum = ((square - a - b).powi(2) - 4.0 * a * b).max(0.0).sqrt() / (2.0 * mass);
    let axes = frame(parent.momentum());
    let (sine, angle) = ((1.0 - cosine * cosine).max(0.0).sqrt(), rng.random_range(0.0..TAU));
    let weights = [sine * angle.cos(), sine * angle.sin(), cosine];
    let direction: [f64; 3] =
        std::array::from_fn(|k| axes.iter().zip(weights).map(|(axis, weight)| axis[k] * weight).sum::<f64>());
    let first = FourMomentum::of_mass(masses.0, direction.map(|x| momentum * x));
    let second = FourMomentum::of_mass(masses.1, direction.map(|x| -momentum * x));
    [first.boosted(parent, mass), second.boosted(parent, mass)]
}

/// Three orthonormal axes, the last along `direction`.
fn frame(direction: [f64; 3]) -> [[f64; 3]; 3] {
    let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
    let z = if length > 0.0 { direction.map(|x| x / length) } else { [0.0, 0.0, 1.0] };
    // An axis that is not nearly parallel to z.
    let other = if z[0].abs() < 0.7 { [1.0, 0.0, 0.0] } else { [0.0, 1.0, 0.0] };
    let cross = |a: [f64; 3], b: [f64; 3]| {
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    };
    let y = cross(z, other);
    let length = y.iter().map(|x| x * x).sum::<f64>().sqrt();
    let y = y.map(|x| x / length);
    [cross(y, z), y, z]
}

/// Draws a virtuality below `limit`; below the cut-off, returns the mass of a final particle.
fn virtuality<R: Rng + ?Sized>(limit: f64, rng: &mut R) -> f64 {
    let mass = limit * rng.random::<f64>().sqrt();
    if mass < CUTOFF { FINAL_MASS } else { mass }
}

/// Splits partons until all are below the cut-off. Energy shares z have the density 1/z + 1/(1 − z).
fn radiate<R: Rng + ?Sized>(parton: FourMomentum, mass: f64, seen: &mut Vec<FourMomentum>, rng: &mut R) {
    let mut pending = vec![(parton, mass)];
    while let Some((parton, mass)) = pending.pop() {
        if mass < CUTOFF {
            seen.push(parton);
            continue;
        }
        let masses = (virtuality(mass / 2.0, rng), virtuality(mass / 2.0, rng));
        let soft = SOFTEST.powf(rng.random::<f64>()) / 2.0;
        let share = if rng.random() { soft } else { 1.0 - soft };
        let [first, second] = decay((&parton, mass), masses, 2.0 * share - 1.0, rng);
        pending.extend([(first, masses.0), (second, masses.1)]);
    }
}

/// A particle of this mass with the transverse momentum and pseudorapidity of a jet.
fn launched<R: Rng + ?Sized>(mass: f64, rng: &mut R) -> FourMomentum {
    let transverse = rng.random_range(TRANSVERSE.0..TRANSVERSE.1);
    let (pseudorapidity, angle): (f64, f64) =
        (rng.random_range(-PSEUDORAPIDITY..PSEUDORAPIDITY), rng.random_range(-PI..PI));
    let momentum = [transverse * angle.cos(), transverse * angle.sin(), transverse * pseudorapidity.sinh()];
    FourMomentum::of_mass(mass, momentum)
}

fn around<R: Rng + ?Sized>((mass, width): (f64, f64), rng: &mut R) -> f64 {
    mass + width * rng.sample::<f64, _>(StandardNormal)
}

/// The final particles of a heavy particle that decays into a quark and a boson; the boson decays into two quarks, and all quarks radiate.
/// Momenta are exact: their sum is that of the heavy particle.
pub fn three_prong<R: Rng + ?Sized>(rng: &mut R) -> Vec<FourMomentum> {
    let (top, w) = (around(TOP, rng), around(W, rng));
    let parent = launched(top, rng);
    let mut seen = Vec::new();
    let isotropic = rng.random_range(-1.0..1.0);
    let quark = virtuality((top - w) / 2.0, rng);
    let [first, boson] = decay((&parent, top), (quark, w), isotropic, rng);
    radiate(first, quark, &mut seen, rng);
    let masses = (virtuality(w / 2.0, rng), virtuality(w / 2.0, rng));
    let isotropic = rng.random_range(-1.0..1.0);
    for (quark, mass) in decay((&boson, w), masses, isotropic, rng).into_iter().zip([masses.0, masses.1]) {
        radiate(quark, mass, &mut seen, rng);
    }
    seen
}

/// The final particles of one radiating parton, whose virtuality has the density 1/m.
pub fn one_prong<R: Rng + ?Sized>(rng: &mut R) -> Vec<FourMomentum> {
    let (low, high) = ONE_PRONG;
    let mass = low * (high / low).powf(rng.random::<f64>());
    let mut seen = Vec::new();
    radiate(launched(mass, rng), mass, &mut seen, rng);
    seen
}

/// Smears the magnitude of a momentum by the error of a detector.
pub(super) fn smeared<R: Rng + ?Sized>(particle: &FourMomentum, rng: &mut R) -> FourMomentum {
    let factor = (1.0 + RESOLUTION * rng.sample::<f64, _>(StandardNormal)).max(0.1);
    FourMomentum::of_mass(FINAL_MASS, particle.momentum().map(|x| factor * x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn total(jet: &[FourMomentum]) -> FourMomentum {
        jet.iter().fold(FourMomentum([0.0; 4]), |sum, particle| sum.plus(particle))
    }

    #[test]
    fn chains_conserve_four_momentum_and_end_on_the_mass_shell() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut counts = [0usize; 2];
        for _ in 0..300 {
            for (kind, jet) in [three_prong(&mut rng), one_prong(&mut rng)].into_iter().enumerate() {
                counts[kind] += jet.len();
                for particle in &jet {
                    assert!(
                        (particle.dot(particle) - FINAL_MASS.powi(2)).abs() < 1e-6 * particle.0[0].powi(2)
                    );
                }
                let sum = total(&jet);
                let (mass, transverse) = (sum.dot(&sum).sqrt(), sum.transverse());
                assert!((TRANSVERSE.0 - 1e-6..TRANSVERSE.1 + 1e-6).contains(&transverse), "{transverse}");
                let range = if kind == 0 { 160.0..185.0 } else { ONE_PRONG.0 - 1e-6..ONE_PRONG.1 + 1e-6 };
                assert!(range.contains(&mass), "{mass}");
            }
        }
        assert!(counts.iter().all(|&count| count > 300 * 5), "{counts:?}");
    }

    #[test]
    fn a_decay_has_the_masses_and_the_angle_asked_for() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let parent = launched(90.0, &mut rng);
        let [a, b] = decay((&parent, 90.0), (5.0, 30.0), 0.25, &mut rng);
        assert!((a.dot(&a) - 25.0).abs() < 1e-6 && (b.dot(&b) - 900.0).abs() < 1e-6);
        assert!(a.plus(&b).0.iter().zip(parent.0).all(|(sum, parent)| (sum - parent).abs() < 1e-9));
        // Energies and the angle to the direction of flight in the rest frame follow from Lorentz products.
        let energy = a.dot(&parent) / 90.0;
        let momentum = (energy * energy - 25.0).sqrt();
        let speed = parent.momentum().iter().map(|x| x * x).sum::<f64>().sqrt() / parent.0[0];
        let lab = (energy + speed * momentum * 0.25) / (1.0 - speed * speed).sqrt();
        assert!((lab - a.0[0]).abs() < 1e-8 * lab, "{lab} {}", a.0[0]);
    }
}
