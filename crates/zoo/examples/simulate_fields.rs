//! Simulates fields at the published sizes and writes them as NumPy files of the published arrays, in single precision.
//!
//! ```text
//! cargo run --release -p gradewise-zoo --example simulate_fields -- navier-stokes FOLDER TRAJECTORIES
//! ```
//!
//! The first argument is `navier-stokes`, `maxwell` or `maxwell2d`; of the valid and test splits a quarter as many trajectories are
//! written, but one at least. `gradewise train navier-stokes data.source=FOLDER` reads them.

use gradewise_nn::data::Split;
use gradewise_zoo::data::fields::{
    charges::{self, ChargeOptions, Physics},
    maxwell, smoke,
};
use std::{path::Path, process::ExitCode, time::Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder, count] = arguments.as_slice() else {
        return failed(
            "expected navier-stokes, maxwell or maxwell2d, a folder, and a number of trajectories",
        );
    };
    let Ok(count) = count.parse::<usize>() else {
        return failed("the third argument is a number of trajectories");
    };
    if let Err(error) = std::fs::create_dir_all(folder) {
        return failed(&format!("{folder}: {error}"));
    }
    for split in Split::ALL {
        let count = if split == Split::Train { count } else { (count / 4).max(1) };
        let start = Instant::now();
        let set = match name.as_str() {
            "navier-stokes" => smoke::load(split, count, smoke::CELLS),
            "maxwell" => maxwell::load(split, count, maxwell::CELLS),
            "maxwell2d" => charges::load(split, count, ChargeOptions::published(Physics::Published)),
            _ => return failed("the first argument is navier-stokes, maxwell or maxwell2d"),
        };
        match set.and_then(|set| set.save(Path::new(folder), split).map(|()| set)) {
            Ok(set) => println!(
                "{split:>5}: {} trajectories of {} frames on {:?} in {:.1} s",
                set.trajectories(),
                set.frames(),
                set.space(),
                start.elapsed().as_secs_f64()
            ),
            Err(error) => return failed(&error.to_string()),
        }
    }
    ExitCode::SUCCESS
}

fn failed(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
