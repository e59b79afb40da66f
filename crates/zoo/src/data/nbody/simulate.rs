//! The dynamics, for many independent systems at once.

use gradewise_nn::data::{Split, check_finite};
use gradewise_nn::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;

/// Length of a time step.
pub const TIME_STEP: f64 = 0.001;
/// Time steps from one frame to the next.
pub const STEPS_PER_FRAME: usize = 100;
/// Each component of the total force on a particle is clamped to ± this value.
pub const MAX_FORCE: f64 = 100.0;
/// A pair closer than this has had a near-collision: at this distance the force of a single pair, 1/r², reaches
/// [`MAX_FORCE`]. The clamp then shapes the path, and rounding errors grow by orders of magnitude.
pub const NEAR_COLLISION: f64 = 0.1;
/// Speed of every particle at the start.
const INITIAL_SPEED: f64 = 0.5;

/// Systems advanced together, one per lane, so that plain loops over lanes compile to vector instructions.
const LANES: usize = 8;
type Lanes = [f64; LANES];

/// Many systems of charged particles, advanced together.
///
/// One time step is v += dt·F(x), then x += dt·v (symplectic Euler), with F_i = Σ_j q_i q_j (x_i − x_j)/|x_i − x_j|³,
/// each component clamped to ±[`MAX_FORCE`]. A recorded frame therefore holds positions with the velocities that led
/// to them, and restarting from a frame continues the trajectory exactly.
///
/// Results depend neither on the number of threads nor on the vector width: systems do not interact, and every
/// operation is a correctly rounded elementary one.
#[derive(Clone, Debug)]
pub struct Simulation {
    systems: usize,
    particles: usize,
    charges: Vec<f64>,
    blocks: Vec<Block>,
}

/// [`LANES`] systems; unused lanes of the last block hold resting, uncharged particles.
#[derive(Clone, Debug)]
struct Block {
    /// `[particle][axis]`
    loc: Vec<[Lanes; 3]>,
    vel: Vec<[Lanes; 3]>,
    force: Vec<[Lanes; 3]>,
    /// `q_i q_j` of the pairs i < j in lexicographic order.
    pairs: Vec<Lanes>,
    /// Smallest squared distance of any pair so far.
    closest: Lanes,
}

impl Simulation {
    /// Systems in given states: `loc` and `vel` of shape `[systems, 3, particles]`, `charges` `[systems, particles]`,
    /// all row-major.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths disagree; [`Error::NotFinite`].
    pub fn new(particles: usize, loc: &[f64], vel: &[f64], charges: &[f64]) -> Result<Self> {
        const OPERATION: &str = "n-body simulation";
        if particles == 0 || !charges.len().is_multiple_of(particles) {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "charges",
                actual: format!("{} values", charges.len()),
                expected: format!("a multiple of the {particles} particles of a system, which must not be 0"),
            });
        }
        let systems = charges.len() / particles;
        for (argument, values) in [("loc", loc), ("vel", vel)] {
            if values.len() != charges.len() * 3 {
                return Err(Error::Argument {
                    operation: OPERATION,
                    argument,
                    actual: format!("{} values", values.len()),
                    expected: format!("{}: [systems {systems}, 3, particles {particles}]", charges.len() * 3),
                });
            }
            check_finite(OPERATION, argument, &[systems, 3, particles], values)?;
        }
        check_finite(OPERATION, "charges", &[systems, particles], charges)?;
        let blocks = (0..systems.div_ceil(LANES))
            .map(|block| Block::new(particles, systems, block * LANES, loc, vel, charges))
            .collect();
        Ok(Self { systems, particles, charges: charges.to_vec(), blocks })
    }

    /// `systems` fresh systems as the published generator draws them: charges ±1 with equal probability, positions
    /// N(0, 1), velocities of uniform direction and length 0.5.
    ///
    /// System `i` depends only on `(seed, split, i)`: asking for more systems, or running on more threads, does not
    /// change it.
    ///
    /// # Errors
    /// [`Error::Argument`] for systems without particles.
    pub fn sample(particles: usize, systems: usize, seed: u64, split: Split) -> Result<Self> {
        let (mut loc, mut vel, mut charges) = (Vec::new(), Vec::new(), Vec::new());
        for system in 0..systems {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // 2⁵⁶ systems per split before two streams could meet.
            rng.set_stream(((split as u64 + 1) << 56) | system as u64);
            charges.extend((0..particles).map(|_| if rng.random::<bool>() { 1.0 } else { -1.0 }));
            loc.extend((0..particles * 3).map(|_| rng.sample::<f64, _>(StandardNormal)));
            let velocities: Vec<[f64; 3]> = (0..particles).map(|_| random_velocity(&mut rng)).collect();
            vel.extend((0..3).flat_map(|axis| velocities.iter().map(move |velocity| velocity[axis])));
        }
        Self::new(particles, &loc, &vel, &charges)
    }

    /// Number of systems.
    pub fn systems(&self) -> usize {
        self.systems
    }

    /// Particles of each system.
    pub fn particles(&self) -> usize {
        self.particles
    }

    /// Charges, `[systems, particles]` row-major.
    pub fn charges(&self) -> &[f64] {
        &self.charges
    }

    /// Advances every system by `frames` frames of [`STEPS_PER_FRAME`] time steps.
    pub fn advance(&mut self, frames: usize) {
        let arch = pulp::Arch::new();
        self.blocks.par_iter_mut().for_each(|block| {
            arch.dispatch(
                #[inline(always)]
                || {
                    for _ in 0..frames * STEPS_PER_FRAME {
                        block.step();
                    }
                },
            );
        });
    }

    /// Positions, `[systems, 3, particles]` row-major.
    pub fn loc(&self) -> Vec<f64> {
        self.gather(|block| &block.loc)
    }

    /// Velocities, `[systems, 3, particles]` row-major.
    pub fn vel(&self) -> Vec<f64> {
        self.gather(|block| &block.vel)
    }

    /// For each system, the smallest distance of any pair at any time step so far, to be compared with
    /// [`NEAR_COLLISION`]; infinity before the first step and for a single particle.
    pub fn closest_approach(&self) -> Vec<f64> {
        (0..self.systems).map(|system| self.blocks[system / LANES].closest[system % LANES].sqrt()).collect()
    }

    fn gather(&self, field: impl Fn(&Block) -> &Vec<[Lanes; 3]>) -> Vec<f64> {
        let mut out = Vec::with_capacity(self.systems * self.particles * 3);
        for system in 0..self.systems {
            let particles = field(&self.blocks[system / LANES]);
            for axis in 0..3 {
                out.extend(particles.iter().map(|axes| axes[axis][system % LANES]));
            }
        }
        out
    }
}

