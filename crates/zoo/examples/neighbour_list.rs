//! Times the search for neighbours, and steps of molecular dynamics whose neighbours the device seeks:
//! `cargo run --release -p gradewise-zoo --example neighbour_list -- 100000 5`, with `--features gradewise-kernels/cuda` for a GPU.
//!
//! Atoms of a crystal of copper's density, each moved at random, in a periodic cell; the cutoff is in Å. Without a number of atoms there
//! are 1,000, 10,000 and 100,000. The potential is one of default size with random weights, as fast as a trained one.

use gradewise_kernels::{
    Array, CudaDevice, DType, Device,
    ops::neighbours::{NeighbourList, find},
};
use gradewise_nn::{Placement, train::Capture};
use gradewise_zoo::{
    data::atoms::{Cell, Labels, Neighbours, SkinList, Vector},
    dynamics::{DeviceSimulation, Dynamics, Interaction, Simulation, Thermostat},
    models::{Potential, PotentialConfig},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::{env, error::Error, time::Instant};

/// The lattice constant of a cubic lattice with copper's 85 atoms in nm³, in Å.
const SPACING: f64 = 2.27;
/// Steps of a motion ahead of those that are timed, and these.
const STEPS: [u64; 2] = [50, 1000];
const ROUNDS: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let sizes = match arguments.next() {
        Some(atoms) => vec![atoms.parse()?],
        None => vec![1_000, 10_000, 100_000],
    };
    let cutoff: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let gpu = CudaDevice::new(0);
    if let Err(error) = &gpu {
        println!("on the host alone: {error}");
    }
    for atoms in sizes {
        let (positions, cell) = crystal(atoms);
        on_the_host(&positions, &cell, cutoff)?;
        if let Ok(device) = &gpu {
            for dtype in [DType::F64, DType::F32] {
                on_a_gpu(device, &positions, &cell, cutoff, dtype)?;
            }
        }
    }
    if let Ok(device) = &gpu {
        for atoms in [9, 64, 216] {
            for dtype in [DType::F32, DType::F64] {
                motion(device, atoms, dtype)?;
            }
        }
    }
    Ok(())
}

fn crystal(atoms: usize) -> (Vec<Vector>, Cell) {
    let side = (1..).find(|side: &usize| side.pow(3) >= atoms).unwrap_or(1);
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let place = |k: usize| [k % side, k / side % side, k / side / side];
    let positions =
        (0..atoms).map(|k| place(k).map(|x| SPACING * x as f64 + rng.random_range(-0.3..0.3))).collect();
    let length = SPACING * side as f64;
    (positions, Cell::periodic([[length, 0.0, 0.0], [0.0, length, 0.0], [0.0, 0.0, length]]))
}

fn on_the_host(positions: &[Vector], cell: &Cell, cutoff: f64) -> Result<(), Box<dyn Error>> {
    let (mut least, mut pairs) = (f64::INFINITY, 0);
    for _ in 0..5 {
        let start = Instant::now();
        pairs = Neighbours::find(positions, Some(cell), cutoff)?.len();
        least = least.min(start.elapsed().as_secs_f64());
    }
    let (atoms, threads) = (positions.len(), rayon::current_num_threads());
    println!("{atoms} atoms, cutoff {cutoff} Å: {pairs} pairs in {:.2} ms on {threads} threads", 1e3 * least);
    let mut list = SkinList::new(cutoff, 0.5)?;
    let mut moved = positions.to_vec();
    list.update(&moved, Some(cell))?;
    moved[0][0] += 0.1;
    let start = Instant::now();
    let kept = list.update(&moved, Some(cell))?.len();
    println!("  {kept} pairs from a list with a skin in {:.2} ms", 1e3 * start.elapsed().as_secs_f64());
    Ok(())
}

fn on_a_gpu(
    device: &CudaDevice,
    positions: &[Vector],
    cell: &Cell,
    cutoff: f64,
    dtype: DType,
) -> Result<(), Box<dyn Error>> {
    let (there, atoms) = (Device::Cuda(device.clone()), positions.len());
    let values: Vec<f64> = (0..3).flat_map(|axis| positions.iter().map(move |x| x[axis])).collect();
    let x = Array::from_f64(&values, [3, atoms, 1], dtype, &there)?;
    let room = find(&x, Some(cell), cutoff)?.room();
    let mut list = NeighbourList::new(atoms, dtype, Some(cell), cutoff, room, &there)?;
    list.search(&x)?;
    let ((), search) = device.capture(|| list.search(&x))?;
    let ((), look) = device.capture(|| list.search_where_moved(&x, 0.25))?;
    let mut times = [0.0; 2];
    for (graph, time) in [search, look].iter().zip(&mut times) {
        graph.replay()?;
        list.report()?.require(room)?;
        let start = Instant::now();
        (0..ROUNDS).try_for_each(|_| graph.replay())?;
        list.report()?.require(room)?;
        *time = 1e6 * start.elapsed().as_secs_f64() / f64::from(ROUNDS);
    }
    let [search, look] = times;
    println!(
        "  {room} pairs on {there} in {dtype}: {search:.1} µs, and {look:.1} µs where no atom has moved"
    );
    Ok(())
}

/// Velocity Verlet at 300 K, by captured steps.
fn motion(device: &CudaDevice, atoms: usize, dtype: DType) -> Result<(), Box<dyn Error>> {
    let place = Placement::new(&Device::Cuda(device.clone()), dtype);
    let config = PotentialConfig::default();
    let models = [Potential::init(&config, &place, &mut ChaCha8Rng::seed_from_u64(1))?];
    let (positions, crystal) = crystal(atoms);
    let numbers: Vec<u8> = (0..atoms).map(|atom| [6, 1, 8][atom % 3]).collect();
    // Nine atoms are a molecule.
    let cell = (atoms > 9).then_some(crystal);
    // Short steps: random weights would pull atoms into each other.
    let dynamics = Dynamics { dt: 0.05, thermostat: Thermostat::Nve, seed: 3 };
    let labels = Labels { energy: 0.0, forces: vec![[0.0; 3]; atoms], stress: None };
    let motion = Simulation::start(dynamics, &numbers, positions, labels, 300.0)?;
    let neighbours = SkinList::new(config.cutoff, 0.5)?;
    let interaction = Interaction { models: &models, placement: place.clone(), neighbours, room: 0 };
    let mut motion = DeviceSimulation::new(motion, &numbers, cell, interaction)?.capture(Capture::Required);
    let [ahead, timed] = STEPS;
    (0..ahead).try_for_each(|_| motion.step())?;
    let (before, start) = (motion.searches(), Instant::now());
    (0..timed).try_for_each(|_| motion.step())?;
    let step = 1e3 * start.elapsed().as_secs_f64() / timed as f64;
    let (searches, pairs) = (motion.searches() - before, motion.room());
    let nodes = motion.node_count()?.unwrap_or(0);
    println!(
        "{atoms} atoms, {pairs} pairs, {dtype}: {step:.4} ms a step of {nodes} nodes, {searches} searches"
    );
    Ok(())
}
