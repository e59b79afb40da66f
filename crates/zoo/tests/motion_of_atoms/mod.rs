//! Systems in motion under a potential, for tests on the host and on a GPU.

use gradewise_kernels::Device;
use gradewise_nn::{Placement, Result};
use gradewise_zoo::{
    data::atoms::{AtomSet, Cell, Frame, Labels, Neighbourhood, Neighbours, SkinList, Vector},
    dynamics::{DeviceSimulation, Dynamics, Interaction, Simulation, State, Thermostat},
    models::{CoreRepulsion, Potential, PotentialConfig},
    tracks::Rank,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const CUTOFF: f64 = 3.0;
/// Small, so that a short motion needs several searches.
pub const SKIN: f64 = 0.16;
pub const NVE: Thermostat = Thermostat::Nve;
pub const LANGEVIN: Thermostat = Thermostat::Langevin { temperature: 900.0, friction: 20.0 };

pub fn potential(rank: Rank, repulsion: CoreRepulsion, place: &Placement, seed: u64) -> Potential {
    let config = PotentialConfig { hidden: 6, cutoff: CUTOFF, rank, repulsion, ..PotentialConfig::default() };
    Potential::init(&config, place, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
}

/// Atoms at least 1.2 Å apart, in space or in a triclinic cell smaller than the cutoff.
pub fn system(atoms: usize, periodic: [bool; 3]) -> Frame {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let vectors = [[2.9, 0.0, 0.0], [0.4, 3.1, 0.0], [-0.5, 0.6, 2.7]];
    let mut frame = Frame { cell: Some(Cell { vectors, periodic }), ..Frame::default() };
    while frame.len() < atoms {
        let mut tried = frame.clone();
        tried.numbers.push([6, 8, 14][tried.len() % 3]);
        tried.positions.push([(); 3].map(|()| rng.random_range(0.0..3.0)));
        let near = Neighbours::find(&tried.positions, tried.cell.as_ref(), 1.2);
        if near.is_ok_and(|near| near.is_empty()) {
            frame = tried;
        }
    }
    frame
}

/// A molecule, a slab and a crystal.
pub fn systems() -> [Frame; 3] {
    [system(6, [false; 3]), system(4, [true, true, false]), system(4, [true; 3])]
}

/// Energy, forces and stress on one device with neighbours from `list`.
pub fn labels(
    model: &Potential,
    frame: &Frame,
    positions: &[Vector],
    list: &mut SkinList,
    place: &Placement,
) -> Result<Labels> {
    let neighbours = list.update(positions, frame.cell.as_ref())?;
    let moved = Frame { positions: positions.to_vec(), ..frame.clone() };
    let set = AtomSet::of_neighbourhoods(vec![Neighbourhood::of(moved, neighbours)], CUTOFF);
    Ok(model.predict(&set, place)?.remove(0))
}

pub fn begin(model: &Potential, frame: &Frame, thermostat: Thermostat, place: &Placement) -> Simulation {
    let mut list = SkinList::new(CUTOFF, SKIN).unwrap();
    let labels = labels(model, frame, &frame.positions, &mut list, place).unwrap();
    let dynamics = Dynamics { dt: 0.5, thermostat, seed: 11 };
    Simulation::start(dynamics, &frame.numbers, frame.positions.clone(), labels, 900.0).unwrap()
}

/// Atoms that come together, so that pairs become more than a list has room for.
pub fn collapse(model: &Potential, place: &Placement) -> (Frame, Simulation) {
    let lattice = |k: usize| [k % 3, k / 3 % 2, k / 6].map(|x| 3.4 * x as f64 + 0.05 * (k % 5) as f64);
    let positions: Vec<Vector> = (0..12).map(lattice).collect();
    let numbers = (0..12).map(|k| [6, 8, 14][k % 3]).collect();
    let frame = Frame { numbers, positions: positions.clone(), ..Frame::default() };
    let mut list = SkinList::new(CUTOFF, SKIN).unwrap();
    let labels = labels(model, &frame, &positions, &mut list, place).unwrap();
    let velocities = positions.iter().map(|x| x.map(|x| -0.02 * x)).collect();
    let (potential, forces) = (labels.energy, labels.forces);
    let state = State { step: 0, positions, velocities, forces, potential, heat: 0.0 };
    let dynamics = Dynamics { dt: 0.5, thermostat: NVE, seed: 11 };
    (frame.clone(), Simulation::resume(dynamics, &frame.numbers, state).unwrap())
}

/// A motion step by step on the host, the labels at its end, and how often neighbours were sought.
pub fn on_host(
    model: &Potential,
    frame: &Frame,
    mut motion: Simulation,
    steps: u64,
) -> (State, Labels, usize) {
    let place = Placement::new(&Device::Cpu, model.dtype());
    let mut list = SkinList::new(CUTOFF, SKIN).unwrap();
    list.search(&frame.positions, frame.cell.as_ref()).unwrap();
    let mut last = None;
    for _ in 0..steps {
        motion
            .step(|positions| {
                let found = labels(model, frame, positions, &mut list, &place)?;
                last = Some(found.clone());
                Ok(found)
            })
            .unwrap();
    }
    (motion.state().clone(), last.unwrap(), list.searches())
}

pub fn on_device<'a>(
    models: &'a [Potential],
    frame: &Frame,
    motion: Simulation,
    place: &Placement,
) -> DeviceSimulation<'a> {
    let neighbours = SkinList::new(CUTOFF, SKIN).unwrap();
    let interaction = Interaction { models, placement: place.clone(), neighbours, room: 0 };
    DeviceSimulation::new(motion, &frame.numbers, frame.cell, interaction).unwrap()
}

/// Stops a motion and goes on with it, as a program does that reads its state from a file.
pub fn taken_up_again<'a>(
    before: &DeviceSimulation<'a>,
    models: &'a [Potential],
    frame: &Frame,
    dynamics: Dynamics,
    place: &Placement,
) -> DeviceSimulation<'a> {
    let state = before.simulation().unwrap().state().clone();
    let mut neighbours = SkinList::new(CUTOFF, SKIN).unwrap();
    neighbours.search(&before.searched_at().unwrap(), frame.cell.as_ref()).unwrap();
    let interaction = Interaction { models, placement: place.clone(), neighbours, room: before.room() };
    let motion = Simulation::resume(dynamics, &frame.numbers, state).unwrap();
    DeviceSimulation::new(motion, &frame.numbers, frame.cell, interaction).unwrap()
}

/// The greatest difference of numbers of two motions.
pub fn distance(a: &State, b: &State) -> f64 {
    let flat = |state: &State| -> Vec<f64> {
        let all = [&state.positions, &state.velocities, &state.forces];
        let vectors = all.into_iter().flat_map(|vectors| vectors.as_flattened().to_vec());
        vectors.chain([state.potential, state.heat]).collect()
    };
    flat(a).iter().zip(flat(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
