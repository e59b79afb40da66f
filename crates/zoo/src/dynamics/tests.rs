//! Motion in an anharmonic well, whose forces are known.

use super::*;

/// Atoms in wells E = ½k x² + ¼q x⁴, bound to their neighbour by a spring of length 0.
fn well(positions: &[Vector]) -> Result<Labels> {
    const K: f64 = 2.0;
    const Q: f64 = 3.0;
    const SPRING: f64 = 1.5;
    let (mut energy, mut forces) = (0.0, vec![[0.0; 3]; positions.len()]);
    for (atom, position) in positions.iter().enumerate() {
        for axis in 0..3 {
            let x = position[axis];
            energy += 0.5 * K * x * x + 0.25 * Q * x.powi(4);
            forces[atom][axis] -= K * x + Q * x.powi(3);
            if let Some(other) = positions.get(atom + 1) {
                let apart = other[axis] - x;
                energy += 0.5 * SPRING * apart * apart;
                forces[atom][axis] += SPRING * apart;
                forces[atom + 1][axis] -= SPRING * apart;
            }
        }
    }
    Ok(Labels { energy, forces, stress: None })
}

fn begin(dt: f64, thermostat: Thermostat, temperature: f64) -> Simulation {
    let numbers = [1, 6, 8, 1, 26];
    let positions: Vec<Vector> = (0..5).map(|atom| [0.1 * f64::from(atom), 0.05, -0.02]).collect();
    let labels = well(&positions).unwrap();
    let dynamics = Dynamics { dt, thermostat, seed: 3 };
    Simulation::start(dynamics, &numbers, positions, labels, temperature).unwrap()
}

#[test]
fn without_a_thermostat_energy_errors_are_of_the_second_order() {
    // The greatest error over 200 fs.
    let error = |dt: f64| {
        let mut motion = begin(dt, Thermostat::Nve, 800.0);
        let first = motion.record();
        assert!(first.kinetic > 0.1, "it moves");
        let mut worst = 0f64;
        for _ in 0..(200.0 / dt) as usize {
            motion.step(well).unwrap();
            worst = worst.max((motion.record().total - first.total).abs());
        }
        worst
    };
    let [coarse, middle, fine] = [0.5, 0.25, 0.125].map(error);
    assert!(coarse < 0.05, "{coarse}");
    for ratio in [coarse / middle, middle / fine] {
        assert!((ratio - 4.0).abs() < 0.6, "{ratio}: {coarse} {middle} {fine}");
    }
}

#[test]
fn motions_run_backwards() {
    let mut motion = begin(0.5, Thermostat::Nve, 500.0);
    let start = motion.state().clone();
    for _ in 0..300 {
        motion.step(well).unwrap();
    }
    let mut back = motion.state().clone();
    back.velocities.iter_mut().flatten().for_each(|v| *v = -*v);
    let dynamics = Dynamics { dt: 0.5, thermostat: Thermostat::Nve, seed: 3 };
    let mut motion = Simulation::resume(dynamics, &[1, 6, 8, 1, 26], back).unwrap();
    for _ in 0..300 {
        motion.step(well).unwrap();
    }
    for (found, expected) in motion.state().positions.iter().zip(&start.positions) {
        assert!((0..3).all(|k| (found[k] - expected[k]).abs() < 1e-9), "{found:?} {expected:?}");
    }
}

