//! Measures of classifiers, with their statistical errors.

mod calibration;
mod estimate;
mod ranking;

pub use calibration::{Bin, Calibration};
pub use estimate::Estimate;
pub use ranking::{Ranking, RocPoint};
