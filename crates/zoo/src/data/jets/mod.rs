//! Jets of particles, to be classified by their origin: a toy model of top tagging.
//!
//! [`JetSets::simulate`] draws both classes from [`three_prong`] and [`one_prong`]: chains of two-body decays that conserve four-momentum
//! exactly, with the difference between the classes in nature (a heavy particle that decays into three quarks against one quark or gluon
//! that radiates) and little else: no matrix elements, colour, hadrons or underlying event, and no detector except a smearing of momenta.
//! Accuracies on these jets show that a tagger works, but say nothing about the tagging of real tops. [`JetSets::load`] reads the published
//! jets.

mod batch;
mod files;
mod kept;
mod loading;
mod momenta;
mod sets;
mod shower;
#[cfg(feature = "hdf5")]
mod tables;

pub(crate) use batch::CHANNELS;
pub use batch::JetBatch;
pub use sets::JetSets;
pub use shower::{FourMomentum, one_prong, three_prong};
