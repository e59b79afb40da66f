//! What the energy of a [`Potential`] can tell apart, by the rank of its tensors and its rounds, beside what theory predicts.
//!
//! Every test is a pair of structures that are different, and equal to networks of low rank, few rounds or low body order (Joshi et al. 2023,
//! On the expressive power of geometric graph neural networks, arXiv:2301.09308; Pozdnyakov et al. 2020,
//! doi:10.1103/PhysRevLett.125.166001; Cen et al. 2024, arXiv:2410.11443). Parameters are random, so that an energy that can be different is.

mod structures;
#[cfg(test)]
mod tests;

pub use structures::{Polyhedron, chain, four_body, mirrored, polyhedra, rotor, three_body, two_body};

use crate::{
    data::atoms::{AtomSet, Neighbourhood, Neighbours},
    models::{Potential, PotentialConfig},
    tracks::Rank,
};
use gradewise_kernels::{Array, DType, Device};
use gradewise_nn::{Module, Placement, Result, data::Samples};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Energies that differ by more than this share of the interaction are different, and equal below the second number; rounding makes about
/// 1e-15.
pub const DIFFERENT: f64 = 1e-9;
/// See [`DIFFERENT`].
pub const EQUAL: f64 = 1e-12;

/// What radial functions are multiplied by.
const GAIN: f64 = 8.0;

/// A pair of structures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// [`chain`] of this many atoms.
    Chain(usize),
    /// [`rotor`] of this fold.
    Rotor(usize),
    /// [`polyhedra`] of this kind.
    Polyhedra(Polyhedron),
    /// [`two_body`]
    TwoBody,
    /// [`three_body`]
    ThreeBody,
    /// [`four_body`]
    FourBody,
    /// [`mirrored`]
    Mirrored,
}

/// Whether the energies of both structures differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They do.
    Different,
    /// They are equal to rounding.
    Equal,
    /// The measurement is between both, and decides nothing.
    Open,
}

impl Test {
    /// All tests, in the order of the table.
    pub fn all() -> Vec<Self> {
        let chains = (2..=6).map(Self::Chain);
        let rotors = (1..=5).map(Self::Rotor);
        let bodies = [Self::TwoBody, Self::ThreeBody, Self::FourBody, Self::Mirrored];
        chains.chain(rotors).chain(Polyhedron::ALL.map(Self::Polyhedra)).chain(bodies).collect()
    }

    /// The name in a table.
    pub fn name(self) -> String {
        match self {
            Self::Chain(k) => format!("chain of {k}"),
            Self::Rotor(fold) => format!("{fold}-fold rotor"),
            Self::Polyhedra(polyhedron) => format!("{polyhedron:?}").to_lowercase(),
            Self::TwoBody => "2-body counterexample".to_owned(),
            Self::ThreeBody => "3-body counterexample".to_owned(),
            Self::FourBody => "4-body counterexample".to_owned(),
            Self::Mirrored => "mirror images".to_owned(),
        }
    }

    /// What theory asks for, in words.
    pub fn needs(self) -> String {
        match self {
            Self::Chain(k) => format!("{} rounds", k / 2 + 1),
            Self::Rotor(fold) => format!("rank {fold}, 2 rounds"),
            Self::Polyhedra(polyhedron) => format!("rank {}", polyhedron.rank()),
            Self::TwoBody => "angles".to_owned(),
            Self::ThreeBody | Self::FourBody => "rank 2 or 2 rounds".to_owned(),
            Self::Mirrored => "handedness".to_owned(),
        }
    }

    /// The two structures.
    pub fn structures(self) -> [Neighbourhood; 2] {
        match self {
            Self::Chain(k) => chain(k),
            Self::Rotor(fold) => rotor(fold),
            Self::Polyhedra(polyhedron) => polyhedra(polyhedron),
            Self::TwoBody => two_body(),
            Self::ThreeBody => three_body(),
            Self::FourBody => four_body(),
            Self::Mirrored => mirrored(),
        }
    }

