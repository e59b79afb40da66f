//! The repulsion of nuclei that are nearer than bound ones.

use crate::data::atoms::{AtomBatch, SPECIES, elements::covalent_radii};
use gradewise_autograd::Tensor;
use gradewise_kernels::Array;
use gradewise_nn::Result;

/// e²/4πε₀, in eV·Å.
const COULOMB: f64 = 14.399_645_478;
/// The screening length is this over Z₁^0.23 + Z₂^0.23, in Å: 0.8854 Bohr radii.
const SCREENING: f64 = 0.468_50;
const POWER: f64 = 0.23;
/// The universal screening function Σ aₖ exp(−bₖ x).
const TERMS: [[f64; 2]; 4] =
    [[0.181_75, 3.199_80], [0.509_86, 0.942_29], [0.280_22, 0.402_90], [0.028_17, 0.201_62]];
/// Added to squared distances, because the square root has no derivative at zero.
const EPSILON: f64 = 1e-12;

/// Half of the universal repulsion of each pair of atoms for either of its atoms, `[1, atoms, 1]`, in eV (Ziegler, Biersack and Littmark 1985,
/// The Stopping and Range of Ions in Solids):
///
/// V(r) = Z₁Z₂e²/(4πε₀r) φ(r/a) s(r/R), with φ(x) = 0.18175 e^(−3.1998x) + 0.50986 e^(−0.94229x) + 0.28022 e^(−0.4029x) + 0.02817 e^(−0.20162x)
/// and a = 0.4685 Å/(Z₁^0.23 + Z₂^0.23).
///
/// The switch s(u) = 1 − 28u⁶ + 48u⁷ − 21u⁸ reaches zero with its first two derivatives at the sum R of the covalent radii of the two species, or
/// at `cutoff` (Å) where that is less.
///
/// # Errors
/// From the device.
pub(super) fn zbl(differences: &Tensor, batch: &AtomBatch, cutoff: f64) -> Result<Tensor> {
    let (dtype, device) = (differences.dtype(), differences.device());
    // A property of the two atoms of each edge, `[1, edges, 1]`.
    let of_pairs = |table: &[f64]| -> Result<[Tensor; 2]> {
        let table = Tensor::new(Array::constant(table, [1, SPECIES, 1], dtype, &device)?);
        let of_atoms = table.index_select(1, &batch.species)?;
        let of = |ends| of_atoms.index_select(1, ends);
        Ok([of(&batch.edges.receivers)?, of(&batch.edges.senders)?])
    };
    let charges: Vec<f64> = (0..SPECIES).map(|number| number as f64).collect();
    let screened: Vec<f64> = charges.iter().map(|z| z.powf(POWER) / SCREENING).collect();
    let ([z1, z2], [a1, a2]) = (of_pairs(&charges)?, of_pairs(&screened)?);
    let [r1, r2] = of_pairs(&covalent_radii())?;
    let squared = differences.square()?.sum(&[0], true)?.add_scalar(EPSILON)?;
    let distance = squared.sqrt()?;
    let x = distance.mul(&a1.add(&a2)?)?;
    let mut screening: Option<Tensor> = None;
    for [weight, decay] in TERMS {
        let term = x.mul_scalar(-decay)?.exp()?.mul_scalar(weight)?;
        screening = Some(match screening {
            None => term,
            Some(sum) => sum.add(&term)?,
        });
    }
    let reach = r1.add(&r2)?.clamp(0.0, cutoff)?;
    let u = distance.div(&reach)?.clamp(0.0, 1.0)?;
    let rest = u.mul_scalar(-21.0)?.add_scalar(48.0)?.mul(&u)?.add_scalar(-28.0)?;
    let switch = u.pow(6.0)?.mul(&rest)?.add_scalar(1.0)?;
    let mut energy = z1.mul(&z2)?.mul(&squared.rsqrt()?)?.mul_scalar(COULOMB / 2.0)?.mul(&switch)?;
    if let Some(screening) = screening {
        energy = energy.mul(&screening)?;
    }
    Ok(energy.segment_sum(1, &batch.edges.receivers)?)
}
