//! Jets of particles, to be told apart by their origin: a toy of top tagging.
//!
//! [`JetSets::simulate`] draws both classes from [`three_prong`] and [`one_prong`]: chains of two-body decays that conserve
//! four-momentum exactly, with what tells jets apart in nature (a heavy particle that decays into three quarks against one quark
//! or gluon that radiates) and without nearly everything else: no matrix elements, colour, hadrons, underlying event or detector but
//! a smearing of momenta. Accuracies on it say that a tagger works, and nothing about the tagging of real tops. [`JetSets::load`] reads
//! the published jets.

mod files;
mod sets;
mod shower;
#[cfg(feature = "hdf5")]
mod tables;

pub(crate) use sets::CHANNELS;
pub use sets::{JetBatch, JetSets};
pub use shower::{FourMomentum, one_prong, three_prong};
