//! Motion by the operators of a device, on the host: what `DeviceSimulation` computes is what `Simulation` computes step by step.

mod motion_of_atoms;

use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_nn::Placement;
use gradewise_zoo::{dynamics::Thermostat, models::CoreRepulsion, tracks::Rank};
use motion_of_atoms::*;

const STEPS: u64 = 60;

fn place() -> Placement {
    Placement::new(&Device::Cpu, DType::F64)
}

#[test]
fn steps_on_a_device_are_those_of_the_host() {
    for (frame, repulsion) in
        systems().into_iter().zip([CoreRepulsion::Zbl, CoreRepulsion::None, CoreRepulsion::Zbl])
    {
        for thermostat in [NVE, LANGEVIN] {
            let models = [potential(Rank::Two, repulsion, &place(), 3)];
            let motion = begin(&models[0], &frame, thermostat, &place());
            let mut device = on_device(&models, &frame, motion.clone(), &place());
            let (state, labels, searches) = on_host(&models[0], &frame, motion, STEPS);
            for _ in 0..STEPS {
                device.step().unwrap();
            }
            let found = device.simulation().unwrap().state().clone();
            let far = distance(&state, &found);
            assert!(far < 1e-9, "{thermostat:?}: {far:e}");
            assert_eq!(found.step, STEPS);
            assert_eq!(state.heat == 0.0, thermostat == Thermostat::Nve);
            assert!(searches > 2 && device.searches() == searches, "{searches} searches");
            let own = device.labels().unwrap().unwrap();
            assert_eq!(own.stress.is_some(), frame.repeats_in_space());
            for (a, b) in own.numbers().iter().zip(labels.numbers()) {
                assert!((a - b).abs() < 1e-9, "{a} {b}");
            }
        }
    }
}

#[test]
fn a_list_of_pairs_grows_where_atoms_come_together() {
    let models = [potential(Rank::Two, CoreRepulsion::None, &place(), 3)];
    let (frame, motion) = collapse(&models[0], &place());
    let mut device = on_device(&models, &frame, motion.clone(), &place());
    let (state, _, searches) = on_host(&models[0], &frame, motion, STEPS);
    let room = device.room();
    for _ in 0..STEPS {
        device.step().unwrap();
    }
    assert!(device.room() > room && device.searches() == searches, "{room}, {}", device.room());
    let far = distance(&state, device.simulation().unwrap().state());
    assert!(far < 1e-9, "{far:e}");
}

#[test]
fn a_motion_that_goes_on_has_the_bits_of_one_that_never_stopped() {
    for thermostat in [NVE, LANGEVIN] {
        let frame = system(4, [true; 3]);
        let models = [3, 4].map(|seed| potential(Rank::Two, CoreRepulsion::None, &place(), seed));
        let motion = begin(&models[0], &frame, thermostat, &place());
        let dynamics = motion.dynamics();
        let mut whole = on_device(&models, &frame, motion, &place());
        let mut taken = None;
        for step in 0..STEPS {
            if step == 25 {
                taken = Some(taken_up_again(&whole, &models, &frame, dynamics, &place()));
            }
            whole.step().unwrap();
        }
        let mut taken = taken.unwrap();
        while taken.steps() < STEPS {
            taken.step().unwrap();
        }
        assert_eq!(
            whole.simulation().unwrap().state(),
            taken.simulation().unwrap().state(),
            "{thermostat:?}"
        );
    }
}

#[test]
fn the_force_of_several_models_is_their_mean() {
    let frame = system(6, [false; 3]);
    let models = [3, 4].map(|seed| potential(Rank::Two, CoreRepulsion::None, &place(), seed));
    let motion = begin(&models[0], &frame, NVE, &place());
    let after = |models: &[_]| {
        let mut device = on_device(models, &frame, motion.clone(), &place());
        device.step().unwrap();
        device.simulation().unwrap().state().clone()
    };
    let ([one, other], both) = ([&models[..1], &models[1..]].map(after), after(&models[..]));
    // After one step positions do not depend on the models.
    assert!((both.potential - (one.potential + other.potential) / 2.0).abs() < 1e-12);
    let forces = both.forces.as_flattened().iter().zip(one.forces.as_flattened());
    for ((both, one), other) in forces.zip(other.forces.as_flattened()) {
        assert!((both - (one + other) / 2.0).abs() < 1e-12);
    }
    assert!((one.potential - other.potential).abs() > 1e-6, "the models differ");
}

/// Atoms that fly into one another are refused by the search, and the state is that before the step.
#[test]
fn a_step_that_fails_leaves_the_state_before_it() {
    let mut frame = system(2, [false; 3]);
    frame.positions = vec![[0.0; 3], [1.3, 0.0, 0.0]];
    let models = [potential(Rank::Two, CoreRepulsion::None, &place(), 3)];
    let mut motion = begin(&models[0], &frame, NVE, &place());
    // 1.25 Å in a step.
    let mut state = motion.state().clone();
    state.velocities = vec![[2.5, 0.0, 0.0], [0.0; 3]];
    motion = gradewise_zoo::dynamics::Simulation::resume(motion.dynamics(), &frame.numbers, state.clone())
        .unwrap();
    let mut device = on_device(&models, &frame, motion, &place());
    let error = device.step().unwrap_err().to_string();
    assert!(error.contains("coincide"), "{error}");
    let found = device.simulation().unwrap().state().clone();
    assert_eq!((found.positions, found.velocities, found.step), (state.positions, state.velocities, 0));
}
