//! Finds the fastest tiles of matrix products by timing the cases that use them.

use super::{Timer, workload};
use crate::{Case, Pass, Result};
use gradewise_kernels::{
    Device,
    tuning::{self, Choice, Table, Tile},
};

/// A product whose tile was measured.
#[derive(Clone, Copy, Debug)]
pub struct Tuned {
    /// The product and its fastest tile.
    pub choice: Choice,
    /// The median time of the whole case with the estimated tile and with the fastest one, in milliseconds.
    pub ms: [f64; 2],
}

/// Measures forward and backward of a case with every tile for each of its products in turn, keeps the fastest in `table`, and installs
/// that table. A tile must be at least 1% faster than the estimated one; less is noise.
///
/// # Errors
/// From the device.
pub fn tune(timer: &Timer, case: &Case, table: &mut Table) -> Result<Vec<Tuned>> {
    const LEAST: f64 = 0.99;
    let device = timer.device().clone();
    let name = device.info().name.clone();
    let workload = workload(case, &Device::Cuda(device))?;
    case.compute.scope(|| {
        let mut prepared = workload.prepare(Pass::Both)?;
        let (ran, shapes) = tuning::record(|| (prepared.run)());
        ran?;
        let mut tuned = Vec::new();
        for shape in shapes {
            let mut time = |table: &Table| -> Result<f64> {
                table.clone().install();
                Ok(timer.times(|| (prepared.run)())?.median())
            };
            let estimated = time(table)?;
            let mut best = None;
            for tile in Tile::ALL {
                let choice = Choice { shape, tile };
                let mut with = table.clone();
                with.set(&name, choice);
                let ms = time(&with)?;
                if ms < best.map_or(LEAST * estimated, |(_, least)| least) {
                    best = Some((choice, ms));
                }
            }
            if let Some((choice, ms)) = best {
                table.set(&name, choice);
                tuned.push(Tuned { choice, ms: [estimated, ms] });
            }
        }
        table.clone().install();
        Ok(tuned)
    })
}
