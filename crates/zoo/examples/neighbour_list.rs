//! Times the search for neighbours: `cargo run --release -p gradewise-zoo --example neighbour_list -- 100000 5`.
//!
//! Atoms of a crystal of copper's density, each moved at random, in a periodic cell; the cutoff is in Å.

use gradewise_zoo::data::atoms::{Cell, Neighbours, SkinList};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{env, error::Error, time::Instant};

/// The lattice constant of a cubic lattice with copper's 85 atoms in nm³, in Å.
const SPACING: f64 = 2.27;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let atoms: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let cutoff: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let side = (atoms as f64).cbrt().ceil() as usize;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let place = |k: usize| [k % side, k / side % side, k / side / side];
    let mut positions: Vec<[f64; 3]> =
        (0..atoms).map(|k| place(k).map(|x| SPACING * x as f64 + rng.random_range(-0.3..0.3))).collect();
    let length = SPACING * side as f64;
    let cell = Cell::periodic([[length, 0.0, 0.0], [0.0, length, 0.0], [0.0, 0.0, length]]);
    let mut least = f64::INFINITY;
    let mut pairs = 0;
    for _ in 0..5 {
        let start = Instant::now();
        pairs = Neighbours::find(&positions, Some(&cell), cutoff)?.len();
        least = least.min(start.elapsed().as_secs_f64());
    }
    let threads = rayon::current_num_threads();
    println!("{atoms} atoms, cutoff {cutoff} Å: {pairs} pairs in {:.1} ms on {threads} threads", 1e3 * least);
    let mut list = SkinList::new(cutoff, 0.5)?;
    list.update(&positions, Some(&cell))?;
    positions[0][0] += 0.1;
    let start = Instant::now();
    let kept = list.update(&positions, Some(&cell))?.len();
    println!("{kept} pairs from a list with a skin in {:.1} ms", 1e3 * start.elapsed().as_secs_f64());
    Ok(())
}