/// A velocity of uniform direction and length [`INITIAL_SPEED`].
fn random_velocity(rng: &mut ChaCha8Rng) -> [f64; 3] {
    let direction: [f64; 3] = std::array::from_fn(|_| rng.sample(StandardNormal));
    let norm = direction.iter().map(|c| c * c).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    direction.map(|c| c * (INITIAL_SPEED / norm))
}

impl Block {
    fn new(
        particles: usize,
        systems: usize,
        first: usize,
        loc: &[f64],
        vel: &[f64],
        charges: &[f64],
    ) -> Self {
        let lanes = LANES.min(systems - first);
        let fill = |value: &dyn Fn(usize) -> f64, rest: f64| -> Lanes {
            std::array::from_fn(|lane| if lane < lanes { value(first + lane) } else { rest })
        };
        let vectors = |values: &[f64], spread: f64| -> Vec<[Lanes; 3]> {
            (0..particles)
                .map(|particle| {
                    std::array::from_fn(|axis| {
                        // Unused lanes hold separated particles, so their arithmetic produces no infinities.
                        fill(
                            &|system| values[(system * 3 + axis) * particles + particle],
                            spread * particle as f64,
                        )
                    })
                })
                .collect()
        };
        let pairs = (0..particles)
            .flat_map(|i| (i + 1..particles).map(move |j| (i, j)))
            .map(|(i, j)| {
                fill(&|system| charges[system * particles + i] * charges[system * particles + j], 0.0)
            })
            .collect();
        Self {
            loc: vectors(loc, 1.0),
            vel: vectors(vel, 0.0),
            force: vec![[[0.0; LANES]; 3]; particles],
            pairs,
            closest: [f64::INFINITY; LANES],
        }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.accumulate_forces();
        for ((loc, vel), force) in self.loc.iter_mut().zip(&mut self.vel).zip(&self.force) {
            for axis in 0..3 {
                for lane in 0..LANES {
                    vel[axis][lane] += TIME_STEP * force[axis][lane].clamp(-MAX_FORCE, MAX_FORCE);
                    loc[axis][lane] += TIME_STEP * vel[axis][lane];
                }
            }
        }
    }