    /// What theory predicts for the energy of a network of this rank and so many rounds.
    ///
    /// - Chains: what either end tells of its side travels an atom a round, and both meet after ⌊k/2⌋ + 1 rounds (Joshi et al. 2023).
    /// - Rotors: a tensor of rank below the fold that a ring adds up to does not turn with the ring, nor does what the bond carries.
    /// - Polyhedra: every tensor below the rank of the polyhedron is isotropic at the centre (Cen et al. 2024), and so is what goes back.
    /// - Counterexamples: invariants of vectors are functions of their dot products, which are sums over pairs of neighbours. One round of rank 1
    ///   is a descriptor of three bodies, therefore. A round with rank 2 has sums over triples and quadruples, and so have messages that come
    ///   back; the tests have those that differ.
    /// - Mirror images: the energy is invariant under reflections.
    pub fn predicted(self, rank: Rank, rounds: usize) -> Verdict {
        let highest = usize::from(u8::from(rank));
        let different = match self {
            Self::Chain(k) => rounds > k / 2,
            Self::Rotor(fold) => highest >= fold && rounds >= 2,
            Self::Polyhedra(polyhedron) => highest >= polyhedron.rank() && rounds >= 1,
            Self::TwoBody => rounds >= 1,
            Self::ThreeBody | Self::FourBody => rounds >= 2 || (rounds >= 1 && rank.has_tensors()),
            Self::Mirrored => false,
        };
        if different { Verdict::Different } else { Verdict::Equal }
    }

    /// The greatest difference of the energies of both structures over `seeds` networks with random parameters in f64, as a share of the
    /// interaction energy.
    ///
    /// # Errors
    /// From the device.
    pub fn measured(self, rank: Rank, rounds: usize, seeds: u64) -> Result<f64> {
        let alone = |one: &Neighbourhood| Neighbourhood::of(one.frame.clone(), Neighbours::default());
        let structures = self.structures();
        let frames = structures.iter().cloned().chain(structures.iter().map(alone)).collect();
        let config = PotentialConfig { hidden: 8, layers: rounds, rank, ..PotentialConfig::default() };
        let set = AtomSet::of_neighbourhoods(frames, config.cutoff);
        let place = Placement::new(&Device::Cpu, DType::F64);
        let batch = set.batch(&[0, 1, 2, 3], &place)?;
        let mut greatest = 0f64;
        for seed in 0..seeds {
            let model = Potential::init(&config, place.clone(), &mut ChaCha8Rng::seed_from_u64(seed))?;
            amplify(&model)?;
            let energies = model.energy(&batch.differences, &batch)?.array().to_f64_vec()?;
            let [first, second] = [energies[0] - energies[2], energies[1] - energies[3]];
            let size = first.abs().max(second.abs()).max(f64::MIN_POSITIVE);
            // NaN, which is no verdict, stays.
            let difference = (first - second).abs() / size;
            greatest = if difference <= greatest { greatest } else { difference };
        }
        Ok(greatest)
    }
}

/// Multiplies the radial functions: the first parameters suit 16 neighbours, and what few send would vanish over several rounds.
fn amplify(model: &Potential) -> Result<()> {
    for (name, parameter) in model.named_parameters() {
        if name.ends_with(".radial.2.weight") {
            let array = parameter.array();
            let values: Vec<f64> = array.to_f64_vec()?.iter().map(|x| GAIN * x).collect();
            parameter.set(Array::from_f64(&values, array.dims(), array.dtype(), &array.device())?)?;
        }
    }
    Ok(())
}

impl Verdict {
    /// The verdict on a measured difference.
    pub fn of(difference: f64) -> Self {
        if difference > DIFFERENT {
            Self::Different
        } else if difference < EQUAL {
            Self::Equal
        } else {
            Self::Open
        }
    }

    /// Whether a measurement contradicts what was predicted, or decides nothing.
    pub fn contradicts(self, predicted: Self) -> bool {
        self == Self::Open || self != predicted
    }
}
