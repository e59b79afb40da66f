//! Fields on grids over time: simulated fluids and electromagnetic fields, as in the publications on Clifford networks.
//!
//! `smoke` is Navier–Stokes in the plane (feature `fourier`), [`maxwell`] Maxwell's equations in space, [`charges`] the fields of moving
//! charges on space-time of 2+1 dimensions. Each makes a [`FieldSet`]. Models see its [`FieldWindows`]: input frames and the target frames
//! after them.
//!
//! ```
//! use gradewise_kernels::Device;
//! use gradewise_nn::{Placement, data::{Samples, Split}};
//! use gradewise_zoo::data::fields::{FieldWindows, TimeAxis, maxwell};
//!
//! // A published trajectory in a box of 24³ cells instead of 64³: 8 frames of E and H on the 12³ cells in its middle.
//! let set = maxwell::load(Split::Test, 1, 24)?;
//! assert_eq!((set.frames(), set.space()), (8, &[12, 12, 12][..]));
//! // Four frames to one, as channels of a field of Cl(3,0): E on e1, e2, e3, H on e12, e13, e23.
//! let windows = FieldWindows::new(set.into(), (4, 1), TimeAxis::Channels)?;
//! let (inputs, target) = windows.batch(&[0, 3], &Placement::from(&Device::Cpu))?;
//! assert_eq!(inputs.shape().dims(), [6, 2, 12, 12, 12, 4]);
//! assert_eq!(target.shape().dims(), [6, 2, 12, 12, 12, 1]);
//! // −H_y is on e13, times ten.
//! let hy = windows.set().frame(0, 0)[4];
//! assert_eq!(inputs.slice(0, 4..5)?.array().to_f64_vec()?[0] as f32, -10.0 * hy);
//! # Ok::<(), gradewise_nn::Error>(())
//! ```

pub mod charges;
pub mod maxwell;
#[cfg(feature = "fourier")]
pub mod smoke;

mod resize;
mod seeds;
mod set;
mod windows;

pub use set::{FieldLayout, FieldSet};
pub use windows::{FieldWindows, TimeAxis};