#[test]
fn langevin_dynamics_have_their_temperature_and_account_for_the_heat() {
    let thermostat = Thermostat::Langevin { temperature: 400.0, friction: 20.0 };
    let mut motion = begin(0.5, thermostat, 0.0);
    assert_eq!(motion.record().temperature, 0.0);
    let (mut temperatures, mut conserved) = (Vec::new(), Vec::new());
    for step in 0..60_000 {
        motion.step(well).unwrap();
        if step >= 5000 {
            temperatures.push(motion.record().temperature);
            conserved.push(motion.record().conserved);
        }
    }
    let found = mean(&temperatures);
    assert!(found.error > 0.5 && found.error < 20.0, "{found:?}");
    assert!((found.value - 400.0).abs() < 4.0 * found.error, "{found:?}");
    let (low, high) =
        conserved.iter().fold((f64::MAX, f64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    // Much heat flowed, all of which is accounted for.
    assert!(high - low < 0.02, "{low} {high}");
    assert!(motion.state().heat > 0.2, "{}", motion.state().heat);
}

#[test]
fn a_motion_that_stops_goes_on_with_the_same_bits() {
    for thermostat in [Thermostat::Nve, Thermostat::Langevin { temperature: 300.0, friction: 5.0 }] {
        let mut whole = begin(0.4, thermostat, 300.0);
        let mut halved = begin(0.4, thermostat, 300.0);
        (0..80).for_each(|_| whole.step(well).unwrap());
        (0..33).for_each(|_| halved.step(well).unwrap());
        let text = serde_json::to_string(halved.state()).unwrap();
        let state: State = serde_json::from_str(&text).unwrap();
        let dynamics = Dynamics { dt: 0.4, thermostat, seed: 3 };
        let mut halved = Simulation::resume(dynamics, &[1, 6, 8, 1, 26], state).unwrap();
        (0..47).for_each(|_| halved.step(well).unwrap());
        assert_eq!(halved.state(), whole.state());
        assert_ne!(begin(0.4, thermostat, 300.0).state(), whole.state());
    }
}

#[test]
fn the_first_velocities_have_no_motion_of_the_whole_and_their_temperature() {
    let positions = vec![[0.0; 3]; 4000];
    let labels = Labels { energy: 0.0, forces: positions.clone(), stress: None };
    let dynamics = Dynamics { dt: 1.0, thermostat: Thermostat::Nve, seed: 1 };
    let motion = Simulation::start(dynamics, &vec![18; 4000], positions, labels, 250.0).unwrap();
    let temperature = motion.record().temperature;
    // The relative deviation of 12,000 squares of normal numbers is √(2/12000).
    assert!((temperature / 250.0 - 1.0).abs() < 0.05, "{temperature}");
    let momentum: f64 = motion.state().velocities.iter().map(|v| v[0]).sum();
    assert!(momentum.abs() < 1e-12, "{momentum}");
}

#[test]
fn what_no_motion_can_have_is_refused() {
    let labels = || well(&[[0.1; 3]]).unwrap();
    let start = |dt: f64, thermostat, numbers: &[u8], labels: Labels, temperature: f64| {
        let dynamics = Dynamics { dt, thermostat, seed: 0 };
        let found = Simulation::start(dynamics, numbers, vec![[0.1; 3]], labels, temperature);
        found.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let langevin = |temperature, friction| Thermostat::Langevin { temperature, friction };
    for (message, part) in [
        (start(0.0, Thermostat::Nve, &[1], labels(), 1.0), "dt"),
        (start(-1.0, Thermostat::Nve, &[1], labels(), 1.0), "dt"),
        (start(f64::NAN, Thermostat::Nve, &[1], labels(), 1.0), "dt"),
        (start(1.0, langevin(-1.0, 1.0), &[1], labels(), 1.0), "temperature"),
        (start(1.0, langevin(1.0, 0.0), &[1], labels(), 1.0), "friction"),
        (start(1.0, Thermostat::Nve, &[1], labels(), f64::INFINITY), "temperature"),
        (start(1.0, Thermostat::Nve, &[0], labels(), 1.0), "atomic numbers"),
        (start(1.0, Thermostat::Nve, &[], labels(), 1.0), "at least one atom"),
        (start(1.0, Thermostat::Nve, &[1, 1], labels(), 1.0), "2 atoms"),
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let bad = Labels { forces: vec![[0.0, f64::NAN, 0.0]], ..labels() };
    assert!(start(1.0, Thermostat::Nve, &[1], bad, 1.0).contains("forces"));
    // A step into nonsense leaves the state as it was.
    let mut motion = begin(0.5, Thermostat::Nve, 10.0);
    let before = motion.state().clone();
    let error = motion.step(|x| Ok(Labels { energy: f64::NAN, ..well(x).unwrap() })).unwrap_err();
    assert!(error.to_string().contains("energies"), "{error}");
    assert_eq!(motion.state(), &before);
}

#[test]
fn slopes_and_means_are_those_of_their_points() {
    let points: Vec<(f64, f64)> = (0..20).map(|x| (f64::from(x), 3.0 - 0.5 * f64::from(x))).collect();
    assert!((drift(&points) + 0.5).abs() < 1e-14);
    assert_eq!(drift(&points[..1]), 0.0);
    let alternating: Vec<f64> = (0..40).map(|k| f64::from(k % 2)).collect();
    assert_eq!(mean(&alternating), Mean { value: 0.5, error: 0.0 });
    let steps: Vec<f64> = (0..20).map(|k| f64::from(k / 10)).collect();
    let found = mean(&steps);
    // Ten blocks, half of them 0, half 1.
    assert!((found.error - (0.25 * 10.0 / 9.0 / 10.0f64).sqrt()).abs() < 1e-14, "{found:?}");
}