    #[inline(always)]
    fn accumulate_forces(&mut self) {
        let particles = self.loc.len();
        self.force.fill([[0.0; LANES]; 3]);
        let mut pairs = self.pairs.iter();
        for i in 0..particles {
            let here = self.loc[i];
            let mut total = self.force[i];
            for j in i + 1..particles {
                let Some(charge) = pairs.next() else { return };
                let (there, reaction) = (&self.loc[j], &mut self.force[j]);
                for lane in 0..LANES {
                    let [dx, dy, dz] = [0, 1, 2].map(|axis: usize| here[axis][lane] - there[axis][lane]);
                    let squared = dx * dx + dy * dy + dz * dz;
                    self.closest[lane] = self.closest[lane].min(squared);
                    // The floor makes the force of coinciding particles 0 (a huge number times 0) instead of NaN.
                    let strength = charge[lane] / (squared * squared.sqrt()).max(f64::MIN_POSITIVE);
                    for (axis, difference) in [dx, dy, dz].into_iter().enumerate() {
                        total[axis][lane] += strength * difference;
                        reaction[axis][lane] -= strength * difference;
                    }
                }
            }
            self.force[i] = total;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_follows_the_written_recurrence() {
        let (mut x, mut v) = ([[0.3, -0.2, 0.9], [-0.7, 0.4, 0.1]], [[0.1, 0.3, -0.2], [0.0, -0.4, 0.2]]);
        let by_axis = |x: &[[f64; 3]; 2]| -> Vec<f64> { (0..6).map(|k| x[k % 2][k / 2]).collect() };
        let mut simulation = Simulation::new(2, &by_axis(&x), &by_axis(&v), &[1.0, -1.0]).unwrap();
        simulation.advance(1);
        for _ in 0..STEPS_PER_FRAME {
            let r: [f64; 3] = std::array::from_fn(|a| x[0][a] - x[1][a]);
            let cube = (r[0] * r[0] + r[1] * r[1] + r[2] * r[2]).powf(1.5);
            for a in 0..3 {
                let force = -r[a] / cube;
                v[0][a] += 0.001 * force;
                v[1][a] -= 0.001 * force;
                x[0][a] += 0.001 * v[0][a];
                x[1][a] += 0.001 * v[1][a];
            }
        }
        for (&ours, reference) in simulation.loc().iter().zip(by_axis(&x)) {
            assert!((ours - reference).abs() < 1e-13, "{ours} {reference}");
        }
        let distance: f64 = (0..3).map(|a| (x[0][a] - x[1][a]).powi(2)).sum::<f64>().sqrt();
        assert!(simulation.closest_approach()[0] < 2.0 && simulation.closest_approach()[0] > 0.5 * distance);
    }

    #[test]
    fn the_force_is_clamped_and_coinciding_particles_stay_finite() {
        let mut close = Simulation::new(2, &[0.0, 1e-3, 0.0, 0.0, 0.0, 0.0], &[0.0; 6], &[1.0, 1.0]).unwrap();
        close.blocks[0].step();
        assert_eq!(close.vel(), [-0.1, 0.1, 0.0, 0.0, 0.0, 0.0]);
        assert!(close.closest_approach()[0] < NEAR_COLLISION);
        let mut same = Simulation::new(2, &[0.5; 6], &[0.25; 6], &[1.0, -1.0]).unwrap();
        same.advance(1);
        assert!(same.loc().iter().all(|x| (x - 0.525).abs() < 1e-12));
    }

    #[test]
    fn momentum_is_conserved_and_a_system_depends_on_its_index_alone() {
        let mut few = Simulation::sample(5, 3, 7, Split::Test).unwrap();
        let mut many = Simulation::sample(5, 11, 7, Split::Test).unwrap();
        let momentum = |s: &Simulation| -> Vec<f64> {
            let vel = s.vel();
            vel.chunks(5).map(|particles| particles.iter().sum()).collect()
        };
        let before = momentum(&few);
        few.advance(2);
        many.advance(2);
        assert_eq!(few.loc()[..], many.loc()[..3 * 15]);
        assert_ne!(few.loc(), Simulation::sample(5, 3, 7, Split::Valid).unwrap().loc());
        let closest = few.closest_approach();
        for (k, (a, b)) in before.iter().zip(momentum(&few)).enumerate() {
            assert!(closest[k / 3] < NEAR_COLLISION || (a - b).abs() < 1e-12);
        }
    }

    #[test]
    fn results_do_not_depend_on_threads() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut simulation = Simulation::sample(5, 37, 1, Split::Train).unwrap();
                simulation.advance(3);
                (simulation.loc(), simulation.vel())
            })
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn samples_have_the_published_distribution() {
        let simulation = Simulation::sample(5, 4000, 3, Split::Train).unwrap();
        let loc = simulation.loc();
        let mean = loc.iter().sum::<f64>() / loc.len() as f64;
        let variance = loc.iter().map(|x| x * x).sum::<f64>() / loc.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let vel = simulation.vel();
        assert!(vel.chunks(15).all(|v| {
            (0..5).all(|p| ((v[p].powi(2) + v[p + 5].powi(2) + v[p + 10].powi(2)).sqrt() - 0.5).abs() < 1e-15)
        }));
        let attracting =
            simulation.blocks.iter().flat_map(|b| b.pairs.iter().flatten()).filter(|&&q| q < 0.0).count();
        assert!((attracting as f64 / 40_000.0 - 0.5).abs() < 0.02, "{attracting}");
    }

    #[test]
    fn bad_states_are_refused() {
        assert!(matches!(Simulation::new(0, &[], &[], &[]), Err(Error::Argument { .. })));
        assert!(matches!(Simulation::new(2, &[0.0; 6], &[0.0; 5], &[1.0; 2]), Err(Error::Argument { .. })));
        let mut loc = [0.0; 6];
        loc[4] = f64::NAN;
        let error = Simulation::new(2, &loc, &[0.0; 6], &[1.0; 2]).unwrap_err();
        assert!(matches!(&error, Error::NotFinite { index, .. } if *index == [0, 2, 0]), "{error}");
        let mut none = Simulation::new(5, &[], &[], &[]).unwrap();
        none.advance(1);
        assert!(none.loc().is_empty());
    }
}
