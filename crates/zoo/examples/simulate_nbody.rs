//! Simulates the charged n-body data set of the paper and, given a folder, writes it in the published layout.
//!
//! ```text
//! cargo run --release -p gradewise-zoo --example simulate_nbody -- [FOLDER]
//! ```

use gradewise_nn::data::Split;
use gradewise_zoo::data::nbody::{NBodyData, PARTICLES, TARGET_FRAME, Trajectories};
use std::time::Instant;

fn main() -> gradewise_nn::Result<()> {
    let folder = std::env::args().nth(1);
    for (split, systems) in [(Split::Train, 3000), (Split::Valid, 2000), (Split::Test, 2000)] {
        let start = Instant::now();
        let trajectories = Trajectories::simulate(PARTICLES, systems, TARGET_FRAME + 1, 0, split)?;
        let data = NBodyData::from_trajectories(&trajectories)?;
        println!("{split:>5}: {} samples in {:.2} s", data.len(), start.elapsed().as_secs_f64());
        if let Some(folder) = &folder {
            trajectories.save(folder, split, "_simulated")?;
        }
    }
    Ok(())
}
